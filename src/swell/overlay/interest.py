"""Who is interested in which topics, aggregated per zone (THOR 4.1.1).

Inside a zone every member publishes its topics as its attribute `topics`. The zone's delegate
forms their union and broadcasts a change to the overlay only when the union changes; so every
node knows, per topic, the interested members of its own zone and the interested other zones.

A lost announcement is repaired: link probes carry the version of the sender's zone, and whoever
is behind pulls the whole set over that link and tells its zone. Two members that connect pull
from each other what one of them lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from swell.errors import SwellError, WireError
from swell.overlay.clique import Clique
from swell.overlay.contact import Contact
from swell.overlay.membership_messages import ATTRIBUTE_VALUE_BYTES_MAX
from swell.overlay.messages import Interest, InterestPull
from swell.overlay.routed import Routed
from swell.overlay.sessions import NODE_KINDS, Session, Sessions
from swell.wire import codec
from swell.world import Timer, World

TOPICS = "topics"
TOPICS_PER_NODE_MAX = 1000
_ANNOUNCE_DELAY_S = 0.05

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class _ZoneInterest:
    __slots__ = ("number", "term", "topics")

    def __init__(self) -> None:
        self.term = 0
        self.number = 0
        self.topics: dict[bytes, None] = {}

    @property
    def version(self) -> tuple[int, int]:
        return self.term, self.number


class InterestAggregate:
    """The interest table of one node, and its zone's announcements while it is the delegate."""

    def __init__(
        self,
        world: World,
        me: Contact,
        sessions: Sessions,
        clique: Clique,
        publish: Callable[[str, bytes], None],
        broadcast: Callable[[bytes], None],
        is_delegate: Callable[[], bool],
        mine: Counter[bytes],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._me = me
        self._clique = clique
        self._publish = publish
        self._broadcast = broadcast
        self._is_delegate = is_delegate
        self._counters = counters
        self._mine = mine
        self._members: dict[int, dict[bytes, None]] = {}
        self._subscribers: dict[bytes, dict[int, None]] = {}
        self._zones: dict[int, _ZoneInterest] = {}
        self._interested: dict[bytes, dict[int, None]] = {}
        self._led = False
        self._timer: Timer | None = None
        sessions.handle(InterestPull, self.on_pull, NODE_KINDS)
        sessions.handle(Interest, self.on_interest, NODE_KINDS)

    # The table, as matchers see it.

    def members_of(self, topic: bytes) -> Iterable[int]:
        return list(self._subscribers.get(topic, ()))

    def zones_of(self, topic: bytes) -> Iterable[int]:
        return [zone for zone in self._interested.get(topic, ()) if zone != self._me.zone]

    def wanted_by(self, zone: int, topic: bytes) -> bool:
        return zone in self._interested.get(topic, ())

    def wanted_here(self, topic: bytes) -> bool:
        return topic in self._mine

    # This node's subscriptions.

    def subscribe(self, topic: bytes) -> None:
        """One more client of this node wants the topic."""
        if topic not in self._mine:
            longer = len(_encode([*self._mine, topic]))
            if len(self._mine) >= TOPICS_PER_NODE_MAX or longer > ATTRIBUTE_VALUE_BYTES_MAX:
                raise SwellError(
                    f"a node takes at most {TOPICS_PER_NODE_MAX} topics "
                    f"and {ATTRIBUTE_VALUE_BYTES_MAX} bytes of their names"
                )
        self._mine[topic] += 1
        if self._mine[topic] == 1:
            self._publish_mine()

    def unsubscribe(self, topic: bytes) -> None:
        """One client fewer."""
        if topic not in self._mine:
            return
        self._mine[topic] -= 1
        if not self._mine[topic]:
            del self._mine[topic]
            self._publish_mine()

    def _publish_mine(self) -> None:
        self._publish(TOPICS, _encode(sorted(self._mine)) if self._mine else b"")
        self.check_later()

    # The zone's own aggregate.

    def on_attribute(self, member: int, value: bytes) -> None:
        """A member published its topics (empty: none any more)."""
        if member == self._me.id:
            return
        try:
            topics = dict.fromkeys(_decode(value)) if value else {}
        except msgspec.DecodeError:
            self._counters["bad-attribute"] += 1
            return
        self._set_member(member, topics)

    def _set_member(self, member: int, topics: dict[bytes, None]) -> None:
        for topic in self._members.pop(member, {}):
            subscribers = self._subscribers[topic]
            del subscribers[member]
            if not subscribers:
                del self._subscribers[topic]
        for topic in topics:
            self._subscribers.setdefault(topic, {})[member] = None
        if topics:
            self._members[member] = topics
        self.check_later()

    def forget(self, member: int) -> None:
        self._set_member(member, {})

    def start(self) -> None:
        """Tell the zone what this node's clients wanted before it came here."""
        if self._mine:
            self._publish_mine()
        self.check_later()

    def check_later(self) -> None:
        """Something changed in the zone: see soon whether the aggregate did."""
        if self._timer is None:
            self._timer = self._world.call_later(_ANNOUNCE_DELAY_S, self._check)

    def _check(self) -> None:
        self._timer = None
        if not self._is_delegate():
            self._led = False
            return
        known = self._zones.setdefault(self._me.zone, _ZoneInterest())
        union = dict.fromkeys(self._mine)
        for topics in self._members.values():
            union.update(topics)
        new_term = not self._led and bool(known.term or union)
        if union.keys() == known.topics.keys() and not new_term:
            return
        self._led = True
        term = known.term + 1 if new_term else known.term
        number = 1 if new_term else known.number + 1
        added = union.keys() - known.topics.keys() if not new_term else union.keys()
        removed = known.topics.keys() - union.keys() if not new_term else ()
        change = Interest(
            self._me.zone, term, number, new_term, tuple(sorted(added)), tuple(sorted(removed))
        )
        self._apply(change)
        self._broadcast(codec.encode(change))

    # What other zones want.

    def version(self) -> tuple[int, int]:
        """The version of this zone's aggregate, for link probes."""
        known = self._zones.get(self._me.zone)
        return known.version if known else (0, 0)

    def on_probe(self, session: Session, version: tuple[int, int]) -> None:
        """A neighbouring zone told its version. If that is behind what is known here, the whole
        zone has restarted and does not know how far it had counted: tell it."""
        known = self._zones.get(session.zone)
        mine = known.version if known else (0, 0)
        if version > mine:
            session.send(InterestPull(session.zone))
        elif version < mine:
            self._tell(session, session.zone)

    def on_clique_up(self, member: int) -> None:
        """Ask every member that this node meets: whoever is told something by another zone tells
        those that it is linked to at that moment."""
        versions = tuple((zone, *known.version) for zone, known in sorted(self._zones.items()))
        self._clique.send(member, codec.encode(InterestPull(0, versions)))

    def on_pull(self, session: Session, message: InterestPull) -> None:
        theirs = {zone: (term, number) for zone, term, number in message.versions}
        for zone in [message.zone] if message.zone else sorted(self._zones):
            known = self._zones.get(zone)
            if known is not None and known.version > theirs.get(zone, (0, 0)):
                self._tell(session, zone)

    def _tell(self, session: Session, zone: int) -> None:
        known = self._zones[zone]
        topics = tuple(sorted(known.topics))
        session.send(Interest(zone, known.term, known.number, True, topics))

    def on_announcement(self, routed: Routed) -> None:
        """An announcement came by broadcast."""
        try:
            change = codec.decode(routed.payload)
        except WireError:
            change = None
        if not isinstance(change, Interest) or change.zone != routed.source_zone:
            self._counters["bad-announcement"] += 1
            return
        self._apply(change)
        if change.zone == self._me.zone and routed.source != self._me.id:
            self._on_rival(change)

    def on_interest(self, session: Session, change: Interest) -> None:
        """A whole set came over a link: an answer to a pull, or a member passes one on. Other
        zones speak for themselves, or say how far ours had counted."""
        if session.zone != self._me.zone and change.zone not in (session.zone, self._me.zone):
            self._counters["interest-of-stranger"] += 1
            return
        if not change.full or not self._apply(change):
            return
        if change.zone == self._me.zone:
            self._on_rival(change)
        if session.zone != self._me.zone:
            frame = codec.encode(change)
            for member in list(self._clique.up):
                self._clique.send(member, frame)

    def _on_rival(self, change: Interest) -> None:
        """Another member spoke for the zone: speak again in a term of our own if it was wrong."""
        if self._led and change.term >= self._zones[self._me.zone].term:
            self._led = False
        self.check_later()

    def _apply(self, change: Interest) -> bool:
        """Take over a newer version; False if it is old, or a change whose base is missing."""
        known = self._zones.setdefault(change.zone, _ZoneInterest())
        if (change.term, change.number) <= known.version:
            return False
        if change.full:
            added: Iterable[bytes] = [t for t in change.added if t not in known.topics]
            kept = dict.fromkeys(change.added)
            removed: Iterable[bytes] = [t for t in known.topics if t not in kept]
        elif (change.term, change.number - 1) == known.version:
            added, removed = change.added, change.removed
        else:
            self._counters["interest-gap"] += 1
            return False
        for topic in removed:
            known.topics.pop(topic, None)
            zones = self._interested.get(topic)
            if zones is not None:
                zones.pop(change.zone, None)
                if not zones:
                    del self._interested[topic]
        for topic in added:
            known.topics[topic] = None
            self._interested.setdefault(topic, {})[change.zone] = None
        known.term, known.number = change.term, change.number
        return True

    def retain(self, zones: Iterable[int]) -> None:
        """Forget zones that are gone."""
        kept = dict.fromkeys(zones)
        for zone in [z for z in self._zones if z not in kept and z != self._me.zone]:
            known = self._zones[zone]
            gone = Interest(zone, known.term, known.number + 1, True, ())
            self._apply(gone)
            del self._zones[zone]

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
