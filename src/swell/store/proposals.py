"""Changes of slot records that are under way.

A change is sent again until the record's version has moved on, whoever moved it: a change whose
answer was lost may still take effect, so it is never given up for another one. What the record then
says is told by the table, whether it is this change or somebody else's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.directory.registry import Change, Outcome
from swell.store import record as records
from swell.store.record import Record

if TYPE_CHECKING:
    from swell.store.service import Store

RETRY_S = 0.3


class Proposal:
    __slots__ = ("asking", "change", "due_at", "record")

    def __init__(self, record: Record, change: Change) -> None:
        self.record = record
        self.change = change
        self.asking = False
        self.due_at = 0.0


class Proposals:
    """At most one for each slot."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, Proposal] = {}

    def open(self, slot: int) -> Record | None:
        """What is proposed for a slot, if anything is."""
        proposal = self._open.get(slot)
        return proposal.record if proposal is not None else None

    def propose(self, record: Record) -> bool:
        """False: another change is under way."""
        slot = record.slot
        if slot in self._open:
            return False
        version = self._store.table.version(slot)
        change = Change(records.key(slot), version, records.encode(record))
        self._open[slot] = Proposal(record, change)
        self._store.turns.soon()
        return True

    def resolve(self, slot: int) -> None:
        """The table has learned something about a slot."""
        proposal = self._open.get(slot)
        if proposal is not None and self._store.table.version(slot) > proposal.change.expected:
            del self._open[slot]

    def flush(self) -> None:
        """Send what is due, all in one."""
        now = self._store.world.now()
        batch = [p for p in self._open.values() if not p.asking and p.due_at <= now]
        if not batch:
            return
        for proposal in batch:
            proposal.asking = True

        def done(outcomes: list[Outcome] | None) -> None:
            self._on_outcomes(batch, outcomes)

        self._store.registry.change([proposal.change for proposal in batch], done)

    def _on_outcomes(self, batch: list[Proposal], outcomes: list[Outcome] | None) -> None:
        due_at = self._store.world.now() + RETRY_S * (0.5 + self._store.world.rng.random())
        for proposal in batch:
            proposal.asking = False
            proposal.due_at = due_at
        if outcomes is None:
            self._store.counters["store-proposal-unknown"] += len(batch)
            return
        for proposal, outcome in zip(batch, outcomes, strict=True):
            if outcome.entry is not None:
                self._store.table.learn(proposal.record.slot, outcome.entry)
            self.resolve(proposal.record.slot)
