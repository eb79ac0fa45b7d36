"""What a leader knows about one member's log, and how fast it may send to it.

A member is *probed* (one frame at a time, until the point where the logs agree is found),
*replicating* (frames follow each other without waiting, up to a window) or *restoring* (it needs
entries that are compacted away, so it gets a snapshot, chunk by chunk).
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from swell.directory.raft.state import Base

STALL_HEARTBEATS = 3
"""Frames unanswered for that many heartbeats are taken for lost."""


class Phase(IntEnum):
    PROBE = 0
    REPLICATE = 1
    RESTORE = 2


class Progress:
    """`match`: durably equal to the leader's log up to there. `next`: the next index to send."""

    def __init__(self, last: int) -> None:
        self.match = 0
        self.next = last + 1
        self.phase = Phase.PROBE
        self.waiting = False
        """Probing: a frame is on its way."""
        self.inflight: deque[int] = deque()
        """Replicating: the last index of every frame without an answer."""
        self.snapshot: Base | None = None
        self.offset = 0
        self.silent_heartbeats = 0
        self.active = True
        """Heard since the last look at the quorum."""
        self.unclean = 0
        """The member's token of loss: its word does not count."""

    @property
    def counted(self) -> int:
        return 0 if self.unclean else self.match

    def may_send(self, inflight_max: int) -> bool:
        if self.phase is Phase.PROBE:
            return not self.waiting
        return self.phase is Phase.REPLICATE and len(self.inflight) < inflight_max

    def sent(self, last: int) -> None:
        """A frame that ends at `last` is on its way."""
        if self.phase is Phase.PROBE:
            self.waiting = True
        elif last >= self.next:
            self.inflight.append(last)
            self.next = last + 1

    def acknowledged(self, index: int) -> None:
        self.silent_heartbeats = 0
        self.match = max(self.match, index)
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        if self.phase is Phase.RESTORE and self.snapshot and index < self.snapshot.index:
            return
        if self.phase is not Phase.REPLICATE:
            self.phase = Phase.REPLICATE
            self.inflight.clear()
            self.snapshot = None
            self.waiting = False
            self.next = self.match + 1
        self.next = max(self.next, self.match + 1)

    def refused(self, prev_index: int, hint: int, unclean: bool) -> bool:
        """The member does not have `prev_index`; False if that is old news."""
        if unclean:
            self.match = min(self.match, hint)
        elif prev_index <= self.match:
            return False
        self.probe(min(hint, prev_index - 1) + 1)
        return True

    def probe(self, next_index: int) -> None:
        self.phase = Phase.PROBE
        self.next = max(next_index, self.match + 1, 1)
        self.inflight.clear()
        self.snapshot = None
        self.waiting = False
        self.silent_heartbeats = 0

    def restore(self, snapshot: Base) -> None:
        self.phase = Phase.RESTORE
        self.snapshot = snapshot
        self.offset = 0
        self.silent_heartbeats = 0

    def expire_heartbeat(self) -> bool:
        """A heartbeat interval went by; True: send again what got no answer."""
        if self.phase is Phase.PROBE:
            self.waiting = False
            return True
        if self.phase is Phase.REPLICATE and not self.inflight:
            self.silent_heartbeats = 0
            return False
        self.silent_heartbeats += 1
        if self.silent_heartbeats < STALL_HEARTBEATS:
            return False
        self.silent_heartbeats = 0
        if self.phase is Phase.REPLICATE:
            self.probe(self.match + 1)
        return True
