"""How loaded a container is: what it processed in a period, and what its machine has free (RIP-20).

The score rides on a receipt once per period (RIP-21); it is that of the last whole period.
"""

from __future__ import annotations

from swell.config.scores import score
from swell.world import World


class Load:
    """Measures bursts, whether they were for the container itself or passed on."""

    __slots__ = (
        "_bytes", "_latency_s", "_period_s", "_requests", "_score", "_told_at", "_until", "_world",
    )  # fmt: skip

    def __init__(self, world: World, period_s: float) -> None:
        self._world = world
        self._period_s = period_s
        self._until = world.now() + period_s
        self._requests = self._bytes = 0
        self._latency_s = 0.0
        self._score = score(0, 0, 0, world.resources())
        self._told_at = float("-inf")

    def note(self, payload_bytes: int, latency_s: float, now: float) -> None:
        """One burst was processed."""
        if now >= self._until:
            self._turn(now)
        self._requests += 1
        self._bytes += payload_bytes
        self._latency_s += latency_s

    def score(self) -> float:
        now = self._world.now()
        if now >= self._until:
            self._turn(now)
        return self._score

    def due(self) -> float | None:
        """The score if it is time to tell it; then it counts as told."""
        now = self._world.now()
        if now - self._told_at < self._period_s:
            return None
        self._told_at = now
        return self.score()

    def _turn(self, now: float) -> None:
        """A period is over. One that nothing happened behind counts as idle."""
        requests = self._requests if now < self._until + self._period_s else 0
        count = max(requests, 1)
        self._score = score(
            requests, self._bytes / count, self._latency_s / count, self._world.resources()
        )
        self._until = now + self._period_s
        self._requests = self._bytes = 0
        self._latency_s = 0.0
