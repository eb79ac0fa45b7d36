"""Multicasts: integrity, at most once, and who has got what."""

from __future__ import annotations

from swell.events import Delivered, Event, Multicast
from swell.ids import MessageId
from swell.simulation.simulation import Simulation


class DeliveryChecker:
    """Follows every multicast of a run.

    Integrity: what is delivered was sent before. At most once: no life of a process gets a
    message twice. Both hold at every moment, whatever the faults.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._sent: dict[MessageId, dict[tuple[str, int], None]] = {}
        self.violations: list[str] = []
        self.sent = 0
        self.delivered = 0
        simulation.on_event(self._on_event)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, Multicast):
            message = MessageId(event.source, event.epoch, event.sequence)
            if message in self._sent:
                self.violations.append(f"{time_s:.3f} {process}: {message} was sent before")
            self._sent[message] = {}
            self.sent += 1
        elif isinstance(event, Delivered):
            message = MessageId(event.source, event.epoch, event.sequence)
            self._on_delivered(time_s, process, message)

    def _on_delivered(self, time_s: float, process: str, message: MessageId) -> None:
        life = (process, self._simulation.processes[process].starts)
        got = self._sent.get(message)
        if got is None:
            self.violations.append(f"{time_s:.3f} {process}: {message} was never sent")
        elif life in got:
            self.violations.append(f"{time_s:.3f} {process}: {message} was delivered twice")
        else:
            got[life] = None
            self.delivered += 1

    def reached(self, message: MessageId) -> list[str]:
        """The processes that got the message, in order."""
        return [process for process, _ in self._sent[message]]
