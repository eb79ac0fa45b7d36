"""A member's side of replication: promises, entries, commit points, leases.

Every word here is given to whoever speaks as primary or candidate of an epoch, after the sync that
covers what it says. Invariants: nothing is acknowledged for an epoch below the fence; the log is
never cut below the commit point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from swell.errors import WireError
from swell.overlay.sessions import Session
from swell.store import entry as entries
from swell.store.messages import (
    Adopt,
    Adopted,
    Beat,
    Beaten,
    Position,
    Prepare,
    Prepared,
    Pull,
    Pulled,
    Run,
)
from swell.store.replicator import RUN_BYTES_MAX

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store


class MemberSide:
    """Answers of this node about the slots that it keeps."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._acks: dict[Session, dict[int, int]] = {}
        self._waiting: list[tuple[Session, Replica, int]] = []
        """Who asked for a slot whose copy is not durable yet; answered when it is."""
        self.started_until = store.world.now() + store.settings.lease_s * store.settings.lease_drift
        """Leases granted in an earlier life have run out by then."""

    # Promises.

    def on_adopt(self, session: Session, message: Adopt) -> None:
        store = self._store
        positions: list[Position] = []
        for record in message.records:
            replica = store.replica(record.slot)
            if record.epoch > replica.fence:
                replica.fence = record.epoch
                store.storage.fence(record.slot, record.epoch)
            if record.epoch == replica.fence:
                if replica.matched_epoch != record.epoch:
                    replica.matched_epoch = record.epoch
                    replica.matched = replica.commit
                store.roles.follow(replica, record)
                replica.heard_at = store.world.now()
            if replica.installs:
                self._waiting.append((session, replica, record.epoch))
            else:
                positions.append(self._position(replica, record.epoch))
        self._tell(session, positions)

    def on_installed(self, replica: Replica) -> None:
        """A copy is durable: answer whoever asked meanwhile."""
        waiting, self._waiting = self._waiting, []
        for session, asked, epoch in waiting:
            if asked is replica and not replica.installs:
                self._tell(session, [self._position(replica, epoch)])
            elif session.open:
                self._waiting.append((session, asked, epoch))

    def _tell(self, session: Session, positions: list[Position]) -> None:
        """Say where this member was when it was asked: what came later is not durable yet."""
        store = self._store

        def durable() -> None:
            told = tuple(
                replace(p, fence=self._fence(store.replica(p.slot), p.epoch)) for p in positions
            )
            store.reply(session, Adopted(told))

        if positions:
            store.turns.after_sync(durable)

    def _fence(self, replica: Replica, epoch: int) -> int:
        if "ignore-epoch" in self._store.bugs:
            return min(replica.fence, epoch)
        return replica.fence

    def _refuse(self, session: Session, replica: Replica, epoch: int) -> None:
        """Tell where this member is, so that the sender begins there or learns that it is late."""
        self._store.counters["store-refused"] += 1
        if not replica.installs:
            self._tell(session, [self._position(replica, epoch, refused=True)])

    def _position(self, replica: Replica, epoch: int, refused: bool = False) -> Position:
        store = self._store
        now, lineage = store.world.now(), store.storage.lineage
        return replica.position(epoch, lineage, now, self.started_until, refused)

    # Entries.

    def on_prepare(self, session: Session, message: Prepare) -> None:
        store = self._store
        replicas, now = store.replicas, store.world.now()
        acks = self._acks.get(session, {})
        for run in message.runs:
            slot = run.slot
            replica = replicas.get(slot) or store.replica(slot)
            if not self._may(replica, run) or not self._append(replica, run):
                self._refuse(session, replica, run.epoch)
                continue
            replica.heard_at = now
            if replica.commit < run.commit:
                self._learn_commit(replica, run.commit)
            acks[slot] = run.epoch
        if acks:
            self._acks[session] = acks
        store.turns.soon()

    def _may(self, replica: Replica, run: Run) -> bool:
        if replica.fence == run.epoch:
            return replica.record is not None
        if "ignore-epoch" in self._store.bugs and run.epoch < replica.fence:
            return replica.primary is None and replica.candidate is None
        return False

    def _append(self, replica: Replica, run: Run) -> bool:
        """False: the entries do not continue the log."""
        chain, slot = replica.chain, run.slot
        if run.base != chain.last or run.digest != chain.digest:
            known = chain.digest_at(run.base)
            if known != run.digest and not (known is None and run.base < chain.base):
                return False
        replica.matched = max(replica.matched, run.base)
        append = self._store.storage.append
        for data in run.entries:
            entry = entries.read(data)
            if entry.slot != slot:
                raise WireError("bad-body", "an entry of another slot")
            sequence = entry.sequence
            if sequence <= chain.last:
                have = chain.digest_at(sequence)
                if have is None or have == entry.digest:
                    replica.matched = max(replica.matched, sequence)
                    continue
                if sequence <= replica.commit:
                    self._store.counters["store-conflict"] += 1
                    return False
                chain.cut(sequence - 1)
                self._store.storage.cut(slot, sequence - 1)
            if sequence != chain.last + 1 or entry.previous != chain.digest:
                return False
            chain.append(entry)
            append(entry, replica.commit)
            replica.matched = sequence
        return True

    def _learn_commit(self, replica: Replica, commit: int) -> None:
        """The primary's commit point, as far as the entries are here."""
        if replica.commit < commit <= replica.matched:
            replica.learn(commit)
            replica.trim(commit)
            self._store.storage.commit(replica.slot, commit)

    def take_acks(self) -> list[tuple[Session, list[tuple[int, int, int]]]]:
        """What to say once the sync that begins now is done."""
        taken, self._acks = self._acks, {}
        replicas = self._store.replicas
        return [
            (session, [(slot, epoch, replicas[slot].matched) for slot, epoch in slots.items()])
            for session, slots in taken.items()
        ]

    def acknowledge(self, session: Session, acks: list[tuple[int, int, int]]) -> None:
        """Durable. What was promised to a higher epoch meanwhile is not acknowledged."""
        replicas = self._store.replicas
        if "ignore-epoch" not in self._store.bugs:
            acks = [ack for ack in acks if ack[0] in replicas and replicas[ack[0]].fence == ack[1]]
        if acks:
            self._store.reply(session, Prepared(tuple(acks)))

    # Leases.

    def on_beat(self, session: Session, message: Beat) -> None:
        store = self._store
        now, node = store.world.now(), session.peer.id
        until = now + store.settings.lease_s * store.settings.lease_drift
        fenced: list[tuple[int, int]] = []
        behind: list[int] = []
        for slot, epoch, commit in message.claims:
            replica = store.replica(slot)
            if replica.fence > epoch and "ignore-epoch" not in store.bugs:
                fenced.append((slot, replica.fence))
                continue
            replica.granted_to, replica.granted_until = node, until
            if replica.fence < epoch or replica.record is None:
                behind.append(slot)
                continue
            replica.heard_at = now
            if commit > replica.matched:
                behind.append(slot)
            else:
                # Only who serves beats: this is the commit point of the slot, and it is here.
                replica.confirmed = True
                self._learn_commit(replica, commit)
        lineage = store.storage.lineage
        session.send(Beaten(message.number, lineage, tuple(fenced), tuple(behind)))

    # Sources.

    def on_pull(self, session: Session, message: Pull) -> None:
        """A candidate wants what it lacks of the log."""
        store = self._store
        replica = store.replicas.get(message.slot)
        if replica is None or replica.fence != message.epoch:
            return
        chain = replica.chain
        if chain.digest_at(message.commit) != message.digest:
            pulled = Pulled(message.slot, message.epoch, (), copying=True)
            store.reply(session, pulled)
            store.copying.answer(replica, session, session.peer.id, message.epoch)
            return
        found = chain.behind(message.commit, RUN_BYTES_MAX)
        more = bool(found) and found[-1].sequence < chain.last
        data = tuple(entry.data for entry in found)
        store.reply(session, Pulled(message.slot, message.epoch, data, more))
