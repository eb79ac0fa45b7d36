"""What a stream remembers of one container: how far it got with a configuration, and its losses.

Both are bounded: progress by the horizon of the audit, ranges and losses by number; and who is gone
for long is forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from swell.pipeline.audit_losses import CRASH_TOLERANCE_US
from swell.pipeline.audit_settings import NEVER_US, US_PER_S
from swell.pipeline.verdicts import Verdict

RANGES_MAX = 64
"""Of versions applied in one life with gaps between them; the lowest are forgotten."""

LOSSES_MAX = 16
"""Of one container; the earliest are forgotten."""

AWAY_US = 24 * 3600 * US_PER_S
SILENT_US = 7 * AWAY_US
"""A container without a subscription is forgotten if nothing was heard of it for so long: of one
that has ended, and of one that may live."""


class Taken(NamedTuple):
    """An apply or reject row: versions `first` to `last`. `at_us` is by the container's clock;
    `time_us` by that of the stream, and not before what the row takes was sent."""

    at_us: int
    mono_us: int
    start: int
    row: int
    first: int
    last: int
    time_us: int | None = None
    """None: from a checkpoint that has no such times."""


class Progress(msgspec.Struct, array_like=True):
    """Of one container and one configuration."""

    reached: int = 0
    steps: list[Taken] = []
    """The rows that took it further, oldest first."""
    start: int = 0
    """The life that `ranges` are of."""
    ranges: list[tuple[int, int]] = []
    """Versions applied in this life, in order and apart from each other."""
    applied_before: int = 0
    """The highest version applied in earlier lives."""

    def reach(self, taken: Taken) -> None:
        if taken.last > self.reached:
            self.reached = taken.last
            self.steps = [*self.steps, taken]

    def apply(self, taken: Taken, resumed: bool) -> Verdict | None:
        """Take a row; what is wrong with its place among the others, if anything is. `resumed`:
        its life goes on with what earlier ones had."""
        self.reach(taken)
        if taken.start != self.start:
            top = self.ranges[-1][1] if self.ranges else 0
            self.applied_before = max(self.applied_before, top)
            self.start, self.ranges = taken.start, []
        top = self.ranges[-1][1] if self.ranges else 0
        verdict = None
        if taken.first <= top:
            overlaps = any(a <= taken.last and b >= taken.first for a, b in self.ranges)
            verdict = Verdict.DUPLICATE if overlaps else Verdict.OUT_OF_ORDER
        elif resumed and taken.last < self.applied_before:
            verdict = Verdict.WENT_BACK
        self.ranges = merged(self.ranges, taken.first, taken.last)[-RANGES_MAX:]
        return verdict

    def satisfying(self, version: int) -> Taken | None:
        return next((one for one in self.steps if one.last >= version), None)

    def forget(self, upto_us: int) -> None:
        """Rows that satisfy nothing that is still to be judged, save the last one."""
        while len(self.steps) > 1 and (self.steps[0].time_us or self.steps[0].at_us) < upto_us:
            self.steps = self.steps[1:]


def merged(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """Ranges with one more, joined where they touch or overlap."""
    apart: list[tuple[int, int]] = []
    for low, high in ranges:
        if high + 1 < first or low > last + 1:
            apart.append((low, high))
        else:
            first, last = min(low, first), max(high, last)
    return sorted([*apart, (first, last)])


class ContainerLife(msgspec.Struct, array_like=True):
    """The present life of a container, and in which times rows of it may be lost."""

    start: int = 0
    row: int = 0
    last_us: int = 0
    stopped: bool = False
    crash_us: int | None = None
    losses: list[tuple[int, int]] = []
    unseen_us: int | None = None
    """Since then it has a life without rows."""
    resumed: list[str] = []
    """Applications of which it goes on with what earlier lives had."""
    heard_us: int = 0
    """When the last row of it, or about it, was taken, by the stream's clock."""

    @property
    def ended(self) -> bool:
        """As far as the log says, it does not live; or it has no rows of its own."""
        return self.stopped or self.crash_us is not None or not self.start

    def away(self, now_us: int) -> bool:
        """Whether nothing was heard for so long that it is to be forgotten."""
        if not self.heard_us:  # from a checkpoint that does not say it
            self.heard_us = now_us
        return now_us - self.heard_us > (AWAY_US if self.ended else SILENT_US)

    def saw(self, start: int, row: int, at_us: int, stops: bool) -> None:
        """A row of it, in order."""
        if start > self.start:
            if self.start and not self.stopped:
                self._lose(self.last_us, min(at_us, self.crash_us or at_us))
            if self.unseen_us is not None:
                self._lose(self.unseen_us, at_us)
            self.start, self.row, self.stopped, self.crash_us = start, 0, False, None
            self.last_us, self.unseen_us, self.resumed = -NEVER_US, None, []
        if row > self.row + 1:
            self._lose(self.last_us, at_us)
        self.row = max(self.row, row)
        self.last_us = max(self.last_us, at_us)
        self.stopped = self.stopped or stops

    def crashed(self, at_us: int) -> None:
        """Somebody found it dead."""
        lives = self.start > 0 and not self.stopped and self.crash_us is None
        if lives and at_us >= self.last_us - CRASH_TOLERANCE_US:
            self.crash_us = at_us

    def subscribed(self) -> None:
        """Somebody serves it: it lives, though the log has no rows of that life."""
        if self.unseen_us is None and (self.stopped or not self.start):
            self.unseen_us = self.last_us if self.stopped else -NEVER_US

    def lost(self, from_us: int, to_us: int) -> bool:
        """Whether rows of that time may be lost."""
        windows = list(self.losses)
        if self.crash_us is not None and not self.stopped:
            windows.append((self.last_us, max(self.last_us, self.crash_us)))
        if self.unseen_us is not None:
            windows.append((self.unseen_us, NEVER_US))
        return any(a <= to_us and b >= from_us for a, b in windows)

    def _lose(self, from_us: int, to_us: int) -> None:
        self.losses = [*self.losses, (from_us, max(from_us, to_us))][-LOSSES_MAX:]
