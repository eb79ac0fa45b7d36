"""Which role this node has in a slot: none, follower, candidate or primary.

A record says who leads an epoch; whoever hears of a newer one takes the role that it gives. A
primary steps down as soon as it learns that somebody has promised a higher epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.events import SlotServed
from swell.store.candidate import Candidate
from swell.store.primary import Primary
from swell.store.record import Record
from swell.store.replicator import Replicator

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store


class Roles:
    """Of one store's replicas."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def follow(self, replica: Replica, record: Record) -> None:
        """Take the role that a record gives to this node."""
        known = replica.record
        if known is not None and (record.epoch, record.activated) <= (known.epoch, known.activated):
            return
        replica.record = record
        if (
            record.primary == self._store.me
            and record.lineage(self._store.me) == self._store.storage.lineage
        ):
            self._lead(replica, record)
            return
        if known is None or known.epoch < record.epoch:
            self.step_down(replica)
            replica.heard_at = self._store.world.now()

    def _lead(self, replica: Replica, record: Record) -> None:
        primary, candidate = replica.primary, replica.candidate
        if not record.activated:
            self.step_down(replica)
            replica.candidate = Candidate(self._store, replica, record)
            replica.candidate.start()
        elif primary is not None and primary.record.epoch + 1 == record.epoch:
            replica.fence = record.epoch
            self._store.storage.fence(replica.slot, record.epoch)
            primary.on_record(record)
            self._store.world.emit(SlotServed(replica.slot, record.epoch))
        elif primary is not None and primary.record.epoch == record.epoch:
            # Only with the planted bug that serves before it is activated.
            primary.record = record
        elif candidate is not None and candidate.activates(record) and candidate.replicator:
            # All members have all of it: committed, and applied before anything is read.
            replica.advance(candidate.last)
            self._store.storage.commit(replica.slot, replica.commit)
            candidate.replicator.record = record
            self.become_primary(replica, record, candidate.replicator)
        else:
            # Activated by an earlier life of this node: `Upkeep` begins a new epoch.
            self.step_down(replica)

    def become_primary(self, replica: Replica, record: Record, replicator: Replicator) -> None:
        replica.candidate = None
        replica.primary = Primary(self._store, replica, record, replicator)
        replica.confirmed = True
        self._store.counters["store-activated"] += 1
        self._store.world.emit(SlotServed(replica.slot, record.epoch))
        replica.primary.on_progress()
        self._store.leases.soon()
        self._store.listener.on_serving(replica.slot)

    def step_down(self, replica: Replica) -> None:
        primary, candidate = replica.primary, replica.candidate
        replica.primary = replica.candidate = None
        if primary is not None:
            primary.stop()
            self._store.listener.on_stopped(replica.slot)
        if candidate is not None:
            candidate.stop()

    def on_fenced(self, slot: int, fence: int) -> None:
        """A member has promised a higher epoch: this node is the primary no more."""
        replica = self._store.replicas.get(slot)
        if replica is None or replica.primary is None:
            return
        if fence > replica.primary.record.epoch:
            self._store.counters["store-deposed"] += 1
            self.step_down(replica)
            replica.heard_at = self._store.world.now()
