"""Pacing of bursts: at once on an idle machine, together on a busy one."""

from __future__ import annotations

import pytest

from swell.config.delivery.pacing import STEPS_ENOUGH
from swell.world import Resources
from tests.unit.delivery_toys import ToyFleet

GAP_S = 0.2


def fleet_with(cpu_free: float) -> ToyFleet:
    fleet = ToyFleet(burst_gap_s=GAP_S)
    fleet.simulation.processes["n1"].resources = Resources(cpu_free, 1.0, 1.0)
    fleet.build(3)
    fleet.run(1.0)
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
