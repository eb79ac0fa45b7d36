"""Operations of a simulated cluster, asked by a simulated client, faults included."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from swell.client.session import Requester
from swell.errors import RefusedError, SwellError, UnavailableError
from swell.operations.zones import problems
from swell.settings import Settings
from swell.simulation.checkers.topology import problems as topology_problems
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.world import Address, World

NAMES = ("a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4")


class Asker:
    """A client process of the simulation, and a way to wait for its answers."""

    def __init__(
        self, simulation: Simulation, name: str, nodes: tuple[str, ...], cluster: str = CLUSTER
    ) -> None:
        self._simulation = simulation
        self.requester: Requester

        def factory(world: World) -> Requester:
            self.requester = Requester(world, cluster, [Address(node, 0) for node in nodes])
            return self.requester

        simulation.add(name, "a", factory).start()
        simulation.run_for(0.001)

    def ask(self, operation: str, deadline_s: float = 20.0, **arguments: Any) -> Any:
        answers: list[Any] = []
        self.requester.request(operation, arguments, deadline_s, answers.append)
        self._simulation.run_for(deadline_s + 1.0)
        (answer,) = answers
        return answer


@pytest.fixture(scope="module")
def settled() -> Fleet:
    """Two zones of four, in two sites."""
    fleet = Fleet(Simulation(7), Settings.local())
    for name in NAMES:
        fleet.add(name, name[0], rack=f"r{name[1]}")
    fleet.simulation.run_for(20.0)
    assert topology_problems(fleet) == []
    return fleet


@pytest.fixture(scope="module")
def client(settled: Fleet) -> Asker:
    return Asker(settled.simulation, "client", ("a2",))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A cluster of its own for a test that breaks it."""
    fleet = Fleet(Simulation(8), Settings.local())
    for name in NAMES:
        fleet.add(name, name[0])
    fleet.simulation.run_for(20.0)
    assert topology_problems(fleet) == []
    return fleet


def test_status_tells_who_the_node_is(settled: Fleet, client: Asker) -> None:
    status = client.ask("status")
    node = settled.node("a2")
    assert node is not None
    assert node.overlay is not None
    assert status["name"] == "a2"
    assert (status["id"], status["zone"]) == (node.overlay.me.id, node.overlay.me.zone)
    assert status["joined"]
    assert status["zone_size"] == 4
    assert status["uptime_s"] > 19.0
    assert "directory" not in status


def test_status_of_a_voter_has_statistics(settled: Fleet) -> None:
    status = Asker(settled.simulation, "client-1", ("a1",)).ask("status")
    assert status["directory"]["up"] == 8
    assert status["directory"]["zones"] == 2


def test_members_are_those_of_the_zone(settled: Fleet, client: Asker) -> None:
    answer = client.ask("members")
    members = sorted(answer["members"], key=lambda member: str(member["name"]))
    assert [member["name"] for member in members] == ["a1", "a2", "a3", "a4"]
    assert [member["rack"] for member in members] == ["r1", "r2", "r3", "r4"]
    assert all(member["state"] == "alive" and member["linked"] for member in members)
    assert sum(member["zone_links"] for member in members) == 1
    assert sum(member["delegate"] for member in members) == 1


def test_overlay_is_the_whole_graph(settled: Fleet, client: Asker) -> None:
    graph = client.ask("overlay")
    assert sorted(node["name"] for node in graph["nodes"]) == list(NAMES)
    assert [zone["size"] for zone in graph["zones"]] == [4, 4]
    assert [zone["delegate"][0] for zone in graph["zones"]] == ["a", "b"]
    cliques = {tuple(sorted((k["a"], k["b"]))) for k in graph["links"] if k["kind"] == "clique"}
    expected = {*combinations(NAMES[:4], 2), *combinations(NAMES[4:], 2)}
    assert cliques == expected
    (between,) = (link for link in graph["links"] if link["kind"] == "inter-zone")
    assert {between["a"][0], between["b"][0]} == {"a", "b"}
    assert problems(graph) == []


def test_ping_across_zones_has_path_and_time(settled: Fleet, client: Asker) -> None:
    answer = client.ask("ping", node="b3", count=3)
    assert (answer["from"], answer["node"]) == ("a2", "b3")
    assert len(answer["pings"]) == 3
    for ping in answer["pings"]:
        assert ping["path"][0] == "a2"
        assert ping["path"][-1] == "b3"
        assert ping["path_back"][0] == "b3"
        assert ping["path_back"][-1] == "a2"
        assert len(ping["path"]) == ping["hops"] + 1 <= 4
        assert ping["rtt_ms"] > 0


def test_ping_itself_takes_no_hop(client: Asker) -> None:
    assert client.ask("ping", node="a2")["pings"][0]["hops"] == 0


def test_broadcast_reaches_everybody_in_three_hops(client: Asker) -> None:
    answer = client.ask("broadcast", text="hello")
    assert sorted(one["name"] for one in answer["reached"]) == list(NAMES)
    assert answer["unreached"] == []
    assert answer["duplicates"] == 0
    assert 2 <= answer["max_hops"] <= 3
    assert len(answer["tree"]) == len(NAMES) - 1
    parents = {child: parent for parent, child in answer["tree"]}
    for one in answer["reached"]:
        assert one["path"][0] == "a2"
        if one["hops"]:
            assert parents[one["name"]] == one["path"][-2]


@pytest.mark.parametrize(
    ("operation", "arguments", "sentence"),
    [
        ("fly", {}, "no operation is called 'fly'"),
        ("ping", {}, "needs 'node'"),
        ("ping", {"node": 5}, "needs 'node'"),
        ("ping", {"node": "b1", "count": 0}, "count must be"),
        ("ping", {"node": "b1", "count": True}, "count must be"),
        ("ping", {"node": "nobody"}, "no node is called nobody"),
        ("broadcast", {"text": ""}, "needs 'text'"),
        ("broadcast", {"text": "x" * 10_001}, "needs 'text'"),
    ],
)
def test_bad_requests_get_one_sentence(
    client: Asker, operation: str, arguments: dict[str, Any], sentence: str
) -> None:
    error = client.ask(operation, **arguments)
    assert isinstance(error, SwellError)
    assert sentence in str(error)


def test_client_of_another_cluster_is_refused(settled: Fleet) -> None:
    stranger = Asker(settled.simulation, "stranger", ("a1", "a2"), cluster="another")
    error = stranger.ask("status")
    assert isinstance(error, RefusedError)
    assert error.code == "wrong-cluster"


def test_too_many_open_requests_are_refused(settled: Fleet, client: Asker) -> None:
    answers: list[Any] = []
    for _ in range(100):
        client.requester.request("status", {}, 5.0, answers.append)
    settled.simulation.run_for(6.0)
    errors = [answer for answer in answers if isinstance(answer, SwellError)]
    assert len(answers) == 100
    assert len(errors) == 100 - 64
    assert "requests may be open" in str(errors[0])


def test_client_goes_on_with_the_next_node(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2", "b2"))
    assert client.ask("status")["name"] == "a2"
    fleet.crash(["a2"])
    assert client.ask("status")["name"] == "b2"


def test_no_node_answers(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2", "b2"))
    fleet.crash(["a2", "b2"])
    error = client.ask("status", deadline_s=5.0)
    assert isinstance(error, UnavailableError)


def test_ping_of_a_dead_node_says_so(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2",))
    fleet.crash(["b3"])
    error = client.ask("ping", node="b3")
    assert isinstance(error, SwellError)
    assert "b3 of zone" in str(error)
    assert "does not answer" in str(error)


def test_lost_zone_is_listed_as_unreachable(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2",))
    fleet.crash([name for name in NAMES if name[0] == "b"])
    graph = client.ask("overlay", deadline_s=8.0)
    assert sorted(node["name"] for node in graph["nodes"]) == list(NAMES[:4])
    assert len(graph["unreachable"]) == 1
    assert problems(graph) != []


def test_crash_and_goodbye_are_told_apart(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2",))
    fleet.crash(["a3"])
    fleet.processes["a4"].stop()
    fleet.simulation.run_for(8.0)
    answer = client.ask("members", deadline_s=0.5)
    states = {member["name"]: member["state"] for member in answer["members"]}
    assert states == {"a1": "alive", "a2": "alive", "a3": "dead", "a4": "left"}


def test_ping_finds_nodes_while_the_directory_is_away(fleet: Fleet) -> None:
    client = Asker(fleet.simulation, "client", ("a2",))
    fleet.crash(["a1"])
    fleet.simulation.run_for(10.0)
    answer = client.ask("ping", node="b3")
    assert answer["pings"][0]["path"][-1] == "b3"


def test_problems_are_found(client: Asker) -> None:
    graph = client.ask("overlay")
    between = [link for link in graph["links"] if link["kind"] == "inter-zone"]
    cliques = [link for link in graph["links"] if link["kind"] == "clique"]
    assert "clique links are missing" in problems({**graph, "links": graph["links"][1:]})[0]
    assert "have 0 links" in problems({**graph, "links": cliques})[0]
    assert "have 2 links" in problems({**graph, "links": [*cliques, *between, *between]})[-1]
    one_sided = [{**between[0], "state": "one-sided"}]
    assert "knows of its link" in problems({**graph, "links": [*cliques, *one_sided]})[0]
    assert "does not answer" in problems({**graph, "unreachable": [9]})[0]
