"""How long receipts are waited for: as long as they have taken lately, and a good deal longer.

A fixed time is too short for a starved machine or a far site: what is on its way there is sent
again by other ways, and honest relays fall into disrepute. So every group of a feed has a time of
its own for its relays, and one for those served directly. It is made of the times their receipts
took as TCP makes its retransmission timeout (Jacobson 1988; RFC 6298): the smoothed time and four
times its deviation. What was late gives no sample (Karn and Partridge 1987), but doubles the time,
once for all that was on its way; the next receipt in time ends that. A relay that delays bursts
makes nobody patient while others are quick.

Invariants: the time is never below `receipt_wait_s` nor above `receipt_wait_s_max`. A relay waits
that long, as the burst tells it; one with relays behind it half as long again, the primary twice as
long: who is above always hears first whom the one below misses.
"""

from __future__ import annotations

PRIMARY_WAIT = 2.0
"""How much longer the primary waits than a relay of leaves."""

DEVIATIONS = 4.0
TIME_GAIN = 1 / 8
DEVIATION_GAIN = 1 / 4


class Patience:
    """`wait_s`: how long a relay waits for those behind it, at present."""

    __slots__ = ("_backed_off_at", "_deviation_s", "_max_s", "_min_s", "_time_s", "wait_s")

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max(min_s, max_s)
        self._time_s = -1.0
        """Negative: nothing was measured."""
        self._deviation_s = 0.0
        self._backed_off_at = -1.0
        self.wait_s = min_s

    def note(self, took_s: float) -> None:
        """Everybody of a leg has given a receipt in time."""
        if self._time_s < 0.0:
            self._time_s, self._deviation_s = took_s, took_s / 2
        else:
            error_s = took_s - self._time_s
            self._time_s += TIME_GAIN * error_s
            self._deviation_s += DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
        usual_s = self._time_s + DEVIATIONS * self._deviation_s
        self.wait_s = min(self._max_s, max(self._min_s, usual_s))

    def back_off(self, sent_at: float, now: float) -> None:
        """Most of a leg was late. What was sent before the last time is late for the same cause."""
        if sent_at >= self._backed_off_at:
            self._backed_off_at = now
            self.wait_s = min(self._max_s, 2.0 * self.wait_s)
