"""Every kind of fault, and the plans that a swarm draws from seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from swell.simulation import Simulation, Swarm
from swell.simulation.faults import (
    KINDS,
    ClockSkew,
    Clog,
    Crash,
    DiskEio,
    DiskFlip,
    DiskFull,
    DiskSlow,
    DiskTorn,
    Fault,
    LatencySpike,
    LinkLoss,
    OneWayPartition,
    Partition,
    Pause,
    PowerLoss,
    ProcessFault,
    Restart,
    Slow,
    Suspend,
)
from tests.unit.simulation_toys import Pair, add

SITES = {f"n{number}": f"site-{number % 3}" for number in range(12)}


def begin(fault: Fault, pair: Pair) -> None:
    assert fault.begin(pair.simulation)
    pair.simulation.run_for(0.1)


@pytest.mark.parametrize("kind", [Crash, PowerLoss, DiskTorn, DiskFlip, Restart])
def test_faults_that_end_a_process_start_it_again(kind: type[ProcessFault]) -> None:
    pair = Pair()
    fault = kind(("a",))
    begin(fault, pair)
    assert not pair.process_a.alive
    assert pair.process_a.powered == (kind not in (PowerLoss, DiskTorn))
    assert not fault.begin(pair.simulation)
    fault.end(pair.simulation)
    assert pair.process_a.alive
    assert pair.process_a.starts == 2
    fault.end(pair.simulation)
    assert pair.process_a.starts == 2


def test_a_crash_may_be_for_ever() -> None:
    pair = Pair()
    fault = Crash(("a",), stays_dead=True)
    begin(fault, pair)
    fault.end(pair.simulation)
    pair.simulation.heal(stay_dead=["a"])
    assert not pair.process_a.alive
    pair.simulation.heal()
    assert pair.process_a.alive


@pytest.mark.parametrize("kind", [Pause, Suspend])
def test_pause_and_suspend_hold_the_process(kind: type[ProcessFault]) -> None:
    pair = Pair()
    fault = kind(("a",))
    begin(fault, pair)
    assert pair.process_a.paused
    assert pair.process_a.suspended == (kind is Suspend)
    fault.end(pair.simulation)
    assert not pair.process_a.paused
    assert not pair.process_a.suspended


def test_slow_and_clock_skew() -> None:
    pair = Pair()
    slow, skew = Slow(("b",), delay_s=5.0), ClockSkew(("b",), offset_s=7.0, rate=2.0)
    begin(slow, pair)
    begin(skew, pair)
    assert pair.b.world.wall_us() - pair.a.world.wall_us() == pytest.approx(7.1e6, abs=2)
    pair.link_a.send(b"late")
    pair.simulation.run_for(0.02)
    assert pair.b.frames() == []
    slow.end(pair.simulation)
    skew.end(pair.simulation)
    assert pair.b.world.wall_us() - pair.a.world.wall_us() < 1e6
    pair.simulation.run_for(5.0)
    assert pair.b.frames() == [b"late"]


def test_link_loss_needs_a_link() -> None:
    pair = Pair()
    begin(LinkLoss(("a",)), pair)
    assert pair.a.downs() == pair.b.downs() == ["lost"]
    assert not LinkLoss(("a",)).begin(pair.simulation)


@pytest.mark.parametrize(
    ("fault", "there", "back"),
    [
        (Partition(("a",), ("b",)), False, False),
        (Partition(("east",), ("west",)), False, False),
        (OneWayPartition(("a",), ("b",)), False, True),
        (Clog(("a",), ("b",), clog_s=100.0), False, False),
        (LatencySpike(("a",), ("b",), extra_s=1.0), False, False),
    ],
)
def test_faults_of_paths(fault: Fault, there: bool, back: bool) -> None:
    pair = Pair()
    begin(fault, pair)
    pair.link_a.send(b"there")
    pair.link_b.send(b"back")
    pair.simulation.run_for(0.1)
    assert bool(pair.b.frames()) == there
    assert bool(pair.a.frames()) == back
    fault.end(pair.simulation)
    pair.simulation.run_for(2.0)
    assert (pair.a.frames(), pair.b.frames()) == ([b"back"], [b"there"])
    assert not pair.simulation.network.rules


def test_faults_of_disks_end_and_restart_a_node_that_halted() -> None:
    pair = Pair()
    disk = pair.process_a.disk
    disk.append("log", b"x")
    errors: list[object] = []
    begin(DiskEio(("a",)), pair)
    disk.sync("log", errors.append)
    begin(DiskFull(("a",)), pair)
    begin(DiskSlow(("a",), delay_s=3.0), pair)
    assert errors[0] is not None
    assert disk.full
    assert disk.delay_s == 3.0
    pair.a.world.halt("sync failed")
    DiskFull(("a",)).end(pair.simulation)
    assert pair.process_a.alive
    assert not disk.full
    assert disk.delay_s == 0.0


def test_healing_ends_everything() -> None:
    pair = Pair()
    faults: list[Fault] = [
        Suspend(("a",)), Partition(("a",), ("b",)), Slow(("b",)), ClockSkew(("b",), rate=1.5),
        DiskFull(("b",)), PowerLoss(("b",)),
    ]  # fmt: skip
    for fault in faults:
        begin(fault, pair)
    pair.simulation.heal()
    pair.simulation.run_for(1.0)
    assert pair.process_a.reachable
    assert not pair.process_a.paused
    assert pair.process_b.alive
    assert pair.process_b.clock.rate == 1.0
    assert not pair.process_b.disk.full
    for fault in faults:
        fault.end(pair.simulation)
    assert pair.process_b.starts == 2


def test_a_disk_error_that_comes_to_light_after_the_healing_does_not_keep_the_node_down() -> None:
    pair = Pair()
    disk = pair.process_a.disk
    begin(DiskFull(("a",)), pair)
    disk.append("log", b"refused")
    pair.simulation.heal()
    node = pair.a
    disk.sync("log", lambda error: node.world.halt("sync failed"))
    pair.simulation.run_for(0.5)
    assert pair.process_a.ended == "sync failed"
    pair.simulation.run_for(1.0)
    assert pair.process_a.starts == 2
    pair.a.world.halt("of its own")
    pair.simulation.run_for(10.0)
    assert not pair.process_a.alive


def test_every_kind_occurs_in_at_least_a_twentieth_of_the_seeds() -> None:
    seeds = 300
    seen: Counter[str] = Counter()
    sizes = set()
    for seed in range(seeds):
        plan = Swarm(SITES, begin_s=10.0, heal_s=40.0).plan(seed)
        seen.update(plan.kinds())
        sizes.add(len(plan.faults))
        assert 5 <= len(plan.faults) <= 12
        assert all(10.0 <= f.begin_s <= f.end_s <= 40.0 for f in plan.faults)
    assert sorted(seen) == sorted(KINDS)
    assert min(seen.values()) >= seeds * 0.05
    assert len(sizes) > 3


def test_victims_of_process_faults_are_struck_one_fault_at_a_time_and_within_the_limit() -> None:
    for seed in range(100):
        plan = Swarm(
            SITES, 10.0, 40.0, spared=frozenset({"n0", "n1"}), down_max=2, deaths_max=1
        ).plan(seed)
        struck = [item for item in plan.faults if isinstance(item.fault, ProcessFault)]
        assert not {"n0", "n1"} & {item.fault.victims[0] for item in struck}
        for item in struck:
            at_once = [other for other in struck if other.begin_s <= item.begin_s <= other.end_s]
            assert len({other.fault.victims for other in at_once}) == len(at_once) <= 2
        assert len(plan.stay_dead) <= 1


def test_a_plan_is_a_function_of_its_seed_and_can_be_printed() -> None:
    swarm = Swarm(SITES, 10.0, 40.0, kinds=("crash", "partition"), deaths_max=2)
    plan = swarm.plan(7)
    assert str(plan) == str(swarm.plan(7))
    assert str(plan) != str(swarm.plan(8))
    assert str(plan).startswith("seed 7: ")
    assert plan.kinds() == ["crash", "partition"]


def test_a_scheduled_plan_takes_effect_and_is_healed() -> None:
    took_effect: Counter[str] = Counter()
    for seed in range(30):
        simulation = Simulation(seed)
        for name, site in SITES.items():
            add(simulation, name, site)
        plan = Swarm(SITES, 1.0, 31.0, deaths_max=1).plan(seed)
        plan.schedule(simulation)
        simulation.run_until(40.0)
        down = [process.name for process in simulation.processes.values() if not process.alive]
        assert down == list(plan.stay_dead)
        begun = Counter(item.fault.kind for item in plan.faults)
        for kind, count in begun.items():
            assert simulation.counters[f"fault {kind}"] == (0 if kind == "link-loss" else count)
        took_effect.update(begun)
    assert len(took_effect) == len(KINDS)
