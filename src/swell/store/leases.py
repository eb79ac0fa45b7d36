"""Leases: the right to answer reads from one's own state, given by every member of the slot.

Per pair of nodes. A beat asks for one; it lasts `lease_s` from the moment the beat was sent, by the
holder's clock. The beat lists the slots the sender is primary of; the answer excepts those whose
fence is higher, and names those of which the member misses something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from swell.overlay.sessions import Session
from swell.store.messages import Beat, Beaten, Commit
from swell.world import Plane

if TYPE_CHECKING:
    from swell.store.service import Store

UNANSWERED_MAX = 32
COURT_S = 5.0


class Leases:
    """What this node holds, as the primary of its slots."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0
        self._sent: dict[int, dict[int, float]] = {}
        self._granted: dict[int, float] = {}
        """When the last beat was sent that each node answered."""
        self._courted: dict[int, float] = {}
        self._soon = False

    def court(self, node: int) -> None:
        """Ask this node who it is, though it keeps nothing of ours yet."""
        self._courted[node] = self._store.world.now()

    def soon(self) -> None:
        """There is something new to claim: do not wait for the next beat."""
        if not self._soon:
            self._soon = True
            self._store.world.call_later(0.0, self._beat_now)

    def _beat_now(self) -> None:
        self._soon = False
        if not self._store.stopped:
            self.beat(self._store.world.now())

    def beat(self, now: float) -> None:
        """One beat to every node that keeps, or shall keep, slots of ours."""
        for node in [n for n, at in self._courted.items() if now - at > COURT_S]:
            del self._courted[node]
        claims: dict[int, list[Commit]] = {node: [] for node in self._courted}
        for slot, epoch, commit, nodes in self._store.claims():
            for node in nodes:
                claims.setdefault(node, []).append((slot, epoch, commit))
        for node, listed in claims.items():
            if node != self._store.me:
                self._send(node, tuple(listed), now)
        for node in [node for node in self._sent if node not in claims]:
            del self._sent[node]

    def _send(self, node: int, claims: tuple[Commit, ...], now: float) -> None:
        self._number += 1
        if self._store.peers.send(node, Beat(self._number, claims), Plane.CONTROL):
            sent = self._sent.setdefault(node, {})
            sent[self._number] = now
            while len(sent) > UNANSWERED_MAX:
                del sent[next(iter(sent))]

    def on_beaten(self, session: Session, message: Beaten) -> None:
        node = self._store.peers.speaker(session)
        if not node:
            return
        peer = self._store.peers.peer(node)
        peer.lineage = message.lineage
        sent_at = self._sent.get(node, {}).pop(message.number, None)
        if sent_at is not None:
            self._granted[node] = max(self._granted.get(node, sent_at), sent_at)
        for slot, fence in message.fenced:
            self._store.roles.on_fenced(slot, fence)
        for slot in message.behind:
            replicator = self._store.replicator(slot)
            if replicator is not None:
                replicator.again(node)
        self._store.on_leases()

    def hold(self, lineages: Mapping[int, int], since: float, now: float) -> bool:
        """Does every one of these nodes, with the data that it should have, let us serve? Beats
        count that were sent at `since` or later."""
        granted, lineage = self._granted, self._store.peers.lineage
        oldest = max(since, now - self._store.settings.lease_s)
        for node, expected in lineages.items():
            if granted.get(node, -math.inf) < oldest or lineage(node) != expected:
                return False
        return True
