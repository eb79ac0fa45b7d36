"""When what is here outlives a crash: at once without a snapshot, else with the next sync.

Bursts that come while a sync is under way share the one after it, whatever their feeds.
"""

from __future__ import annotations

from functools import partial

from swell.container.receipts import Receipts
from swell.container.snapshot import Snapshot


class Durability:
    """Moves the durable marks. `stale` plants a bug: they are moved before the sync."""

    def __init__(self, snapshot: Snapshot | None, stale: bool) -> None:
        self._snapshot = snapshot
        self._stale = stale
        self._syncing = False
        self._unsynced: dict[Receipts, None] = {}

    def note(self, receipts: Receipts) -> None:
        """Steps were applied."""
        snapshot = self._snapshot
        if snapshot is None or self._stale:
            receipts.on_durable(receipts.feed.at)
        if snapshot is not None:
            self._unsynced[receipts] = None
            if not self._syncing:
                self._sync(snapshot)

    def _sync(self, snapshot: Snapshot) -> None:
        self._syncing = True
        marks = [(one, snapshot.kept_step(one.feed)) for one in self._unsynced]
        self._unsynced.clear()
        snapshot.sync(partial(self._on_synced, snapshot, marks))

    def _on_synced(self, snapshot: Snapshot, marks: list[tuple[Receipts, int]]) -> None:
        self._syncing = False
        for receipts, step in marks:
            receipts.on_durable(step)
        if self._unsynced and not self._syncing:
            self._sync(snapshot)
