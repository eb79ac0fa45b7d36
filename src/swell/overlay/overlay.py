"""The overlay of one node: membership, links, routing, wired together for one stay in one zone.

Everything below is a part with one idea; this module holds no protocol of its own beyond passing
what one part learns to those that need it, electing the zone's delegate (the living member with
the smallest id) and sharing the view that the directory gave it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from swell.errors import SwellError, WireError
from swell.overlay.attributes import AttributeLimitError
from swell.overlay.clique import Clique
from swell.overlay.contact import Contact
from swell.overlay.coordinates import Coordinate, CoordinateClient
from swell.overlay.duplicates import Ledger
from swell.overlay.interest import TOPICS, InterestAggregate
from swell.overlay.linkprobes import LinkProbes
from swell.overlay.matchers import (
    ADDRESS,
    BROADCAST,
    KEY,
    NODE,
    TOPIC,
    BroadcastMatcher,
    KeyMatcher,
    NodeMatcher,
    TopicMatcher,
)
from swell.overlay.members import Members
from swell.overlay.mesh import Mesh
from swell.overlay.messages import LinkKind
from swell.overlay.multicast import Multicast
from swell.overlay.opening import HANDOVER, Openings, Why
from swell.overlay.rebalancing import Rebalancing
from swell.overlay.recovery import Candidates, Recovery
from swell.overlay.requests import Answer, Requests
from swell.overlay.sessions import NODE_KINDS, Session, Sessions
from swell.overlay.view import VIEW, View, decode_view, encode_view
from swell.overlay.zonelinks import GAPS, LINKS, ZoneLink, ZoneLinks
from swell.rings.two_level import TwoLevelRing
from swell.settings import Settings
from swell.world import Timer, World

INTEREST_PORT = 3
SOME_MEMBERS = 1
CLIQUE = "clique"
_PUBLISH_CLIQUE_S = 0.5

_decode_contacts = msgspec.msgpack.Decoder(list[Contact]).decode
_encode = msgspec.msgpack.Encoder().encode


class Overlay:
    """One node's place in one zone, from its admission until it leaves."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        me: Contact,
        sessions: Sessions,
        candidates: Candidates,
        counters: Counter[str],
        ledger: Ledger,
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.me = me
        self.view = View()
        self._world = world
        self._sessions = sessions
        self._settings = settings
        self._counters = counters
        self._clique_timer: Timer | None = None
        self._shared_epoch = 0
        self._zones: tuple[View, int, list[int]] | None = None
        self._ring: tuple[tuple[int, int, int], TwoLevelRing] | None = None
        self.coordinates = CoordinateClient(settings.coordinates, world.rng)
        self.clique = Clique(world, settings.overlay, me, sessions, self, counters)
        self.members = Members(
            world, settings.membership, me, self.clique, self, counters, self.coordinate, bugs
        )
        for cls in Members.MESSAGES:
            sessions.handle(cls, self._on_membership, (LinkKind.CLIQUE,))
        self.zonelinks = ZoneLinks(world, me, self._publish, counters)
        self.openings = Openings(
            world, settings.overlay, me, sessions, self.zonelinks, self, counters
        )
        parts = (world, settings.overlay, me, sessions, self.clique, self.zonelinks)
        self.rebalancing = Rebalancing(*parts, self.openings, self.alive_ids, counters, bugs)
        self.recovery = Recovery(
            *parts, self.openings, self.alive_ids, self.other_zones, candidates,
            self._ask_for_members, counters,
        )  # fmt: skip
        self.multicast = Multicast(*parts, counters, ledger, bugs)
        self.requests = Requests(world, me, self.multicast, counters)
        self.requests.answer(SOME_MEMBERS, lambda question, body: self._some_members_now())
        self.mesh = Mesh(
            world, me, self.multicast, self.requests, self.zonelinks, settings.request_timeout_s
        )
        self.interest = InterestAggregate(
            world, me, sessions, self.clique, self._publish, self._announce,
            self.is_delegate, ledger.topics, counters,
        )  # fmt: skip
        self.probes = LinkProbes(
            world,
            settings.overlay,
            sessions,
            self.zonelinks,
            self.coordinate,
            self.on_rtt,
            self.gaps,
            self.interest.version,
            self.interest.on_probe,
            self._on_silent,
            counters,
        )
        self._register_matchers()

    def _register_matchers(self) -> None:
        register = self.multicast.register
        register(BROADCAST, BroadcastMatcher(lambda: self.clique.up, self.other_zones))
        register(NODE, NodeMatcher(self.me))
        register(TOPIC, TopicMatcher("topic", b"t:", self.interest))
        register(ADDRESS, TopicMatcher("address", b"a:", self.interest))
        register(KEY, KeyMatcher(self.me, self.ring, self.alive_ids))
        self.multicast.listen(INTEREST_PORT, self.interest.on_announcement)

    def start(
        self,
        members: Sequence[Contact],
        bootstrap: Sequence[tuple[int, Sequence[Contact]]],
        view: View,
    ) -> None:
        """Take part, with what the directory said at admission."""
        self.view = view
        self.members.start(members)
        self.probes.start()
        self.rebalancing.start()
        self.recovery.start(bootstrap)
        self.interest.start()

    def stop(self) -> None:
        """Say goodbye to the zone, close the links, and hear of nothing any more."""
        self.members.stop()
        for part in (
            self.openings,
            self.probes,
            self.rebalancing,
            self.recovery,
            self.interest,
            self.requests,
        ):
            part.stop()
        if self._clique_timer is not None:
            self._clique_timer.cancel()
        self.zonelinks.close()
        self.clique.close()
        self._sessions.retire(NODE_KINDS, "left")

    # What others ask.

    def alive_ids(self) -> list[int]:
        return [contact.id for contact in self.members.alive()]

    def is_delegate(self) -> bool:
        return self.members.alive()[0].id == self.me.id

    def other_zones(self) -> list[int]:
        """All zones but this one: those of the view, and those linked to before the view came."""
        version = self.zonelinks.version
        if self._zones is None or self._zones[0] is not self.view or self._zones[1] != version:
            zones = dict.fromkeys(info.id for info in self.view.zones)
            zones.update(dict.fromkeys(self.zonelinks.holders))
            zones.pop(self.me.zone, None)
            self._zones = (self.view, version, list(zones))
        return self._zones[2]

    def gaps(self) -> tuple[int, ...]:
        """Zones that this node cannot help a message to: no member it reaches has a link there."""
        up, holders = self.clique.up, self.zonelinks.holders
        return tuple(
            zone
            for zone in self.other_zones()
            if zone not in self.zonelinks.mine
            and not any(member in up for member in holders.get(zone, ()))
        )

    def coordinate(self) -> Coordinate:
        return self.coordinates.coordinate

    def ring(self) -> TwoLevelRing:
        """The two-level ring of the current view, with this zone's size as its members see it."""
        alive = self.alive_ids()
        stamp = (self.view.epoch, len(alive), sum(alive))
        if self._ring is None or self._ring[0] != stamp:
            sizes: dict[int, int | Sequence[int]] = {z.id: z.size for z in self.view.zones}
            sizes.setdefault(self.me.zone, len(alive))
            overlay = self._settings.overlay
            ring = TwoLevelRing(sizes, overlay.slice_size, overlay.ring_points)
            self._ring = (stamp, ring)
        return self._ring[1]

    def set_view(self, view: View) -> None:
        """The directory gave this delegate a newer view: share it."""
        if view.epoch > self.view.epoch:
            self._adopt_view(view)
            self.share_view()

    def share_view(self) -> None:
        """A delegate sees to it that its zone has its view, whoever it got it from."""
        if self._shared_epoch < self.view.epoch:
            self._shared_epoch = self.view.epoch
            self._publish(VIEW, encode_view(self.view))

    def _adopt_view(self, view: View) -> None:
        self.view = view
        self.interest.retain(self.other_zones())

    def _publish(self, key: str, value: bytes) -> None:
        try:
            self.members.set_attribute(key, value, urgent=True)
        except AttributeLimitError:
            # Thousands of zones, or very long names: what was published before stays.
            self._counters["attribute-too-long"] += 1

    def _announce(self, payload: bytes) -> None:
        self.multicast.send(BROADCAST, b"", INTEREST_PORT, payload)

    # Membership.

    def _on_membership(self, session: Session, message: object) -> None:
        if session.zone == self.me.zone:
            self.members.on_message(session.peer.id, message)

    def on_member_alive(self, member: Contact) -> None:
        self.clique.want(member)
        self.interest.check_later()

    def on_member_dead(self, member: Contact, left: bool) -> None:
        self.clique.drop(member.id)
        self._publish_clique_later()
        self.zonelinks.forget(member.id)
        self.interest.forget(member.id)
        self.coordinates.forget(member.id)
        self.zonelinks.flushed(member.id)

    def on_attribute(self, member: int, key: str, value: bytes) -> None:
        if key in (LINKS, GAPS):
            self.zonelinks.on_attribute(member, key, value)
            self.rebalancing.answer_flushes()
        elif key == TOPICS:
            self.interest.on_attribute(member, value)
        elif key == VIEW and value:
            try:
                view = decode_view(value)
            except WireError:
                self._counters["bad-attribute"] += 1
                return
            if view.epoch > self.view.epoch:
                self._adopt_view(view)

    def on_rtt(self, member: int, coordinate: Coordinate | None, rtt_s: float) -> None:
        if coordinate is not None and not self.coordinates.update(member, coordinate, rtt_s):
            self._counters["bad-coordinate"] += 1

    # The clique.

    def _publish_clique_later(self) -> None:
        """Let the zone know, for the record, to whom this node is connected."""
        if self._clique_timer is None:
            self._clique_timer = self._world.call_later(_PUBLISH_CLIQUE_S, self._publish_clique)

    def _publish_clique(self) -> None:
        self._clique_timer = None
        self.members.set_attribute(CLIQUE, _encode(sorted(self.clique.up)))

    def on_clique_up(self, contact: Contact) -> None:
        self._publish_clique_later()
        self.members.on_link_up(contact.id, contact.epoch)
        self.interest.on_clique_up(contact.id)

    def on_clique_down(self, member: int) -> None:
        self._publish_clique_later()
        self.members.on_link_down(member)
        self.zonelinks.flushed(member)

    # Links between zones.

    def some_members(self, count: int) -> tuple[Contact, ...]:
        alive = self.members.alive()
        return tuple(self._world.rng.sample(alive, min(count, len(alive))))

    def _some_members_now(self) -> bytes:
        return _encode(self.some_members(self._settings.overlay.candidates))

    def _ask_for_members(self, zone: int, done: Callable[[Sequence[Contact]], None]) -> None:
        """Ask whichever member of another zone a message reaches for members of that zone."""

        def answered(answer: Answer | SwellError) -> None:
            try:
                done([] if isinstance(answer, SwellError) else _decode_contacts(answer.payload))
            except msgspec.DecodeError:
                self._counters["bad-answer"] += 1
                done([])

        window_s = self._settings.overlay.candidate_window_s
        self.requests.ask(zone, 0, SOME_MEMBERS, b"", window_s, answered)

    def on_contacts(self, contacts: Sequence[Contact]) -> None:
        self.recovery.remember(contacts)

    def may_adopt(self, session: Session, why: Why) -> bool:
        return why != HANDOVER or self.rebalancing.may_adopt(session)

    def on_adopted(self, link: ZoneLink) -> None:
        if link.why == HANDOVER and not link.session.link.dialed:
            self.rebalancing.on_adopted(link)

    def on_link_lost(self, link: ZoneLink, reason: str) -> None:
        self.rebalancing.on_link_lost(link)
        self.coordinates.forget(link.peer.id)

    def _on_silent(self, link: ZoneLink) -> None:
        link.session.close(reason="silent")
        self.zonelinks.remove(link, "silent")
        self.on_link_lost(link, "silent")
