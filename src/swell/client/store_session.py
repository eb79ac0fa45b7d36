"""A client's session with the replicated store: every operation once, whatever happens between.

Protocol code, so it runs in both worlds. Operations go to the primary of their slot, which the
table tells and every answer confirms; while it is unknown or away, to any node, which passes them
on. An operation is numbered once and sent again under the same number, to another node, when its
link is lost, the node is busy or not the primary, or no answer comes: the store executes a number
of a session at most once. It ends with its result, or by its deadline with `OutcomeUnknownError`
if any attempt may have been executed, with `UnavailableError` if certainly none was.

SpiderCast's DHT client (2.2, 2.3) asks its delegate for an access node; here the node that answers
the first `TableRequest` is that access node, and the table makes it needless for most operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from swell.client.session_numbers import Numbers
from swell.client.session_peers import Peer, Peers, nobody
from swell.client.session_pending import (
    BUSY_S,
    BUSY_S_MAX,
    REDIRECTS_MAX,
    RETRY_GROWTH,
    RETRY_S_MAX,
    Answer,
    Done,
    Pending,
)
from swell.client.session_routes import Routes
from swell.errors import RefusedError, SwellError, UnavailableError, WireError
from swell.events.records import LifeBegan, LifeEnded
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.store.messages import Execute, Executed, Read, Status
from swell.store.state import EXPIRED
from swell.wire.codec import encode
from swell.world import Address, Link, Plane, Timer, World

OPEN_MAX = 4096
SENT_MAX = 768
"""Operations with one node; below what a node takes of one client."""

TICK_S = 0.05
PARK_S = 0.1
"""Until an operation is looked at again for which no node could be reached."""

_DATA = Plane.DATA
_DONE, _STALE, _BUSY = int(Status.DONE), int(Status.STALE), int(Status.BUSY)
_REDIRECT, _UNKNOWN, _REFUSED = int(Status.REDIRECT), int(Status.UNKNOWN), int(Status.REFUSED)
_RETRY = int(Status.RETRY)
_COMMAND = int(Read.COMMAND)


class Notice(NamedTuple):
    """What a listener hears: `connected`, `disconnected` (and why), `redirected` (which slot)."""

    what: str
    address: Address
    detail: str = ""


class StoreSession:
    """The protocol object of a client of the store; a world drives it."""

    def __init__(
        self,
        world: World,
        cluster: str,
        addresses: Sequence[Address],
        listener: Callable[[Notice], None] | None = None,
        token: str = "",
        role: str = "client",
    ) -> None:
        self._world = world
        if world.recording:
            world.emit(LifeBegan(role))
        self._listener = listener
        self.counters: Counter[str] = Counter()
        self._peers = Peers(
            world, cluster, addresses, self.counters, self._on_ready, self._on_lost, token
        )
        self._open: dict[int, Pending] = {}
        self._numbers = Numbers(world)
        self._routes = Routes(world, self._peers, self.counters, self._on_table)
        self._connecting: list[tuple[float, Callable[[SwellError | None], None]]] = []
        self._timer: Timer | None = None
        self._peers.sessions.handle(Executed, self.on_executed, (LinkKind.CLIENT,))
        self.on_frame = self._peers.sessions.on_frame

    @property
    def peers(self) -> Peers:
        """The nodes and their links, for others who speak to them on the same ones."""
        return self._peers

    def peer_of(self, place: int) -> Peer | None:
        """The primary of a slot, as far as is known."""
        routes = self._routes.by_slot
        return routes[place % len(routes)] if routes else None

    @property
    def slots(self) -> int:
        """How many slots the cluster has; 0 until the table is here."""
        return len(self._routes.by_slot)

    @property
    def open_operations(self) -> int:
        return len(self._open)

    def connect(self, deadline_s: float, done: Callable[[SwellError | None], None]) -> None:
        """Fetch the table; `done` gets None, or why that was not possible."""
        now = self._world.now()
        refusal = self._peers.refusal
        if self._routes.by_slot or refusal is not None:
            self._world.call_later(0.0, lambda: done(refusal))
            return
        self._connecting.append((now + deadline_s, done))
        self._routes.want(now)
        self._tick_later()

    def call(
        self, service: int, place: int, read: int, body: bytes, deadline_s: float, done: Done
    ) -> None:
        """One operation on slot `place` modulo their number; `done` is called once."""
        world = self._world
        refusal = self._peers.refusal
        if len(self._open) >= OPEN_MAX:
            self.counters["operations-full"] += 1
            sentence = f"at most {OPEN_MAX} operations may be open: wait for answers"
            refusal = UnavailableError(sentence)
        if refusal is not None:
            world.call_later(0.0, partial(done, refusal))
            return
        now = world.now()
        number = self._numbers.next()
        due_at = now + deadline_s
        pending = Pending(number, service, place, read, body, deadline_s, due_at, done, due_at)
        self._open[number] = pending
        if self._timer is None:
            self._tick_later()
        self._dispatch(pending, now)

    # Sending.

    def _dispatch(self, pending: Pending, now: float, exclude: Peer | None = None) -> None:
        """Give it to the node that should have it."""
        routes = self._routes.by_slot
        if not routes:
            pending.wake_at = pending.due_at
            self._routes.want(now)
            return
        if not pending.session:
            pending.session = self._numbers.session_at(now, self._routes)
        peers = self._peers
        peer = routes[pending.place % len(routes)]
        if peer is None or peer is exclude or not (peer.open or peers.usable(peer, now)):
            peer = peers.next(exclude, now)
        if peer is None or not peers.dial(peer, now):
            self._park(pending, now, PARK_S)
            return
        pending.peer = peer
        pending.answers_seen = peer.answers
        self._arm(pending, now, pending.retry_s)
        if peer.open and not peer.blocked and len(peer.sent) < SENT_MAX:
            self._send(pending, peer, now)
        else:
            peer.waiting[pending.number] = pending

    def _send(self, pending: Pending, peer: Peer, now: float) -> None:
        number = pending.number
        execute = Execute(
            pending.session,
            number,
            next(iter(self._open)),
            pending.place % len(self._routes.by_slot),
            pending.service,
            pending.read,
            pending.body,
            max(0.001, pending.due_at - now),
        )
        assert peer.session is not None
        if peer.session.link.send(encode(execute), _DATA):
            peer.sent[number] = pending
            pending.uncertain += 1
        else:
            peer.blocked = True
            peer.waiting[number] = pending

    def _flush(self, peer: Peer) -> None:
        """Send what waits for this peer, as far as there is room."""
        now = self._world.now()
        while peer.waiting and peer.open and not peer.blocked and len(peer.sent) < SENT_MAX:
            pending = peer.waiting.pop(next(iter(peer.waiting)))
            self._arm(pending, now, pending.retry_s)
            self._send(pending, peer, now)

    def _park(self, pending: Pending, now: float, delay_s: float) -> None:
        """Try again later, wherever that will be."""
        pending.peer = None
        self._arm(pending, now, delay_s)

    def _arm(self, pending: Pending, now: float, delay_s: float) -> None:
        """Look at it again after about this time."""
        wake_at, due_at = now + delay_s * (0.75 + 0.5 * self._world.rng.random()), pending.due_at
        pending.wake_at = wake_at if wake_at < due_at else due_at

    # Answers.

    def on_executed(self, session: Session, executed: Executed) -> None:
        pending = self._open.get(executed.number)
        peer = self._peers.of(session)
        if pending is None or peer is None:
            self.counters["late-answer"] += 1
            return
        peer.answers += 1
        primary, status, routes = executed.primary, executed.status, self._routes
        slot = pending.place % len(routes.by_slot)
        if primary is not None:
            news = routes.learn(slot, primary, peer)
        else:
            news = status == _DONE and routes.confirm(slot, peer)
        if news:
            self.counters["rerouted"] += 1
            address = primary.address if primary is not None else peer.address
            self._tell("redirected", address, f"slot {slot}")
        if status == _DONE:
            self._end(pending, Answer(executed.body))
        elif status == _STALE:
            self._end(pending, Answer(executed.body, True))
        elif status == _REFUSED:
            self._end(pending, RefusedError("refused", executed.body.decode(errors="replace")))
        elif status == _UNKNOWN and pending.read == _COMMAND:
            self._on_unknown(pending, executed.body)
        elif status in (_BUSY, _REDIRECT, _UNKNOWN, _RETRY):
            self._on_not_now(pending, peer, status, primary)
        else:
            raise WireError("bad-status", f"{status}")
        if peer.waiting:
            self._flush(peer)

    def _on_unknown(self, pending: Pending, body: bytes) -> None:
        only = pending.uncertain == 1
        if only:
            self._numbers.leave(pending.session)
        if only and body == EXPIRED and not pending.renewed:
            # No attempt but this one, which says that it was not executed.
            self.counters["session-expired"] += 1
            self._leave_peer(pending)
            pending.renewed = True
            pending.session = pending.uncertain = 0
            self._dispatch(pending, self._world.now())
            return
        self._end(pending, pending.unknown("the cluster does not know any more"))

    def _on_not_now(
        self, pending: Pending, peer: Peer, status: int, primary: Contact | None
    ) -> None:
        """Send it again, at once if we learned where to. Unless the node lost track of it, this
        attempt was not executed."""
        if status != _RETRY:
            pending.uncertain -= 1
        if pending.peer is not peer:
            return  # an earlier attempt: the present one is under way
        self._leave_peer(pending)
        now = self._world.now()
        elsewhere = primary is not None and peer.address != (primary.host, primary.port)
        if elsewhere and pending.redirects < REDIRECTS_MAX:
            pending.redirects += 1
            self._dispatch(pending, now)
            return
        # A node that names itself is about to serve: it is the one to ask again.
        pending.avoid = peer if primary is None or elsewhere else None
        delay_s = min(BUSY_S_MAX, BUSY_S * 2**pending.busy)
        pending.busy = min(pending.busy + 1, 16)
        self._park(pending, now, delay_s)

    def _leave_peer(self, pending: Pending) -> None:
        peer, pending.peer = pending.peer, None
        if peer is not None:
            peer.forget(pending.number)

    def _end(self, pending: Pending, outcome: Answer | SwellError) -> None:
        peer = pending.peer
        if peer is not None:
            peer.forget(pending.number)
        del self._open[pending.number]
        pending.done(outcome)

    # Time.

    def _tick(self) -> None:
        """Look at everything whose time has come; one timer for all."""
        now = self._world.now()
        self._timer = None
        for pending in [one for one in self._open.values() if one.wake_at <= now]:
            if pending.number in self._open:
                self._wake(pending, now)
        self._routes.ask_if_due(now)
        for entry in [entry for entry in self._connecting if entry[0] <= now]:
            self._connecting.remove(entry)
            entry[1](UnavailableError(self._routes.trouble()))
        if self._open or self._connecting or self._routes.wanted:
            self._tick_later()

    def _tick_later(self) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(TICK_S, self._tick)

    def _wake(self, pending: Pending, now: float) -> None:
        if now >= pending.due_at:
            self.counters["deadline"] += 1
            self._end(pending, pending.expired())
            return
        peer = pending.peer
        if peer is None:
            avoid, pending.avoid = pending.avoid, None
            self._dispatch(pending, now, avoid)
            return
        waits = pending.number in peer.waiting
        if waits and peer.open and peer.answers != pending.answers_seen:
            # The node works, and this one has not had its turn yet.
            pending.answers_seen = peer.answers
            pending.wake_at = min(now + pending.retry_s, pending.due_at)
            return
        pending.retry_s = min(pending.retry_s * RETRY_GROWTH, RETRY_S_MAX)
        other = self._peers.next(peer, now)
        if other is None or other is peer:
            # The same link would bring it to the same place: it is there already.
            pending.wake_at = min(now + pending.retry_s, pending.due_at)
            return
        self.counters["retried"] += 1
        self._leave_peer(pending)
        self._dispatch(pending, now, peer)

    def _on_table(self) -> None:
        """Who serves what is known: begin with what waited for it."""
        connecting, self._connecting = self._connecting, []
        for _, done in connecting:
            done(None)
        now = self._world.now()
        for pending in [one for one in self._open.values() if not one.session]:
            self._dispatch(pending, now)

    # Links.

    def _on_ready(self, peer: Peer) -> None:
        self._tell("connected", peer.address)
        self._routes.on_ready(peer)
        self._flush(peer)

    def _on_lost(self, peer: Peer, reason: str, error: SwellError | None) -> None:
        """Everything that was with this node goes elsewhere, under the same numbers."""
        self._tell("disconnected", peer.address, reason)
        orphans = [*peer.sent.values(), *peer.waiting.values()]
        peer.sent.clear()
        peer.waiting.clear()
        now = self._world.now()
        hopeless = not self._routes.by_slot and (error is not None or self._peers.all_failed)
        if hopeless or self._peers.refusal is not None:
            self._give_up(error or nobody(peer, reason))
            return
        for pending in orphans:
            pending.peer = None
            self._dispatch(pending, now, peer)
        if self._routes.wanted:
            self._routes.ask(now)

    def _tell(self, what: str, address: Address, detail: str = "") -> None:
        if self._listener is not None:
            self._listener(Notice(what, address, detail))

    def _give_up(self, error: SwellError) -> None:
        """No node can be reached, or nothing is wanted any more."""
        self._routes.wanted = False
        connecting, self._connecting = self._connecting, []
        for _, done in connecting:
            done(error)
        for pending in list(self._open.values()):
            unsure = pending.read == _COMMAND and pending.uncertain
            self._end(pending, pending.unknown(str(error)) if unsure else error)

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        self._peers.sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self._peers.sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None:
        peer = self._peers.of(link.session)
        if peer is not None:
            peer.blocked = False
            self._flush(peer)

    def stop(self) -> None:
        """End everything that is open, each with what is known about it."""
        if self._world.recording:
            self._world.emit(LifeEnded())
        if self._timer is not None:
            self._timer.cancel()
        self._give_up(UnavailableError("the client was closed"))
        self._peers.close_all()
