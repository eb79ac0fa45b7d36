"""Mesh mode (THOR 4.2): one message to one node over as many disjoint paths as there are.

A path leads through one intermediate zone: source → first hop, a member of its own zone (or the
source itself) → intermediate zone → entry, a member of the target's zone (or the target itself)
→ target. Two paths share no node if their intermediate zones, their first hops and their entries
are distinct, so choosing paths is a matching of first hops to entries; the link between the two
zones themselves is one more path. With c links per node there are up to c paths, and c−1
failures of nodes in between are survived, however recent.

The target zone's table of links is asked for and cached for a moment; without it, entries are
unknown and only first hops are kept distinct.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import msgspec

from swell.errors import SwellError
from swell.ids import MessageId
from swell.overlay.contact import Contact
from swell.overlay.matchers import NODE, node_target
from swell.overlay.multicast import Multicast
from swell.overlay.requests import Answer, Requests
from swell.overlay.zonelinks import ZoneLinks
from swell.world import World

ZONE_LINKS = 2
"""Question to a zone: which of your members hold links to which zones?"""

TABLES_MAX = 256

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[int, int]).decode


def disjoint_ways(
    first_hops: Mapping[int, int], entries: Mapping[int, int], source: int, target: int
) -> list[int]:
    """The largest set of zones, of those in both tables, whose first hops and entries are all
    distinct; the source and the target themselves may serve any number of paths."""
    edges: dict[Hashable, list[tuple[Hashable, int]]] = {}
    for zone in sorted(first_hops):
        if zone in entries:
            hop, entry = first_hops[zone], entries[zone]
            left: Hashable = ("source", zone) if hop == source else hop
            right: Hashable = ("target", zone) if entry == target else entry
            edges.setdefault(left, []).append((right, zone))
    matched: dict[Hashable, tuple[Hashable, int]] = {}

    def augment(left: Hashable, seen: dict[Hashable, None]) -> bool:
        for right, zone in edges[left]:
            if right in seen:
                continue
            seen[right] = None
            if right not in matched or augment(matched[right][0], seen):
                matched[right] = (left, zone)
                return True
        return False

    for left in edges:
        augment(left, {})
    return sorted(zone for _, zone in matched.values())


class Mesh:
    """Sends point-to-point messages over disjoint paths."""

    def __init__(
        self,
        world: World,
        me: Contact,
        multicast: Multicast,
        requests: Requests,
        zonelinks: ZoneLinks,
        timeout_s: float,
        cache_s: float = 10.0,
    ) -> None:
        self._world = world
        self._me = me
        self._multicast = multicast
        self._requests = requests
        self._zonelinks = zonelinks
        self._timeout_s = timeout_s
        self._cache_s = cache_s
        self._tables: dict[int, tuple[float, dict[int, int]]] = {}
        requests.answer(ZONE_LINKS, lambda question, body: _encode(self._own_table()))

    def send(
        self,
        zone: int,
        node: int,
        port: int,
        payload: bytes,
        done: Callable[[MessageId, int], None],
    ) -> None:
        """Send to one node of another zone; `done` gets the message's id and how many paths."""
        cached = self._tables.get(zone)
        if cached is not None and cached[0] > self._world.now():
            entries = cached[1]
            self._world.call_later(
                0.0, lambda: self._send(zone, node, port, payload, entries, done)
            )
            return

        def answered(answer: Answer | SwellError) -> None:
            table: dict[int, int] = {}
            if isinstance(answer, Answer):
                try:
                    table = _decode(answer.payload)
                except msgspec.DecodeError:
                    table = {}
            if table:
                if len(self._tables) >= TABLES_MAX:
                    del self._tables[next(iter(self._tables))]
                self._tables[zone] = (self._world.now() + self._cache_s, table)
            self._send(zone, node, port, payload, table, done)

        self._requests.ask(zone, 0, ZONE_LINKS, b"", self._timeout_s, answered)

    def _own_table(self) -> dict[int, int]:
        return {zone: members[0] for zone, members in self._zonelinks.holders.items()}

    def ways(self, zone: int, node: int, entries: Mapping[int, int]) -> list[int]:
        """The intermediate zones to use; `zone` itself stands for the direct link."""
        hops = self._own_table()
        if not entries:
            entries = {way: -way for way in hops}
        entries = {way: entry for way, entry in entries.items() if way != self._me.zone}
        if zone in hops:
            peers = dict(self._zonelinks.links_of(hops[zone]))
            entries[zone] = peers[zone]
        return disjoint_ways(hops, entries, self._me.id, node)

    def _send(
        self,
        zone: int,
        node: int,
        port: int,
        payload: bytes,
        entries: Mapping[int, int],
        done: Callable[[MessageId, int], None],
    ) -> None:
        ways = self.ways(zone, node, entries)
        target = node_target(zone, node)
        message = self._multicast.send_ways(NODE, target, port, payload, zone, ways)
        done(message, len(ways))
