"""Turns of delivery: what costs whom, who waits for what, and how long (RIP-11, RIP-14)."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from swell.config.application import Application
from swell.config.delivery.feeds import Feed
from swell.config.edits import Whole
from swell.config.messages import Level, Rejected, interest_digest
from swell.config.reports import Await
from swell.simulation.simulation import SimulationFailure
from swell.store.gateway import DEADLINE_S_MAX
from tests.unit.config_toys import APPLICATION, publish
from tests.unit.delivery_toys import SLOT, ToyFleet

ALL = interest_digest(())


class OddError(Exception):
    """A mistake of our own."""


def fail_for(monkeypatch: pytest.MonkeyPatch, fleet: ToyFleet, what: str, odd: Any) -> None:
    """One step of the way out fails for one feed or member."""
    sending = fleet.delivery.sending
    usual = getattr(sending, what)

    def failing(subject: Any, *more: Any) -> None:
        if subject is odd:
            raise OddError
        usual(subject, *more)

    monkeypatch.setattr(sending, what, failing)


@pytest.mark.parametrize("what", ["pump", "pass_over"])
def test_a_feed_that_fails_costs_the_others_nothing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = ToyFleet()
    made = fleet.add("c1", "c2", "c3", subscribe=False)
    for one in made:
        one.subscribe((one.name,))
        fleet.run(0.1)
    fail_for(monkeypatch, fleet, what, fleet.feed(("c1",)))
    publish(fleet.store.machine, *(Whole(one.name, b"1") for one in made))
    fleet.delivery.on_committed(SLOT)
    made[1].asleep = True
    failures = 0
    for _ in range(150):
        try:
            fleet.run(0.1)
        except SimulationFailure:
            failures += 1
    assert failures
    assert fleet.counters["config-turn-failed"] == failures
    assert made[2].at == 1
    assert (made[0].at == 1) is (what == "pass_over")
    (silent,) = fleet.feed(("c2",)).members.values()
    assert silent.failed


def test_a_member_that_fails_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = ToyFleet()
    fleet.put("a.bin", b"1")
    made = fleet.add("c1", "c2", "c3")
    fail_for(monkeypatch, fleet, "serve", fleet.member("c1"))
    for one in made:
        fleet.delivery.step_out(fleet.member(one.name))
        fleet.member(one.name).delivered = one.at = 0
    with pytest.raises(SimulationFailure):
        fleet.run(0.1)
    fleet.run(0.1)
    assert [one.at for one in made] == [0, 1, 1]


# What is looked at.


def test_only_feeds_of_applications_that_changed_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = ToyFleet()
    fleet.store.served = lambda slot, service: fleet.store.machine  # type: ignore[method-assign]
    monkeypatch.setattr(fleet.delivery.feeds, "slot_of", lambda application: SLOT)
    (one,) = fleet.add("c1")
    for number in range(5):
        one.subscribe(number=number, application=f"app{number}")
    fleet.run(0.1)
    looked: list[str] = []
    usual = fleet.delivery.sending.pump

    def pump(feed: Feed) -> None:
        looked.append(feed.application)
        usual(feed)

    monkeypatch.setattr(fleet.delivery.sending, "pump", pump)
    fleet.put("a.bin", b"0")
    fleet.run(0.1)
    assert len(looked) >= 6  # the first time: whatever was committed before
    looked.clear()
    for _ in range(3):
        fleet.delivery.on_committed(SLOT)  # of another service
        fleet.run(0.1)
    assert looked == []
    for number in range(3):
        fleet.put("a.bin", b"1%d" % number)
    fleet.run(0.1)
    assert set(looked) == {APPLICATION}
    assert one.at == fleet.step


def test_the_machine_notes_applications_in_the_order_of_their_steps() -> None:
    fleet = ToyFleet()
    machine = fleet.store.machine
    fleet.put("a.bin", b"1")
    seen = machine.changes
    fleet.put("a.bin", b"2")
    fleet.put("b.bin", b"2")
    assert machine.changes == seen + 2
    assert list(machine.changed) == [APPLICATION]
    other = type(machine)()
    other.load(machine.dump())
    assert (list(other.changed), other.changes) == ([APPLICATION], 1)


# Waiting.


@pytest.mark.parametrize("deadline_s", [inf, nan, 1e300, -1.0, 0.0])
def test_whoever_waits_is_answered_some_time(deadline_s: float) -> None:
    fleet = ToyFleet(retries=10_000)
    made = fleet.build(3)
    for one in made:
        one.late = True
    fleet.put("a.json", b"2")
    got = fleet.ask(Await(APPLICATION, fleet.step), deadline_s)
    fleet.run(1.0)
    assert got == []
    fleet.run(DEADLINE_S_MAX)
    (answer,) = got
    assert not answer.complete


def test_what_concerns_whom_is_found_without_making_bursts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = ToyFleet()
    made = fleet.add("a", "b", subscribe=False)
    for one in made:
        one.subscribe((one.name,))
    fleet.run(0.1)
    steps = {name: fleet.put(name, b"1") for name in ("a", "b", "c")}
    fleet.run(0.2)

    def since(*arguments: Any) -> Any:
        raise AssertionError("a burst was made")

    monkeypatch.setattr(Application, "since", since)
    for name, names in (("a", ["a"]), ("b", ["b"]), ("c", [])):
        got = fleet.ask(Await(APPLICATION, steps[name]))
        fleet.run(0.1)
        assert [one.container for one in got[0].applied.names] == names


@pytest.mark.parametrize("loaded", [False, True])
def test_a_step_is_known_by_the_names_it_changed(loaded: bool) -> None:
    fleet = ToyFleet()
    machine = fleet.store.machine
    changed = ["a", "b", "a", "c", "a"]
    for number, name in enumerate(changed):
        fleet.put(name, b"%d" % number)
    if loaded:  # then only histories tell
        machine.load(machine.dump())
    application = machine.application(APPLICATION)
    assert application is not None
    for step, name in enumerate(changed, 1):
        found = [one for one in "abc" if application.touches(step, one.__eq__)]
        assert found == [name]


@pytest.mark.parametrize("names_max", [0, 10])
def test_who_rejects_has_not_applied_whether_names_are_asked_for_or_not(names_max: int) -> None:
    fleet = ToyFleet()
    made = fleet.build(4)
    for one in made:
        one.late = True
    step = fleet.put("a.json", b"2")
    fleet.run(0.2)
    made[1].say(Rejected(APPLICATION, ALL, step, "a.json", "no such colour"))
    fleet.run(0.1)
    for one in made:
        one.late = False
    fleet.put("b.json", b"3")
    fleet.run(0.2)
    got = fleet.ask(Await(APPLICATION, step, Level.APPLIED, names_max))
    fleet.run(0.5)
    (answer,) = got
    assert (answer.complete, answer.applied.count, answer.rejected.count) == (True, 3, 1)


def test_a_rejection_counts_for_every_version_behind_the_one_in_use() -> None:
    """A new primary hears of the last rejection alone."""
    fleet = ToyFleet()
    made = fleet.build(4)
    taken = fleet.put("a.json", b"2")
    names = ("a.json", "b.json", "a.json", "a.json")
    steps = [fleet.put(name, b"%d" % value) for value, name in enumerate(names, 3)]
    refused, other, last, later = steps
    fleet.run(0.2)
    application = fleet.store.machine.application(APPLICATION)
    assert application is not None
    uses = application.version_made("a.json", taken)
    made[1].say(Rejected(APPLICATION, ALL, last, "a.json", "no such colour", uses))
    fleet.run(0.1)

    def rejected(step: int) -> list[str]:
        got = fleet.ask(Await(APPLICATION, step, Level.APPLIED, 10))
        fleet.run(0.5)
        (answer,) = got
        assert answer.applied.count + answer.rejected.count == 4
        return [named.container for named in answer.rejected.names]

    assert rejected(refused) == rejected(last) == ["c001"]
    assert rejected(taken) == rejected(other) == rejected(later) == []


def test_a_rejection_of_what_is_not_there_yet_counts_for_nothing() -> None:
    fleet = ToyFleet()
    made = fleet.build(3)
    made[1].say(Rejected(APPLICATION, ALL, 1 << 40, "a.json", "never"))
    fleet.run(0.1)
    assert fleet.counters["config-rejected-unknown"] == 1
    assert fleet.feed().rejected_step == 0
