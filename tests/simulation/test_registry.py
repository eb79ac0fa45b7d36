"""The registry of a replicated directory under faults: no update lost, no watcher led back, and a
plan that follows the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from swell.directory.plan import PLAN, Plan, decode_plan
from swell.directory.registry import VALUE_BYTES_MAX, Change, Entry, Outcome
from swell.node import Node
from swell.settings import Settings
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation

KEYS = ("count/a", "count/b", "count/c")
SITES = "abc"


class Incrementer:
    """A client on one node: reads a counter, adds one if nobody else did, and so on for ever. And
    a watcher: what it hears must never go back."""

    def __init__(self, group: Group, node: Node) -> None:
        self.group = group
        self.node = node
        self.heard: dict[str, Entry | None] = {}
        self.newest: Counter[str] = Counter()
        self.asking = ""
        node.registry.watch("count/", self.on_change)
        self.later(0.1)

    def later(self, delay_s: float) -> None:
        if not self.group.quiet:
            rng = self.node.world.rng
            self.node.world.call_later(delay_s * (0.5 + rng.random()), self.step)

    def step(self) -> None:
        key = self.node.world.rng.choice(KEYS)
        self.node.registry.read([key], lambda found: self.on_read(key, found))

    def on_read(self, key: str, found: dict[str, Entry] | None) -> None:
        if found is None:
            self.group.silent += 1
            self.later(0.1)
            return
        entry = found.get(key)
        assert entry is None or entry.version >= self.newest[key], "a read went back"
        count = 0 if entry is None else int(entry.value)
        change = Change(key, 0 if entry is None else entry.version, b"%d" % (count + 1))
        self.asking = key
        self.node.registry.change([change], lambda outcomes: self.on_changed(change, outcomes))

    def on_changed(self, change: Change, outcomes: list[Outcome] | None) -> None:
        self.asking = ""
        if outcomes is None:
            self.group.unknown[change.key] += 1
        elif outcomes[0].accepted:
            entry = outcomes[0].entry
            assert entry is not None
            assert entry.value == change.value
            self.group.accepted[change.key] += 1
        self.later(0.05)

    def on_change(self, changes: dict[str, Entry | None]) -> None:
        for key, entry in changes.items():
            assert entry is not None, "nobody deletes"
            assert entry.version > self.newest[key], "a watcher was led back"
            self.newest[key] = entry.version
            self.heard[key] = entry


class Group:
    """Three voters and some more nodes, an incrementer on each."""

    def __init__(self, seed: int, nodes: int, work: bool = True) -> None:
        self.simulation = Simulation(seed)
        self.fleet = Fleet(self.simulation, Settings.local(), voters=3)
        self.quiet = not work
        self.clients: dict[str, Incrementer] = {}
        self.accepted: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.silent = 0
        if work:
            self.fleet.on_start = self.on_start
        for k in range(nodes):
            self.add(f"n{k}")
        assert self.simulation.run_until_true(self.fleet.joined, 30.0)

    def add(self, name: str) -> None:
        self.fleet.add(name, SITES[int(name[1:]) % len(SITES)])

    def on_start(self, node: Node) -> None:
        name = node.config.name
        if name in self.clients and self.clients[name].asking:
            self.unknown[self.clients[name].asking] += 1
        self.clients[name] = Incrementer(self, node)

    def entry(self, key: str) -> Entry | None:
        leader = self.fleet.leader()
        if leader is None:
            return None
        assert leader.service is not None
        return leader.service.state.registry.get(key)

    def plan(self) -> Plan | None:
        entry = self.entry(PLAN)
        return None if entry is None else decode_plan(entry.value)

    def named(self) -> set[str]:
        """Who the plan names as a target."""
        plan = self.plan()
        if plan is None:
            return set()
        names = {contact.id: contact.name for contact in plan.contacts}
        return {names.get(node, "?") for nodes in plan.targets for node in nodes}

    def isolate(self, name: str) -> None:
        others = [other for other in self.fleet.processes if other != name]
        self.simulation.network.partition([name], others)

    def crash_leader(self) -> str:
        leader = self.fleet.leader()
        assert leader is not None
        name = leader.config.name
        self.fleet.crash([name], power=True)
        return name

    def wait(self, predicate: Callable[[], bool], within_s: float) -> None:
        assert self.simulation.run_until_true(predicate, within_s)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_update_is_lost_while_leaders_crash(seed: int) -> None:
    group = Group(seed, nodes=5)
    rng = group.simulation.rng("faults")
    for _ in range(6):
        group.simulation.run_for(1.0 + 3.0 * rng.random())
        group.wait(lambda: group.fleet.leader() is not None, 20.0)
        name = group.crash_leader()
        group.simulation.run_for(2.0 * rng.random())
        group.fleet.processes[name].start()
    group.simulation.heal()
    group.simulation.run_for(5.0)
    group.quiet = True
    group.simulation.run_for(5.0)
    assert sum(group.unknown.values()) > 0, "no change was interrupted: the test shows nothing"
    for key in KEYS:
        entry = group.entry(key)
        assert entry is not None
        assert group.accepted[key] > 50
        count = int(entry.value)
        assert group.accepted[key] <= count <= group.accepted[key] + group.unknown[key]
    final = {key: group.entry(key) for key in KEYS}
    for client in group.clients.values():
        assert client.heard == final, "every watcher knows how it ended"


def test_one_writer_per_turn_of_a_leader_whatever_many_clients_want() -> None:
    group = Group(1, nodes=3, work=False)
    leader = group.fleet.leader()
    assert leader is not None
    before = leader.counters["journal-records"]
    node = group.fleet.node("n2")
    assert node is not None
    got: list[list[Outcome] | None] = []
    for number in range(500):
        node.registry.change([Change(f"k/{number}", 0, b"x")], got.append)
    group.simulation.run_for(1.0)
    assert len(got) == 500
    assert all(outcomes is not None and outcomes[0].accepted for outcomes in got)
    assert leader.counters["journal-records"] - before <= 4


def test_values_that_fill_several_frames_are_read_and_watched() -> None:
    group = Group(2, nodes=4, work=False)
    writer, watcher = group.fleet.node("n3"), group.fleet.node("n2")
    assert writer is not None
    assert watcher is not None
    values = {f"large/{n}": bytes([n]) * VALUE_BYTES_MAX for n in range(12)}
    outcomes: list[list[Outcome] | None] = []
    for key, value in values.items():
        writer.registry.change([Change(key, 0, value)], outcomes.append)
        group.simulation.run_for(0.3)
    assert [o[0].accepted if o else None for o in outcomes] == [True] * len(values)
    found: list[dict[str, Entry] | None] = []
    writer.registry.read([*values, "absent"], found.append)
    heard: list[dict[str, Entry | None]] = []
    watcher.registry.watch("large/", heard.append)
    group.simulation.run_for(2.0)
    assert found[0] is not None
    assert {key: entry.value for key, entry in found[0].items()} == values
    assert heard == [found[0]], "everything under the prefix comes as one"
    changes = [Change(key, 0, b"other") for key in values]
    refused: list[list[Outcome] | None] = []
    writer.registry.change(changes, refused.append)
    group.simulation.run_for(2.0)
    assert refused == [[Outcome(False, found[0][key]) for key in values]]


def test_a_watcher_hears_of_what_was_deleted_while_it_was_cut_off() -> None:
    group = Group(3, nodes=5, work=False)
    writer, watcher = group.fleet.node("n3"), group.fleet.node("n4")
    assert writer is not None
    assert watcher is not None
    got: list[list[Outcome] | None] = []
    writer.registry.change([Change("k/1", 0, b"a"), Change("k/2", 0, b"b")], got.append)
    group.simulation.run_for(0.5)
    assert got[0] is not None
    first, second = (outcome.entry for outcome in got[0])
    assert first is not None
    assert second is not None
    heard: list[dict[str, Entry | None]] = []
    watcher.registry.watch("k/", heard.append)
    group.simulation.run_for(0.5)
    assert heard == [{"k/1": first, "k/2": second}]
    group.isolate("n4")
    group.simulation.run_for(4.0)
    writer.registry.change([Change("k/1", first.version, None), Change("k/3", 0, b"c")], got.append)
    group.simulation.run_for(1.0)
    assert len(heard) == 1
    group.simulation.heal()
    group.wait(lambda: len(heard) > 1, 15.0)
    assert heard[1:] == [{"k/1": None, "k/3": group.entry("k/3")}]


def test_a_slow_watcher_skips_values_but_never_the_last_one() -> None:
    group = Group(6, nodes=5, work=False)
    leader, writer, watcher = group.fleet.leader(), group.fleet.node("n3"), group.fleet.node("n4")
    assert leader is not None
    assert writer is not None
    assert watcher is not None
    heard: list[dict[str, Entry | None]] = []
    watcher.registry.watch("large/", heard.append)
    group.simulation.run_for(0.5)
    slow = group.simulation.network.partition([leader.config.name], ["n4"], both_ways=False)
    outcomes: list[list[Outcome] | None] = []
    version = 0
    for number in range(8):
        value = bytes([number]) * VALUE_BYTES_MAX
        writer.registry.change([Change("large/1", version, value)], outcomes.append)
        group.simulation.run_for(0.1)
        last = outcomes[-1]
        assert last is not None
        assert last[0].entry is not None
        version = last[0].entry.version
    assert leader.counters["registry-watcher-behind"] >= 1
    group.simulation.network.remove(slow)
    group.simulation.run_for(0.5)
    versions = [entry.version for changes in heard for entry in changes.values() if entry]
    assert versions == sorted(set(versions))
    assert len(versions) < 8, "not everything was kept for it"
    assert versions[-1] == version


def test_nobody_answers_a_node_that_is_cut_off() -> None:
    group = Group(4, nodes=4, work=False)
    node = group.fleet.node("n3")
    assert node is not None
    group.isolate("n3")
    got: list[object] = []
    node.registry.read(["k"], got.append)
    node.registry.change([Change("k", 0, b"")], got.append)
    group.simulation.run_for(2.5)
    assert got == [None, None]


def test_the_plan_appears_and_follows_joins_restarts_and_deaths() -> None:
    group = Group(5, nodes=5, work=False)
    names = {f"n{k}" for k in range(5)}
    group.wait(lambda: group.named() == names, 10.0)
    group.add("n5")
    group.wait(lambda: group.named() == names | {"n5"}, 15.0)
    group.crash_leader()
    group.wait(lambda: group.fleet.leader() is not None, 10.0)
    dead = next(name for name in group.fleet.voters if not group.fleet.processes[name].alive)
    group.wait(lambda: group.named() == names - {dead} | {"n5"}, 30.0)
    before = group.plan()
    group.fleet.processes[dead].start()
    group.wait(lambda: group.named() == names | {"n5"}, 15.0)
    after = group.plan()
    assert before is not None
    assert after is not None
    (epoch,) = [contact.epoch for contact in after.contacts if contact.name == dead]
    assert epoch >= 2 << 10, "its second start"
    written = group.fleet.counter("planner-written")
    group.simulation.run_for(20.0)
    assert group.fleet.counter("planner-written") == written, "nothing new, nothing written"
