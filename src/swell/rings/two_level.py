"""The two-level ring: zone slices above, the members of one zone below.

The upper tier holds K = ⌈zone size / slice size⌉ slices of every zone, named `zone:k`, so that
keys follow the size of zones (SpiderCast 2.2). The slice that owns a key names its zone; the
zone's own ring, over the other half of the digest, names the node (THOR 4.1.3). THOR's two-level
hashing is the case of one slice per zone.

Building the upper tier needs only the sizes of zones, which every node knows from the view, so it
is a local operation. The ring belongs to one view: a change of members gives a new one, and the
cache of lookups goes with the old one. Rings are built at the first lookup and shared by whoever
asks for the same members: a process that hosts many nodes keeps one copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from swell.rings.digest import Tier, halves, virtual_id
from swell.rings.ring import Ring


class Slice(NamedTuple):
    """One of the K virtual zones that stand for a zone on the upper tier; counted from 1."""

    zone: int
    number: int

    def __str__(self) -> str:
        return f"{self.zone}:{self.number}"


class Location(NamedTuple):
    """Where a key lives. The node is None where only the zone's size is known: ask the zone."""

    zone: int
    node: int | None


@lru_cache(maxsize=8)
def _upper_ring(slices: tuple[tuple[int, int], ...], points: int) -> Ring[Slice]:
    members = [Slice(zone, k) for zone, count in slices for k in range(1, count + 1)]
    return Ring(members, points, Tier.UPPER)


@lru_cache(maxsize=256)
def _zone_ring(members: tuple[int, ...], points: int) -> Ring[int]:
    return Ring(members, points, Tier.ZONE)


class TwoLevelRing:
    """Placement of keys in one view: zone id → its members, or just how many they are."""

    def __init__(
        self,
        zones: Mapping[int, Sequence[int] | int],
        slice_size: int = 4,
        points: int = 64,
        cache_size: int = 1024,
    ) -> None:
        assert slice_size > 0
        self.points = points
        self._members = {
            zone: tuple(sorted(members))
            for zone, members in zones.items()
            if not isinstance(members, int)
        }
        sizes = {zone: m if isinstance(m, int) else len(m) for zone, m in zones.items()}
        self._slices = tuple((zone, -(-sizes[zone] // slice_size)) for zone in sorted(sizes))
        self.lookup = lru_cache(maxsize=cache_size)(self._lookup)
        """key → `Location`, remembered for the `cache_size` keys used last."""

    @cached_property
    def upper(self) -> Ring[Slice]:
        """The ring of zone slices."""
        return _upper_ring(self._slices, self.points)

    def zone_ring(self, members: Sequence[int]) -> Ring[int]:
        """The ring inside one zone."""
        return _zone_ring(tuple(sorted(members)), self.points)

    def zone(self, key: bytes) -> int:
        """The zone that stores `key`."""
        return self.upper.owner(key).zone

    def serves(self, zone: int, key: bytes) -> bool:
        """The rule of SpiderCast 2.2 for a local lookup: some slice of `zone` stands at or behind
        the key with no other zone's slice between."""
        return self.zone(key) == zone

    def zones_from(self, key: bytes, count: int) -> list[int]:
        """The zone of `key` and those of the following slices, distinct, at most `count`."""
        found: dict[int, None] = {}
        for slice_ in self.upper.walk(halves(key)[Tier.UPPER]):
            found[slice_.zone] = None
            if len(found) >= count:
                break
        return list(found)[:count]

    def lateral(self, key: bytes, zone: int | None = None) -> int | None:
        """The zone of the lateral replica: of the first slice from the key on that belongs to
        another zone than `zone`, by default the key's own. None if there is only one zone."""
        away = self.zone(key) if zone is None else zone
        return next((z for z in self.zones_from(key, 2) if z != away), None)

    def owner(self, members: Sequence[int], key: bytes) -> int:
        """The member of one zone that stores `key`."""
        return self.zone_ring(members).owner(key)

    def lateral_owner(self, members: Sequence[int], origin: int) -> int:
        """The member of another zone that keeps the lateral copies of node `origin`: the one that
        would own the origin's virtual id if it were a key (SpiderCast 2.2)."""
        return self.zone_ring(members).owner_at(virtual_id(origin, Tier.ZONE))

    def _lookup(self, key: bytes) -> Location:
        zone = self.zone(key)
        members = self._members.get(zone)
        return Location(zone, _zone_ring(members, self.points).owner(key) if members else None)
