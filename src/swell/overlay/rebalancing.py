"""Rebalancing of links between zones (THOR 3.3).

Periodically the members with the most links each hand their least used one to a member with the
fewest, if that has at least two fewer. The steps, for old, new and external node:

    old → external   LeaseRequest       external → old   LeaseReply(granted)
    old → new        TakeOver           new dials external and asks it to adopt the link
    external switches its traffic to the new link and says Bye on the old one
    new tells its zone that it holds the link; new → old   TookOver
    old → members    Flush              members → old    Flushed, once they know the new holder
    old forwards a member's messages until that member's Flushed, then says Bye; closed

Invariants: a node holds or grants at most one lease at a time, so no link is handed over by both
its ends at once; when both ends ask for the same link, the zone of higher priority wins. A new
node takes over one link at a time. No message is lost by a hand-over: a member's messages travel
by the old link until it is certain that the new holder gets them. Flushed and Bye stay behind
the data that was sent before them.

Redundant links (two to the same zone, after partitions healed) end the same way, without a lease:
the zone of higher priority keeps the one between the smallest ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

from swell.events import MigrationBegan, MigrationEnded
from swell.overlay.clique import Clique
from swell.overlay.contact import Contact
from swell.overlay.messages import (
    Bye,
    Flush,
    Flushed,
    LeaseReply,
    LeaseRequest,
    LinkKind,
    TakeOver,
    TookOver,
)
from swell.overlay.opening import HANDOVER, Openings
from swell.overlay.sessions import Session, Sessions
from swell.overlay.zonelinks import ZoneLink, ZoneLinks
from swell.settings import OverlaySettings
from swell.wire import codec
from swell.world import Plane, Timer, World

NO_LEASE = "no-lease"
"""Planted bug: hand links over without asking the external node."""


FLUSHES_MAX = 256
_FLUSH_RETRY_S = 0.1

RELEASING = ("timeout", "refused", "successor-gone")
"""Outcomes after which the external node still keeps the lease: it is told."""


def transfers(loads: dict[int, int]) -> dict[int, int]:
    """Old member → new member: the most loaded hand to the least loaded, pairwise, as long as
    that evens them out."""
    order = sorted(loads, key=lambda member: (loads[member], member))
    pairs: dict[int, int] = {}
    low, high = 0, len(order) - 1
    while low < high and loads[order[high]] - loads[order[low]] >= 2:
        pairs[order[high]] = order[low]
        low += 1
        high -= 1
    return pairs


class Rebalancing:
    """This node's part in rebalancing, as old, new or external node."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        me: Contact,
        sessions: Sessions,
        clique: Clique,
        zonelinks: ZoneLinks,
        openings: Openings,
        alive: Callable[[], list[int]],
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self._world = world
        self._settings = settings
        self._me = me
        self._clique = clique
        self._zonelinks = zonelinks
        self._openings = openings
        self._alive = alive
        self._counters = counters
        self._bugs = bugs
        self._asked: ZoneLink | None = None
        self._granted: ZoneLink | None = None
        self._successor = 0
        self._began = False
        self._taking_from = 0
        self._deadline: Timer | None = None
        self._timer: Timer | None = None
        self._flushes: dict[tuple[Session, int, int], None] = {}
        self._flush_timer: Timer | None = None
        between, within = (LinkKind.CANDIDATE,), (LinkKind.CLIQUE,)
        sessions.handle(LeaseRequest, self.on_lease_request, between)
        sessions.handle(LeaseReply, self.on_lease_reply, between)
        sessions.handle(Bye, self.on_bye, between)
        sessions.handle(TakeOver, self.on_take_over, within)
        sessions.handle(TookOver, self.on_took_over, within)
        sessions.handle(Flush, self.on_flush, within)
        sessions.handle(Flushed, self.on_flushed, within)

    def start(self) -> None:
        delay = self._settings.rebalance_interval_s * (0.75 + 0.5 * self._world.rng.random())
        self._timer = self._world.call_later(delay, self._tick)

    def stop(self) -> None:
        for timer in (self._timer, self._deadline, self._flush_timer):
            if timer is not None:
                timer.cancel()

    def _tick(self) -> None:
        self.start()
        self._prune()
        self.answer_flushes()
        if self._asked is None and not self._grants_a_lease():
            loads = {member: self._zonelinks.load_of(member) for member in self._alive()}
            successor = transfers(loads).get(self._me.id)
            if successor is not None and successor in self._clique.up:
                self._hand_over(successor)

    # The old node.

    def _hand_over(self, successor: int) -> None:
        links = [link for link in self._zonelinks.all() if link.session.open]
        if not links:
            return
        link = min(links, key=lambda k: (k.used, k.zone, k.peer.id))
        link.used //= 2
        self._asked = link
        self._successor = successor
        self._deadline = self._world.call_later(
            self._settings.lease_s / 2, lambda: self._end("timeout")
        )
        if NO_LEASE in self._bugs:
            self._lease_granted(link)
        else:
            link.session.send(LeaseRequest())

    def on_lease_reply(self, session: Session, message: LeaseReply) -> None:
        link = self._zonelinks.find(session)
        if link is None:
            return
        if link is self._granted and message.reason == "released":
            self._granted = None
        if link is self._asked and not self._began:
            if message.granted:
                self._lease_granted(link)
            else:
                self._counters[f"lease-denied-{message.reason}"] += 1
                self._end("denied")

    def _lease_granted(self, link: ZoneLink) -> None:
        self._began = True
        self._world.emit(MigrationBegan(link.peer.id, link.zone, self._successor))
        if not self._clique.send(self._successor, codec.encode(TakeOver(link.peer))):
            self._end("successor-gone")

    def on_took_over(self, session: Session, message: TookOver) -> None:
        link = self._asked
        if link is None or message.external != link.peer.id or session.peer.id != self._successor:
            return
        if not message.accepted:
            self._counters[f"takeover-{message.reason}"] += 1
            self._end("refused")
            return
        self._counters["handed-over"] += 1
        self._retire(link)
        self._end("done")

    def _retire(self, link: ZoneLink) -> None:
        """Another link serves this zone: use this one only for what is already on its way, and
        for members that do not know the other one yet. If this node holds that as well, it is
        the one to send to as before."""
        senders: list[int] = []
        if len(self._zonelinks.mine.get(link.zone, ())) < 2:
            flush = codec.encode(Flush(link.zone, link.peer.id))
            senders = [member for member in self._clique.up if self._clique.send(member, flush)]
        self._zonelinks.drain(link, senders)

    def _end(self, outcome: str) -> None:
        link, self._asked = self._asked, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if link is None:
            return
        if self._began:
            self._world.emit(MigrationEnded(link.peer.id, link.zone, outcome))
        self._began = False
        if link.bye_received and link.draining is None:
            self._retire(link)
        elif outcome in RELEASING and link.session.open:
            link.session.send(LeaseReply(False, "released"))

    def on_bye(self, session: Session, _: Bye) -> None:
        """The other end has another link. During a hand-over that is the successor's, and its
        TookOver follows; else it has retired this one."""
        link = self._zonelinks.find(session)
        if link is None:
            return
        self._zonelinks.on_bye(link)
        if link.draining is None and not (link is self._asked and self._began):
            self._retire(link)

    def on_link_lost(self, link: ZoneLink) -> None:
        """The link went down by itself: whatever was planned for it is off."""
        if link is self._asked:
            self._end("link-lost")
        if link is self._granted:
            self._granted = None

    def on_flushed(self, session: Session, message: Flushed) -> None:
        self._zonelinks.flushed(session.peer.id, message.external)

    # The external node.

    def _grants_a_lease(self) -> bool:
        link = self._granted
        if link is not None and (link.leased_until < self._world.now() or not link.session.open):
            self._granted = None
        return self._granted is not None

    def on_lease_request(self, session: Session, _: LeaseRequest) -> None:
        link = self._zonelinks.find(session)
        reason: Literal["", "not-active", "dispute", "busy"] = ""
        if link is None or link.draining is not None:
            reason = "not-active"
        elif link is self._asked:
            if self._began or self._me.zone < session.zone:
                reason = "dispute"
            else:
                self._end("dispute")
        elif self._asked is not None or self._grants_a_lease():
            reason = "busy"
        if link is not None and not reason:
            self._granted = link
            link.leased_until = self._world.now() + self._settings.lease_s
        session.send(LeaseReply(not reason, reason))

    def may_adopt(self, session: Session) -> bool:
        """A hand-over is adopted only under a lease for a link to the same zone."""
        if NO_LEASE in self._bugs:
            return True
        return (
            self._grants_a_lease()
            and self._granted is not None
            and self._granted.zone == session.zone
        )

    def on_adopted(self, link: ZoneLink) -> None:
        """The successor is connected: move all traffic to its link at once."""
        old = self._granted
        if NO_LEASE in self._bugs:
            others = [k for k in self._zonelinks.mine.get(link.zone, []) if k is not link]
            old = others[0] if others else None
        self._granted = None
        if old is not None and old is not link:
            self._zonelinks.drain(old)

    # The new node.

    def on_take_over(self, session: Session, message: TakeOver) -> None:
        external = message.external
        reason: Literal["", "busy", "balanced"] = ""
        if self._taking_from:
            reason = "busy"
        elif self._zonelinks.load_of(session.peer.id) - self._zonelinks.load() < 2:
            reason = "balanced"
        if reason:
            session.send(TookOver(external.id, False, reason))
            return
        self._taking_from = session.peer.id

        def opened(link: ZoneLink | None) -> None:
            self._taking_from = 0
            self._zonelinks.publish_now()
            if session.open:
                session.send(TookOver(external.id, link is not None, "" if link else "failed"))

        self._openings.open(external.zone, (external,), HANDOVER, opened)

    # Every member.

    def on_flush(self, session: Session, message: Flush) -> None:
        """A member gives up a link. It forwards for us until we know who has another one."""
        if len(self._flushes) < FLUSHES_MAX:
            self._flushes[session, message.zone, message.external] = None
            self.answer_flushes()
        else:
            self._counters["flushes-full"] += 1

    def answer_flushes(self) -> None:
        """The table of holders may have changed."""
        for flush in list(self._flushes):
            session, zone, external = flush
            if not session.open:
                del self._flushes[flush]
            elif self._zonelinks.served_without(session.peer.id, zone):
                self._zonelinks.give_up(session.peer.id, zone, external)
                if session.link.send(codec.encode(Flushed(zone, external)), Plane.DATA):
                    del self._flushes[flush]
                elif self._flush_timer is None:
                    self._flush_timer = self._world.call_later(_FLUSH_RETRY_S, self._retry_flushes)

    def _retry_flushes(self) -> None:
        self._flush_timer = None
        self.answer_flushes()

    def _prune(self) -> None:
        """Retire own links that are redundant for too long to be a hand-over in progress."""
        now = self._world.now()
        for zone, links in list(self._zonelinks.mine.items()):
            if zone < self._me.zone:
                continue
            pairs = sorted(
                (member, peer)
                for member in self._zonelinks.holders.get(zone, ())
                for other, peer in self._zonelinks.links_of(member)
                if other == zone
            )
            kept = next((k for k in links if (self._me.id, k.peer.id) == pairs[0]), None)
            for link in [k for k in links if len(pairs) > 1 and k is not kept]:
                settled = now - link.opened_at > self._settings.lease_s
                busy = link is self._asked or link is self._granted
                if settled and not busy:
                    self._counters["pruned"] += 1
                    self._retire(link)
