"""The directory with several voters: who serves, who takes over, who may vote."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from swell.directory.messages import JoinRefused, JoinReply, JoinRequest, LookupReply, LookupRequest
from swell.directory.proposals import Proposals
from swell.directory.records import Record, Up, decode_all
from swell.directory.service import DirectoryService
from swell.directory.trust import FOUNDING_WAIT_S, Founding
from swell.node import Node
from swell.overlay.messages import LinkKind, Refused, Welcome
from swell.overlay.sessions import Session
from swell.simulation.checkers.topology import problems
from swell.simulation.simulation import Simulation
from tests.unit.overlay_toys import Cluster, Peer, contact, wait


def build(voters: int = 3, nodes: int = 6) -> Cluster:
    """Voters in sites of their own, all settled."""
    cluster = Cluster(voters=voters)
    for k in range(nodes):
        cluster.add(f"{'abcde'[k % max(3, voters)]}{k}", "abcde"[k % max(3, voters)])
    return cluster.settle()


@pytest.fixture
def cluster() -> Cluster:
    return build()


def service(cluster: Cluster, name: str) -> DirectoryService:
    node = cluster.node(name)
    assert node is not None
    assert node.service is not None
    return node.service


def leader(cluster: Cluster) -> str:
    node = cluster.leader()
    assert node is not None
    return node.config.name


def follower(cluster: Cluster) -> str:
    return next(name for name in cluster.voters if name != leader(cluster))


def others(cluster: Cluster) -> list[str]:
    return [name for name in cluster.voters if name != leader(cluster)]


def await_new_leader(cluster: Cluster, old: str, within_s: float = 10.0) -> str:
    def found() -> bool:
        node = cluster.leader()
        return node is not None and node.config.name != old

    wait(cluster, found, within_s)
    return leader(cluster)


def test_every_voter_knows_the_same_and_one_leads(cluster: Cluster) -> None:
    cluster.run(1.0)
    services = [service(cluster, name) for name in cluster.voters]
    assert [s.leading for s in services].count(True) == 1
    for one in services:
        facts = one.statistics()
        assert (facts["nodes"], facts["up"], facts["zones"]) == (6, 6, 3)
        assert facts["leader"] == leader(cluster)
        assert facts["voters"] == sorted(cluster.voters)
        assert facts["term"] >= 1
    roles = Counter(one.statistics()["role"] for one in services)
    assert roles == {"leader": 1, "follower": 2}
    names = [name for name in cluster.processes if name not in cluster.voters]
    assert all(node.service is None for n in names if (node := cluster.node(n)) is not None)


def test_only_the_leader_serves_and_the_others_name_it(cluster: Cluster) -> None:
    peer = Peer(cluster.simulation, "asker", follower(cluster))
    (refusal,) = peer.connect(LinkKind.DIRECTORY, contact(0, 0, "asker"))
    assert isinstance(refusal, Refused)
    assert refusal.code == "not-leader"
    assert (refusal.name, refusal.host) == (leader(cluster), leader(cluster))
    (welcome,) = peer.connect(LinkKind.DIRECTORY, contact(0, 0, "asker"), host=refusal.host)
    assert isinstance(welcome, Welcome)
    assert isinstance(peer.say(LookupRequest(1, cluster.voter))[0], LookupReply)


def test_links_of_voters_are_for_voters_and_one_per_pair(cluster: Cluster) -> None:
    peer = Peer(cluster.simulation, "stranger", cluster.voter)
    (refusal,) = peer.connect(LinkKind.VOTER, contact(9, 1, "stranger"))
    assert refusal.code == "not-voter"
    thief = Peer(cluster.simulation, "thief", cluster.voter)
    (refusal,) = thief.connect(LinkKind.VOTER, contact(9, 1, cluster.voters[1]))
    assert refusal.code == "wrong-identity"
    for name in cluster.voters:
        node = cluster.node(name)
        assert node is not None
        linked = [s.peer.name for s in node.sessions._all if s.kind == LinkKind.VOTER and s.open]
        assert sorted(linked) == sorted(v for v in cluster.voters if v != name)


class Asker:
    """Asks one node's client for a look-up again and again; remembers when it was answered."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.answered_at: list[float] = []
        self._cluster = cluster
        self._node = node
        self._ask()

    def _ask(self) -> None:
        def done(found: object) -> None:
            if found is not None:
                self.answered_at.append(self._cluster.simulation.time_s)
            self._node.world.call_later(0.05, self._ask)

        self._node.directory.lookup(self._cluster.voter, done)

    def longest_gap_s(self) -> float:
        times = self.answered_at
        return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("how", ["kill", "power", "pause", "cut"])
def test_requests_go_on_soon_after_the_leader_is_gone(how: str) -> None:
    cluster = build(nodes=9)
    old = leader(cluster)
    process = cluster.processes[old]
    bystander = cluster.node("c8")
    assert bystander is not None
    asker = Asker(cluster, bystander)
    cluster.run(2.0)
    match how:
        case "kill" | "power":
            process.crash(power=how == "power")
        case "pause":
            process.pause()
        case "cut":
            rest = [name for name in cluster.processes if name != old]
            cluster.simulation.network.partition([old], rest)
    begun = cluster.simulation.time_s
    await_new_leader(cluster, old)
    elected_s = cluster.simulation.time_s - begun
    assert elected_s < 4.0
    cluster.run(10.0)
    assert asker.longest_gap_s() < elected_s + 2.0
    assert asker.answered_at[-1] > cluster.simulation.time_s - 1.0


def test_a_leader_without_a_majority_ends_its_sessions_and_knows_no_outcome(
    cluster: Cluster,
) -> None:
    old = leader(cluster)
    directory = service(cluster, old)
    calls: list[str] = []
    directory.on_following.append(lambda: calls.append("following"))
    rest = [name for name in cluster.processes if name != old]
    peer = Peer(cluster.simulation, "asker", old)
    peer.connect(LinkKind.DIRECTORY, contact(0, 0, "asker"))
    rule = cluster.simulation.network.partition([old], rest)
    outcomes: list[list[bool] | None] = []
    reads: list[bool] = []
    directory.propose([Up((1,))], outcomes.append)
    directory.read(reads.append)
    new = await_new_leader(cluster, old)
    wait(cluster, lambda: not directory.leading)
    assert outcomes == [None]
    assert reads == [False]
    assert calls == ["following"]
    cluster.run(0.5)
    assert peer.ended
    epoch = service(cluster, new).state.epoch
    cluster.simulation.network.remove(rule)
    cluster.settle()
    wait(cluster, lambda: directory.state.epoch >= epoch)
    assert not directory.leading


def test_outcomes_reads_and_hooks(cluster: Cluster) -> None:
    applied: dict[str, list[Record]] = {name: [] for name in cluster.voters}
    for name in cluster.voters:
        service(cluster, name).on_applied.append(applied[name].append)
    directory, other = service(cluster, leader(cluster)), service(cluster, follower(cluster))
    outcomes: list[Any] = []
    for one in (directory, other):
        one.propose([Up((1,)), Up((2,))], outcomes.append)
        one.propose([Up((3,))], outcomes.append)
        one.read(outcomes.append)
    directory.propose([], outcomes.append)
    assert outcomes == [], "never inside the call"
    cluster.run(1.0)
    assert sorted(map(str, outcomes)) == sorted(
        map(str, ([True, True], [True], True, None, None, False, []))
    )
    for name in cluster.voters:
        assert applied[name][-3:] == [Up((1,)), Up((2,)), Up((3,))]


class Idle:
    """A process that does nothing by itself."""

    def stop(self) -> None: ...


def test_one_command_carries_what_is_proposed_together_and_long_ones_are_split() -> None:
    commands: list[list[Record]] = []
    results: list[list[bool] | None] = []

    def submit(command: bytes, done: Any) -> None:
        assert len(command) <= 64
        commands.append(decode_all(command))
        lost = len(commands) == 3
        done(None if lost else [change != Up((3,)) for change in commands[-1]])

    def factory(world: Any) -> Any:
        proposals = Proposals(world, 64, submit)
        proposals.add([Up((1,)), Up((3,))], results.append)
        proposals.add([Up((2,))], results.append)
        proposals.add([Up((k,) * 9) for k in range(4, 12)], results.append)
        assert commands == []
        return Idle()

    simulation = Simulation(1)
    simulation.add("p", "s", factory).start()
    simulation.run_for(0.1)
    assert [len(command) for command in commands] == [6, 4, 1]
    assert results == [[True, False], [True], None], "a part of the third one was lost"


def test_a_node_that_stays_hears_of_every_new_leader(cluster: Cluster) -> None:
    node = cluster.node("c5")
    assert node is not None
    heard: list[str] = []

    def on_up(session: Session) -> None:
        heard.append(session.peer.name)

    node.directory.stay(on_up, lambda: heard.append("down"))
    old = leader(cluster)
    cluster.run(15.0)
    assert heard == [old], "it is held although nothing is asked"
    cluster.crash([old], power=True)
    new = await_new_leader(cluster, old)
    wait(cluster, lambda: len(heard) == 3, 10.0)
    assert heard == [old, "down", new]


def test_joins_go_on_under_a_new_leader_and_all_is_kept(cluster: Cluster) -> None:
    before = {e.contact.name: n for n, e in service(cluster, leader(cluster)).state.nodes.items()}
    old = leader(cluster)
    cluster.crash([old])
    cluster.add("b9", "b")
    await_new_leader(cluster, old)
    cluster.run(5.0)
    cluster.processes[old].start()
    cluster.settle()
    after = {e.contact.name: n for n, e in service(cluster, leader(cluster)).state.nodes.items()}
    assert {name: after[name] for name in before} == before
    assert "b9" in after
    assert len(set(after.values())) == len(after)


def test_a_whole_cluster_is_killed_and_comes_back(cluster: Cluster) -> None:
    before = {n: e.contact for n, e in service(cluster, leader(cluster)).state.nodes.items()}
    cluster.crash(list(cluster.processes), power=True)
    cluster.run(1.0)
    for process in cluster.processes.values():
        process.start()
    cluster.settle()
    after = {n: e.contact for n, e in service(cluster, leader(cluster)).state.nodes.items()}
    assert {n: (c.name, c.zone) for n, c in after.items()} == {
        n: (c.name, c.zone) for n, c in before.items()
    }


# Trust.


def test_founding_needs_a_majority_and_nobody_with_a_log() -> None:
    founding = Founding("a", ("a", "b", "c"))
    assert founding.verdict(99.0) is None
    founding.hear("stranger", True)
    assert founding.verdict(99.0) is None
    founding.hear("b", True)
    assert founding.verdict(0.0) is None, "the third may come"
    assert founding.verdict(FOUNDING_WAIT_S) is True
    founding.hear("c", True)
    assert founding.verdict(0.0) is True
    founding.hear("c", False)
    assert founding.verdict(99.0) is False


def sound(cluster: Cluster) -> bool:
    """Do all voters vote?"""
    services = [node.service for v in cluster.voters if (node := cluster.node(v)) is not None]
    facts = [s.statistics() for s in services if s is not None]
    return len(facts) == len(cluster.voters) and all(
        fact.get("voters") == sorted(cluster.voters)
        and not fact["unclean"]
        and not fact["learners"]
        for fact in facts
    )


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_voter_with_an_emptied_disk_is_taken_back_by_the_others(which: str) -> None:
    cluster = build()
    victim = leader(cluster) if which == "leader" else follower(cluster)
    process = cluster.processes[victim]
    process.crash()
    process.disk.restore({})
    process.start()
    cluster.run(0.5)
    wait(cluster, lambda: cluster.counter("directory-emptied") == 1, 20.0)
    wait(cluster, lambda: sound(cluster), 30.0)
    assert cluster.counter("raft-cured") == 1
    wait(cluster, lambda: service(cluster, victim).statistics()["nodes"] == 6)


def test_two_emptied_disks_of_three_found_no_second_cluster(cluster: Cluster) -> None:
    for name in cluster.voters:
        cluster.processes[name].crash()
    for name in cluster.voters[1:]:
        cluster.processes[name].disk.restore({})
    for name in cluster.voters:
        cluster.processes[name].start()
    cluster.run(30.0)
    assert cluster.leader() is None
    assert cluster.counter("directory-emptied") == 2
    assert len(service(cluster, cluster.voter).state.nodes) == 0, "nothing is known to be committed"


def test_a_damaged_voter_of_a_group_is_taken_back(cluster: Cluster) -> None:
    process = cluster.processes[follower(cluster)]
    cluster.run(3.0)
    process.crash()
    assert process.disk.flip_bit()
    process.start()
    wait(cluster, lambda: sound(cluster), 30.0)
    assert problems(cluster.settle()) == []


def test_a_late_voter_of_a_new_cluster_is_taken_in() -> None:
    cluster = Cluster(voters=3)
    for name in ("a0", "b1", "c2"):
        cluster.add(name, name[0])
    cluster.processes["c2"].crash()
    wait(cluster, lambda: cluster.leader() is not None, 10.0)
    cluster.processes["c2"].start()
    wait(cluster, lambda: sound(cluster), 30.0)
    cluster.settle()


def test_a_second_process_on_a_copy_of_a_data_directory_is_refused(cluster: Cluster) -> None:
    peer = Peer(cluster.simulation, "new", leader(cluster))
    peer.connect(LinkKind.DIRECTORY, contact(0, 0, "new"))
    request = JoinRequest("new", "uid", "a", "", "", "new", 0, 5 * 1024, 0, b"first")

    def ask(**fields: Any) -> Any:
        peer.say(msgspec.structs.replace(request, **fields))
        cluster.run(1.0)
        return peer.heard[-1]

    first = ask()
    assert isinstance(first, JoinReply)
    assert ask().contact == first.contact, "a lost answer is given again"
    twin = ask(life=b"second")
    assert isinstance(twin, JoinRefused)
    assert twin.code == "stale-epoch"
    assert "an old copy" in twin.sentence
    assert ask(life=b"third", epoch=6 * 1024).contact.id == first.contact.id, "started again"


# Changing the voters.


def submit(cluster: Cluster, at: str, operation: str, **arguments: Any) -> Any:
    """What an operation at one node ends with."""
    node = cluster.node(at)
    assert node is not None
    outcome: list[Any] = []
    node.operations.submit(operation, arguments, 30.0, outcome.append)
    wait(cluster, lambda: bool(outcome), 40.0)
    return outcome[0]


def test_a_voter_is_added_another_removed_and_then_the_leader(cluster: Cluster) -> None:
    bystander = next(name for name in cluster.processes if name not in cluster.voters)
    first = list(cluster.voters)
    shown = submit(cluster, bystander, "directory")
    assert shown["leader"] == leader(cluster)
    assert [m["role"] for m in shown["members"]] == ["voter"] * 3
    assert all(m["reachable"] for m in shown["members"])
    later = LaterVoter(cluster, "d9", [*first, "d9"])
    cluster.run(3.0)
    assert later.service.raft is None, "it waits to be asked"
    changed = submit(cluster, bystander, "voters", change="add", name="d9", host="d9", port=0)
    names = {m["name"]: m["role"] for m in changed["members"]}
    assert names == {**dict.fromkeys(first, "voter"), "d9": "voter"}
    wait(cluster, lambda: later.service.statistics()["nodes"] == len(cluster.processes))
    assert not later.service.statistics()["unclean"]
    old = leader(cluster)
    gone = next(name for name in first if name != old)
    changed = submit(cluster, bystander, "voters", change="remove", name=gone)
    assert sorted(m["name"] for m in changed["members"]) == sorted({*first, "d9"} - {gone})
    submit(cluster, bystander, "voters", change="remove", name=old)
    wait(cluster, lambda: later.leads() or await_leader(cluster) not in ("", old, gone), 15.0)
    cluster.run(5.0)
    rest = sorted({*first, "d9"} - {gone, old})
    shown = submit(cluster, bystander, "directory")
    assert sorted(m["name"] for m in shown["members"]) == rest
    cluster.add("e1", "a")
    wait(cluster, lambda: cluster.node("e1").overlay is not None, 20.0)  # type: ignore[union-attr]


class LaterVoter:
    """A node that is started as a voter of a group that does not know it yet."""

    def __init__(self, cluster: Cluster, name: str, voters: list[str]) -> None:
        self._cluster = cluster
        self._name = name
        cluster.add(name, "d", voters=voters)

    @property
    def service(self) -> DirectoryService:
        return service(self._cluster, self._name)

    def leads(self) -> bool:
        return self.service.leading


def await_leader(cluster: Cluster) -> str:
    node = cluster.leader()
    return "" if node is None else node.config.name


def test_changes_that_make_no_sense_are_refused_with_a_sentence(cluster: Cluster) -> None:
    def error(**arguments: Any) -> str:
        return str(submit(cluster, cluster.voter, "voters", **arguments))

    assert "is not a voter" in error(change="remove", name="nobody")
    assert "add or remove" in error(change="swap", name="x")
    assert "not valid" in error(change="remove", name="Bad Name")
    assert "'host'" in error(change="add", name="x")
    assert "'port'" in error(change="add", name="x", host="x", port="7")
    assert "did not catch up" in error(change="add", name="ghost", host="ghost", port=0)
    shown = submit(cluster, cluster.voter, "directory")
    assert sorted(m["name"] for m in shown["members"]) == sorted(cluster.voters)
    alone = build(voters=1, nodes=3)
    outcome = submit(alone, alone.voter, "voters", change="remove", name=alone.voter)
    assert "is the only voter" in str(outcome)


def test_one_voter_becomes_three() -> None:
    cluster = build(voters=1, nodes=3)
    known = sorted(service(cluster, cluster.voter).state.names)
    for name in ("x1", "x2"):
        LaterVoter(cluster, name, [cluster.voter, name])
        outcome = submit(
            cluster, cluster.voter, "voters", change="add", name=name, host=name, port=0
        )
        assert name in [m["name"] for m in outcome["members"]]
    cluster.settle()
    old = cluster.processes[cluster.voter]
    old.crash()
    wait(cluster, lambda: any(service(cluster, name).leading for name in ("x1", "x2")), 10.0)
    new = next(s for name in ("x1", "x2") if (s := service(cluster, name)).leading)
    assert set(known) <= set(new.state.names)
    old.start()
    cluster.settle()
