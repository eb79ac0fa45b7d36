"""What the bytes of a journal add up to, and whether they can be trusted. Pure: reads no disk.

Only the newest batch can have been under way at a crash: a batch is written when the one before it
is durable, a segment begun when the one before it is complete. So what is missing or bad in the
newest batch of the newest segment is a torn tail. Bad bytes with a later batch behind them, bad
bytes in an older segment, a missing segment, a broken chain or numbers that do not follow each
other are rot: they were durable once.

Zeros, and nothing else, behind the newest batch are no part of the journal: a disk may write them
ahead in a log that grows. They are cut off a segment before the next one is begun.
"""

from __future__ import annotations

from swell.journal.record import Batch, Entry, Fault, Kind, genesis, has_batch_from, read_batch
from swell.journal.snapshot import Snapshot, Start


class Segment:
    """One file of the journal."""

    __slots__ = ("first", "size", "start")

    def __init__(self, start: Start) -> None:
        self.start = start
        self.size = 0
        """Bytes up to the end of its last whole batch."""
        self.first = start.last + 1
        """No record with this index or a later one lies in an older segment."""

    @property
    def number(self) -> int:
        return self.start.segment


def number_payload(number: int) -> bytes:
    """The payload of the record that begins a segment."""
    return number.to_bytes(8, "big")


class Replay:
    """Takes the segments in order, oldest first; holds the part that is valid throughout."""

    def __init__(self, name: str, snapshot: Snapshot | None) -> None:
        start = Start(1, 0, 0, genesis(name)) if snapshot is None else snapshot.start
        self.base = 0 if snapshot is None else snapshot.base
        self.segments: list[Segment] = []
        self.records: list[bytes] = []
        self.rot = ""
        """What is wrong; nothing behind it was looked at."""
        self.torn = False
        self.padded = False
        """Behind the newest batch there are zeros, and nothing else."""
        self.used = False
        """A record of the owner's was seen."""
        self.next = start
        """Where the journal goes on."""
        self._has_gap = False

    def valid_records(self) -> list[bytes]:
        """Those behind the snapshot. Where a cut that the snapshot counts on is lost to rot, the
        records in front of it do not join on."""
        return [] if self._has_gap else self.records

    def feed(self, number: int, data: bytes, newest: bool) -> None:
        """The content of the next segment."""
        if self.rot:
            return
        if number != self.next.segment:
            self.rot = f"segment {self.next.segment} is missing"
            return
        segment = Segment(self.next)
        self.segments.append(segment)
        self._read(segment, data)
        rest = data[segment.size :]
        if not self.rot and (rest or not (data or newest)):
            at = f"segment {number} is damaged at byte {segment.size}"
            if not newest:
                self.rot = f"{at} and a later segment follows"
            elif has_batch_from(data, segment.size + 1, self.next.batch + 2):
                self.rot = f"{at} and valid behind it"
            else:
                self.torn = bool(rest.strip(b"\0"))
                self.padded = not self.torn
        self.next = self.next._replace(segment=number + 1)

    def _read(self, segment: Segment, data: bytes) -> None:
        while segment.size < len(data):
            position = self.next
            batch = read_batch(data, segment.size, position.batch + 1, position.digest)
            if batch is Fault.BAD:
                return
            if batch is Fault.BROKEN or not self._follows(segment, batch):
                self.rot = (
                    f"segment {segment.number} is damaged at byte {segment.size}: "
                    "its records do not follow each other"
                )
                return
            for entry in batch.entries:
                self._apply(entry)
            self.next = self.next._replace(batch=position.batch + 1, digest=batch.digest)
            segment.size = batch.end

    def _follows(self, segment: Segment, batch: Batch) -> bool:
        """Do the numbers of a batch go on from those before it?"""
        last = self.next.last
        for place, (kind, index, payload) in enumerate(batch.entries):
            begins = segment.size == 0 and place == 0
            if begins != (kind == Kind.SEGMENT):
                return False
            if begins and payload != number_payload(segment.number):
                return False
            if kind == Kind.DATA:
                # A snapshot may cover records that were never written.
                fits = index == last + 1 or last < self.base == index - 1
            elif kind == Kind.CUT:
                fits = index <= last
            else:
                fits = index == last and kind in (Kind.SEGMENT, Kind.SEAL)
            if not fits:
                return False
            last = index
        return True

    def _apply(self, entry: Entry) -> None:
        kind, index, payload = entry
        if kind == Kind.DATA:
            self.used = True
            if index > self.base:
                if not self.records:
                    self._has_gap = index != self.base + 1
                self.records.append(payload)
        elif kind == Kind.CUT:
            del self.records[max(0, index - self.base) :]
            self._has_gap = self._has_gap and bool(self.records)
            for segment in self.segments:
                segment.first = min(segment.first, index + 1)
        self.next = self.next._replace(last=index)
