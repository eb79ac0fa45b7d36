"""The store's journal as records, and what it and the slots' files add up to at a start.

A record is `kind u8`, then: for entries, one after the other, each one's commit point u64, length
u32 and bytes as they are; for a fence, a cut or a drop the slot u32 and a number u64; for commit
points such pairs, one per slot; for an installed file slot u32, index u64 and CRC; for the lineage
its number u64.

Rules of replay:
- A slot's file counts if the manifest (the journal's snapshot) or an install record names it and
  no drop follows. It has to be there, or be a later one of the same lineage.
- A file stands for the slot's records up to its index. Those behind it are applied in order.
- Entries must be contiguous and chained. Whatever does not fit is damage, never guessed around.

Pure: reads no disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from swell.errors import WireError
from swell.journal import Recovered
from swell.store import entry as entries
from swell.store.entry import Entry
from swell.store.snapshots import EMPTY, SlotFile, SlotImage

_entry = Struct(">QI")
_number = Struct(">BIQ")
_install = Struct(">BIQI")
_pair = Struct(">IQ")
_lineage = Struct(">Q")


class Kind(IntEnum):
    ENTRIES = 1
    FENCE = 2
    CUT = 3
    COMMITS = 4
    INSTALL = 5
    DROP = 6
    LINEAGE = 7


_COMMITS = bytes([Kind.COMMITS])
_ENTRIES = bytes([Kind.ENTRIES])

ENTRY_BYTES = _entry.size
entry_head = _entry.pack
"""What stands before an entry: its slot's commit point, and its length."""


def entries_record(parts: Iterable[bytes]) -> bytes:
    """Heads and entries in turn."""
    return _ENTRIES + b"".join(parts)


def number_record(kind: Kind, slot: int, number: int) -> bytes:
    """A fence, a cut or a drop."""
    return _number.pack(kind, slot, number)


def commits_record(commits: Mapping[int, int]) -> bytes:
    return _COMMITS + b"".join(map(_pair.pack, commits, commits.values()))


def install_record(slot: int, index: int, check: int) -> bytes:
    return _install.pack(Kind.INSTALL, slot, index, check)


def lineage_record(lineage: int) -> bytes:
    return bytes([Kind.LINEAGE]) + _lineage.pack(lineage)


def manifest(lineage: int, files: Mapping[int, int]) -> bytes:
    """The journal's snapshot: slot → index of its file, at least."""
    return _lineage.pack(lineage) + b"".join(_pair.pack(*pair) for pair in sorted(files.items()))


class Need(NamedTuple):
    """A file that must be there."""

    taken: int
    check: int | None
    """The CRC of an installed file; None: any file taken then or later."""
    upto: int
    """The last record that the file stands for, if it is exactly this one."""

    def is_met_by(self, file: SlotFile) -> bool:
        return file.taken > self.taken or self.is_exactly(file)

    def is_exactly(self, file: SlotFile) -> bool:
        return file.taken == self.taken and self.check in (None, file.check)


class _Slot:
    """A slot during replay."""

    __slots__ = ("commit", "entries", "fence", "image", "tip", "upto")

    def __init__(self, image: SlotImage, upto: int) -> None:
        self.image = image
        self.entries: list[Entry] = list(image.entries)
        self.fence = image.fence
        self.commit = image.commit
        self.upto = upto
        """Records up to this index are in the image."""
        self.tip: tuple[int, bytes]
        self.find_tip()

    def find_tip(self) -> None:
        last = self.entries[-1] if self.entries else None
        image = self.image
        self.tip = (last.sequence, last.digest) if last else (image.base, image.base_digest)

    def result(self) -> SlotImage:
        commit = max(self.image.base, min(self.commit, self.tip[0]))
        return self.image._replace(fence=self.fence, entries=self.entries, commit=commit)


class Recovery:
    """First it says which files it needs, then it takes them, then it replays."""

    def __init__(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self._slots: dict[int, _Slot] = {}
        self._dropped: dict[int, int] = {}
        """Slot → index of its last drop."""
        self.last_index = recovered.base + len(recovered.records)
        self.lineage = 0
        self.needs: dict[int, Need] = {}
        self.uncovered: dict[int, int] = {}
        """Slot → its last record that no file stands for."""
        self.damage = ""
        """The first thing that is wrong."""
        self._outline()

    def _outline(self) -> None:
        """The manifest, and the records that name files."""
        state, base, records = self._recovered[:3]
        if state is not None:
            self.lineage = _lineage.unpack_from(state)[0]
            for slot, index in _pair.iter_unpack(memoryview(state)[_lineage.size :]):
                self.needs[slot] = Need(index, None, index)
        for index, record in enumerate(records, base + 1):
            kind = record[0] if record else 0
            if kind == Kind.INSTALL:
                _, slot, taken, check = _install.unpack(record)
                self.needs[slot] = Need(taken, check, index)
            elif kind == Kind.DROP:
                slot = _number.unpack(record)[1]
                self.needs.pop(slot, None)
                self._dropped[slot] = index
            elif kind == Kind.LINEAGE:
                self.lineage = _lineage.unpack_from(record, 1)[0]
        if not self.lineage:
            self.fault("the journal does not say where its data begin")

    def fault(self, damage: str) -> None:
        self.damage = self.damage or damage

    def take(self, slot: int, file: SlotFile | None, is_new: bool) -> bool:
        """Use this file of a slot if it is the one that is needed. One that is not in its place
        yet (`is_new`) may be ahead of the journal, so only an installed one counts."""
        need = self.needs[slot]
        if file is None or (file.slot, file.lineage) != (slot, self.lineage):
            return False
        if file.taken > self.last_index:
            return False
        exact = need.is_exactly(file)
        if not (exact and need.check is not None if is_new else need.is_met_by(file)):
            return False
        self._slots[slot] = _Slot(file.image, need.upto if exact else file.taken)
        return True

    def replay(self) -> dict[int, SlotImage]:
        """Every slot, by number; as far as it is known, if there is damage."""
        _, base, records, *_ = self._recovered
        for index, record in enumerate(records, base + 1):
            kind = record[0] if record else 0
            if kind == Kind.ENTRIES:
                self._on_entries(index, record)
            elif kind in (Kind.FENCE, Kind.CUT):
                self._on_number(index, record)
            elif kind == Kind.COMMITS:
                for slot, commit in _pair.iter_unpack(memoryview(record)[1:]):
                    self._on_commit(index, slot, commit)
            elif kind not in (Kind.INSTALL, Kind.DROP, Kind.LINEAGE):
                self.fault(f"record {index} of the journal is of an unknown kind")
        return {slot: state.result() for slot, state in sorted(self._slots.items())}

    def _slot(self, index: int, number: int) -> _Slot | None:
        """The slot that a record is about; None if the record counts no more."""
        slot = self._slots.get(number)
        if slot is None:
            if index <= self._dropped.get(number, 0):
                return None
            slot = self._slots[number] = _Slot(EMPTY, 0)
        if index <= slot.upto:
            return None
        self.uncovered[number] = index
        return slot

    def _on_entries(self, index: int, record: bytes) -> None:
        at = len(_ENTRIES)
        try:
            while at < len(record):
                commit, length = _entry.unpack_from(record, at)
                at += ENTRY_BYTES + length
                self._on_entry(index, entries.read(record[at - length : at]), commit)
        except (WireError, StructError):
            at = -1
        if at != len(record):
            self.fault(f"record {index} of the journal is too short")

    def _on_entry(self, index: int, entry: Entry, commit: int) -> None:
        slot = self._slot(index, entry.slot)
        if slot is None:
            return
        if (entry.sequence - 1, entry.previous) != slot.tip:
            self.fault(f"the entries of slot {entry.slot} do not follow each other")
            return
        slot.entries.append(entry)
        slot.tip = (entry.sequence, entry.digest)
        slot.commit = max(slot.commit, commit)

    def _on_number(self, index: int, record: bytes) -> None:
        kind, number, value = _number.unpack(record)
        slot = self._slot(index, number)
        if slot is None:
            return
        if kind == Kind.FENCE:
            slot.fence = max(slot.fence, value)
        elif value < slot.image.base:
            self.fault(f"slot {number} was cut below its state")
        else:
            del slot.entries[value - slot.image.base :]
            slot.find_tip()

    def _on_commit(self, index: int, number: int, commit: int) -> None:
        slot = self._slot(index, number) if number in self._slots else None
        if slot is not None:
            slot.commit = max(slot.commit, commit)
