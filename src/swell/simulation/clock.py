"""The clocks of one simulated machine: boot time and wall time, both linear in virtual time.

Both run through pauses and suspends. Machines boot at different times, so a reading of one
machine's `now` means nothing to another; a power loss starts boot time anew.
"""

from __future__ import annotations

WALL_START_S = 1_700_000_000.0
"""Wall time at virtual time 0."""


class Clock:
    """`now = _now_s + (t - _since_s) * rate`, and the same for the wall with its own start."""

    __slots__ = ("_now_s", "_offset_s", "_since_s", "_wall_s", "rate")

    def __init__(self, booted_ago_s: float) -> None:
        self.rate = 1.0
        self._since_s = 0.0
        self._now_s = booted_ago_s
        self._wall_s = WALL_START_S
        self._offset_s = 0.0

    def now_s(self, time_s: float) -> float:
        return self._now_s + (time_s - self._since_s) * self.rate

    def wall_us(self, time_s: float) -> int:
        return int((self._wall_s + (time_s - self._since_s) * self.rate) * 1e6)

    def skew(self, time_s: float, offset_s: float, rate: float) -> None:
        """From now on the wall is `offset_s` off and both clocks run at `rate`."""
        assert rate > 0.0
        self._now_s = self.now_s(time_s)
        self._wall_s += (time_s - self._since_s) * self.rate + offset_s - self._offset_s
        self._offset_s = offset_s
        self._since_s = time_s
        self.rate = rate

    def boot(self, time_s: float, booted_ago_s: float) -> None:
        """The machine was switched on: boot time starts anew, wall time goes on."""
        self._now_s += booted_ago_s - self.now_s(time_s)
