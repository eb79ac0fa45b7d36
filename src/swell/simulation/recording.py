"""Writing down the API events of simulations, by their processes' own clocks.

A recording outlives the processes: unlike real ones they lose no row when they are killed. Whether
a run is recorded changes nothing of it.

    with recorded(Recording("config-17", collection)):
        run("config", 17)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from swell.events import Event
from swell.events.rows import Collection, Life, Recorder

if TYPE_CHECKING:
    from swell.simulation.world import SimWorld


class Recording:
    """Of one run. Its processes' lives are numbered as the simulation does."""

    def __init__(self, run: str, collection: Collection) -> None:
        self._run = run
        self._collection = collection
        self._recorders: dict[SimWorld, Recorder] = {}

    def take(self, world: SimWorld, event: Event) -> None:
        recorder = self._recorders.get(world)
        if recorder is None:
            process = world.process
            life = Life(self._run, process.name, process.starts, process.site)
            recorder = self._recorders[world] = Recorder(self._collection, life)
        recorder.take(world.wall_us() * 1000, round(world.now() * 1e9), event)


_current: list[Recording] = []


def current_recording() -> Recording | None:
    """What a simulation that is made now is recorded by."""
    return _current[-1] if _current else None


@contextmanager
def recorded(recording: Recording) -> Iterator[None]:
    """Simulations that are made inside are recorded."""
    _current.append(recording)
    try:
        yield
    finally:
        _current.pop()
