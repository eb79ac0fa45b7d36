"""Attaching feeds to the nodes that serve them, and staying attached (RIP-2, RIP-5).

The table says who the primary of an application is; a node that is not redirects or says busy.
When a link is lost the first backup is asked, then the other members, then any node, with growing
pauses. Every `Subscribe` says what is here, so nothing is missed and nothing comes twice.
Feeds of one node share its link.
"""

from __future__ import annotations

from typing import Protocol

from swell.client.session_peers import Peer, Peers
from swell.client.store_session import StoreSession
from swell.config.messages import (
    Answer,
    Moved,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from swell.config.names import place
from swell.container.attachment import Attachment
from swell.container.load import Load
from swell.container.renewing import Renewing
from swell.errors import RefusedError, SwellError
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.settings import ConfigSettings
from swell.world import Address, Timer, World

LOST_S = 0.05
"""Within this time another node is asked when a link is lost; spread, since all lose it."""

ANSWER_S = 2.0
"""A `Subscribe` without an answer is sent to another node."""

RETRY_S = 0.05
RETRY_S_MAX = 1.0
REFUSED_S = 30.0
REDIRECTS_MAX = 3
"""Followed at once; then one waits: two nodes may name each other."""

TICK_S = 0.001
"""What is due within this time is due: clocks and timers do not agree to the last bit."""

CONNECT_S = 10.0

LATE_MAX = 64
"""Subscriptions that were given up before they were answered and are remembered."""

Key = tuple[str, bytes]


class Host(Protocol):
    """The container around it."""

    @property
    def world(self) -> World: ...

    @property
    def store(self) -> StoreSession: ...

    @property
    def settings(self) -> ConfigSettings: ...

    @property
    def load(self) -> Load: ...

    def subscribe_message(self, attachment: Attachment, number: int) -> Subscribe: ...

    def on_served(self, attachment: Attachment) -> None: ...

    def on_refused(self, attachment: Attachment, error: RefusedError) -> None: ...


class Attaching:
    """All feeds of one container."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._world = host.world
        self._store = host.store
        self._peers: Peers = host.store.peers
        self._settings = host.settings
        self.all: dict[Key, Attachment] = {}
        self.by_peer: dict[Peer, dict[Attachment, None]] = {}
        self._by_number: dict[int, Attachment] = {}
        self._late: dict[int, Attachment] = {}
        """Those given up: the node may yet serve them, and expects its secret in their proofs."""
        self._number = 0
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._connecting = False
        self._stopped = False
        self.renewing = Renewing(self, host.world, host.store, host.settings, host.load)
        handle = self._peers.sessions.handle
        for cls, handler in (
            (Subscribed, self.on_subscribed),
            (Moved, self.on_moved),
        ):
            handle(cls, handler, (LinkKind.CLIENT,))

    def add(self, attachment: Attachment) -> None:
        self.all[attachment.feed.key] = attachment
        self.wait(attachment, 0.0)
        self.renewing.begin()

    def remove(self, attachment: Attachment) -> None:
        self.all.pop(attachment.feed.key, None)
        if attachment.serving:
            self.send(attachment, Unsubscribe(*attachment.feed.key))
        self.leave(attachment)
        self.renewing.start_over(attachment)

    def session_of(self, attachment: Attachment) -> Session | None:
        """The link to the node that serves a feed."""
        peer = attachment.peer
        return peer.session if attachment.serving and peer is not None else None

    def send(self, attachment: Attachment, message: object) -> bool:
        session = self.session_of(attachment)
        return session is not None and session.open and session.send(message)

    # Asking.

    def wait(self, attachment: Attachment, delay_s: float) -> None:
        """Ask somebody after this time."""
        attachment.wake_at = self._world.now() + delay_s
        self._wake_by(attachment.wake_at)

    def _back_off(self, attachment: Attachment) -> None:
        delay_s = min(RETRY_S_MAX, RETRY_S * 2**attachment.attempts)
        attachment.attempts = min(attachment.attempts + 1, 16)
        self.wait(attachment, delay_s * (0.75 + 0.5 * self._world.rng.random()))

    def _wake_by(self, due: float) -> None:
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._world.call_later(max(0.0, due - self._world.now()), self._tick)

    def _tick(self) -> None:
        """Look at every feed that is not served and whose time has come."""
        self._timer = None
        if self._stopped:
            return
        now = self._world.now()
        if not self._store.slots:
            self._connect()
            return
        for attachment in list(self.all.values()):
            if not attachment.serving and attachment.wake_at <= now + TICK_S:
                if attachment.peer is not None:
                    attachment.attempts += 1  # no answer in time
                    self.leave(attachment)
                self._ask_somebody(attachment, now)
        waiting = [a.wake_at for a in self.all.values() if not a.serving]
        if waiting:
            self._wake_by(min(waiting))

    def _connect(self) -> None:
        """Without the table nobody is known to serve anything."""
        if not self._connecting:
            self._connecting = True
            self._store.connect(CONNECT_S, self._on_connected)

    def _on_connected(self, error: SwellError | None) -> None:
        self._connecting = False
        if isinstance(error, RefusedError):
            for attachment in list(self.all.values()):
                self._on_refusal(attachment, error)
        elif error is not None:
            for attachment in self.all.values():
                self._back_off(attachment)
        elif self.all:
            self._wake_by(self._world.now())

    def _ask_somebody(self, attachment: Attachment, now: float) -> None:
        peers = self._peers
        peer = self._next(attachment, now)
        if peer is None or not peers.dial(peer, now):
            self._back_off(attachment)
            return
        attachment.peer = peer
        peer.kept += 1
        self.by_peer.setdefault(peer, {})[attachment] = None
        attachment.wake_at = now + ANSWER_S * (0.75 + 0.5 * self._world.rng.random())
        if peer.open:
            self.ask(attachment, peer)

    def _next(self, attachment: Attachment, now: float) -> Peer | None:
        """Whom to ask: who was named, the primary that the table names, anybody."""
        peers = self._peers
        while attachment.queue:
            peer = peers.at(attachment.queue.pop(0))
            if peers.usable(peer, now):
                return peer
        known = self._store.peer_of(place(attachment.feed.application))
        if not attachment.attempts and known is not None and peers.usable(known, now):
            return known
        return peers.next(known, now)

    def ask(self, attachment: Attachment, peer: Peer) -> None:
        self._give_up_number(attachment)
        self._number += 1
        attachment.number = self._number
        self._by_number[self._number] = attachment
        assert peer.session is not None
        attachment.receipts.rejections.begin_anew()
        peer.session.send(self._host.subscribe_message(attachment, self._number))

    def leave(self, attachment: Attachment) -> None:
        """It is not with its node any more."""
        peer, attachment.peer = attachment.peer, None
        attachment.serving = False
        self._give_up_number(attachment)
        if peer is not None:
            peer.kept -= 1
            served = self.by_peer[peer]
            del served[attachment]
            if not served:
                del self.by_peer[peer]

    def _give_up_number(self, attachment: Attachment) -> None:
        """The answer is not waited for any more."""
        if self._by_number.pop(attachment.number, None) is not None:
            self._late[attachment.number] = attachment
            if len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]
        attachment.number = 0

    # Answers.

    def on_subscribed(self, session: Session, subscribed: Subscribed) -> None:
        attachment = self._by_number.pop(subscribed.number, None)
        if attachment is None or attachment.peer is None or attachment.peer.session is not session:
            self._store.counters["late-subscribed"] += 1
            late = self._late.pop(subscribed.number, None)
            if late is not None and subscribed.answer == Answer.SERVING:
                late.learn_secret(subscribed)
            return
        attachment.number = 0
        if subscribed.answer == Answer.SERVING:
            self._on_serving(attachment, subscribed)
            return
        address = attachment.peer.address
        self.leave(attachment)
        if subscribed.answer == Answer.REDIRECT:
            self._on_redirect(attachment, address, subscribed)
        elif subscribed.answer == Answer.BUSY:
            self._store.counters[f"busy-{subscribed.code or 'node'}"] += 1
            attachment.queue.insert(0, address)
            self._back_off(attachment)
        else:
            self._on_refusal(attachment, RefusedError(subscribed.code, subscribed.sentence))

    def _on_refusal(self, attachment: Attachment, error: RefusedError) -> None:
        attachment.refusal = error
        self.wait(attachment, REFUSED_S * (0.75 + 0.5 * self._world.rng.random()))
        self._host.on_refused(attachment, error)

    def _on_serving(self, attachment: Attachment, subscribed: Subscribed) -> None:
        attachment.learn(subscribed)
        attachment.refusal = None
        attachment.attempts = attachment.redirects = 0
        attachment.queue.clear()
        if not attachment.serving:
            attachment.serving = True
            attachment.served_at = self._world.now()
            self.renewing.start_over(attachment)
            self._store.counters["attached"] += 1
        self.renewing.tell_rejections(attachment)
        self.renewing.watch_gap(attachment)
        self._host.on_served(attachment)

    def _on_redirect(
        self, attachment: Attachment, address: Address, subscribed: Subscribed
    ) -> None:
        self._store.counters["redirected"] += 1
        named = [contact.address for contact in subscribed.members]
        attachment.queue = [one for one in named if one != address]
        attachment.redirects += 1
        if attachment.queue and attachment.redirects <= REDIRECTS_MAX:
            self._ask_somebody(attachment, self._world.now())
            self._wake_by(attachment.wake_at)
        else:
            self._back_off(attachment)

    def on_moved(self, session: Session, moved: Moved) -> None:
        """The node has stepped down."""
        peer = self._peers.of(session)
        if peer is None:
            return
        for attachment in list(self.by_peer.get(peer, ())):
            if attachment.feed.application in moved.applications:
                self.leave(attachment)
                others = [one for one in attachment.members if one != peer.address]
                first = [] if moved.primary is None else [moved.primary.address]
                attachment.queue = [*first, *others]
                self.wait(attachment, LOST_S * self._world.rng.random())

    # Links.

    def on_connected(self, address: Address) -> None:
        peer = self._peers.at(address)
        for attachment in self.by_peer.get(peer, ()):
            if not attachment.serving:
                self.ask(attachment, peer)

    def on_disconnected(self, address: Address) -> None:
        """Its feeds go to the first backup, then to whoever may know."""
        peer = self._peers.at(address)
        self.renewing.forget(peer)
        for attachment in list(self.by_peer.get(peer, ())):
            served = attachment.serving
            self.leave(attachment)
            if served:
                attachment.queue = [one for one in attachment.members if one != address]
                self.wait(attachment, LOST_S * self._world.rng.random())
            else:
                self._back_off(attachment)

    def stop(self) -> None:
        self._stopped = True
        self.renewing.stop()
        for timer in (self._timer, *(one.gap_timer for one in self.all.values())):
            if timer is not None:
                timer.cancel()
