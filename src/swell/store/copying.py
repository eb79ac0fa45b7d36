"""Whole states of slots on their way: to learners, and to candidates that are far behind.

One chunk is under way per copy; the receiver's word asks for the next, so a slow receiver slows
its copy down and nothing else. At most `copies_max` leave a node at one time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swell.overlay.sessions import Session
from swell.store.messages import Copied, Copy
from swell.store.snapshots import SlotImage

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store

STUCK_S = 5.0
"""A copy without progress for so long is begun anew."""

BYTES_MAX = 1 << 31
"""A slot's state, at most."""


class Outgoing:
    """One copy, as of one sequence."""

    __slots__ = ("data", "epoch", "image", "moved_at", "offset", "send", "sent", "slot")

    def __init__(
        self, slot: int, epoch: int, image: SlotImage, send: Callable[[Copy], bool], now: float
    ) -> None:
        assert image.state is not None
        self.slot = slot
        self.epoch = epoch
        self.image = image
        self.data = image.state
        self.send = send
        self.offset = 0
        self.moved_at = now
        self.sent = False
        """False: the link was full, the chunk has to be sent again."""

    def send_chunk(self, bytes_max: int) -> None:
        image = self.image
        self.sent = self.send(
            Copy(
                self.slot,
                self.epoch,
                image.base,
                image.base_epoch,
                image.base_digest,
                self.offset,
                len(self.data),
                self.data[self.offset : self.offset + bytes_max],
            )
        )


class Incoming:
    """The chunks of one copy that have arrived."""

    __slots__ = ("first", "parts", "size")

    def __init__(self, first: Copy) -> None:
        self.first = first
        self.parts: list[bytes] = []
        self.size = 0

    def take(self, copy: Copy) -> bool:
        """False: not the next chunk of this copy."""
        first = self.first
        same = (copy.epoch, copy.sequence, copy.digest) == (
            first.epoch,
            first.sequence,
            first.digest,
        )
        if not same or copy.offset != self.size:
            return False
        self.parts.append(copy.data)
        self.size += len(copy.data)
        return True


class Copying:
    """All copies from and to this node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._outgoing: dict[tuple[int, int], Outgoing] = {}

    # Sending.

    def tick(self, now: float) -> None:
        """Begin copies that are wanted while there is room; begin stuck ones anew."""
        for slot, node in [k for k, o in self._outgoing.items() if now - o.moved_at > STUCK_S]:
            self.cancel(slot, node)
            replicator = self._store.replicator(slot)
            if replicator is not None:
                replicator.again(node)
        for outgoing in self._outgoing.values():
            if not outgoing.sent:
                outgoing.send_chunk(self._store.settings.copy_chunk_bytes)
        for slot, node in self._store.copies_wanted():
            if len(self._outgoing) >= self._store.settings.copies_max:
                return
            if (slot, node) not in self._outgoing and self._store.peers.reachable(node):
                self._begin(slot, node)

    def _begin(self, slot: int, node: int) -> None:
        replicator = self._store.replicator(slot)
        assert replicator is not None
        replica = replicator.replica
        replicator.on_copying(node, replica.commit)
        epoch = replicator.record.epoch
        self._start(replica, node, epoch, lambda copy: self._store.peers.send(node, copy))

    def answer(self, replica: Replica, session: Session, node: int, epoch: int) -> None:
        """Send the state to a candidate that pulls, on its own link."""
        self._start(replica, node, epoch, lambda copy: self._store.reply(session, copy))

    def _start(self, replica: Replica, node: int, epoch: int, send: Callable[[Copy], bool]) -> None:
        outgoing = Outgoing(replica.slot, epoch, replica.image(), send, self._store.world.now())
        self._outgoing[replica.slot, node] = outgoing
        self._store.counters["store-copies"] += 1
        outgoing.send_chunk(self._store.settings.copy_chunk_bytes)

    def on_copied(self, session: Session, message: Copied) -> None:
        node = session.peer.id
        self._store.peers.speaker(session)
        outgoing = self._outgoing.get((message.slot, node))
        if outgoing is None or message.sequence != outgoing.image.base:
            return
        outgoing.moved_at = self._store.world.now()
        if message.durable:
            del self._outgoing[message.slot, node]
            replicator = self._store.replicator(message.slot)
            if replicator is not None and replicator.record.epoch == message.epoch:
                replicator.on_copied(node, message.sequence)
                self._store.on_progress(message.slot)
        elif message.offset > outgoing.offset:
            outgoing.offset = message.offset
            if outgoing.offset < len(outgoing.data):
                outgoing.send_chunk(self._store.settings.copy_chunk_bytes)

    def cancel(self, slot: int, node: int) -> None:
        self._outgoing.pop((slot, node), None)

    def cancel_all(self, slot: int) -> None:
        for key in [key for key in self._outgoing if key[0] == slot]:
            del self._outgoing[key]

    # Receiving.

    def on_copy(self, session: Session, copy: Copy) -> None:
        """The next chunk; the last one makes this replica what the copy says."""
        store = self._store
        store.peers.speaker(session)
        replica = store.replicas.get(copy.slot)
        if replica is None or replica.fence != copy.epoch or copy.total > BYTES_MAX:
            store.counters["store-copy-refused"] += 1
            return
        if copy.sequence < replica.commit:
            store.counters["store-conflict"] += 1
            return
        replica.heard_at = store.world.now()
        if replica.candidate is not None:
            replica.candidate.on_copying()
        if replica.chain.digest_at(copy.sequence) == copy.digest:
            self._has_it(session, replica, copy)
            return
        if copy.offset == 0:
            replica.incoming = Incoming(copy)
        incoming = replica.incoming
        if incoming is None or not incoming.take(copy):
            store.counters["store-copy-refused"] += 1
            return
        if incoming.size < copy.total:
            store.reply(session, Copied(copy.slot, copy.epoch, copy.sequence, incoming.size))
            return
        replica.incoming = None
        self._install(session, replica, copy, b"".join(incoming.parts))

    def _has_it(self, session: Session, replica: Replica, copy: Copy) -> None:
        """The log here reaches that far, perhaps further: what follows must not be lost."""
        store = self._store
        replica.incoming = None
        replica.advance(copy.sequence)
        store.storage.commit(copy.slot, replica.commit)

        def durable() -> None:
            self._say_durable(session, replica, copy)

        store.turns.after_sync(durable)

    def _say_durable(self, session: Session, replica: Replica, copy: Copy) -> None:
        if replica.fence != copy.epoch:
            return
        copied = Copied(copy.slot, copy.epoch, copy.sequence, copy.total, durable=True)
        self._store.reply(session, copied)
        if replica.candidate is not None:
            replica.candidate.on_pulled()

    def _install(self, session: Session, replica: Replica, copy: Copy, state: bytes) -> None:
        store = self._store
        image = SlotImage(
            replica.fence, copy.sequence, copy.last_epoch, copy.digest, state, [], copy.sequence
        )
        replica.load(image)
        replica.installs += 1
        store.counters["store-copied"] += 1

        def durable() -> None:
            replica.installs -= 1
            self._say_durable(session, replica, copy)
            store.member.on_installed(replica)

        store.storage.install(copy.slot, image, durable)
