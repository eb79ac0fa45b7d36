"""Getting a slot's log to others: who has how much of it, what each still needs.

Used by a candidate to re-prepare its log, and by the primary it becomes. A follower is greeted with
the record (`Adopt`) on every new link; its position says where to begin. Entries are sent at once
and counted when acknowledged; a position that does not continue our log begins at the follower's
commit point, which is always a part of it, and the entries there cut its tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from swell.store import entry as entries
from swell.store.messages import Position, Run
from swell.store.record import Member, Record

if TYPE_CHECKING:
    from swell.store.entry import Entry
    from swell.store.replica import Replica
    from swell.store.service import Store

PINNED_MAX = 16_384
"""Entries kept for a follower that is behind; further behind it needs the whole state again."""

RUN_BYTES_MAX = 1024 * 1024
"""Entries of one slot in one frame; one entry always goes."""


class Follower:
    """What is known of one other copy of the log."""

    __slots__ = ("acked", "adopted", "copying", "lineage", "next", "node", "progress_at")

    def __init__(self, node: int, lineage: int, now: float) -> None:
        self.node = node
        self.lineage = lineage
        self.acked = 0
        self.next = 0
        self.adopted = False
        self.copying = False
        self.progress_at = now


class Replicator:
    """The followers of one slot, from a candidate's first epoch until it serves no more."""

    def __init__(self, store: Store, replica: Replica, record: Record) -> None:
        self._store = store
        self.replica = replica
        self.record = record
        self.followers: dict[int, Follower] = {}
        self.durable = replica.chain.last
        """How much of the log is durable here."""
        self.copies: dict[int, None] = {}
        """Followers that need the whole state."""
        self.waiting_since = 0.0
        """Nobody is late since earlier: before that everything was committed."""
        self._made: tuple[tuple[int, bytes, int, int], Run] | None = None
        """The newest run, and what it was made of: most often all followers get the same."""

    def expect(self, members: Iterable[Member]) -> None:
        """These must get everything."""
        now = self._store.world.now()
        for member in members:
            if member.node == self._store.me or member.node in self.followers:
                continue
            self.followers[member.node] = Follower(member.node, member.lineage, now)
            self._store.peers.adopt(member.node, self.record)

    def forget(self, node: int) -> None:
        self.followers.pop(node, None)
        self.copies.pop(node, None)
        self._store.copying.cancel(self.replica.slot, node)

    def begin_epoch(self, record: Record) -> None:
        """The members were changed: followers adopt the new record before anything else."""
        self.record = record
        for node in self.followers:
            self._store.peers.adopt(node, record)

    def on_link_up(self, node: int) -> None:
        """What was under way on an older link is lost."""
        follower = self.followers.get(node)
        if follower is not None:
            follower.adopted = False
            self._store.peers.adopt(node, self.record)

    def again(self, node: int) -> None:
        """A follower says that it misses something: ask it where it is."""
        self.on_link_up(node)

    # The log.

    def append(self, payload: bytes) -> Entry:
        store, replica = self._store, self.replica
        chain, slot, commit = replica.chain, replica.slot, replica.commit
        if chain.last == commit:
            self.waiting_since = store.world.now()
        entry = entries.make(slot, self.record.epoch, chain.last + 1, chain.digest, payload)
        chain.append(entry)
        store.storage.append(entry, commit)
        store.turns.unsynced(self)
        store.peers.all_due(self.followers, slot)
        return entry

    def run(self, node: int) -> Run | None:
        """What `node` is to be sent now."""
        follower = self.followers.get(node)
        if follower is None or not follower.adopted or follower.copying:
            return None
        chain = self.replica.chain
        if follower.next - 1 < chain.base:
            self._needs_copy(follower)
            return None
        base, replica, epoch = follower.next - 1, self.replica, self.record.epoch
        key = base, chain.digest, replica.commit, epoch
        if self._made is None or self._made[0] != key:
            digest = chain.digest_at(base)
            assert digest is not None
            data = tuple([entry.data for entry in chain.behind(base, RUN_BYTES_MAX)])
            run = Run(replica.slot, epoch, replica.commit, base, digest, data)
            self._made = key, run
        run = self._made[1]
        follower.next += len(run.entries)
        return run

    def unsent(self, node: int, run: Run) -> None:
        """The link was full: the same again later."""
        follower = self.followers.get(node)
        if follower is not None:
            follower.next -= len(run.entries)

    def more(self, node: int) -> bool:
        follower = self.followers.get(node)
        if follower is None or not follower.adopted or follower.copying:
            return False
        return follower.next <= self.replica.chain.last

    # What followers say.

    def on_position(self, node: int, position: Position) -> bool:
        """Begin, or begin again, where the follower is. False: it holds no part of this."""
        follower = self.followers.get(node)
        if follower is None:
            return True
        if position.lineage != follower.lineage:
            return False
        if position.fence < self.record.epoch:
            follower.adopted = False
            self._store.peers.adopt(node, self.record)
            return True
        if position.commit > self.replica.chain.last:
            # More is committed there than is known here: never to be overwritten.
            self._store.counters["store-conflict"] += 1
            follower.adopted = False
            return True
        start = self._common(position)
        if start < 0:
            self._needs_copy(follower)
            return True
        if follower.adopted and not position.refused:
            start = max(start, follower.acked)
            follower.next = max(follower.next, start + 1)
        else:
            follower.next = start + 1
        follower.acked = start
        follower.adopted = True
        follower.copying = False
        follower.progress_at = self._store.world.now()
        self.copies.pop(node, None)
        self._store.copying.cancel(self.replica.slot, node)
        self._store.peers.due(node, self.replica.slot)
        return True

    def _common(self, position: Position) -> int:
        """Up to where the follower's log is surely ours; -1: it needs the state."""
        chain = self.replica.chain
        if chain.digest_at(position.last) == position.digest:
            return position.last
        if chain.base <= position.commit <= chain.last:
            return position.commit
        return -1

    def _needs_copy(self, follower: Follower) -> None:
        if not follower.copying:
            follower.copying = True
            self.copies[follower.node] = None

    def on_copying(self, node: int, sequence: int) -> None:
        """The state as of `sequence` is on its way: what follows it must be kept."""
        follower = self.followers.get(node)
        if follower is not None:
            follower.next = sequence + 1

    def on_copied(self, node: int, sequence: int) -> None:
        """The state as of `sequence` is durable there."""
        follower = self.followers.get(node)
        if follower is None:
            return
        self.copies.pop(node, None)
        follower.copying = False
        follower.adopted = True
        follower.acked = sequence
        follower.next = sequence + 1
        follower.progress_at = self._store.world.now()
        self._store.peers.due(node, self.replica.slot)

    def on_ack(self, node: int, sequence: int, now: float) -> bool:
        follower = self.followers.get(node)
        if follower is None or not follower.adopted or sequence <= follower.acked:
            return False
        follower.acked = min(sequence, self.replica.chain.last)
        follower.progress_at = now
        return True

    def on_durable(self, last: int) -> None:
        self.durable = max(self.durable, last)

    def pinned(self) -> int:
        """The lowest sequence that some follower still goes on from."""
        least = self.replica.chain.last
        for follower in self.followers.values():
            if follower.copying:
                least = min(least, max(0, follower.next - 1))
            elif follower.adopted:
                least = min(least, follower.acked)
        return max(least, self.replica.chain.last - PINNED_MAX)

    def common(self, lineages: Mapping[int, int]) -> int:
        """How much of the log is durable here and at all of these, with the data they should
        have."""
        least = self.durable
        for node, lineage in lineages.items():
            follower = self.followers.get(node)
            if follower is None or not follower.adopted or follower.lineage != lineage:
                return 0
            if follower.acked < least:
                least = follower.acked
        return least

    def stop(self) -> None:
        self._store.copying.cancel_all(self.replica.slot)
        for node in self.followers:
            self._store.peers.not_due(node, self.replica.slot)
