"""Taking over a slot: seal, longest log, re-prepare, leases, activate.

The record names this node as primary of an epoch that is not activated. It makes its own fence
durable and asks everybody of the basis and the members to adopt the epoch. From the answers of the
basis it takes the longest log; all members get it; the registry marks the epoch activated. Nothing
is served before (docs/protocols/replication.md says why this is safe).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from swell.overlay.sessions import Session
from swell.store import entry as entries
from swell.store import payload
from swell.store import record as records
from swell.store.messages import Position, Pull, Pulled
from swell.store.record import Record
from swell.store.replicator import Replicator

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store

PULL_S = 2.0
"""A source that does not answer a pull for so long is not waited for."""


class Stage(Enum):
    SEALING = "sealing"
    PULLING = "pulling"
    PREPARING = "preparing"
    ACTIVATING = "activating"


class Candidate:
    """One node's attempt to become the primary of one epoch of one slot."""

    def __init__(self, store: Store, replica: Replica, record: Record) -> None:
        self._store = store
        self._replica = replica
        self.record = record
        self.stage = Stage.SEALING
        self.replicator: Replicator | None = None
        self._positions: dict[int, Position] = {}
        self._leases_until: dict[int, tuple[int, float]] = {}
        """Who granted → to whom, until when."""
        self._fenced = False
        self._began_at = store.world.now()
        self._source = 0
        self._asked_at = 0.0
        self.last = 0
        """The entry of nothing that ends the log of the new epoch."""
        self._left_out: dict[int, None] = {}
        """Members that are not what the record says they are."""

    def start(self) -> None:
        store, record, replica = self._store, self.record, self._replica
        store.counters["store-candidacies"] += 1
        replica.fence = max(replica.fence, record.epoch)
        store.storage.fence(replica.slot, record.epoch)
        self.ask()

        def durable() -> None:
            if replica.candidate is self:
                self._fenced = True
                self._note_own()
                self.step()

        store.turns.after_sync(durable)

    def ask(self) -> None:
        """Have everybody adopt our epoch who has not said so yet."""
        for node in self._everybody():
            if node not in self._positions:
                self._store.peers.adopt(node, self.record)

    def _everybody(self) -> list[int]:
        both = dict.fromkeys(m.node for m in (*self.record.basis, *self.record.members))
        return [node for node in both if node != self._store.me]

    def _note_own(self) -> None:
        store, replica = self._store, self._replica
        now = store.world.now()
        own = replica.position(
            self.record.epoch, store.storage.lineage, now, store.member.started_until
        )
        self._positions[store.me] = own
        self._leases_until[store.me] = (own.leaseholder, now + own.lease_left_s)

    # Sealing.

    def on_position(self, node: int, position: Position) -> None:
        if position.epoch != self.record.epoch or position.fence != self.record.epoch:
            return
        now = self._store.world.now()
        self._positions[node] = position
        self._leases_until[node] = (position.leaseholder, now + position.lease_left_s)
        if self.replicator is not None and not self.replicator.on_position(node, position):
            self._leave_out(node)
        self._store.peers.peer(node).lineage = position.lineage
        self.step()

    def _leave_out(self, node: int) -> None:
        """Its data is not of the lineage that the record names."""
        self._left_out[node] = None
        if self.replicator is not None:
            self.replicator.forget(node)

    def _sources(self) -> list[Position]:
        found = []
        for member in self.record.basis:
            position = self._positions.get(member.node)
            if position is not None and position.lineage == member.lineage and position.has_data:
                found.append(position)
        return found

    def _enough(self, sources: list[Position], now: float) -> bool:
        basis = self.record.basis
        if not basis:
            return True
        if all(member.node in self._positions for member in basis):
            # Who has no data any more said so: nothing better will come.
            return bool(sources)
        if now - self._began_at < self._store.settings.seal_wait_s:
            return False
        return any(position.confirmed for position in sources) or len(sources) > 1

    # The steps.

    def step(self) -> None:
        """Go as far as the answers allow."""
        if not self._fenced or self._replica.candidate is not self:
            return
        if self.stage is Stage.SEALING:
            self._seal()
        if self.stage is Stage.PREPARING:
            self._check_prepared()

    def _seal(self) -> None:
        now = self._store.world.now()
        self._note_own()
        sources = self._sources()
        if not self._enough(sources, now):
            return
        replica = self._replica
        if "cut-committed" in self._store.bugs:
            self._discard_tail()
        elif sources:
            best = max(sources, key=lambda p: (p.last_epoch, p.last))
            if replica.chain.digest_at(best.last) != best.digest:
                self._pull(best, now)
                return
        self._prepare()

    def _discard_tail(self) -> None:
        replica = self._replica
        replica.chain.cut(replica.commit)
        self._store.storage.cut(replica.slot, replica.commit)

    def _pull(self, best: Position, now: float) -> None:
        self.stage = Stage.PULLING
        self._asked_at = now
        node = next(n for n, p in self._positions.items() if p is best)
        assert node != self._store.me
        self._source = node
        self._pull_behind(self._replica.commit)

    def _pull_behind(self, sequence: int) -> None:
        replica = self._replica
        digest = replica.chain.digest_at(sequence)
        assert digest is not None
        pull = Pull(replica.slot, self.record.epoch, sequence, digest)
        self._store.peers.send(self._source, pull)

    def on_entries(self, session: Session, message: Pulled) -> None:
        """A part of the source's log behind our commit point."""
        if self.stage is not Stage.PULLING or session.peer.id != self._source:
            return
        self._asked_at = self._store.world.now()
        if message.copying:
            return
        replica, storage = self._replica, self._store.storage
        chain = replica.chain
        for data in message.entries:
            entry = entries.read(data)
            if entry.sequence <= chain.last:
                if chain.digest_at(entry.sequence) == entry.digest:
                    continue
                if entry.sequence <= replica.commit:
                    self._store.counters["store-conflict"] += 1
                    return
                chain.cut(entry.sequence - 1)
                storage.cut(replica.slot, entry.sequence - 1)
            if not replica.fits(entry):
                self._store.counters["store-conflict"] += 1
                return
            chain.append(entry)
            storage.append(entry, replica.commit)
        if message.more:
            self._pull_behind(entries.read(message.entries[-1]).sequence)
        else:
            self.on_pulled()

    def on_copying(self) -> None:
        """The source sends its state: it is at work."""
        self._asked_at = self._store.world.now()

    def on_pulled(self) -> None:
        """Judge again with what we have now."""
        if self.stage is Stage.PULLING and self._replica.candidate is self:
            self.stage = Stage.SEALING
            self.step()

    def _prepare(self) -> None:
        """Everybody of the new epoch gets our log, ended by an entry of this epoch."""
        store, record, replica = self._store, self.record, self._replica
        self.stage = Stage.PREPARING
        self._asked_at = store.world.now()
        replicator = self.replicator = Replicator(store, replica, record)
        replicator.durable = 0
        replicator.expect(record.members)
        for node, position in self._positions.items():
            if node != store.me and not replicator.on_position(node, position):
                self._leave_out(node)
        self.last = replicator.append(payload.NOTHING).sequence
        if "serve-early" in store.bugs:
            store.proposals.propose(records.activate(record))
            store.roles.become_primary(replica, record, replicator)

    def on_progress(self) -> None:
        self._check_prepared()

    def _check_prepared(self) -> None:
        store = self._store
        if self.stage is not Stage.PREPARING or self.replicator is None or self._left_out:
            return
        others = {m.node: m.lineage for m in self.record.members if m.node != store.me}
        if self.replicator.common(others) < self.last:
            return
        if store.world.now() < self._lease_end():
            return
        if len(self.record.members) < store.min_replicas:
            return
        if store.proposals.propose(records.activate(self.record)):
            self.stage = Stage.ACTIVATING

    def activates(self, record: Record) -> bool:
        """Is this activation our own? One of an earlier life says nothing of what we have."""
        return self.stage is Stage.ACTIVATING and self.record.epoch == record.epoch

    def _lease_end(self) -> float:
        """When the last lease runs out of which the holder has not adopted our epoch."""
        if "ignore-leases" in self._store.bugs:
            return 0.0
        open_leases = [
            until
            for holder, until in self._leases_until.values()
            if not holder or holder not in self._positions
        ]
        return max(open_leases, default=0.0)

    # Time.

    def tick(self, now: float) -> None:
        store = self._store
        if store.proposals.open(self._replica.slot) is not None:
            return
        if self.stage is Stage.SEALING:
            self.ask()
        else:
            # A sign of life: they would take over from a silent candidate.
            for node in self._everybody():
                store.peers.adopt(node, self.record)
        installing = self._replica.installs > 0
        if self.stage is Stage.PULLING and now - self._asked_at > PULL_S and not installing:
            # Without this source the rest may do, or it answers again.
            self._positions.pop(self._source, None)
            self.stage = Stage.SEALING
            self._began_at = now
            self.ask()
        elif self.stage is Stage.PREPARING and now - self._asked_at > store.settings.silence_s:
            self._replace_silent(now)
        elif self.stage is Stage.ACTIVATING:
            self.stage = Stage.PREPARING
        self.step()

    def _replace_silent(self, now: float) -> None:
        """A further epoch without the members that do not take part."""
        store, record = self._store, self.record
        assert self.replicator is not None
        silence_s = store.settings.silence_s
        lost = [
            node
            for node in record.nodes_but(store.me)
            if node in self._left_out or store.peers.silent_s(node, now) > silence_s
        ]
        if not lost:
            return
        kept = [member for member in record.members if member.node not in lost]
        members = store.upkeep.filled(self._replica.slot, kept, lost)
        if len(members) >= store.min_replicas and members != list(record.members):
            store.proposals.propose(records.take_over(record, store.me, members))

    def stop(self) -> None:
        if self.replicator is not None:
            self.replicator.stop()
