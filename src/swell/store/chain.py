"""A slot's log in memory: the newest entries, each carrying the digest of the one before.

`base` is where it begins: entries up to there are in the state and their bytes are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from swell.store.entry import NO_DIGEST, Entry


class Chain:
    """Entries base + 1 … last."""

    __slots__ = ("_entries", "base", "base_digest", "base_epoch", "digest", "last", "size")

    def __init__(
        self,
        base: int = 0,
        base_epoch: int = 0,
        base_digest: bytes = NO_DIGEST,
        entries: Iterable[Entry] = (),
    ) -> None:
        self.base = base
        self.base_epoch = base_epoch
        self.base_digest = base_digest
        self._entries = list(entries)
        self.size = _size(self._entries)
        """Bytes of all entries."""
        self.last = self.base + len(self._entries)
        self.digest = self._entries[-1].digest if self._entries else base_digest
        """Of the last entry: stands for the whole log."""

    @property
    def last_epoch(self) -> int:
        return self._entries[-1].epoch if self._entries else self.base_epoch

    def entry(self, sequence: int) -> Entry:
        assert self.base < sequence <= self.last, "an entry that is not here"
        return self._entries[sequence - self.base - 1]

    def digest_at(self, sequence: int) -> bytes | None:
        """None where the entry is not here."""
        if sequence == self.base:
            return self.base_digest
        if not self.base < sequence <= self.last:
            return None
        return self._entries[sequence - self.base - 1].digest

    def epoch_at(self, sequence: int) -> int:
        return self.base_epoch if sequence == self.base else self.entry(sequence).epoch

    def between(self, sequence: int, last: int) -> list[Entry]:
        """The entries behind `sequence`, up to and with `last`."""
        assert self.base <= sequence <= last <= self.last, "entries that are not here"
        return self._entries[sequence - self.base : last - self.base]

    def behind(self, sequence: int, bytes_max: int) -> list[Entry]:
        """The entries behind `sequence`, at least one if there is any, up to so many bytes."""
        found: list[Entry] = []
        size = 0
        for entry in self.between(sequence, self.last):
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def append(self, entry: Entry) -> None:
        assert entry.sequence == self.last + 1, "a gap in the log"
        assert entry.previous == self.digest, "an entry of another log"
        self._entries.append(entry)
        self.size += len(entry.data)
        self.last += 1
        self.digest = entry.digest

    def cut(self, sequence: int) -> None:
        """Forget what is behind `sequence`."""
        digest = self.digest_at(sequence)
        assert digest is not None, "a cut outside of the log"
        self.size -= _size(self._entries[sequence - self.base :])
        del self._entries[sequence - self.base :]
        self.last, self.digest = sequence, digest

    def trim(self, sequence: int) -> None:
        """Begin at `sequence`: the state has what is before."""
        if sequence > self.base:
            entry = self.entry(sequence)
            self.size -= _size(self._entries[: sequence - self.base])
            del self._entries[: sequence - self.base]
            self.base, self.base_epoch, self.base_digest = sequence, entry.epoch, entry.digest

    def shed(self, bytes_max: int, upto: int) -> None:
        """Trim until no more than so many bytes are left, at most up to a sequence."""
        sequence, size = self.base, self.size
        while size > bytes_max and sequence < upto:
            sequence += 1
            size -= len(self.entry(sequence).data)
        self.trim(sequence)


def _size(entries: Iterable[Entry]) -> int:
    return sum([len(entry.data) for entry in entries])
