"""Scores: the formula, what a container measures, and what a machine has free."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.config.scores import score
from swell.container.load import Load
from swell.runtime.resources import NETWORK_BYTES_PER_S, Machine
from swell.simulation.simulation import Simulation
from swell.world import Resources, World
from tests.unit.simulation_toys import Recorder

FREE = Resources(1.0, 1.0, 1.0)


def test_an_idle_container_has_the_smallest_score() -> None:
    idle = score(0, 0, 0.0, FREE)
    assert 0.0 < idle <= score(1, 100, 0.001, FREE)
    assert score(10, 100, 0.001, FREE) == pytest.approx(10 * 100 * 0.001)


@pytest.mark.parametrize("place", range(3))
def test_less_of_any_resource_makes_a_larger_score(place: int) -> None:
    half = Resources(*(0.5 if k == place else 1.0 for k in range(3)))
    none = Resources(*(0.0 if k == place else 1.0 for k in range(3)))
    loaded = (10, 100, 0.001)
    assert score(*loaded, FREE) < score(*loaded, half) < score(*loaded, none) < float("inf")


def test_a_load_is_that_of_the_last_period_and_told_once_per_period() -> None:
    simulation = Simulation(1)
    worlds: list[World] = []

    def factory(world: World) -> Recorder:
        worlds.append(world)
        return Recorder(world)

    process = simulation.add("c", "s", factory)
    process.start()
    load = Load(worlds[0], 5.0)
    idle = load.due()
    assert idle is not None
    assert load.due() is None
    for _ in range(10):
        load.note(1000, 0.01, worlds[0].now())
    simulation.run_for(5.0)
    busy = load.due()
    assert busy == pytest.approx(10 * 1000 * 0.01)
    process.resources = Resources(0.5, 1.0, 1.0)
    simulation.run_for(5.0)
    assert load.due() == pytest.approx(2 * idle)


def test_a_machine_is_read_from_its_counters(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()

    def write(idle: int, busy: int, sent: int) -> None:
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
        (tmp_path / "meminfo").write_text(
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n"
        )
        device = f"eth0: 0 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n"
        loopback = "lo: 999999999999 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        (tmp_path / "net" / "dev").write_text(f"head\nhead\n{loopback}{device}")

    machine = Machine(tmp_path)
    write(100, 100, 0)
    assert machine.resources(10.0) == Resources(1.0, 0.25, 1.0)
    write(130, 170, int(NETWORK_BYTES_PER_S / 2))
    assert machine.resources(10.5) == Resources(1.0, 0.25, 1.0)  # not read again yet
    assert machine.resources(12.0) == Resources(0.3, 0.25, 0.75)
    assert Machine(tmp_path / "nowhere").resources(1.0) == Resources(1.0, 1.0, 1.0)
