"""Hand-overs: no link is handed over by both of its ends at the same time."""

from __future__ import annotations

from swell.events import Event, LinkClosed, MigrationBegan, MigrationEnded, Started
from swell.simulation.simulation import Simulation


class MigrationChecker:
    """Follows every hand-over of a run, from its lease to its end."""

    def __init__(self, simulation: Simulation) -> None:
        self._ids: dict[str, int] = {}
        self._running: dict[tuple[int, int], str] = {}
        self.violations: list[str] = []
        self.begun = 0
        self.done = 0
        simulation.on_event(self._on_event)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, Started):
            self._ids[process] = event.id
            for pair in [pair for pair in self._running if pair[0] == event.id]:
                del self._running[pair]
        elif isinstance(event, MigrationBegan):
            me = self._ids[process]
            self.begun += 1
            if (event.external, me) in self._running:
                self.violations.append(
                    f"{time_s:.3f} nodes {me} and {event.external} hand over the same link at once"
                )
            self._running[me, event.external] = process
        elif isinstance(event, MigrationEnded):
            self._running.pop((self._ids[process], event.external), None)
            self.done += event.outcome == "done"
        elif isinstance(event, LinkClosed):
            self._running.pop((self._ids[process], event.peer), None)
