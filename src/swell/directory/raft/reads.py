"""Read index (§8; thesis 6.4): a read is as new as every write acknowledged before it began.

A read takes the commit index of a leader that has committed an entry of its own term, waits until
a quorum has answered a heartbeat sent after the read began, and then until that index is applied.
Reads that arrive together share a round. No clock is trusted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from swell.directory.raft import quorum


class Reads:
    """Reads of one leadership, in the order of arrival."""

    def __init__(self) -> None:
        self.round = 0
        """Number of the latest round of heartbeats."""
        self._next: list[int] = []
        self._waiting: deque[tuple[int, int, list[int]]] = deque()
        """(round, index, reads) whose round is under way."""
        self._answers: dict[str, int] = {}

    def add(self, read: int) -> None:
        self._next.append(read)

    @property
    def pending(self) -> bool:
        """Are there reads that no round covers yet?"""
        return bool(self._next)

    def begin_round(self, commit: int) -> None:
        """The heartbeats that go out now confirm all reads that came before."""
        self.round += 1
        if self._next:
            self._waiting.append((self.round, commit, self._next))
            self._next = []

    def answered(self, member: str, round_number: int) -> None:
        self._answers[member] = max(self._answers.get(member, 0), round_number)

    def confirmed(self, voters: Collection[str], me: str) -> list[tuple[int, int]]:
        """(read, index) for the reads whose round a quorum has answered."""
        if not self._waiting:
            return []
        reached = quorum.reached(voters, {**self._answers, me: self.round})
        found: list[tuple[int, int]] = []
        while self._waiting and self._waiting[0][0] <= reached:
            _, index, reads = self._waiting.popleft()
            found.extend((read, index) for read in reads)
        return found
