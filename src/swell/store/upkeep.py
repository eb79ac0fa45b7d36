"""What a node does about its slots as time passes: creates, takes over, fills up, lets go.

Hints come from the plan and from silence; every decision is a proposal that the registry judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from swell.directory.registry import Entry
from swell.store import record as records
from swell.store.record import Member, Record

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store

IDLE_S = 30.0
"""A link that nothing was sent on for so long is closed."""

DROP_AFTER_S = 15.0
"""What this node keeps of a slot that it is no member of is dropped after so long."""

CREATE_WAIT_S = 3.0
"""How long a new slot waits for all of its members before it begins with fewer."""

PATIENCE = 2.0
"""Times `silence_s`: how long the first backup waits for its primary; others a little longer."""


class Upkeep:
    """The timer of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due_at = 0.0
        self._creating_since: float | None = None
        self._surplus: list[int] = []
        """Slots whose data seem to be of no use here any more."""
        self._asking = False
        self._around: object = None
        """What of the other nodes and the plan made slots do something, at the tick before."""

    def start(self) -> None:
        self._arm()

    def _arm(self) -> None:
        interval_s = self._store.settings.beat_interval_s
        self._due_at = self._store.world.now() + interval_s
        self._store.world.call_later(interval_s, self._tick)

    def _tick(self) -> None:
        store = self._store
        now = store.world.now()
        late_s = now - self._due_at
        stalled_s = late_s if late_s > store.settings.beat_interval_s else 0.0
        if store.stopped:
            return
        self._arm()
        store.peers.tick(now, IDLE_S, stalled_s)
        store.leases.beat(now)
        store.copying.tick(now)
        before, self._around = self._around, store.peers.around(now)
        stirred = before != self._around
        heard_s = PATIENCE * store.settings.silence_s
        for replica in list(store.replicas.values()):
            # While this node stood still it could not hear: that is nobody's silence.
            replica.heard_at += stalled_s
            if replica.primary is not None:
                replica.primary.tick(now, stirred)
            elif replica.candidate is not None:
                replica.candidate.tick(now)
            elif now - replica.heard_at > heard_s or not replica.follows(store.me):
                self._watch(replica, now)
        self._drop_surplus()
        self._create(now)
        store.turns.soon()

    # Taking over.

    def _watch(self, replica: Replica, now: float) -> None:
        """A follower looks after its primary."""
        store = self._store
        record = store.table.record(replica.slot)
        if record is None or record.epoch < replica.fence:
            return
        if store.proposals.open(replica.slot) is not None:
            return
        if not self._counts(replica, record):
            if self._is_surplus(replica, record, now):
                self._surplus.append(replica.slot)
            return
        keepers = record.keepers or record.members
        if record.primary == store.me:
            # Of this epoch this life knows nothing: begin a new one.
            members = list(record.members)
        else:
            backups = [member.node for member in keepers if member.node != record.primary]
            patience = PATIENCE + 0.5 * backups.index(store.me)
            if now - replica.heard_at <= patience * store.settings.silence_s:
                return
            kept = [member for member in keepers if member.node != record.primary]
            members = self.filled(replica.slot, kept, [record.primary])
        if store.proposals.propose(records.take_over(record, store.me, members)):
            store.counters["store-takeover"] += 1

    def filled(self, slot: int, kept: Sequence[Member], lost: Sequence[int]) -> list[Member]:
        """Members for a new epoch: this node first, and enough others if there are any. Lost ones
        only without their old data, or if nobody else is left: they may come back."""
        store = self._store
        now = store.world.now()
        record = store.table.record(slot)
        keepers = record.keepers if record is not None else ()
        void = {member.node: member.lineage for member in keepers}
        chosen = {store.me: store.storage.lineage}
        chosen |= {m.node: m.lineage for m in kept if m.node != store.me}
        for node in store.places(slot, len(chosen)):
            if len(chosen) >= store.min_replicas:
                break
            if node in chosen:
                continue
            store.leases.court(node)
            lineage = store.peers.lineage(node)
            if node in lost and lineage == void.get(node, lineage):
                continue
            if lineage and store.peers.silent_s(node, now) <= store.settings.silence_s:
                chosen[node] = lineage
        for member in keepers:
            if len(chosen) < store.min_replicas:
                chosen.setdefault(member.node, member.lineage)
        return [Member(node, lineage) for node, lineage in chosen.items()]

    # Letting go.

    def _counts(self, replica: Replica, record: Record) -> bool:
        """Whether a record counts on what is here."""
        keepers = record.keepers or record.members
        mine = next((m.lineage for m in keepers if m.node == self._store.me), None)
        lacking = bool(record.keepers) and not replica.has_data
        return mine == self._store.storage.lineage and not lacking

    def _is_surplus(self, replica: Replica, record: Record, now: float) -> bool:
        """Whether what is here helps nobody, unless it is being taught."""
        silent_s = now - replica.heard_at
        return replica.has_data and record.activated and silent_s > DROP_AFTER_S

    def _drop_surplus(self) -> None:
        """Drop data only if the registry says so now: a table may be old, and a change that made
        this node a member may have come after the last that was heard."""
        slots, self._surplus = self._surplus, []
        if slots and not self._asking:
            self._asking = True
            self._store.registry.read([records.key(slot) for slot in slots], self._on_surplus)

    def _on_surplus(self, entries: dict[str, Entry] | None) -> None:
        self._asking = False
        store = self._store
        if entries is None or store.stopped:
            return
        store.table.on_slots(dict(entries))
        for key, entry in entries.items():
            slot = records.slot_of(key)
            replica, record = store.replicas.get(slot), store.table.record(slot)
            if replica is None or record is None or store.table.version(slot) != entry.version:
                continue
            if replica.primary is not None or replica.candidate is not None:
                continue
            if self._counts(replica, record):
                continue
            if self._is_surplus(replica, record, store.world.now()):
                self._drop(replica)

    def _drop(self, replica: Replica) -> None:
        """The promise stays: a primary of long ago may still ask for leases and
        acknowledgements."""
        store = self._store
        store.counters["store-dropped"] += 1
        replica.forget()
        store.storage.drop(replica.slot)
        store.storage.fence(replica.slot, replica.fence)

    # Creating.

    def _create(self, now: float) -> None:
        """Slots without a record that the plan gives to this node."""
        store = self._store
        if not store.table.slots or store.table.known >= store.table.slots:
            self._creating_since = None
            return
        if self._creating_since is None:
            self._creating_since = now
        waited = now - self._creating_since > CREATE_WAIT_S
        for slot in range(store.table.slots):
            targets = store.table.targets(slot)
            if not targets or targets[0] != store.me or store.table.record(slot) is not None:
                continue
            if store.proposals.open(slot) is not None:
                continue
            members = self._met(targets)
            if len(members) == len(targets) or (waited and len(members) >= store.min_replicas):
                store.proposals.propose(records.create(slot, members))

    def _met(self, nodes: Iterable[int]) -> list[Member]:
        """Those that have said what data they have."""
        store = self._store
        met: list[Member] = []
        for node in nodes:
            if node != store.me:
                store.leases.court(node)
            lineage = store.peers.lineage(node)
            if lineage:
                met.append(Member(node, lineage))
        return met
