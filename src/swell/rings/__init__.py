"""Consistent hashing: one ring of members, and the two-level ring of zone slices and members."""

from swell.rings.digest import Tier, halves, virtual_id
from swell.rings.ring import EmptyRingError, Ring
from swell.rings.two_level import Location, Slice, TwoLevelRing

__all__ = [
    "EmptyRingError",
    "Location",
    "Ring",
    "Slice",
    "Tier",
    "TwoLevelRing",
    "halves",
    "virtual_id",
]
