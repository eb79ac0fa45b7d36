"""The generic multicast (THOR, Algorithm 1), and what happens when a link is missing (4.2).

The source sends to the interested members of its zone, to those that hold a link to an interested
zone, and over its own links. A member that gets a message from a source in its own zone passes it
to the interested zones it is linked to; a node that gets one from another zone passes it to the
interested members of its own. So every message takes at most three hops, along a tree, and there
are no loops. Frames are forwarded as they came.

When no member holds a link to an interested zone, the source wraps the message in a `Detour`
through one zone that is linked to both (at most five hops). A zone that cannot help sends it back,
and another one is tried; then it is dropped and counted.

Invariant: a node handles a message once, whatever the paths: duplicates, which hand-overs and
detours may cause for a moment, are suppressed by (source, epoch, sequence).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from swell.errors import SwellError
from swell.events import Delivered
from swell.events import Multicast as MulticastEvent
from swell.ids import MessageId
from swell.overlay.clique import Clique
from swell.overlay.contact import Contact
from swell.overlay.duplicates import Ledger
from swell.overlay.matchers import Matcher
from swell.overlay.messages import DETOUR, ROUTED
from swell.overlay.routed import (
    TRACED,
    Detour,
    Routed,
    decode_detour,
    decode_routed,
    encode_detour,
    encode_routed,
    with_hop,
)
from swell.overlay.sessions import Session, Sessions
from swell.overlay.zonelinks import ZoneLinks
from swell.settings import OverlaySettings
from swell.wire.codec import FLAGS_OFFSET
from swell.world import Plane, World

CONTROL_PORT_MAX = 15
"""Ports up to this one are the overlay's own and travel on the control plane."""

BOTH_WAYS = "group-and-detour"
NO_SUPPRESSION = "no-duplicate-suppression"
"""Planted bugs: detour although the zone is linked; handle duplicates."""

Handler = Callable[[Routed], None]

_CONTROL, _DATA = Plane.CONTROL, Plane.DATA


class Multicast:
    """This node as source, forwarder and destination of messages."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        me: Contact,
        sessions: Sessions,
        clique: Clique,
        zonelinks: ZoneLinks,
        counters: Counter[str],
        ledger: Ledger,
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self._world = world
        self._settings = settings
        self._me = me
        self._clique = clique
        self._zonelinks = zonelinks
        self._counters = counters
        self._bugs = bugs
        self._ledger = ledger
        self._matchers: dict[int, Matcher] = {}
        self._ports: dict[int, Handler] = {}
        self._is_new = ledger.duplicates.is_new
        sessions.handle_frames(ROUTED, self.on_routed)
        sessions.handle_frames(DETOUR, self.on_detour)

    def register(self, number: int, matcher: Matcher) -> None:
        """Add a kind of routing at run time."""
        self._matchers[number] = matcher

    def listen(self, port: int, handler: Handler) -> None:
        """Give messages for this port that concern this node to `handler`."""
        self._ports[port] = handler

    # The source.

    def next_id(self) -> MessageId:
        return MessageId(self._me.id, self._me.epoch, self._ledger.next_sequence())

    def send(
        self, matcher: int, target: bytes, port: int, payload: bytes, traced: bool = False
    ) -> MessageId:
        """Send one message to all that the matcher finds interested in its target."""
        rule = self._matchers.get(matcher)
        if rule is None:
            raise SwellError(f"no matcher {matcher} is registered")
        message = self.next_id()
        frame = encode_routed(message, self._me.zone, matcher, port, target, payload, traced)
        frame = with_hop(frame, self._me.id)
        self._world.emit(MulticastEvent(*message, rule.name))
        plane = _plane(port)
        recipients = dict.fromkeys(rule.members(target))
        zonelinks = self._zonelinks
        for zone in rule.zones(target):
            if zone in zonelinks.mine:
                self._to_zone(zone, frame, plane)
                if BOTH_WAYS not in self._bugs:
                    continue
            holder = self._holder(zone)
            if holder and BOTH_WAYS not in self._bugs:
                recipients[holder] = None
            else:
                self._detour(frame, zone, (), plane)
        self._to_members(recipients, frame, plane)
        if rule.here(target):
            self._deliver(decode_routed(frame))
        return message

    def send_ways(
        self, matcher: int, target: bytes, port: int, payload: bytes, zone: int, ways: Iterable[int]
    ) -> MessageId:
        """Send one message to `zone` through each of the zones `ways` at once, `zone` itself
        meaning the direct link; none of the copies tries another way when it fails."""
        message = self.next_id()
        frame = encode_routed(message, self._me.zone, matcher, port, target, payload)
        self._world.emit(MulticastEvent(*message, "mesh"))
        plane = _plane(port)
        for way in ways:
            if way != zone:
                tried = (way,) * self._settings.detour_tries
                self._send_detour(Detour(self._me.zone, way, zone, False, tried, frame), plane)
            elif zone in self._zonelinks.mine:
                self._to_zone(zone, frame, plane)
            else:
                self._to_members((self._holder(zone),), frame, plane)
        return message

    def _holder(self, zone: int) -> int:
        """A member with a link to the zone that this node can reach, or 0."""
        for member in self._zonelinks.holders.get(zone, ()):
            if member in self._clique.up:
                return member
        return 0

    # Forwarding.

    def on_routed(self, session: Session, frame: bytes) -> None:
        """One routed frame from a neighbour."""
        self._receive(decode_routed(frame), session)

    def _receive(self, message: Routed, session: Session | None) -> None:
        """`session` is None for a message that came out of a detour, from another zone."""
        source, source_zone, epoch, sequence, matcher, port, target, frame = message
        me = self._me
        if source == me.id:
            self._counters["duplicate-own"] += 1
            return
        from_source = session is not None and session.peer.id == source
        if source_zone == me.zone and not from_source:
            self._counters["stray"] += 1
            return
        if not self._is_new(source, epoch, sequence) and NO_SUPPRESSION not in self._bugs:
            self._counters["duplicate"] += 1
            return
        rule = self._matchers.get(matcher)
        if rule is None:
            self._counters["unknown-matcher"] += 1
            return
        if frame[FLAGS_OFFSET] & TRACED:
            frame = with_hop(frame, me.id)
            message = message._replace(frame=frame)
        plane = _CONTROL if port <= CONTROL_PORT_MAX else _DATA
        if source_zone == me.zone:
            self._to_zones(source, target, frame, rule, plane)
        elif session is None or session.zone != me.zone:
            self._to_members(rule.members(target), frame, plane)
        if rule.here(target):
            self._deliver(message)
        elif session is not None and session.zone == me.zone != source_zone:
            # The entry node took this node for interested: their views of the zone differ.
            self._counters["not-interested"] += 1

    def _to_zones(
        self, source: int, target: bytes, frame: bytes, rule: Matcher, plane: Plane
    ) -> None:
        """The message's source is in this zone: carry it to the zones this node is linked to."""
        zonelinks = self._zonelinks
        for zone in zonelinks.mine:
            if rule.wants_zone(zone, target):
                self._to_zone(zone, frame, plane)
        for link in zonelinks.drains:
            waiting = link.draining is not None and source in link.draining
            if waiting and rule.wants_zone(link.zone, target):
                link.session.link.send(frame, plane)
        for zone in zonelinks.just_lost():
            if rule.wants_zone(zone, target):
                self._detour(frame, zone, (), plane)

    def _to_zone(self, zone: int, frame: bytes, plane: Plane) -> None:
        link = self._zonelinks.mine[zone][0]
        link.used += 1
        if not link.session.link.send(frame, plane):
            self._counters["zone-link-full"] += 1

    def _to_members(self, members: Iterable[int], frame: bytes, plane: Plane) -> None:
        up = self._clique.up
        for member in members:
            session = up.get(member)
            if session is None:
                self._counters["member-unreachable"] += 1
            elif not session.link.send(frame, plane):
                self._counters["clique-link-full"] += 1

    def _deliver(self, message: Routed) -> None:
        handler = self._ports.get(message.port)
        if handler is None:
            self._counters["unknown-port"] += 1
            return
        self._world.emit(Delivered(message.source, message.epoch, message.sequence))
        handler(message)

    # Detours.

    def _detour(self, frame: bytes, zone: int, tried: tuple[int, ...], plane: Plane) -> None:
        """Send a message to `zone` through one zone that is linked to both."""
        if len(tried) >= self._settings.detour_tries:
            self._counters["detour-exhausted"] += 1
            return
        gaps = self._zonelinks.gaps
        ways = [
            via
            for via in self._zonelinks.holders
            if via != zone
            and via not in tried
            and zone not in gaps.get(via, ())
            and (via in self._zonelinks.mine or self._holder(via))
        ]
        if not ways:
            self._counters["no-detour"] += 1
            return
        via = ways[self._world.rng.randrange(len(ways))]
        self._counters["detour"] += 1
        self._send_detour(Detour(self._me.zone, via, zone, False, (*tried, via), frame), plane)

    def _send_detour(self, detour: Detour, plane: Plane) -> None:
        """Put a detour on its way from this zone to its intermediate zone."""
        frame = encode_detour(detour)
        if detour.via in self._zonelinks.mine:
            self._to_zone(detour.via, frame, plane)
        else:
            self._to_members((self._holder(detour.via),), frame, plane)

    def on_detour(self, session: Session, frame: bytes) -> None:
        """One wrapped message from a neighbour: pass it on, send it back, or unwrap it."""
        detour = decode_detour(frame)
        inner = decode_routed(detour.inner)
        plane = _plane(inner.port)
        if detour.target == self._me.zone:
            self._receive(inner, None)
            return
        passed = with_hop(detour.inner, self._me.id)
        if passed is not detour.inner:
            detour = detour._replace(inner=passed)
            frame = encode_detour(detour)
        if detour.origin == self._me.zone:
            self._on_detour_at_origin(detour, frame, plane)
        elif detour.target in self._zonelinks.mine:
            self._to_zone(detour.target, frame, plane)
        elif session.zone == self._me.zone:
            self._counters["detour-lost"] += 1
        else:
            holder = self._holder(detour.target)
            if holder:
                self._to_members((holder,), frame, plane)
            else:
                self._counters["detour-bounced"] += 1
                back = encode_detour(detour._replace(bounced=True))
                session.link.send(back, plane)

    def _on_detour_at_origin(self, detour: Detour, frame: bytes, plane: Plane) -> None:
        if not detour.bounced and detour.via in self._zonelinks.mine:
            self._to_zone(detour.via, frame, plane)
        else:
            self._detour(detour.inner, detour.target, detour.tried, plane)


def _plane(port: int) -> Plane:
    return _CONTROL if port <= CONTROL_PORT_MAX else _DATA
