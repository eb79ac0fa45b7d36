"""Pacing of bursts: at once on an idle machine, together on a busy one."""

from __future__ import annotations

import pytest

from swell.config.delivery.pacing import ASK_GAPS, STEPS_ENOUGH, UNASKED_MAX
from swell.config.messages import deliver, read_deliver
from swell.config.reports import Await
from swell.world import Resources
from tests.unit.delivery_toys import APPLICATION, ToyFleet

GAP_S = 0.2
SHORT_GAP_S = 0.05


def fleet_with(cpu_free: float, gap_s: float = GAP_S) -> ToyFleet:
    fleet = ToyFleet(burst_gap_s=gap_s)
    fleet.simulation.processes["n1"].resources = Resources(cpu_free, 1.0, 1.0)
    fleet.build(3)
    fleet.run(1.0)
    fleet.counters.clear()
    return fleet


def sealed(fleet: ToyFleet) -> int:
    return fleet.counters["config-sealed"]


def put_in_turn(fleet: ToyFleet, count: int, gap_s: float = 0.02) -> int:
    """The bursts that so many updates became."""
    before = sealed(fleet)
    for number in range(count):
        fleet.put("a.json", b"%d" % (100 + number))
        fleet.run(gap_s)
    fleet.run(1.0)
    assert fleet.behind() == []
    return sealed(fleet) - before


def test_on_an_idle_machine_every_update_leaves_at_once() -> None:
    assert put_in_turn(fleet_with(cpu_free=0.9), 5) == 5


def test_on_a_busy_machine_updates_share_bursts() -> None:
    assert put_in_turn(fleet_with(cpu_free=0.1), 5) == 2  # the first alone, then the others


def test_in_between_the_gap_is_in_proportion() -> None:
    gap = fleet_with(cpu_free=0.375).delivery.sending.pacing.gap_s()
    assert gap == pytest.approx(GAP_S / 2)


def test_the_first_after_a_rest_leaves_at_once_also_on_a_busy_machine() -> None:
    fleet = fleet_with(cpu_free=0.0)
    before = sealed(fleet)
    fleet.put("a.json", b"5")
    fleet.run(0.01)
    assert sealed(fleet) == before + 1


def test_a_burst_that_has_got_long_does_not_wait() -> None:
    fleet = fleet_with(cpu_free=0.0)
    fleet.put("a.json", b"0")
    fleet.run(0.01)
    before = sealed(fleet)
    for number in range(STEPS_ENOUGH):
        fleet.put("a.json", b"%d" % (100 + number))
    fleet.run(0.01)
    assert sealed(fleet) == before + 1
    assert fleet.behind() == []


def one_by_one(fleet: ToyFleet, count: int) -> int:
    """The bursts without receipts among so many, each with one update."""
    before, bursts = fleet.counters["config-unasked"], sealed(fleet)
    for _ in range(count):
        fleet.put("a.json", b"%d" % (100 + fleet.step))
        fleet.run(SHORT_GAP_S + 0.01)
    assert sealed(fleet) - bursts >= count
    return fleet.counters["config-unasked"] - before


def applied(fleet: ToyFleet) -> set[int]:
    return {member.reached(2) for member in fleet.feed().members.values()}


@pytest.mark.parametrize("digest", [b"", bytes(16)])
def test_a_frame_says_whether_it_asks_for_receipts(digest: bytes) -> None:
    for asks in (True, False):
        frame = deliver(digest, b"burst", 1.25, asks)
        assert read_deliver(frame) == (digest, b"burst", 1.25 if digest else 0.0, asks)


def test_on_an_idle_machine_every_burst_asks_for_receipts() -> None:
    assert one_by_one(fleet_with(cpu_free=0.9, gap_s=SHORT_GAP_S), 6) == 0


def test_on_a_busy_machine_a_receipt_speaks_for_several_bursts() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    rounds = 3
    assert one_by_one(fleet, rounds * (UNASKED_MAX + 1)) == rounds * UNASKED_MAX
    assert fleet.counters["config-asked-again"] == 0
    assert applied(fleet) == {fleet.step}


def test_when_nothing_follows_the_last_burst_asks_after_all() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    assert one_by_one(fleet, 1) == 1
    assert applied(fleet) == {fleet.step - 1}
    fleet.run(ASK_GAPS * SHORT_GAP_S + 0.1)
    assert fleet.counters["config-asked-again"] == 1
    assert applied(fleet) == {fleet.step}
    fleet.run(5.0)
    assert fleet.counters["config-asked-again"] == 1


def test_who_missed_a_burst_without_receipts_gets_it_all_the_same() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    deaf = fleet.containers["c001"]
    deaf.mute = True
    assert one_by_one(fleet, 1) == 1
    deaf.mute = False
    assert fleet.behind() == ["c001"]
    fleet.run(ASK_GAPS * SHORT_GAP_S + 0.1)
    assert fleet.behind() == []
    assert applied(fleet) == {fleet.step}


def test_while_somebody_waits_every_burst_asks_for_receipts() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    answers = fleet.ask(Await(APPLICATION, fleet.step + 100, 2), 60.0)
    assert one_by_one(fleet, 6) == 0
    assert answers == []


def test_while_somebody_is_missing_every_burst_asks_for_receipts() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    fleet.containers["c001"].mute = True
    fleet.put("a.json", b"5")
    fleet.run(2.0)
    assert fleet.behind() == ["c001"]
    assert one_by_one(fleet, 6) == 0


def test_a_new_tree_has_to_answer_before_it_is_trusted() -> None:
    fleet = fleet_with(cpu_free=0.0, gap_s=SHORT_GAP_S)
    one_by_one(fleet, UNASKED_MAX + 1)
    fleet.feed().spoil()
    assert one_by_one(fleet, 1) == 0
    assert one_by_one(fleet, 1) == 1
