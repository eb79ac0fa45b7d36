"""Deletions whose names are forgotten, as ranges of names in which nothing is left of before.

A forgotten name lies between two configurations that exist; of everything between them it is true
that what is older than the deletion is gone. So there is never more than one range per place
between names that exist or are remembered, however many names came and went, and whoever was away
for any time hears of every deletion.

A range outlives names that are created in it later: they are younger than it.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from swell.config.bursts import Change
from swell.config.versions import NO_VERSION, Kind

_lower = attrgetter("lower")


class Range(NamedTuple):
    """Between two names, without them, whatever was made up to `step` is gone. An empty `lower` or
    `upper` is no bound."""

    lower: str
    upper: str
    step: int

    def change(self) -> Change:
        """As it is sent."""
        return Change(self.lower, Kind.GONE, 0, NO_VERSION, NO_VERSION, self.upper.encode(), 0)


class Gone:
    """The ranges of one application, in the order of names; they do not overlap."""

    __slots__ = ("ranges", "step")

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.step = 0
        """Of the last deletion that is forgotten."""

    def add(self, lower: str, upper: str, step: int) -> None:
        """Nothing exists between these names; the last deletion there was this step."""
        ranges = self.ranges
        first = bisect_left(ranges, lower, key=_lower)
        if first and _reaches(ranges[first - 1], lower):
            first -= 1
        end = first
        while end < len(ranges) and (not upper or ranges[end].lower < upper):
            end += 1
        made = [Range(lower, upper, step)]
        if first < end:
            left, right = ranges[first], ranges[end - 1]
            if left.lower < lower:
                made.insert(0, Range(left.lower, lower, left.step))
            if upper and _reaches(right, upper):
                made.append(Range(upper, right.upper, right.step))
        ranges[first:end] = made
        self.step = max(self.step, step)

    def restore(self, ranges: list[Range]) -> None:
        """Take over what was dumped."""
        self.ranges = ranges
        self.step = max((each.step for each in ranges), default=0)

    def since(self, step: int) -> list[Range]:
        """What somebody must hear who is at a step."""
        return [each for each in self.ranges if each.step > step] if step < self.step else []


def _reaches(range_: Range, name: str) -> bool:
    """Whether it goes on behind a name."""
    return not range_.upper or range_.upper > name
