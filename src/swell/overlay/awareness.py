"""Local health: how far this node may trust its own impression that others are silent.

Lifeguard's first idea (Dadgar et al. 2017, section IV.A): a node that misses answers, or is told
that it seems dead itself, is probably the slow one, so it becomes more patient with others. A
stalled event loop is the most common cause in Python, hence timers that fire late count too.

Invariant: 0 <= score <= score_max; every wait is multiplied by score + 1.
"""

from __future__ import annotations

STALL_FRACTION = 0.25
"""A timer may be late by this part of its wait: who waits long enough may judge though slow."""


class Awareness:
    """The health score: 0 is well, the maximum is not to be trusted."""

    def __init__(self, score_max: int, lag_tolerance_s: float) -> None:
        self.score = 0
        self._score_max = score_max
        self._lag_tolerance_s = lag_tolerance_s

    def note(self, delta: int) -> None:
        """Good news is negative."""
        self.score = min(self._score_max, max(0, self.score + delta))

    def patience_s(self, wait_s: float) -> float:
        """The wait that suits our present health."""
        return wait_s * (self.score + 1)

    def stalled(self, late_s: float, waited_s: float) -> bool:
        """True, and noted, if a timer set for `waited_s` fired so late that nothing may be
        concluded from what we did not hear meanwhile."""
        if late_s <= max(self._lag_tolerance_s, waited_s * STALL_FRACTION):
            return False
        self.note(1)
        return True
