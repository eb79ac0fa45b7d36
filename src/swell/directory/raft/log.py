"""The log in memory: a base (covered by a snapshot), entries behind it, and what is committed.

Invariants: base ≤ applied ≤ commit ≤ last; committed entries are never cut; `unsaved` is the first
index whose entry was not handed to the journal yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from swell.directory.raft.membership import Configuration, decode_configuration


class Kind(IntEnum):
    """What the data of an entry is."""

    NOTHING = 0
    COMMAND = 1
    CONFIGURATION = 2


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    term: int
    kind: int
    data: bytes


ENTRY_OVERHEAD_BYTES = 16


class Log:
    """Entries `base + 1 … last`, and the configurations among them."""

    def __init__(self, base: int, base_term: int, configuration: Configuration) -> None:
        self.base = base
        self.base_term = base_term
        self.commit = base
        self.applied = base
        self.unsaved = base + 1
        self._entries: list[Entry] = []
        self._configurations: list[tuple[int, Configuration]] = [(base, configuration)]

    @property
    def last(self) -> int:
        return self.base + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def configuration(self) -> Configuration:
        """The latest one, committed or not (thesis 4.1)."""
        return self._configurations[-1][1]

    @property
    def configuration_index(self) -> int:
        return self._configurations[-1][0]

    @property
    def configurations(self) -> Sequence[tuple[int, Configuration]]:
        """(index, configuration) in the order of the log, that of the base first."""
        return self._configurations

    def configuration_at(self, index: int) -> Configuration:
        """What was in force at `index`."""
        assert index >= self.base
        found = self._configurations[0][1]
        for position, configuration in self._configurations:
            if position > index:
                break
            found = configuration
        return found

    def term_at(self, index: int) -> int:
        """Term of the entry at `index`; −1 if the log does not have it (any more)."""
        if index == self.base:
            return self.base_term
        if self.base < index <= self.last:
            return self._entries[index - self.base - 1].term
        return -1

    def entry(self, index: int) -> Entry:
        assert self.base < index <= self.last
        return self._entries[index - self.base - 1]

    def is_behind(self, last_term: int, last_index: int) -> bool:
        """§5.4.1: is a log that ends there older than this one?"""
        return (last_term, last_index) < (self.last_term, self.last)

    def append(self, entry: Entry) -> int:
        self._entries.append(entry)
        if entry.kind == Kind.CONFIGURATION:
            self._configurations.append((self.last, decode_configuration(entry.data)))
        return self.last

    def merge(self, prev_index: int, entries: Sequence[Entry]) -> None:
        """§5.3: cut at the first entry of another term, then add what is missing."""
        for offset, entry in enumerate(entries):
            index = prev_index + 1 + offset
            if index <= self.base or self.term_at(index) == entry.term:
                continue
            if index <= self.last:
                self.cut(index - 1)
            for missing in entries[offset:]:
                self.append(missing)
            return

    def cut(self, index: int) -> None:
        """Forget everything behind `index`."""
        assert index >= self.commit, f"cut at {index} below the commit index {self.commit}"
        del self._entries[index - self.base :]
        while self._configurations[-1][0] > index:
            self._configurations.pop()
        self.unsaved = min(self.unsaved, index + 1)

    def conflict_hint(self, prev_index: int) -> int:
        """Up to where a leader's log may agree at best, given that it does not at `prev_index`:
        a whole term is skipped at a time (§5.3, last paragraphs)."""
        if prev_index > self.last:
            return self.last
        term = self.term_at(prev_index)
        index = prev_index - 1
        while index > self.commit and self.term_at(index) == term:
            index -= 1
        return max(index, self.base)

    def slice(self, begin: int, bytes_max: int, entries_max: int) -> list[Entry]:
        """Entries from `begin` on, at least one if there is one."""
        chosen: list[Entry] = []
        size = 0
        position = begin - self.base - 1
        for entry in self._entries[position : position + entries_max]:
            size += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if chosen and size > bytes_max:
                break
            chosen.append(entry)
        return chosen

    def commit_to(self, index: int) -> None:
        assert index <= self.last, f"commit {index} beyond the last entry {self.last}"
        self.commit = max(self.commit, index)

    def take_unsaved(self) -> list[tuple[int, Entry]]:
        """Entries for the journal, with their indexes."""
        first = self.unsaved
        self.unsaved = self.last + 1
        return [(index, self.entry(index)) for index in range(first, self.last + 1)]

    def compact(self, index: int) -> None:
        """Entries up to `index` are covered by a snapshot: forget them."""
        assert index <= self.applied
        if index <= self.base:
            return
        term, configuration = self.term_at(index), self.configuration_at(index)
        later = [item for item in self._configurations if item[0] > index]
        del self._entries[: index - self.base]
        self.base, self.base_term = index, term
        self._configurations = [(index, configuration), *later]

    def restore(self, index: int, term: int, configuration: Configuration) -> None:
        """A snapshot of the leader's takes the place of everything up to `index`. What is behind
        stays if the log has the snapshot's last entry (§7), else it is all gone."""
        assert index > self.commit
        if self.term_at(index) == term:
            self.commit = self.applied = index
            self.compact(index)
            self._configurations[0] = (index, configuration)
            return
        self._entries.clear()
        self.base, self.base_term = index, term
        self.commit = self.applied = index
        self.unsaved = index + 1
        self._configurations = [(index, configuration)]
