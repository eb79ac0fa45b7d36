"""Delivery when things go wrong: silence, lies, full links; who waits learns by name who has it
(RIP-11, RIP-13, RIP-14)."""

from __future__ import annotations

from hashlib import shake_128
from typing import Any

import pytest

from swell.config.delivery.subscribers import Member
from swell.config.delivery.waiting import SETTLE_S
from swell.config.messages import Complaint, Level, Receipt, Rejected, interest_digest
from swell.config.proofs import aggregate
from swell.config.reports import Await, Awaited, StatusOf
from swell.events import DeliveryFailed, RelayAvoided
from swell.store.messages import Status
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import SLOT, ToyContainer, ToyFleet

ALL = interest_digest(())


def events(fleet: ToyFleet, kind: type) -> list[Any]:
    found: list[Any] = []

    def hear(at: float, name: str, event: Any) -> None:
        if isinstance(event, kind):
            found.append(event)

    fleet.simulation.subscribers.append(hear)
    return found


def wait(fleet: ToyFleet, level: Level = Level.APPLIED, deadline_s: float = 30.0) -> list[Awaited]:
    return fleet.ask(Await(APPLICATION, fleet.step, int(level)), deadline_s)


def names(tally: Any) -> list[str]:
    assert tally.count == len(tally.names)
    return [one.container for one in tally.names]


# Silence.


def test_a_silent_relay_costs_its_branch_a_moment_and_nobody_else() -> None:
    fleet = ToyFleet()
    others = fleet.add(*(f"x{n}" for n in range(4)), owner="other")
    made = fleet.build(8)
    made[0].asleep = True
    fleet.put("a.json", b"2")
    for number in range(10):
        fleet.run(0.1)
        fleet.put("a.json", b"3%d" % number)
    fleet.run(0.1)
    assert all(one.at == fleet.step for one in others)
    fleet.run(4.0)
    assert [one.name for one in made if one.at < fleet.step] == ["c000"]
    assert fleet.member("c000").branch is None
    fleet.put("a.json", b"4")
    fleet.run(0.1)
    assert sorted(fleet.relays()) == ["c001", "x0"]


def test_a_dead_relay_is_replaced_at_once() -> None:
    fleet = ToyFleet()
    made = fleet.build(8)
    made[0].asleep = True
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    fleet.simulation.processes["c000"].crash()
    fleet.run(0.3)
    assert [one.name for one in made if one.at < fleet.step] == ["c000"]
    assert fleet.status()["c005"].relay == "c001"


def test_one_that_its_relay_cannot_reach_goes_by_another() -> None:
    fleet = ToyFleet(relay_fanout=4)
    made = fleet.build(10)
    avoided = events(fleet, RelayAvoided)
    relays = fleet.relays()
    victim = next(e.container for li in made[0].lists.values() for e in li.entries)
    made[0].cut = (victim,)
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert fleet.behind() == []
    assert fleet.status()[victim].relay in relays[1:]
    assert fleet.counters["config-relay-strike"] == 1
    fleet.put("a.json", b"3")
    fleet.run(0.5)
    assert fleet.behind() == []
    assert [event.relay for event in avoided] == ["c000"]
    fleet.put("a.json", b"4")
    fleet.run(0.2)
    assert "c000" not in fleet.relays()
    assert fleet.status()["c000"].avoided
    made[0].cut = ()
    fleet.run(fleet.settings.avoid_s + 1.0)
    fleet.put("a.json", b"5")
    fleet.run(0.2)
    assert "c000" in fleet.relays()


class ScriptedTree:
    """A relay below another, and a burst of which the upper one says who has it."""

    def __init__(self) -> None:
        self.fleet = fleet = ToyFleet(relay_fanout=3, server_fanout=1)
        self.made = fleet.build(13)
        (self.top,) = fleet.relays()
        branch = fleet.member(self.top).branch
        assert branch is not None
        self.branch = branch
        self.low = branch.relays[1]
        self.below = [one for one in branch.members if branch.served_by(one)[0] is self.low]
        assert len(self.below) > 1
        assert branch.served_by(self.low)[0] is branch.relay
        fleet.containers[self.top].asleep = True
        fleet.put("a.json", b"2")
        fleet.run(0.01)
        (self.sealed,) = {leg.sealed for leg in branch.relay.container.legs.values()}

    def say(self, lost: list[Member]) -> None:
        """All have it but some below the lower relay."""
        branch, low = self.branch, self.low
        others = [one for one in branch.members if one is not low and one not in self.below]
        got = [one for one in self.below if one not in lost]
        for one in (*others, low, *got):
            self.fleet.containers[one.name].at = self.sealed.upto
        rows = branch.places(branch.digest)
        (place,) = [n for n, row in enumerate(rows) if row[0] is low]
        self._say(others, branch.digest, (place,))
        digest = branch.lists[1][0]
        rows = branch.places(digest)
        self._say([low, *got], digest, tuple(n for n, row in enumerate(rows) if row[0] in lost))
        self.fleet.containers[self.top].asleep = False

    def _say(self, members: list[Member], digest: bytes, missing: tuple[int, ...]) -> None:
        level, burst = Level.APPLIED, self.sealed.id
        proof = aggregate([one.container.secret for one in members], burst, level)
        self.fleet.containers[self.top].say(Receipt(burst, level, proof, digest, missing))


def test_a_relay_below_another_answers_for_those_on_its_list() -> None:
    tree = ScriptedTree()
    fleet = tree.fleet
    tree.say(lost=tree.below)
    fleet.run(4.0)
    assert fleet.behind() == []
    struck = {one.name for one in tree.made if fleet.member(one.name).container.strikes}
    assert struck == {tree.low.name}


def test_a_relay_that_failed_somebody_is_not_the_other_way_to_it() -> None:
    tree = ScriptedTree()
    victim = tree.below[0]
    tree.say(lost=[victim])
    tree.fleet.run(4.0)
    assert tree.fleet.behind() == []
    assert tree.fleet.status()[victim.name].relay not in ("", tree.top, tree.low.name)
    assert tree.low.container.strikes == 1


def test_one_that_no_relay_can_reach_is_served_directly_and_nobody_is_blamed() -> None:
    fleet = ToyFleet(relay_fanout=4)
    made = fleet.build(10)
    for one in made:
        one.cut = ("c009",)
    for number in range(4):
        fleet.put("a.json", b"1%d" % number)
        fleet.run(2.5)
    assert fleet.behind() == []
    assert fleet.counters["config-relay-avoided"] == 0
    assert fleet.counters["config-missed"] <= 3
    assert fleet.status()["c009"].relay == ""


def test_who_takes_nothing_fails_by_name_and_is_served_when_it_speaks() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    failed = events(fleet, DeliveryFailed)
    made[4].mute = True
    fleet.put("a.json", b"2")
    got = wait(fleet)
    fleet.run(15.0)
    (answer,) = got
    assert answer.complete
    assert names(answer.failed) == ["c004"]
    assert answer.failed.names[0].reason == "silent"
    assert answer.applied.count == 5
    assert [(e.container, e.reason) for e in failed] == [("c004", "silent")]
    assert fleet.status()["c004"].state == 2
    assert not fleet.feed().is_busy()
    made[4].mute = False
    fleet.put("a.json", b"3")
    fleet.run(1.0)
    assert fleet.behind() == ["c004"]
    made[4].renew()
    fleet.run(0.5)
    assert fleet.behind() == []
    assert fleet.status()["c004"].state == 0


def test_a_full_link_waits_until_it_drains() -> None:
    fleet = ToyFleet()
    (reader, sleeper) = fleet.add("reader", "sleeper")
    fleet.simulation.processes["sleeper"].pause()
    for number in range(30):
        fleet.put(f"{number}.bin", shake_128(b"%d" % number).digest(30_000))
        fleet.run(0.2)
    assert reader.at == fleet.step
    assert fleet.counters["config-link-full"] > 0
    assert fleet.member("sleeper").branch is None
    fleet.run(10.0)
    assert fleet.status()["sleeper"].state == 2
    fleet.simulation.processes["sleeper"].resume()
    assert fleet.simulation.run_until_true(lambda: sleeper.at == fleet.step, 20.0)
    fleet.put("z.json", b"1")
    fleet.run(0.2)
    assert fleet.behind() == []


# Lies.


def test_a_relay_that_claims_receipts_is_avoided_and_its_branch_served() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    avoided = events(fleet, RelayAvoided)
    made[0].liar = True
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert [(e.relay, e.reason) for e in avoided] == [("c000", "wrong proof")]
    assert fleet.behind() == []
    assert {row.applied for row in fleet.status().values()} == {fleet.step}
    fleet.put("a.json", b"3")
    fleet.run(0.3)
    assert fleet.behind() == []
    assert fleet.relays() == ["c001"]
    assert fleet.counters["config-proof-wrong"] == 1


def test_one_that_spoils_proofs_is_found_out() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    made[3].secret = bytes(16)
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert fleet.member("c003").container.direct_until > 0.0
    wrong = fleet.counters["config-proof-wrong"]
    fleet.run(9.0)
    fleet.put("a.json", b"3")
    fleet.run(0.3)
    assert fleet.relays() == ["c000"]
    assert fleet.counters["config-proof-wrong"] - wrong <= 4
    assert fleet.status()["c003"].applied < fleet.step - 1


def test_receipts_of_others_count_for_nothing() -> None:
    fleet = ToyFleet()
    made = fleet.build(4)
    applied = fleet.status()["c002"].applied
    made[2].mute = True
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    burst = fleet.feed().bursts[0].sealed.id
    made[3].say(Receipt(burst, int(Level.APPLIED), bytes(16)))
    made[3].say(Receipt(burst, int(Level.APPLIED), bytes(16), bytes(16), (), (77,)))
    made[0].say(Receipt(burst, 9, bytes(16), next(iter(made[0].lists))))
    made[0].say(Receipt(burst, 2, bytes(16), next(iter(made[0].lists)), (), (77,)))
    fleet.run(0.1)
    assert fleet.status()["c002"].applied == applied
    assert fleet.counters["config-receipt-unknown"] >= 2
    assert fleet.counters["config-receipt-odd"] == 1


def test_a_complaint_counts_only_about_ones_own_relay() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    made[2].say(Complaint(APPLICATION, "c004", "bad-signature"))
    fleet.run(0.1)
    assert fleet.counters["config-complaint-ignored"] == 1
    made[2].say(Complaint(APPLICATION, "c000", "bad-signature"))
    fleet.run(0.1)
    assert fleet.status()["c000"].avoided
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert fleet.relays() == ["c001"]
    assert fleet.status()["c002"].relay == ""
    made[2].say(Complaint(APPLICATION, "c001", "bad-signature"))
    fleet.run(0.1)
    assert not fleet.status()["c001"].avoided


# Waiting.


def test_a_new_primary_waits_for_containers_before_it_answers() -> None:
    fleet = ToyFleet()
    fleet.delivery.on_serving(SLOT)
    fleet.put("a.json", b"1")
    got = wait(fleet)
    fleet.run(SETTLE_S / 2)
    fleet.add("c1", "c2", "c3")
    assert got == []
    fleet.run(SETTLE_S)
    (answer,) = got
    assert answer.complete
    assert names(answer.applied) == ["c1", "c2", "c3"]


def test_delivered_is_not_applied() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    for one in made:
        one.late = True
    fleet.put("a.json", b"2")
    delivered, applied = wait(fleet, Level.DELIVERED), wait(fleet, deadline_s=2.0)
    fleet.run(0.3)
    assert delivered[0].complete
    assert delivered[0].delivered.count == 6
    assert applied == []
    fleet.run(2.0)
    assert not applied[0].complete
    assert applied[0].delivered.count == 6
    again = wait(fleet)
    for one in made:
        one.renew()
    fleet.run(0.5)
    assert again[0].complete
    assert again[0].applied.count == 6


def test_rejections_and_the_absent_are_named() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    fleet.simulation.processes["c005"].crash()
    fleet.run(0.1)
    made[1].late = True
    for one in made:
        one.late = True  # so that the toy relay speaks of one level
    step = fleet.put("a.json", b"2")
    got = wait(fleet)
    fleet.run(0.2)
    made[1].say(Rejected(APPLICATION, ALL, step, "a.json", "no such colour"))
    for one in made:
        if one is not made[1]:
            one.renew() if one.name != "c005" else None
    fleet.run(3.0)
    (answer,) = got
    assert answer.complete
    assert names(answer.rejected) == ["c001"]
    assert answer.rejected.names[0].reason == "a.json: no such colour"
    assert names(answer.offline) == ["c005"]
    assert answer.offline.names[0].since_s > 1.0
    assert answer.applied.count == 4
    assert answer.interested == 6
    assert "no such colour" in fleet.status()["c001"].reason


def test_only_the_interested_count() -> None:
    fleet = ToyFleet()
    (a,) = fleet.add("a", subscribe=False)
    (b,) = fleet.add("b", subscribe=False)
    a.subscribe(("a.json",))
    b.subscribe(("b.json",))
    fleet.run(0.2)
    step = fleet.put("a.json", b"1")
    fleet.put("b.json", b"1")
    fleet.run(0.2)
    (answer,) = fleet.ask(Await(APPLICATION, step), 5.0) or [None]
    fleet.run(0.2)
    got = fleet.ask(Await(APPLICATION, step), 5.0)
    fleet.run(0.2)
    assert names(got[0].applied) == ["a"]
    assert answer is None


def test_names_are_bounded_and_counts_are_not() -> None:
    fleet = ToyFleet()
    fleet.build(9)
    few = fleet.ask(Await(APPLICATION, fleet.step, 2, 3))
    none = fleet.ask(Await(APPLICATION, fleet.step, 2, 0))
    fleet.run(0.2)
    assert (few[0].applied.count, len(few[0].applied.names)) == (9, 3)
    assert (none[0].applied.count, none[0].applied.names) == (9, ())


def test_who_waits_where_nothing_is_served_is_sent_on() -> None:
    fleet = ToyFleet()
    made = fleet.build(3)
    made[1].mute = made[2].mute = True
    fleet.put("a.json", b"2")
    got = wait(fleet)
    fleet.run(0.2)
    assert got == []
    fleet.store.serving = False
    fleet.delivery.on_stopped(SLOT)
    assert got == [Status.REDIRECT]
    assert fleet.ask(StatusOf(APPLICATION)) == [Status.REDIRECT]
    fleet.run(3.0)


def test_status_comes_in_pages() -> None:
    fleet = ToyFleet()
    fleet.build(7)
    (page,) = fleet.ask(StatusOf(APPLICATION, "a.json", "", 4))
    assert [row.container for row in page.rows] == ["c000", "c001", "c002", "c003"]
    assert page.more
    assert (page.step, page.version) == (2, 2)
    (page,) = fleet.ask(StatusOf(APPLICATION, "a.json", "c003", 4))
    assert [row.container for row in page.rows] == ["c004", "c005", "c006"]
    assert not page.more


# The planted bug.


@pytest.mark.parametrize("bugs", [(), ("stale-list",)])
def test_a_stale_list_claims_what_is_not_so(bugs: tuple[str, ...]) -> None:
    fleet = ToyFleet(bugs)
    fleet.build(5)
    late: ToyContainer
    (late,) = fleet.add("late")
    fleet.run(0.5)
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    claimed = fleet.status()["late"].applied
    assert (claimed > late.at) is bool(bugs)
