"""Which node serves which slot, as a client knows it: the table, and what answers add to it.

The table is fetched at the start and again when an answer contradicts it, from the node that gave
that answer. A request for it that is not answered is repeated to another node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from swell.client.session_peers import Peer, Peers
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.store.messages import Table, TableRequest
from swell.world import World

AGAIN_S = 1.0
"""Between two requests: without an answer, or after a change."""
EMPTY_S = 0.2
"""Until a node is asked again that did not know the slots yet."""
PARK_S = 0.1


class Routes:
    """`news()` is called when a table has arrived."""

    def __init__(
        self, world: World, peers: Peers, counters: Counter[str], news: Callable[[], None]
    ) -> None:
        self._world = world
        self._peers = peers
        self._counters = counters
        self._news = news
        self.by_slot: list[Peer | None] = []
        """Where a slot's operations go; empty until the table is here."""
        self.wanted = False
        self._ask_at = 0.0
        self._number = 0
        self._teller: Peer | None = None
        """Who knows better than our table."""
        self._asked: Peer | None = None
        self._clock_s = 0.0
        self._planless = False
        """The last table that came was empty."""
        peers.sessions.handle(Table, self.on_table, (LinkKind.CLIENT,))

    def cluster_s(self, now: float) -> int:
        """The second by the cluster's clocks."""
        return int(now + self._clock_s)

    def trouble(self) -> str:
        """Why there is no table yet."""
        if self._planless:
            return (
                "the cluster serves no keys yet: it waits for its directory, or for more nodes "
                "(as many as its setting min_replicas says); try again later"
            )
        return "no node answered in time: try again, or see whether they run"

    def learn(self, slot: int, primary: Contact, teller: Peer) -> bool:
        """An answer named a slot's primary; True if that is news."""
        known = self.by_slot[slot]
        if known is not None and known.address == (primary.host, primary.port):
            return False
        self._reroute(slot, self._peers.at(primary.address), teller)
        return True

    def _reroute(self, slot: int, peer: Peer, teller: Peer) -> None:
        self.by_slot[slot] = peer
        self._teller = teller
        self.want(self._world.now())

    def confirm(self, slot: int, peer: Peer) -> bool:
        """A node has executed something of this slot, so it is the primary; True if that is
        news."""
        if self.by_slot[slot] is peer:
            return False
        self._reroute(slot, peer, peer)
        return True

    def want(self, now: float) -> None:
        """Fetch the table, at once or when it may be asked for again."""
        if not self.wanted:
            self.wanted = True
            self._asked = None
            self.ask_if_due(now)

    def ask_if_due(self, now: float) -> None:
        if self.wanted and now >= self._ask_at:
            self.ask(now)

    def ask(self, now: float) -> None:
        """Ask whoever told us news, else any node; another one each time."""
        peer, self._teller = self._teller, None
        if peer is None or not peer.open:
            peer = self._peers.next(self._asked, now)
        self._asked = peer
        if peer is None or not self._peers.dial(peer, now):
            self._ask_at = now + PARK_S
            return
        self._ask_at = now + AGAIN_S
        if peer.open:
            self._send(peer)

    def on_ready(self, peer: Peer) -> None:
        """A link is open: if we know nothing yet, any node will do."""
        if self.wanted and (peer is self._asked or not self.by_slot):
            self._asked = peer
            self._ask_at = self._world.now() + AGAIN_S
            self._send(peer)

    def _send(self, peer: Peer) -> None:
        assert peer.session is not None
        self._number += 1
        peer.session.send(TableRequest(self._number))

    def on_table(self, session: Session, table: Table) -> None:
        if table.number != self._number or not self.wanted:
            self._counters["late-table"] += 1
            return
        now = self._world.now()
        self._planless = not table.primaries
        if self._planless:
            self._ask_at = now + EMPTY_S
            return
        self.wanted = False
        self._ask_at = now + AGAIN_S
        self._clock_s = table.now_s - now
        addresses = {contact.id: contact.address for contact in table.contacts}
        self._peers.learn(addresses.values())
        self.by_slot = [
            self._peers.at(addresses[node]) if node in addresses else None
            for node in table.primaries
        ]
        self._news()
