"""Links of a client to the nodes it uses: one per address, opened on demand, bounded.

A peer that cannot be reached, or that lost its link, is left alone for a moment that grows with
every failure in a row. Links that nobody used for a while are closed, all but one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from swell.access import messages as access
from swell.client.session import final_error
from swell.client.session_token import Bearer
from swell.errors import SwellError, UnavailableError
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import Address, Timer, World

if TYPE_CHECKING:
    from swell.client.session_pending import Pending

LINKS_MAX = 64
ADDRESSES_MAX = 1024
IDLE_S = 60.0
IDLE_CHECK_S = 15.0

OPEN_S_MAX = 10.0
"""A link that is not open by then is given up: its node may have died with its machine, of which
nothing is heard before the kernel asks for a sign of life."""

RETRY_S = 0.1
RETRY_S_MAX = 2.0
REFUSED_S = 60.0
"""A node that refuses us for good is asked again after this time: another may have its address."""


class Peer:
    """One node, and the operations that are with it."""

    __slots__ = (
        "address", "answers", "blocked", "failures", "kept", "open", "retry_at", "sent", "session",
        "used_at", "waiting",
    )  # fmt: skip

    def __init__(self, address: Address) -> None:
        self.address = address
        self.session: Session | None = None
        self.open = False
        self.blocked = False
        """Its link has no room; the world says when it has again."""
        self.sent: dict[int, Pending] = {}
        self.waiting: dict[int, Pending] = {}
        """Operations that are to be sent as soon as there is a link with room."""
        self.answers = 0
        self.kept = 0
        """Feeds that it serves: its link stays, used or not."""
        self.failures = 0
        self.retry_at = 0.0
        self.used_at = 0.0

    @property
    def busy(self) -> bool:
        return bool(self.sent or self.waiting or self.kept)

    def forget(self, number: int) -> None:
        """An operation is not with this node any more."""
        if self.sent.pop(number, None) is None:
            self.waiting.pop(number, None)


class Peers:
    """All nodes that the client knows. `ready(peer)`: its link is open; `lost(peer, reason,
    error)`: it has ended, `error` being set if it would end again."""

    def __init__(
        self,
        world: World,
        cluster: str,
        seeds: Sequence[Address],
        counters: Counter[str],
        ready: Callable[[Peer], None],
        lost: Callable[[Peer, str, SwellError | None], None],
        token: str = "",
    ) -> None:
        assert seeds, "a client needs the address of at least one node"
        self._world = world
        self._seeds = list(dict.fromkeys(seeds))
        self._ready = ready
        self._lost = lost
        self._known = {address: Peer(address) for address in self._seeds}
        self._order = list(self._known.values())
        self._of: dict[Session, Peer] = {}
        self._turn = 0
        self._idle_timer: Timer | None = None
        self.refusal: SwellError | None = None
        """Why no node of the cluster takes our token: nobody is dialled any more."""
        self.sessions = Sessions(world, cluster, self._me, lambda: 0, counters)
        self._bearer = Bearer(self.sessions, token, self)

    def _me(self) -> Contact:
        return Contact(0, self._world.name, "", "", 0, "", 0, 0)

    def of(self, session: Session) -> Peer | None:
        return self._of.get(session)

    def at(self, address: Address) -> Peer:
        """The peer at an address, new if it was not known."""
        peer = self._known.get(address)
        if peer is None:
            peer = self._known[address] = Peer(address)
            self._order.append(peer)
        return peer

    def learn(self, addresses: Iterable[Address]) -> None:
        """These are the cluster's nodes now; others are forgotten once they have no link."""
        wanted = dict.fromkeys((*self._seeds, *addresses))
        for address in list(wanted)[:ADDRESSES_MAX]:
            self.at(address)
        gone = [p for a, p in self._known.items() if a not in wanted and p.session is None]
        for peer in gone:
            del self._known[peer.address]
        if gone:
            self._order = list(self._known.values())

    def usable(self, peer: Peer, now: float) -> bool:
        return peer.open or (peer.session is not None or now >= peer.retry_at)

    def next(self, exclude: Peer | None, now: float) -> Peer | None:
        """Any node but this one, in turn, those with open links first; None if all failed lately.
        The excluded one is better than nothing."""
        count = len(self._order)
        ring = [self._order[(self._turn + k) % count] for k in range(count)]
        if exclude is not None:
            self._turn = (self._turn + 1) % count
            ring = [peer for peer in ring if peer is not exclude] + [exclude]
        fallback = None
        for peer in ring:
            if peer.open and peer is not exclude:
                return peer
            if fallback is None and self.usable(peer, now):
                fallback = peer
        return fallback

    def first_open(self) -> Peer | None:
        return next((peer for peer in self._order if peer.open), None)

    @property
    def all_failed(self) -> bool:
        """Every node given at the start has failed, and none has a link."""
        return all(self._known[a].failures for a in self._seeds) and not self._of

    # Links.

    def dial(self, peer: Peer, now: float) -> bool:
        """Open a link if there is none; False if there are too many or none may be opened."""
        peer.used_at = now
        if peer.session is not None:
            return True
        full = len(self._of) >= LINKS_MAX and not self._make_room()
        if full or self.refusal is not None:
            return False
        session = self.sessions.open(peer.address, "", LinkKind.CLIENT, self._bearer)
        peer.session = session
        self._of[session] = peer
        self._world.call_later(OPEN_S_MAX, lambda: self._expire_opening(peer, session))
        if self._idle_timer is None:
            self._idle_timer = self._world.call_later(IDLE_CHECK_S, self.expire_idle)
        return True

    def _expire_opening(self, peer: Peer, session: Session) -> None:
        if self._of.get(session) is peer and not peer.open:
            self.give_up(peer, "slow-handshake")

    def _make_room(self) -> bool:
        idle = [peer for peer in self._of.values() if not peer.busy]
        if not idle:
            return False
        self._close(min(idle, key=lambda peer: peer.used_at), "too many links")
        return True

    def expire_idle(self) -> None:
        """Close links that were not used for a while; one stays."""
        before = self._world.now() - IDLE_S
        for peer in list(self._of.values()):
            if len(self._of) > 1 and not peer.busy and peer.used_at < before:
                self._close(peer, "idle")
        self._idle_timer = None
        if self._of:
            self._idle_timer = self._world.call_later(IDLE_CHECK_S, self.expire_idle)

    def give_up(self, peer: Peer, reason: str) -> None:
        """End a link that is open and silent; as if it had been lost."""
        session = peer.session
        if session is not None:
            session.close(reason=reason)
            self.on_closed(session, reason)

    def _close(self, peer: Peer, reason: str) -> None:
        session = peer.session
        assert session is not None
        del self._of[session]
        peer.session = None
        peer.open = peer.blocked = False
        session.close(drain=True, reason=reason)

    def on_open(self, session: Session) -> None:
        peer = self._of[session]
        peer.open = True
        peer.failures = 0
        self._ready(peer)

    def on_closed(self, session: Session, reason: str) -> None:
        peer = self._of.pop(session)
        peer.session = None
        peer.open = peer.blocked = False
        error = final_error(session, reason)
        if session.refusal is not None:
            reason = session.refusal.sentence
            if session.refusal.code in access.FINAL:
                self.refusal = error
        delay_s = min(RETRY_S_MAX, RETRY_S * 2**peer.failures) if error is None else REFUSED_S
        peer.failures = min(peer.failures + 1, 16)
        jitter = 0.75 + 0.5 * self._world.rng.random()
        peer.retry_at = self._world.now() + delay_s * jitter
        self._lost(peer, reason, error)

    def close_all(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._of.clear()
        self.sessions.close_all("stopped")


def nobody(peer: Peer, reason: str) -> UnavailableError:
    """What to say when no node could be reached."""
    return UnavailableError(f"no node answers, the last at {peer.address} ({reason})")
