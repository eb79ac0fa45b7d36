"""Turns: what comes up while a sync runs shares the next sync and few frames.

Order within a turn: frames to others leave first, then the sync begins; words that depend on it
are given when it is done, and then the next turn begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swell.store.replicator import Replicator
    from swell.store.service import Store

BUSY_SLOTS = 8
GATHER_S = 0.001
"""A primary with so many slots in one turn waits so long for more to share the next one's sync and
frames: with many clients, what that saves of the processor shortens the wait of all."""


class Turns:
    """The turns of one store, one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = False
        self._syncing = False
        self._busy = False
        self._unsynced: dict[Replicator, None] = {}
        self._after_sync: list[Callable[[], None]] = []

    def unsynced(self, replicator: Replicator) -> None:
        """It has appended something that must become durable."""
        self._unsynced[replicator] = None
        if not self._due:
            self.soon()

    def after_sync(self, action: Callable[[], None]) -> None:
        """Do this once everything journalled so far is durable."""
        self._after_sync.append(action)
        self.soon()

    def soon(self) -> None:
        """There is something to send or to sync: a turn, once the one under way has ended."""
        if not self._due:
            self._due = True
            if not self._syncing:
                self._schedule()

    def _schedule(self) -> None:
        gather = self._busy and self._unsynced
        self._store.world.call_later(GATHER_S if gather else 0.0, self._begin)

    def _begin(self) -> None:
        self._due = False
        store = self._store
        if store.stopped:
            return
        store.peers.flush()
        store.proposals.flush()
        acks = store.member.take_acks()
        appended = [(r, r.replica.chain.last) for r in self._unsynced]
        self._unsynced.clear()
        self._busy = len(appended) >= BUSY_SLOTS
        actions, self._after_sync = self._after_sync, []
        if not (acks or appended or actions):
            return

        def synced() -> None:
            self._syncing = False
            if self._due:
                self._schedule()
            if store.stopped:
                return
            for session, listed in acks:
                store.member.acknowledge(session, listed)
            for replicator, last in appended:
                role = store.role(replicator.replica.slot)
                if role is not None and role.replicator is replicator:
                    replicator.on_durable(last)
                    role.on_progress()
            for action in actions:
                action()

        self._syncing = True
        store.storage.sync(synced)
