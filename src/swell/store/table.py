"""Who keeps which slot, and who should: this node's copy of the registry's records and plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from swell.directory.plan import Plan, decode_plan
from swell.directory.registry import Entry
from swell.errors import WireError
from swell.overlay.contact import Contact
from swell.store import record as records
from swell.store.record import Record


class Table:
    """Records never go back to an older version."""

    def __init__(self, on_record: Callable[[int, Record], None], counters: Counter[str]) -> None:
        self._on_record = on_record
        self._counters = counters
        self._records: dict[int, tuple[int, Record]] = {}
        self._contacts: dict[int, Contact] = {}
        self.plan: Plan | None = None
        self.plan_version = 0

    @property
    def slots(self) -> int:
        """How many there are; 0 while that is unknown."""
        return self.plan.slots if self.plan is not None else 0

    def record(self, slot: int) -> Record | None:
        known = self._records.get(slot)
        return known[1] if known is not None else None

    @property
    def known(self) -> int:
        """How many slots have a record."""
        return len(self._records)

    def version(self, slot: int) -> int:
        """0: there is no record yet."""
        known = self._records.get(slot)
        return known[0] if known is not None else 0

    def targets(self, slot: int) -> tuple[int, ...]:
        """Where the slot should live, the primary first."""
        if self.plan is None or not 0 <= slot < len(self.plan.targets):
            return ()
        return self.plan.targets[slot]

    def contact(self, node: int) -> Contact | None:
        return self._contacts.get(node)

    def contacts(self) -> Sequence[Contact]:
        return tuple(self._contacts.values())

    def primaries(self) -> tuple[int, ...]:
        """By slot; 0 where nobody serves."""
        found = (self.record(slot) for slot in range(self.slots))
        return tuple(r.primary if r is not None and r.activated else 0 for r in found)

    def learn(self, slot: int, entry: Entry) -> None:
        """What the registry says of a slot."""
        if entry.version <= self.version(slot):
            return
        try:
            record = records.decode(entry.value)
        except WireError:
            self._counters["bad-slot-record"] += 1
            return
        self._records[slot] = (entry.version, record)
        self._on_record(slot, record)

    def on_slots(self, changes: dict[str, Entry | None]) -> None:
        """The watch of `slots/`. Records are never deleted."""
        for key, entry in changes.items():
            slot = records.slot_of(key)
            if entry is not None and slot >= 0:
                self.learn(slot, entry)

    def on_plan(self, changes: dict[str, Entry | None]) -> None:
        """The watch of `plan`."""
        entry = changes.get("plan")
        if entry is None or entry.version <= self.plan_version:
            return
        try:
            plan = decode_plan(entry.value)
        except WireError:
            self._counters["bad-plan"] += 1
            return
        self.plan, self.plan_version = plan, entry.version
        for contact in plan.contacts:
            self._contacts[contact.id] = contact
