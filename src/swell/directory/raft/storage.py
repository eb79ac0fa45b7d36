"""A member's word on its disk: records, group commit, and the messages that wait for it.

The leader's and the follower's rule is one: a message that gives a word is held until the records
written before it are synced. Everything written while a sync runs shares the next one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from swell.directory.raft.core import Core, Outgoing
from swell.directory.raft.state import Base, State, Stored, encode_record

FORGET_VOTE = "forget-vote"
"""Planted bug: the vote is not persisted."""
SKIP_SYNC = "skip-sync"
"""Planted bug: a word is given before it is durable."""

HELD_MAX = 4096
"""Messages that wait for a sync; more are dropped, as a network would."""


class Recovered(Protocol):
    """What a journal held when it was opened."""

    @property
    def snapshot(self) -> bytes | None: ...
    @property
    def base(self) -> int: ...
    @property
    def records(self) -> list[bytes]: ...
    @property
    def clean(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class Journal(Protocol):
    """The part of `swell.journal` that is used here; records are never cut, see `state`."""

    @property
    def last_index(self) -> int: ...
    def open(self, done: Callable[[Recovered], None]) -> None: ...
    def append(self, record: bytes) -> int: ...
    def sync(self, done: Callable[[], None]) -> None: ...
    def snapshot(self, state: bytes, upto: int, done: Callable[[], None]) -> None: ...
    def repaired(self, done: Callable[[], None]) -> None: ...


class Storage:
    """Writes what the core decided; knows what is durable."""

    def __init__(self, journal: Journal, counters: Counter[str], bugs: frozenset[str]) -> None:
        self._journal = journal
        self._counters = counters
        self._bugs = bugs
        self._written = 0
        self._synced = 0
        self._syncing = False
        self._begun = 0
        """Records that the latest sync covers."""
        self._held: deque[tuple[int, Outgoing]] = deque()
        """(records that must be synced first, message)."""
        self._positions: dict[int, int] = {}
        """Index of an entry → index of its record in the journal."""
        self._unclean = False
        self.snapshotting = False

    def begin(self, positions: dict[int, int]) -> None:
        """The journal was read."""
        self._positions = positions

    @property
    def durable(self) -> bool:
        """Is everything written synced?"""
        return self._synced == self._written

    def persist(self, core: Core) -> None:
        """Hand new entries and a new state to the journal."""
        for index, entry in core.log.take_unsaved():
            self._positions[index] = self._journal.append(encode_record(Stored(index, entry)))
            self._written += 1
        if core.state_dirty:
            core.state_dirty = False
            # Behind the entries: a cure counts only with the entry that cured.
            self._journal.append(encode_record(self._kept(core.state)))
            self._written += 1
            if self._unclean and not core.state.unclean:
                self._journal.repaired(lambda: None)
            self._unclean = core.state.unclean != 0
        if SKIP_SYNC in self._bugs and not self.durable:
            self._synced = self._written
            core.on_durable(core.state.term, core.log.last)

    def _kept(self, state: State) -> State:
        if FORGET_VOTE in self._bugs:
            return State(state.number, state.term, "", state.unclean)
        return state

    def hold(self, item: Outgoing) -> None:
        """Keep a message until everything written so far is synced."""
        if len(self._held) < HELD_MAX:
            self._held.append((self._written, item))
        else:
            self._counters["raft-dropped-held"] += 1

    def released(self) -> Iterator[Outgoing]:
        """Messages whose records are durable."""
        while self._held and self._held[0][0] <= self._synced:
            yield self._held.popleft()[1]

    def sync(self, core: Core, done: Callable[[int, int], None]) -> None:
        """Begin a sync if one is needed and none runs; `done(term, last index)` when it is over."""
        if self._syncing or self._begun == self._written:
            return
        self._syncing = True
        self._begun = written = self._written
        term, last = core.state.term, core.log.last

        def synced() -> None:
            self._syncing = False
            self._synced = max(self._synced, written)
            self._counters["raft-syncs"] += 1
            done(term, last)

        self._journal.sync(synced)

    def rewrite(self, core: Core, base: Base, done: Callable[[], None]) -> None:
        """Records are missing in the middle: what is left begins the journal anew."""
        self._positions.clear()
        core.log.unsaved = core.log.base + 1
        self._save(core, base, self._journal.last_index, done)

    def install(self, core: Core, base: Base, done: Callable[[], None]) -> None:
        """A leader's snapshot takes the place of the log, or of its beginning."""
        kept = core.log.term_at(base.index) == base.term
        upto = self._positions[base.index] if kept else self._journal.last_index
        self._save(core, base, upto, done)

    def save(self, core: Core, base: Base, done: Callable[[], None]) -> None:
        """Our own snapshot takes the place of the entries it covers."""
        self._save(core, base, self._positions[base.index], done)

    def _save(self, core: Core, base: Base, upto: int, done: Callable[[], None]) -> None:
        # All live entries behind `base` were written behind `upto`: an entry is written again
        # whenever one before it is replaced.
        def saved() -> None:
            self.snapshotting = False
            for index in [index for index in self._positions if index <= base.index]:
                del self._positions[index]
            done()

        self.snapshotting = True
        state = self._kept(core.state)
        whole = Base(state, base.index, base.term, base.configuration, base.data)
        self._journal.snapshot(encode_record(whole), upto, saved)
