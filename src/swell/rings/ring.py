"""One ring of consistent hashing (SpiderCast 2, THOR 4.1.3).

Every member stands at `points` positions. A key belongs to the member whose position is the
smallest that is not below the key's own, cyclically. A member that comes or goes moves only the
keys of its own arcs, about 1/n of all.

A ring never changes: `with_members` gives a new one. Whoever holds the same members has the same
ring, whatever the order in which it learned of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from swell.errors import SwellError
from swell.rings.digest import RING_SIZE, Tier, halves, points_of

M = TypeVar("M")


class EmptyRingError(SwellError):
    """A key was looked up on a ring without members."""

    def __init__(self) -> None:
        super().__init__("nobody is on the ring yet: try again when a node has joined")


class Ring(Generic[M]):
    """Members of one kind (ids, names, slices): orderable, and distinct as text."""

    __slots__ = ("_owners", "_positions", "members", "points", "tier")

    def __init__(self, members: Iterable[M], points: int = 64, tier: Tier = Tier.ZONE) -> None:
        assert points > 0
        self.points = points
        self.tier = tier
        self.members: tuple[M, ...] = tuple(dict.fromkeys(members))
        self._place([(p, m) for m in self.members for p in points_of(m, points, tier)])

    def _place(self, pairs: list[tuple[int, M]]) -> None:
        pairs.sort()
        self._positions = [position for position, _ in pairs]
        self._owners = [member for _, member in pairs]

    def __len__(self) -> int:
        return len(self.members)

    def with_members(self, members: Iterable[M]) -> Ring[M]:
        """The ring of `members`; only those that this ring lacks are hashed."""
        wanted = dict.fromkeys(members)
        known = dict.fromkeys(self.members)
        pairs = [
            pair for pair in zip(self._positions, self._owners, strict=True) if pair[1] in wanted
        ]
        for member in wanted:
            if member not in known:
                pairs.extend((p, member) for p in points_of(member, self.points, self.tier))
        ring: Ring[M] = Ring.__new__(Ring)
        ring.points = self.points
        ring.tier = self.tier
        ring.members = tuple(wanted)
        ring._place(pairs)  # nearly sorted: one pass of the sort for what was kept
        return ring

    def owner(self, key: bytes) -> M:
        """The member that stores `key`."""
        return self.owner_at(halves(key)[self.tier])

    def owner_at(self, position: int) -> M:
        """The member with the smallest point ≥ `position`, cyclically."""
        return self._owners[self._index(position)]

    def successors(self, key: bytes, count: int) -> list[M]:
        """The owner of `key` and the members behind it, distinct, at most `count`."""
        return self.successors_at(halves(key)[self.tier], count)

    def successors_at(self, position: int, count: int) -> list[M]:
        """As `successors`, from a position."""
        found: dict[M, None] = {}
        for member in self.walk(position):
            found[member] = None
            if len(found) >= count:
                break
        return list(found)[:count]

    def walk(self, position: int) -> Iterator[M]:
        """Owners of the points from `position` on, once around; members repeat."""
        first = self._index(position)
        for index in range(first, first + len(self._owners)):
            yield self._owners[index % len(self._owners)]

    def shares(self) -> dict[M, float]:
        """The part of all positions that each member owns; the parts add up to 1."""
        shares = dict.fromkeys(self.members, 0.0)
        previous = self._positions[-1] - RING_SIZE if self._positions else 0
        for position, member in zip(self._positions, self._owners, strict=True):
            shares[member] += (position - previous) / RING_SIZE
            previous = position
        return shares

    def _index(self, position: int) -> int:
        if not self._positions:
            raise EmptyRingError
        index = bisect_left(self._positions, position)
        return index if index < len(self._positions) else 0
