"""Delivery: follows the configurations that this node serves, and brings them to containers.

Wires the parts together and keeps their time. Whatever is committed is looked at once per turn of
the loop, so that an update alone leaves at once and many leave together. One sweep looks for what
is late; it runs only while something is on its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swell.config import reports
from swell.config.delivery import status
from swell.config.delivery.avoidance import Avoidance
from swell.config.delivery.feeds import Feed
from swell.config.delivery.following import Following, Slots
from swell.config.delivery.inquiries import Inquiries
from swell.config.delivery.receipts import Receipts
from swell.config.delivery.recording import FORGOTTEN, LINK_LOST, MOVED, Recording
from swell.config.delivery.retries import Retries
from swell.config.delivery.rosters import Rosters, Tell
from swell.config.delivery.sending import Sending
from swell.config.delivery.subscribers import Container, Member, Subscribers
from swell.config.delivery.subscribing import Subscribing
from swell.config.delivery.waiting import Done, Waiting
from swell.config.messages import (
    Complaint,
    Items,
    ListRequest,
    Moved,
    Receipt,
    Rejected,
    Renew,
    Repair,
    Roster,
    Subscribe,
    Unsubscribe,
)
from swell.errors import WireError
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.settings import ConfigSettings
from swell.store.messages import Execute, Status
from swell.world import Link, Timer, World

TICK_S = 0.05
"""How often what is late is looked for, while something is on its way."""

REST_S = 1.0
"""... and while only marks and offline containers have to be forgotten in time."""


STALL_S = 0.25
"""A sweep that is later than this finds a node that was stalled itself: it judges nobody before
what has come meanwhile is read. The next one does, however late."""


class Delivery:
    """One node's part: a listener of its store, and the host of its containers."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        slots: Slots,
        settings: ConfigSettings,
        cluster: str,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
        tell: Tell | None = None,
    ) -> None:
        self.world = world
        self.slots = slots
        self.settings = settings
        self.cluster = cluster
        self.counters = counters
        self.key = Ed25519PrivateKey.from_private_bytes(world.entropy(32))
        self.public_key = self.key.public_key().public_bytes_raw()
        self.subscribers = Subscribers()
        self.feeds = Following(slots, "stale-list" in bugs)
        self._serving_since: dict[int, float] = {}
        self._dirty: dict[Feed, None] = {}
        self._to_serve: dict[Member, bool] = {}
        """And whether it has asked for it."""
        self._to_look: dict[str, None] = {}
        self._turning = False
        self._failures: list[Exception] = []
        """Of this turn."""
        self._watched: dict[Feed, None] = {}
        self._sweep_timer: Timer | None = None
        self._sweep_at = 0.0
        self._stalled = False
        self.recording = Recording(world, slots)
        self.sending = Sending(self)
        self.receipts = Receipts(self)
        self.retries = Retries(self)
        self.avoidance = Avoidance(self)
        self.inquiries = Inquiries(self)
        self.rosters = Rosters(self, tell)
        self.waiting = Waiting(self)
        self._handle_messages(sessions, Subscribing(self))

    def _handle_messages(self, sessions: Sessions, subscribing: Subscribing) -> None:
        handlers: tuple[tuple[type, Callable[[Session, Any], None]], ...] = (
            (Subscribe, subscribing.on_subscribe),
            (Unsubscribe, subscribing.on_unsubscribe),
            (Repair, subscribing.on_repair),
            (Renew, subscribing.on_renew),
            (Rejected, subscribing.on_rejected),
            (ListRequest, subscribing.on_list_request),
            (Receipt, self.receipts.on_receipt),
            (Items, self.inquiries.on_items),
            (Complaint, self.avoidance.on_complaint),
        )
        for cls, handler in handlers:
            sessions.handle(cls, handler, (LinkKind.CLIENT,))
        sessions.handle(Roster, self.rosters.on_roster, (LinkKind.STORE,))

    def follow(self, settings: ConfigSettings) -> None:
        """Work with these from here on: trees are made anew before they are used again."""
        self.settings = settings
        for slot in self.feeds.served_slots():
            for feed in self.feeds.in_slot(slot):
                feed.spoil()

    # The store's listener.

    def on_serving(self, slot: int) -> None:
        self._serving_since[slot] = self.world.now()
        self.rosters.recall(slot)

    def serving_since(self, slot: int) -> float:
        return self._serving_since.get(slot, 0.0)

    def on_committed(self, slot: int) -> None:
        for feed in self.feeds.changed(slot):
            self.soon(feed)

    def on_stopped(self, slot: int) -> None:
        """Its containers go to the next primary by themselves; they are told, to save time."""
        self._serving_since.pop(slot, None)
        self.feeds.stop(slot)
        primary = self.slots.primary(slot)
        if primary is not None and primary.id == self.slots.me:
            primary = None
        moved: dict[Session, dict[str, None]] = {}
        for feed in self.feeds.in_slot(slot):
            for member in list(feed.members.values()):
                session = member.container.session
                if session is not None:
                    moved.setdefault(session, {})[feed.application] = None
                self.drop(member, MOVED)
        for session, applications in moved.items():
            session.send(Moved(tuple(applications), primary))
        self.waiting.stop(slot)

    # Turns.

    def soon(self, feed: Feed) -> None:
        """Something may have to be sent to those in step."""
        self._dirty[feed] = None
        self._turn_soon()

    def serve_soon(self, member: Member, asked: bool = False) -> None:
        self._to_serve[member] = asked or self._to_serve.get(member, False)
        self._turn_soon()

    def look_soon(self, application: str) -> None:
        """Somebody may wait for what has come about."""
        self._to_look[application] = None
        self._turn_soon()

    def progressed(self, feed: Feed) -> None:
        if self.waiting.has(feed.application):
            self.look_soon(feed.application)

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            self.world.call_later(0.0, self._turn)

    def _turn(self) -> None:
        self._turning = False
        dirty, self._dirty = self._dirty, {}
        for feed in dirty:
            if feed.members:
                self._guard(self.sending.pump, feed)
        members, self._to_serve = self._to_serve, {}
        for member, asked in members.items():
            if member.feed.members.get(member.container) is member:
                self._guard(self.sending.serve, member, asked)
        looks, self._to_look = self._to_look, {}
        now = self.world.now()
        for application in looks:
            self._guard(self.waiting.check, application, now)
        if self.waiting:
            self._sweep_by(TICK_S)
        self._report()

    def _guard(self, action: Callable[..., None], *arguments: Any) -> None:
        """A mistake of our own about one of them costs nobody behind it its turn."""
        try:
            action(*arguments)
        except Exception as error:
            self._failures.append(error)

    def _report(self) -> None:
        """Let the world know of a mistake, when everybody has had a turn."""
        if self._failures:
            failures, self._failures = self._failures, []
            self.counters["config-turn-failed"] += len(failures)
            raise failures[0]

    # The sweep.

    def watch(self, feed: Feed) -> None:
        """Something of this feed is on its way."""
        self._watched[feed] = None
        self._sweep_by(TICK_S)

    def watch_inquiries(self) -> None:
        self._sweep_by(TICK_S)

    def watch_marks(self) -> None:
        self._sweep_by(REST_S)

    def _sweep_by(self, delay_s: float) -> None:
        due = self.world.now() + delay_s
        if self._sweep_timer is not None:
            if self._sweep_at <= due:
                return
            self._sweep_timer.cancel()
        self._sweep_at = due
        self._sweep_timer = self.world.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self.world.now()
        watched, self._watched = self._watched, {}
        self._stalled = now - self._sweep_at > STALL_S and not self._stalled
        for feed in watched:
            if not self._stalled:
                self._guard(self.retries.sweep, feed, now)
            self._guard(self.sending.pass_over, feed, now)
            self._guard(self.sending.ask, feed, now)
            if feed.is_busy():
                self.watch(feed)
        if self.inquiries and not self._stalled:
            self.inquiries.expire(now)
        self.avoidance.expire(now)
        for container in self.subscribers.expired(now - self.settings.offline_s):
            self.forget(container)
        if self.waiting:
            thorough = self.waiting.is_thorough(now)
            for application in self.waiting.applications():
                self._guard(self.waiting.check, application, now, thorough)
            self._sweep_by(TICK_S)
        if self.inquiries:
            self._sweep_by(TICK_S)
        if self.avoidance or self.subscribers.offline:
            self._sweep_by(REST_S)
        self._report()

    # Links.

    def on_closed(self, session: Session) -> None:
        """A client's link has ended."""
        container = self.subscribers.of(session)
        if container is None:
            return
        now = self.world.now()
        for member in container.members:
            self.recording.unsubscribed(member, LINK_LOST)
            self.step_out(member)
            member.feed.strays.pop(member, None)
            member.feed.away[member] = None
            member.leg = member.blame = None
            self.rosters.note(member)
            self.progressed(member.feed)
        forgotten = self.subscribers.detach(container, now)
        self.retries.on_gone(container)
        for other in forgotten:
            self.forget(other)
        self._sweep_by(REST_S)

    def on_writable(self, link: Link) -> None:
        """A container reads again."""
        container = self.subscribers.of(link.session) if self.subscribers else None
        if container is None:
            return
        for member in container.members:
            if member.blocked_at:
                member.blocked_at = 0.0
                member.speaks()
                self.serve_soon(member)

    def step_out(self, member: Member) -> None:
        """It is in step no more."""
        if member.branch is not None:
            member.feed.leave(member)
            member.feed.strays[member] = None
            self.serve_soon(member)

    def drop(self, member: Member, reason: str) -> None:
        """It is not interested any more, or not served here."""
        self.unlist(member, reason)
        container = member.container
        if not container.members:
            self.retries.on_gone(container)
            self.avoidance.forget(container)
            self.subscribers.forget(container)

    def unlist(self, member: Member, reason: str) -> None:
        """Take it out of its feed; its container stays known."""
        feed, container = member.feed, member.container
        self.recording.unsubscribed(member, reason)
        feed.leave(member)
        feed.strays.pop(member, None)
        feed.away.pop(member, None)
        del feed.members[container]
        container.members.remove(member)
        container.interest_bytes -= sum(map(len, feed.interest))
        member.abandon_leg()
        self.rosters.note(member)
        if not feed.members:
            self.feeds.forget(feed)

    def forget(self, container: Container) -> None:
        for member in list(container.members):
            self.drop(member, FORGOTTEN)

    # Questions.

    def execute(self, request: Execute, done: Done) -> None:
        """Service 3: who has what. `done` may be called at once."""
        try:
            question = reports.decode(request.body)
        except WireError as error:
            done(Status.REFUSED, str(error).encode())
            return
        if self.feeds.slot_of(question.application) != request.slot:
            done(Status.REFUSED, b"the application is not in this slot: use CRC32")
        elif not self.feeds.serves(request.slot):
            done(Status.REDIRECT, b"")
        elif isinstance(question, reports.Await):
            self.waiting.begin(question, request.deadline_s, done)
        else:
            application = self.feeds.find(request.slot, question.application)
            feeds, now = self.feeds.of(question.application), self.world.now()
            answer = status.report(question, application, feeds, now)
            done(Status.DONE, reports.encode_answer(answer))

    def statistics(self) -> dict[str, int]:
        return {
            "containers": len(self.subscribers) - self.subscribers.offline,
            "offline": self.subscribers.offline,
            "feeds": len(self.feeds),
            "avoided": len(self.avoidance),
            "waiting": len(self.waiting),
        }
