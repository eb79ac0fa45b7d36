"""Matchers: the interest functions that turn the one multicast into many kinds of routing.

THOR 4.1: broadcast, topics, point-to-point and hash-table routing differ only in who is
interested. A matcher answers, for the target of a message: which members of my zone, which other
zones, and whether this node itself. Matchers are registered at run time by number; the numbers
travel in the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Protocol

from swell.overlay.contact import Contact
from swell.rings.two_level import TwoLevelRing

BROADCAST = 1
NODE = 2
ZONE = 3
TOPIC = 4
ADDRESS = 5
KEY = 6

_place = Struct(">II")


class Matcher(Protocol):
    """Who is interested in a message with this target."""

    name: str

    def members(self, target: bytes) -> Iterable[int]:
        """Members of my zone, other than me, that want it themselves."""
        ...

    def zones(self, target: bytes) -> Iterable[int]:
        """Zones other than mine in which somebody wants it."""
        ...

    def wants_zone(self, zone: int, target: bytes) -> bool:
        """`zone in zones(target)`, cheaply."""
        ...

    def here(self, target: bytes) -> bool:
        """Does this node want it?"""
        ...


class BroadcastMatcher:
    """Everybody."""

    name = "broadcast"

    def __init__(
        self, members: Callable[[], Iterable[int]], zones: Callable[[], Iterable[int]]
    ) -> None:
        self._members = members
        self._zones = zones

    def members(self, target: bytes) -> Iterable[int]:
        return self._members()

    def zones(self, target: bytes) -> Iterable[int]:
        return self._zones()

    def wants_zone(self, zone: int, target: bytes) -> bool:
        return True

    def here(self, target: bytes) -> bool:
        return True


def _unpack(target: bytes) -> tuple[int, int]:
    """(zone, node); a malformed target is nobody's. It is the source's fault, not that of the
    neighbour who passed it on."""
    if len(target) != _place.size:
        return 0, 0
    zone, node = _place.unpack(target)
    return zone, node


def node_target(zone: int, node: int) -> bytes:
    """Target of a message to one node in its zone."""
    return _place.pack(zone, node)


class NodeMatcher:
    """One node, by its zone and id. Node 0 means: whichever member the message meets first."""

    name = "node"

    def __init__(self, me: Contact) -> None:
        self._me = me

    def members(self, target: bytes) -> Iterable[int]:
        zone, node = _unpack(target)
        return (node,) if zone == self._me.zone and node not in (0, self._me.id) else ()

    def zones(self, target: bytes) -> Iterable[int]:
        zone = _unpack(target)[0]
        return (zone,) if zone != self._me.zone else ()

    def wants_zone(self, zone: int, target: bytes) -> bool:
        return _unpack(target)[0] == zone

    def here(self, target: bytes) -> bool:
        zone, node = _unpack(target)
        return zone == self._me.zone and node in (0, self._me.id)


class InterestTable(Protocol):
    """Who is interested in a topic (`swell.overlay.interest`)."""

    def members_of(self, topic: bytes) -> Iterable[int]: ...

    def zones_of(self, topic: bytes) -> Iterable[int]: ...

    def wanted_by(self, zone: int, topic: bytes) -> bool: ...

    def wanted_here(self, topic: bytes) -> bool: ...


class TopicMatcher:
    """All subscribers of a topic. Addresses are topics of a kind of their own: a client is
    reached wherever it is (THOR 4.1.2)."""

    def __init__(self, name: str, prefix: bytes, table: InterestTable) -> None:
        self.name = name
        self._prefix = prefix
        self._table = table

    def members(self, target: bytes) -> Iterable[int]:
        return self._table.members_of(self._prefix + target)

    def zones(self, target: bytes) -> Iterable[int]:
        return self._table.zones_of(self._prefix + target)

    def wants_zone(self, zone: int, target: bytes) -> bool:
        return self._table.wanted_by(zone, self._prefix + target)

    def here(self, target: bytes) -> bool:
        return self._table.wanted_here(self._prefix + target)


class KeyMatcher:
    """The node that owns a key, by the two-level ring (THOR 4.1.3)."""

    name = "key"

    def __init__(
        self, me: Contact, ring: Callable[[], TwoLevelRing], members: Callable[[], Sequence[int]]
    ) -> None:
        self._me = me
        self._ring = ring
        self._members = members

    def members(self, target: bytes) -> Iterable[int]:
        ring = self._ring()
        if ring.zone(target) != self._me.zone:
            return ()
        owner = ring.owner(self._members(), target)
        return (owner,) if owner != self._me.id else ()

    def zones(self, target: bytes) -> Iterable[int]:
        zone = self._ring().zone(target)
        return (zone,) if zone != self._me.zone else ()

    def wants_zone(self, zone: int, target: bytes) -> bool:
        return self._ring().zone(target) == zone

    def here(self, target: bytes) -> bool:
        ring = self._ring()
        if ring.zone(target) != self._me.zone:
            return False
        return ring.owner(self._members(), target) == self._me.id
