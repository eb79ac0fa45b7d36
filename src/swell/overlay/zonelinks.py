"""Links between zones: those this node holds, and what its zone knows of the rest (THOR 2, 3.2).

Every member publishes the links it holds as its attribute `links`, so that the whole zone knows
who holds the link to which other zone (`holders`) and how many each member holds (`loads`). A
holder also publishes which zones the zones at the other end have lost (`gaps`, heard from them on
link probes), so that a detour is only tried where it can succeed.

States of a link: active → handing over (a lease is held) → draining (new traffic uses another
link; ends when both sides have said `Bye`) → closed. Only active links are published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from swell.events import LinkClosed, LinkOpened
from swell.overlay.contact import Contact
from swell.overlay.messages import Bye
from swell.overlay.sessions import Session
from swell.wire import codec
from swell.world import Plane, Timer, World

LINKS = "links"
GAPS = "gaps"

_PUBLISH_DELAY_S = 0.02
_LOST_S = 3.0
_BYE_RETRY_S = 0.1

GAPS_TOLD_MAX = 128
"""Gaps of one neighbouring zone that are told and kept: more are rare, and a detour that meets
one of them is merely sent back."""

_encode = msgspec.msgpack.Encoder().encode
_decode_links = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_gaps = msgspec.msgpack.Decoder(dict[int, list[int]]).decode


class ZoneLink:
    """One link of this node into another zone."""

    __slots__ = (
        "bye_received",
        "bye_sent",
        "drained_at",
        "draining",
        "gaps",
        "heard_at",
        "leased_until",
        "opened_at",
        "ping_sent",
        "rtt_s",
        "session",
        "used",
        "why",
    )

    def __init__(self, session: Session, why: str, now: float) -> None:
        self.session = session
        self.why = why
        self.opened_at = now
        self.heard_at = now
        self.used = 0
        self.gaps: tuple[int, ...] = ()
        self.ping_sent: dict[int, float] = {}
        self.rtt_s = 0.0
        self.leased_until = 0.0
        self.draining: dict[int, None] | None = None
        self.drained_at = 0.0
        self.bye_sent = False
        self.bye_received = False

    @property
    def zone(self) -> int:
        return self.session.zone

    @property
    def peer(self) -> Contact:
        return self.session.peer


class ZoneLinks:
    """The table of links between this zone and the others, as this node knows it."""

    def __init__(
        self,
        world: World,
        me: Contact,
        publish: Callable[[str, bytes], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._me = me
        self._publish = publish
        self._counters = counters
        self._timer: Timer | None = None
        self._published: dict[str, bytes] = {}
        self._links_of: dict[int, list[tuple[int, int]]] = {me.id: []}
        self._gaps_of: dict[int, dict[int, list[int]]] = {}
        self.mine: dict[int, list[ZoneLink]] = {}
        self.drains: list[ZoneLink] = []
        self._lost_at: dict[int, float] = {}
        self.holders: dict[int, tuple[int, ...]] = {}
        """Zone → the members of this zone that hold a link to it, by id; normally one."""
        self.version = 0
        """Grows whenever `holders` changes."""
        self._gaps: dict[int, frozenset[int]] | None = None

    # Links of this node.

    def add(self, session: Session, why: str) -> ZoneLink:
        """Take a session into use as a link between zones."""
        link = ZoneLink(session, why, self._world.now())
        self.mine.setdefault(session.zone, []).append(link)
        self._world.emit(LinkOpened(session.peer.id, session.zone, why))
        self._changed()
        return link

    def find(self, session: Session) -> ZoneLink | None:
        """The link on this session, active or draining."""
        for link in self.mine.get(session.zone, ()):
            if link.session is session:
                return link
        for link in self.drains:
            if link.session is session:
                return link
        return None

    def load(self) -> int:
        """How many active links between zones this node holds."""
        return sum(len(links) for links in self.mine.values())

    def all(self) -> list[ZoneLink]:
        return [link for links in self.mine.values() for link in links]

    def remove(self, link: ZoneLink, why: str) -> None:
        """The link is gone or closed."""
        if link in self.drains:
            self.drains.remove(link)
        else:
            links = self.mine.get(link.zone, [])
            if link not in links:
                return
            links.remove(link)
            if not links:
                del self.mine[link.zone]
            self._lost_at[link.zone] = self._world.now()
            self._changed()
        self._world.emit(LinkClosed(link.peer.id, link.zone, why))

    def just_lost(self) -> list[int]:
        """Zones to which this node lost the zone's only link so recently that some members may
        still send it their messages."""
        if not self._lost_at:
            return []
        now = self._world.now()
        self._lost_at = {
            zone: at
            for zone, at in self._lost_at.items()
            if now - at < _LOST_S and zone not in self.holders
        }
        return list(self._lost_at)

    def drain(self, link: ZoneLink, senders: Iterable[int] = ()) -> None:
        """Stop using the link for new traffic. Messages of `senders` are still forwarded on it
        until each has said that the new holder gets its messages in time."""
        links = self.mine.get(link.zone, [])
        if link not in links:
            return
        links.remove(link)
        if not links:
            del self.mine[link.zone]
        link.draining = dict.fromkeys(senders)
        link.drained_at = self._world.now()
        self.drains.append(link)
        self._changed()
        if not link.draining:
            self.say_bye(link)

    def flushed(self, sender: int, external: int = 0) -> None:
        """`sender` uses the new holder (or is gone): nothing of it need go by the old link to
        `external` (0: any)."""
        for link in list(self.drains):
            if link.draining and external in (0, link.peer.id):
                link.draining.pop(sender, None)
                if not link.draining:
                    self.say_bye(link)

    def say_bye(self, link: ZoneLink) -> None:
        """Behind all that is queued: on the data plane, which control frames overtake."""
        if link not in self.drains:
            return
        if not link.bye_sent:
            link.bye_sent = link.session.link.send(codec.encode(Bye()), Plane.DATA)
        if link.bye_sent:
            self._finish(link)
        else:
            self._world.call_later(_BYE_RETRY_S, lambda: self.say_bye(link))

    def on_bye(self, link: ZoneLink) -> None:
        """The other side sends nothing any more on this link."""
        link.bye_received = True
        self._finish(link)

    def _finish(self, link: ZoneLink) -> None:
        if link.bye_sent and link.bye_received and link in self.drains:
            link.session.close(drain=True, reason="handed-over")
            self.remove(link, "handed-over")

    # What the zone knows.

    def on_attribute(self, member: int, key: str, value: bytes) -> None:
        """A member published its links or gaps (empty: it is gone)."""
        if member == self._me.id:
            return
        try:
            if key == LINKS:
                self._set_links(member, _decode_links(value) if value else [])
            elif value:
                self._gaps_of[member] = _decode_gaps(value)
            else:
                self._gaps_of.pop(member, None)
        except msgspec.DecodeError:
            self._counters["bad-attribute"] += 1
            return
        self._gaps = None

    def served_without(self, member: int, zone: int) -> bool:
        """Is the zone known to be linked by somebody else than this member?"""
        return any(holder != member for holder in self.holders.get(zone, ()))

    def give_up(self, member: int, zone: int, external: int) -> None:
        """The member said that it no longer uses this link; its attribute will say so too."""
        links = self._links_of.get(member, [])
        if (zone, external) in links:
            self._set_links(member, [link for link in links if link != (zone, external)])

    def forget(self, member: int) -> None:
        """The member is dead: so are its links."""
        self._set_links(member, [])
        self._gaps_of.pop(member, None)
        self._gaps = None

    def _set_links(self, member: int, links: list[tuple[int, int]]) -> None:
        before = dict.fromkeys(zone for zone, _ in self._links_of.get(member, ()))
        after = dict.fromkeys(zone for zone, _ in links)
        if links or member == self._me.id:
            self._links_of[member] = links
        else:
            self._links_of.pop(member, None)
        for zone in before:
            if zone not in after:
                rest = tuple(holder for holder in self.holders[zone] if holder != member)
                if rest:
                    self.holders[zone] = rest
                else:
                    del self.holders[zone]
                self.version += 1
        for zone in after:
            if zone not in before:
                self.holders[zone] = tuple(sorted((*self.holders.get(zone, ()), member)))
                self.version += 1

    @property
    def gaps(self) -> dict[int, frozenset[int]]:
        """Neighbouring zone → the zones that it has lost."""
        if self._gaps is None:
            self._gaps = {
                zone: frozenset(lost)
                for member in sorted(self._gaps_of)
                for zone, lost in self._gaps_of[member].items()
            }
        return self._gaps

    def load_of(self, member: int) -> int:
        return len(self._links_of.get(member, ()))

    def links_of(self, member: int) -> list[tuple[int, int]]:
        """(zone, peer) of each link that the member published."""
        return self._links_of.get(member, [])

    def set_gaps(self, link: ZoneLink, gaps: tuple[int, ...]) -> None:
        """The zone at the other end has lost these zones."""
        gaps = gaps[:GAPS_TOLD_MAX]
        if gaps != link.gaps:
            link.gaps = gaps
            self._changed()

    def _changed(self) -> None:
        self._set_links(self._me.id, sorted((k.zone, k.peer.id) for k in self.all()))
        self._gaps_of[self._me.id] = {k.zone: list(k.gaps) for k in self.all() if k.gaps}
        self._gaps = None
        if self._timer is None:
            self._timer = self._world.call_later(_PUBLISH_DELAY_S, self._publish_now)

    def publish_now(self) -> None:
        """Let the zone know before anything else that this node sends."""
        if self._timer is not None:
            self._timer.cancel()
            self._publish_now()

    def _publish_now(self) -> None:
        self._timer = None
        gaps = self._gaps_of.get(self._me.id)
        for key, value in (
            (LINKS, _encode(self._links_of[self._me.id])),
            (GAPS, _encode(gaps) if gaps else b""),
        ):
            if self._published.get(key, b"") != value:
                self._published[key] = value
                self._publish(key, value)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.drains.clear()
