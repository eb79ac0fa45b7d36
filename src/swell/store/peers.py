"""Links to the other nodes that keep our slots, and what is to be sent on them.

Each node dials whoever it speaks to as primary or candidate, and answers on the links that others
dialled. Everything for one peer that comes up in one turn of the loop leaves as few frames.
Invariant: `Adopt` and `Prepare` share a plane, so a record is known before entries of its epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session
from swell.store.messages import Adopt, Prepare, Run
from swell.store.record import Record
from swell.wire import codec
from swell.world import Plane

if TYPE_CHECKING:
    from swell.store.service import Store

ADOPT_MAX = 256
"""Records in one frame."""

PREPARE_BYTES_MAX = 1024 * 1024
REDIAL_FACTOR = 2.0
"""A link that was silent for so many times `silence_s` is given up and dialled again."""


class Peer:
    """One other node, as this one speaks to it."""

    __slots__ = (
        "adopts", "dialled_at", "due", "heard_at", "lineage", "node", "session", "wanted_at"
    )  # fmt: skip

    def __init__(self, node: int, now: float) -> None:
        self.node = node
        self.session: Session | None = None
        self.lineage = 0
        """As it last said; 0: not yet."""
        self.heard_at = now
        self.wanted_at = now
        self.dialled_at = now
        self.adopts: dict[int, Record] = {}
        self.due: dict[int, None] = {}


class _Made:
    """The newest frame of entries of a turn: encoded once if others get the same."""

    __slots__ = ("_frame", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._frame = b""

    def frame(self, runs: list[Run]) -> bytes:
        if runs != self._runs:
            self._runs, self._frame = runs, codec.encode(Prepare(tuple(runs)))
        return self._frame


class Peers:
    """All of them, by id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._peers: dict[int, Peer] = {}
        store.sessions.accept(LinkKind.STORE, self)

    def peer(self, node: int) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(node, self._store.world.now())
        return peer

    def lineage(self, node: int) -> int:
        """As the node said; 0: unknown."""
        if node == self._store.me:
            return self._store.storage.lineage
        peer = self._peers.get(node)
        return peer.lineage if peer is not None else 0

    def silent_s(self, node: int, now: float) -> float:
        """How long nothing was heard from a node that is being asked."""
        return now - self.peer(node).heard_at

    def reachable(self, node: int) -> bool:
        peer = self._peers.get(node)
        return peer is not None and peer.session is not None and peer.session.open

    # Sending.

    def adopt(self, node: int, record: Record) -> None:
        peer = self.peer(node)
        peer.adopts[record.slot] = record
        self._store.turns.soon()

    def due(self, node: int, slot: int) -> None:
        """There is something of this slot for this node."""
        self.peer(node).due[slot] = None
        self._store.turns.soon()

    def all_due(self, nodes: Iterable[int], slot: int) -> None:
        """The same for several nodes; whoever calls sees to the turn."""
        peers = self._peers
        for node in nodes:
            (peers.get(node) or self.peer(node)).due[slot] = None

    def not_due(self, node: int, slot: int) -> None:
        peer = self._peers.get(node)
        if peer is not None:
            peer.due.pop(slot, None)

    def send(self, node: int, message: Any, plane: Plane = Plane.DATA) -> bool:
        """One message, if there is a link; else one is dialled."""
        peer = self.peer(node)
        session = self._session(peer)
        return session is not None and session.link.send(codec.encode(message), plane)

    def flush(self) -> None:
        made = _Made()
        for peer in self._peers.values():
            if peer.adopts or peer.due:
                self._flush(peer, made)

    def _flush(self, peer: Peer, made: _Made) -> None:
        session = self._session(peer)
        if session is None:
            return
        while peer.adopts:
            slots = list(peer.adopts)[:ADOPT_MAX]
            frame = codec.encode(Adopt(tuple(peer.adopts[slot] for slot in slots)))
            if not session.link.send(frame, Plane.DATA):
                return
            for slot in slots:
                del peer.adopts[slot]
        while peer.due:
            if not self._prepare(peer, session, made):
                return

    def _prepare(self, peer: Peer, session: Session, made: _Made) -> bool:
        """One frame of entries; False if the link is full."""
        node, store, due = peer.node, self._store, peer.due
        runs: list[Run] = []
        size = 0
        for slot in list(due):
            replicator = store.replicator(slot)
            run = replicator.run(node) if replicator is not None else None
            if run is not None:
                runs.append(run)
                size += sum(map(len, run.entries))
            if replicator is None or not replicator.more(node):
                del due[slot]
            if size >= PREPARE_BYTES_MAX:
                break
        if not runs or session.link.send(made.frame(runs), Plane.DATA):
            return True
        for run in runs:
            replicator = store.replicator(run.slot)
            assert replicator is not None
            replicator.unsent(node, run)
            peer.due[run.slot] = None
        return False

    def _session(self, peer: Peer) -> Session | None:
        peer.wanted_at = self._store.world.now()
        if peer.session is None:
            self._dial(peer)
            return None
        return peer.session if peer.session.open else None

    def _dial(self, peer: Peer) -> None:
        contact = self._store.table.contact(peer.node)
        if contact is not None:
            peer.dialled_at = self._store.world.now()
            sessions = self._store.sessions
            peer.session = sessions.open(contact.address, contact.name, LinkKind.STORE, self)

    # Links.

    def admit(self, contact: Contact) -> Refused | None:
        if not contact.id:
            return Refused("not-admitted", "the directory gives ids: join first")
        if not self._store.ready:
            return Refused("not-ready", "the store reads its log: try again")
        return None

    def on_open(self, session: Session) -> None:
        if not session.link.dialed:
            return
        peer = self._dialled(session)
        if peer is None or session.peer.id != peer.node:
            session.close(reason="another-node")
            if peer is not None:
                peer.session = None
            return
        peer.heard_at = self._store.world.now()
        self._store.on_peer_up(peer.node)

    def on_closed(self, session: Session, reason: str) -> None:
        peer = self._dialled(session)
        if peer is not None:
            peer.session = None
            peer.adopts.clear()
            peer.due.clear()

    def _dialled(self, session: Session) -> Peer | None:
        return next((p for p in self._peers.values() if p.session is session), None)

    def speaker(self, session: Session) -> int:
        """Whose answer this is; 0 if the link is an old one. Counts as a sign of life."""
        node = session.peer.id
        peer = self._peers.get(node)
        if peer is None or peer.session is not session:
            return 0
        peer.heard_at = self._store.world.now()
        return node

    def around(self, now: float) -> object:
        """All that a primary looks at to see who is lost, who is new and who is wanted: while it
        stays equal, there is nothing to do about the members of a slot that is settled."""
        silence_s = self._store.settings.silence_s
        nodes = [(p.node, p.lineage, now - p.heard_at > silence_s) for p in self._peers.values()]
        return self._store.table.plan_version, nodes

    def tick(self, now: float, idle_s: float, stalled_s: float) -> None:
        """Give up links that are silent or not needed; what this node slept does not count."""
        silence_s = REDIAL_FACTOR * self._store.settings.silence_s
        for peer in self._peers.values():
            peer.heard_at += stalled_s
            session = peer.session
            if session is None:
                continue
            if now - peer.wanted_at > idle_s:
                reason = "idle"
            elif now - max(peer.heard_at, peer.dialled_at) > silence_s:
                reason = "silent"
            else:
                continue
            session.close(reason=reason)
            self.on_closed(session, reason)
