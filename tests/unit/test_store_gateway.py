"""The gateway of real nodes in the simulation, asked by a peer that speaks frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from swell.dht import operations as ops
from swell.dht.operations import DHT_SERVICE
from swell.node import Node
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Welcome
from swell.settings import Settings, StoreSettings
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.store import gateway as gateways
from swell.store.gateway import STORE_TOPIC
from swell.store.messages import Execute, Executed, Read, Status, Table, TableRequest
from swell.store.request import Request
from swell.wire import codec
from tests.unit.overlay_toys import Peer

SLOTS = 16
NAMES = ("a1", "a2", "a3", "b1", "b2", "b3")
NOBODY = Contact(0, "client", "", "", 0, "", 0, 0)


class World:
    """Two zones of three, and a client that has a link to one node."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.clients = 0
        self.number = 0

    def client(self, node: str) -> Peer:
        self.clients += 1
        peer = Peer(self.fleet.simulation, f"client{self.clients}", node)
        (welcome,) = peer.connect(LinkKind.CLIENT, NOBODY, CLUSTER)
        assert isinstance(welcome, Welcome)
        return peer

    def node(self, name: str) -> Node:
        node = self.fleet.node(name)
        assert node is not None
        return node

    def execute(self, request: Request, **changes: Any) -> Execute:
        self.number += 1
        session = self.node("a1").world.wall_us() // 1_000_000 << 32 | 1
        slot = request.place % SLOTS
        made = Execute(
            session, self.number, self.number, slot, DHT_SERVICE, request.read, request.body, 2.0
        )
        return msgspec.structs.replace(made, **changes)

    def served_by(self, name: str) -> str:
        """A key of a slot whose primary this node is."""
        primaries = self.node("a1").store.primaries()
        me = self.node(name).me().id
        keys = (f"k{k}" for k in range(10_000))
        return next(key for key in keys if primaries[ops.get(key).place % SLOTS] == me)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    settings = msgspec.structs.replace(Settings.local(), store=StoreSettings(slots=SLOTS))
    fleet = Fleet(Simulation(3), settings)
    for name in NAMES:
        fleet.add(name, name[0])
    assert fleet.simulation.run_until_true(lambda: _ready(fleet), 60.0)
    fleet.simulation.run_for(3.0)
    yield World(fleet)
    for name in NAMES:
        node = fleet.node(name)
        assert node is not None
        assert node.gateway.open_requests == 0


def _ready(fleet: Fleet) -> bool:
    node = fleet.node("a1")
    primaries = node.store.primaries() if node is not None else ()
    return len(primaries) == SLOTS and len(set(primaries) - {0}) == len(NAMES)


@pytest.mark.parametrize("server", NAMES)
def test_any_node_serves_any_key(world: World, server: str) -> None:
    client, key = world.client("a2"), world.served_by(server)
    passed_on = world.node("a2").counters["store-passed-on"]
    put = world.execute(ops.put(key, b"v"))
    get = world.execute(ops.get(key))
    primary = None if server == "a2" else world.node(server).me()  # who answers names itself not
    for request, body in ((put, b"\x03"), (get, b"\x01v")):
        (answer,) = client.say(request)
        assert answer == Executed(request.number, Status.DONE, body, primary)
    hops = world.node("a2").counters["store-passed-on"] - passed_on
    assert hops == (0 if server == "a2" else 2)


def test_a_repeated_number_is_executed_once_whichever_way_it_comes(world: World) -> None:
    key = world.served_by("b1")
    put = world.execute(ops.put_and_retrieve(key, b"once"))
    before = world.client("b1").say(put)[0]
    passed_on = replace(before, primary=world.node("b1").me())
    assert world.client("a1").say(put)[0] == passed_on
    assert world.client("b2").say(put, put) == [passed_on, passed_on]


def test_the_table_names_the_primaries_and_the_time(world: World) -> None:
    (table,) = world.client("a3").say(TableRequest(7))
    assert isinstance(table, Table)
    assert table.number == 7
    assert len(table.primaries) == SLOTS
    names = {contact.id: contact.name for contact in table.contacts}
    assert {names[node] for node in table.primaries} <= set(NAMES)
    assert abs(table.now_s - world.node("a3").world.wall_us() / 1e6) < 2


def test_a_request_that_was_passed_on_is_not_passed_on_again(world: World) -> None:
    request = world.execute(ops.get(world.served_by("b1")), hops=1)
    (answer,) = world.client("a1").say(request)
    assert answer.status == Status.REDIRECT
    assert answer.primary.name == "b1"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slot": SLOTS}, b"slot 16 does not exist, there are 16"),
        ({"session": (1 << 31) - 1 << 32}, b"lies in the future"),
        ({"service": 99}, b"service 99 is not known"),
        ({"body": b"\xff"}, b"cut off"),
    ],
)
def test_what_cannot_be_executed_gets_a_sentence(
    world: World, changes: dict[str, Any], sentence: bytes
) -> None:
    (answer,) = world.client("a1").say(world.execute(ops.put("k", b"v"), **changes))
    assert answer.status == Status.REFUSED
    assert sentence in answer.body


@pytest.mark.parametrize("deadline_s", [float("nan"), float("inf"), -1.0, 0.0, 1e9])
def test_strange_deadlines_are_bounded(
    world: World, deadline_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    for name in ("a1", "b2"):
        store = world.node(name).publishing

        def execute(asked: Execute, done: Any, usual: Any = store.execute) -> None:
            if asked.service == DHT_SERVICE:  # the node asks for itself, too
                seen.append(asked.deadline_s)
            usual(asked, done)

        monkeypatch.setattr(store, "execute", execute)
    request = world.execute(ops.put(world.served_by("b2"), b"v"), deadline_s=deadline_s)
    (answer,) = world.client("a1").say(request)
    assert answer.status == Status.DONE
    assert len(seen) == 2
    assert all(0.0 < one <= gateways.DEADLINE_S_MAX for one in seen)


def test_programs_inside_the_node_use_the_same_way(world: World) -> None:
    answers: list[Executed] = []
    request = world.execute(ops.put(world.served_by("b3"), b"inside"))
    world.node("a1").gateway.execute(request, answers.append)
    world.fleet.simulation.run_for(0.3)
    assert [answer.status for answer in answers] == [Status.DONE]


def test_strange_questions_of_nodes_are_counted(world: World) -> None:
    overlay = world.node("a1").overlay
    assert overlay is not None
    target = world.node("b1")
    before = target.counters["bad-question"]
    request = world.execute(ops.get("k"))
    for body in (b"", b"nonsense", codec.encode(TableRequest(1)), codec.encode(request)):
        overlay.requests.ask(target.me().zone, target.me().id, STORE_TOPIC, body, 0.2, _ignore)
    world.fleet.simulation.run_for(0.5)
    assert target.counters["bad-question"] == before + 4


def _ignore(outcome: Any) -> None: ...


def test_too_many_requests_of_one_client_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "CLIENT_OPEN_MAX", 5)
    client, key = world.client("a1"), world.served_by("b1")
    answers = client.say(*(world.execute(ops.put(key, b"v")) for _ in range(8)))
    statuses = [answer.status for answer in answers]
    assert statuses.count(Status.BUSY) == 3
    assert statuses.count(Status.DONE) == 5
    (answer,) = client.say(world.execute(ops.get(key)))  # room again
    assert answer.status == Status.DONE


def test_large_answers_wait_for_a_slow_client(world: World) -> None:
    client, key = world.client("a1"), world.served_by("a1")
    value = b"v" * 500_000
    client.say(world.execute(ops.put(key, value)))
    gets = [world.execute(ops.get(key)) for _ in range(10)]
    network = world.fleet.simulation.network
    clogged = network.clog([client.world.name], ["a1"], 0.2)
    client.say(*gets)
    world.fleet.simulation.run_for(20.0)
    network.remove(clogged)
    assert sorted(a.number for a in client.heard) == [get.number for get in gets]
    assert all(a.body == b"\x01" + value for a in client.heard)
    assert world.fleet.simulation.counters["send-refused"] > 0


def test_a_stale_read_is_labelled(world: World) -> None:
    key = world.served_by("a1")
    client = world.client("a1")
    client.say(world.execute(ops.put(key, b"v")))
    (answer,) = client.say(world.execute(ops.get(key), read=Read.STALE))
    assert (answer.status, answer.body) == (Status.STALE, b"\x01v")


def test_a_command_without_an_answer_ends_by_its_deadline(world: World) -> None:
    """Last of the module: it takes a node away."""
    victim = "b3"
    client, key = world.client("a1"), world.served_by(victim)
    world.fleet.processes[victim].pause()
    command = world.execute(ops.put(key, b"v"), deadline_s=0.5)
    query = world.execute(ops.get(key), deadline_s=0.5)
    client.say(command, query)
    assert client.heard == []
    world.fleet.simulation.run_for(0.6)
    statuses = {answer.number: answer.status for answer in client.heard}
    assert statuses == {command.number: Status.RETRY, query.number: Status.BUSY}
    world.fleet.processes[victim].resume()
    world.fleet.simulation.run_for(5.0)
