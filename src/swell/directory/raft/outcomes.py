"""Callbacks that wait for an outcome: proposals by index, reads by number. Both are bounded."""

from __future__ import annotations

from collections.abc import Callable

from swell.directory.raft.errors import LOST, RaftError
from swell.settings import RaftSettings

IndexDone = Callable[[int | RaftError], None]


class Outcomes:
    """Every callback taken is called exactly once."""

    def __init__(self, settings: RaftSettings) -> None:
        self._settings = settings
        self._proposals: dict[int, tuple[int, IndexDone]] = {}
        self._reads: dict[int, IndexDone] = {}
        self._confirmed: dict[int, int] = {}
        """Read → the index that must be applied; in order of both."""
        self._number = 0

    @property
    def proposals_full(self) -> bool:
        return len(self._proposals) >= self._settings.proposals_max

    @property
    def reads_full(self) -> bool:
        return len(self._reads) >= self._settings.reads_max

    def expect(self, index: int, term: int, done: IndexDone) -> None:
        assert index not in self._proposals
        self._proposals[index] = (term, done)

    def expect_read(self, done: IndexDone) -> int:
        self._number += 1
        self._reads[self._number] = done
        return self._number

    def applied(self, index: int, term: int) -> None:
        """The entry of `term` took effect at `index` here."""
        proposal = self._proposals.pop(index, None)
        if proposal is not None:
            expected, done = proposal
            done(index if term == expected else RaftError(LOST))

    def confirm(self, read: int, index: int) -> None:
        self._confirmed[read] = index

    def release_reads(self, applied: int) -> None:
        while self._confirmed:
            read, index = next(iter(self._confirmed.items()))
            if index > applied:
                return
            del self._confirmed[read]
            self._reads.pop(read)(index)

    def fail(self, error: RaftError) -> None:
        waiting = [done for _, done in self._proposals.values()]
        waiting += self._reads.values()
        self._proposals.clear()
        self._reads.clear()
        self._confirmed.clear()
        for done in waiting:
            done(error)
