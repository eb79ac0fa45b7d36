"""A new primary names the containers of its predecessor that do not come back (RIP-3, RIP-11)."""

from __future__ import annotations

from swell.config.delivery.rosters import ROUND_S, ROUNDS_KEPT, TELL_MAX, TELL_S
from swell.config.delivery.subscribers import ROSTER_PARTS
from swell.config.delivery.waiting import SETTLE_S
from swell.config.messages import Roster
from swell.config.reports import Await, Awaited, State
from swell.wire import codec
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import OTHER, SLOT, ToyFleet


class Telling(ToyFleet):
    """A primary whose rosters can be read, and one that was told."""

    def __init__(self, **settings: object) -> None:
        self.told: list[tuple[int, Roster]] = []
        self.reachable = True
        super().__init__(tell=self._hear, **settings)

    def _hear(self, node: int, roster: Roster) -> bool:
        if self.reachable:
            self.told.append((node, codec.decode(codec.encode(roster))))
        return self.reachable

    def names(self) -> list[str]:
        return [row[1] for _, roster in self.told for row in roster.containers]

    def succeed(self, after: ToyFleet, told_s: float = 0.0) -> None:
        """Become the primary after another, with its log and what it told so long ago."""
        assert isinstance(after, Telling)
        self.store.serving = False
        for _, roster in after.told:
            self.delivery.rosters.keep(roster)
        self.run(told_s)
        self.store.serving, self.store.machine = True, after.store.machine
        self.delivery.on_serving(SLOT)


def answer(fleet: ToyFleet) -> Awaited:
    got = fleet.ask(Await(APPLICATION, fleet.step), 30.0)
    assert fleet.simulation.run_until_true(lambda: bool(got), 30.0)
    answered: Awaited = got[0]
    return answered


def test_who_does_not_come_to_the_new_primary_is_named() -> None:
    old = Telling()
    old.build(6)
    old.run(TELL_S + 0.1)
    assert {node for node, _ in old.told} == {OTHER.id}
    new = Telling()
    new.succeed(old)
    came = new.add("c000", "c001", "c002", "c003", "late")
    got = answer(new)
    assert [one.container for one in got.offline.names] == ["c004", "c005"]
    assert got.complete
    assert got.applied.count == len(came)
    row = new.status("a.json")["c005"]
    assert (row.state, row.owner, row.site) == (State.OFFLINE, APPLICATION, "a")
    assert row.since_s >= SETTLE_S - 0.5
    new.add("c004")
    new.put("a.json", b"7")
    assert [one.container for one in answer(new).offline.names] == ["c005"]
    new.run(new.settings.offline_s)
    assert "c005" not in new.status()
    assert not new.delivery.subscribers.offline


def test_one_that_dies_before_its_primary_is_forgotten_in_time() -> None:
    """However often its primaries change."""
    first = Telling(offline_s=40.0)
    first.build(3)
    first.simulation.processes["c002"].crash()
    first.run(2 * TELL_S)
    second = Telling(offline_s=40.0)
    second.succeed(first, 10.0)
    second.add("c000", "c001")
    second.run(2 * TELL_S)
    assert 10.0 <= second.status()["c002"].since_s <= 10.0 + 4 * TELL_S
    third = Telling(offline_s=40.0)
    third.succeed(second, 10.0)
    third.add("c000", "c001")
    assert third.status()["c002"].since_s >= 20.0
    third.run(20.0)
    assert sorted(third.status()) == ["c000", "c001"]


def test_updates_cost_nothing_and_a_change_costs_one_part() -> None:
    fleet = Telling()
    fleet.build(200)
    fleet.run(2 * TELL_S)
    assert sorted(fleet.names()) == sorted(fleet.containers)
    fleet.told.clear()
    for number in range(20):
        fleet.put("a.json", b"1%d" % number)
        fleet.run(0.5)
    assert fleet.told == []
    fleet.simulation.processes["c007"].crash()
    fleet.run(2 * TELL_S)
    ((_, roster),) = fleet.told
    (away_s,) = [row[3] for row in roster.containers if row[1] == "c007"]
    assert 0.0 < away_s < 2 * TELL_S
    assert len(roster.containers) < 4 * 200 / ROSTER_PARTS
    fleet.told.clear()
    fleet.run(ROUND_S)
    assert sorted(fleet.names()) == sorted(fleet.containers)


def test_who_unsubscribes_is_taken_off_the_roster() -> None:
    old = Telling()
    made = old.build(3)
    old.run(2 * TELL_S)
    for member in list(old.feed().members.values()):
        old.delivery.drop(member, "asked for")
    old.run(2 * TELL_S)
    new = Telling()
    new.succeed(old)
    assert made
    assert new.status() == {}
    assert not len(new.delivery.feeds)


def test_what_could_not_be_told_is_told_later() -> None:
    fleet = Telling()
    fleet.reachable = False
    fleet.build(5)
    fleet.run(5 * TELL_S)
    assert fleet.told == []
    fleet.reachable = True
    fleet.run(TELL_S + 0.1)
    assert sorted(fleet.names()) == sorted(fleet.containers)


def test_one_that_is_connected_speaks_for_itself() -> None:
    old = Telling()
    old.build(3)
    old.run(2 * TELL_S)
    new = Telling()
    new.add("c000")
    new.succeed(old)
    assert {n: row.state for n, row in new.status().items()} == {
        "c000": State.IN_STEP, "c001": State.OFFLINE, "c002": State.OFFLINE,
    }  # fmt: skip


def test_what_was_told_long_ago_counts_for_nothing() -> None:
    old = Telling()
    old.build(3)
    old.run(2 * TELL_S)
    new = Telling()
    new.store.serving = False
    for _, roster in old.told:
        new.delivery.rosters.keep(roster)
    new.run(ROUNDS_KEPT * ROUND_S + 1.0)
    new.store.serving = True
    new.delivery.on_serving(SLOT)
    assert new.status() == {}


def test_rosters_are_bounded_in_rate_and_number() -> None:
    fleet = Telling()
    rows = tuple((APPLICATION, f"x{n:05}", "a", 0.0) for n in range(2048))
    for part in range(40):
        fleet.delivery.rosters.keep(Roster(SLOT, APPLICATION, (), part, rows))
    assert fleet.delivery.rosters._names == 32 * 2048
    assert fleet.counters["config-roster-full"] == 8
    assert TELL_MAX < 2 * 2048 + 1
