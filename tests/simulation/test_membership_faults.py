"""Pauses, slowness and real deaths (requirement SPI-1): nobody who runs is declared dead, and
every death is found in time. `SWELL_SEEDS` chooses how many seeds run."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from swell.events import MemberDead
from swell.overlay.members import NO_REFUTATION
from tests.simulation.zone import Zone

SEEDS = int(os.environ.get("SWELL_SEEDS", "20"))
QUIET_S = 10.0
FAULTS_S = 60.0
PAUSE_S_MAX = 20.0
SLOW_S_MAX = 1.0


class Pause(NamedTuple):
    member: int
    begin_s: float
    end_s: float


class Death(NamedTuple):
    member: int
    at_s: float
    power: bool


class Plan(NamedTuple):
    """What happens in one seed: a third pauses, a third is slow, one or two die."""

    size: int
    pauses: list[Pause]
    slow: dict[int, float]
    deaths: list[Death]


def plan(seed: int) -> Plan:
    rng = Random(seed)
    size = rng.randint(4, 14)
    order = rng.sample(range(1, size + 1), size)
    third = max(1, size // 3)
    paused = order[: rng.randint(1, third)]
    slowed = order[third : third + rng.randint(1, third)]
    deaths = rng.sample(order, rng.randint(1, 2) if size > 5 else 1)
    pauses = []
    for member in paused:
        begin_s = QUIET_S + rng.uniform(0.0, FAULTS_S / 2)
        for _ in range(rng.randint(1, 3)):
            end_s = begin_s + rng.uniform(1.0, PAUSE_S_MAX)
            pauses.append(Pause(member, begin_s, end_s))
            begin_s = end_s + rng.uniform(0.1, 10.0)
    return Plan(
        size,
        pauses,
        {member: rng.uniform(0.2, SLOW_S_MAX) for member in slowed},
        [
            Death(member, QUIET_S + rng.uniform(0.0, FAULTS_S), rng.random() < 0.5)
            for member in deaths
        ],
    )


class Verdict(NamedTuple):
    false_deaths: list[str]
    late: list[str]
    latencies_s: list[float]
    seen: Counter[str]


def run(seed: int, bugs: frozenset[str] = frozenset()) -> Verdict:
    """Play a plan: faults, then detection of all deaths, then everybody agrees again."""
    planned = plan(seed)
    zone = Zone(seed, planned.size, bugs=bugs)
    simulation = zone.simulation
    died = {death.member: death.at_s for death in planned.deaths}
    late: list[str] = []
    bound_s = zone.settings.detection_bound_s(planned.size)
    assert zone.converges(QUIET_S), "the zone did not form"

    for pause in planned.pauses:
        simulation.call_at(pause.begin_s, zone.process(pause.member).pause)
        simulation.call_at(pause.end_s, zone.process(pause.member).resume)
    for member, delay_s in planned.slow.items():
        simulation.call_at(QUIET_S, lambda m=member, d=delay_s: zone.process(m).slow(d))

    def check(death: Death, observer: int) -> None:
        if observer not in died and zone.node(observer).members.is_alive(death.member):
            late.append(f"seed {seed}: {observer} does not know that {death.member} died")

    for death in planned.deaths:
        simulation.call_at(death.at_s, lambda d=death: zone.process(d.member).crash(power=d.power))
        for observer in range(1, planned.size + 1):
            # A process that stands still can learn nothing: its own pauses are added.
            still_s = sum(p.end_s - p.begin_s for p in planned.pauses if p.member == observer)
            simulation.call_at(
                death.at_s + bound_s + still_s, lambda d=death, o=observer: check(d, o)
            )

    pauses_s = sum(pause.end_s - pause.begin_s for pause in planned.pauses)
    simulation.run_until(QUIET_S + FAULTS_S + PAUSE_S_MAX + bound_s + pauses_s)
    simulation.heal(stay_dead=[f"n{member}" for member in died])
    agrees = zone.converges(bound_s)
    if not agrees:
        late.append(f"seed {seed}: views differ after everything healed")

    paused = {pause.member for pause in planned.pauses}
    false_deaths, latencies_s = [], []
    for time_s, observer, event in zone.events:
        if not isinstance(event, MemberDead):
            continue
        at_s = died.get(event.member)
        if at_s is not None and time_s >= at_s:
            latencies_s.append(time_s - at_s)
        elif event.member not in paused:
            false_deaths.append(
                f"seed {seed}: {observer} declared {event.member} dead at {time_s:.1f} s"
            )
    for number in zone.running():
        zone.counts.update(zone.node(number).counters)
    return Verdict(false_deaths, late, latencies_s, zone.counts)


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return [run(seed) for seed in range(SEEDS)]


@pytest.mark.slow
def test_no_member_that_was_never_paused_is_declared_dead(verdicts: list[Verdict]) -> None:
    assert [line for verdict in verdicts for line in verdict.false_deaths] == []


@pytest.mark.slow
def test_every_death_is_known_to_all_within_the_bound(verdicts: list[Verdict]) -> None:
    assert [line for verdict in verdicts for line in verdict.late] == []


@pytest.mark.slow
def test_the_seeds_are_not_vacuous(verdicts: list[Verdict]) -> None:
    seen: Counter[str] = Counter()
    for verdict in verdicts:
        seen.update(verdict.seen)
    assert seen["refutations"] >= SEEDS
    assert seen["MemberSuspected"] >= 5 * SEEDS
    assert sum(len(verdict.latencies_s) for verdict in verdicts) >= 3 * SEEDS


@pytest.mark.slow
def test_missing_refutation_is_caught_by_the_same_checker() -> None:
    caught = [seed for seed in range(5) if run(seed, frozenset({NO_REFUTATION})).false_deaths]
    assert caught, "no seed noticed that nobody refutes"
