"""A durable log of records with group commit, snapshots, and a memory for damage.

Invariants:
- One batch is under way at a time: one append to the disk and one sync. Records wait in memory
  for the batch after it, so many share a sync.
- What `sync` acknowledged survives a crash. What was not may survive, in batches, in order.
- An error of the disk is fatal: nothing more is written or acknowledged, the journal is marked
  unclean, the node halts.
- `open` never reports as durable what only the page cache holds: it writes and syncs a record of
  its own behind the newest batch first.
- Rot is reported and left alone until the owner goes on; from then on, and until the owner says
  `repaired`, the journal is marked unclean.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from swell.errors import TooLargeError
from swell.journal import snapshot as snapshots
from swell.journal.files import Files, Step, run
from swell.journal.reading import Content, Reading, steps_after_rot
from swell.journal.record import (
    HEAD_BYTES,
    RECORD_BYTES_MAX,
    Entry,
    Kind,
    encode_batch,
    encoded_bytes,
)
from swell.journal.replay import Segment, number_payload
from swell.journal.scrub import Extent, Scrub
from swell.journal.snapshot import STATE_BYTES_MAX, Snapshot, Start
from swell.world import DiskError, Timer, World

Bytes = bytes
"""`Journal.bytes` hides the type of that name inside the class."""

SEGMENT_BYTES_MAX = 4 * 1024 * 1024

SEAL_AFTER_S = 1.0
"""Idle for about so long, the newest batch is sealed."""

MARK_S_MAX = 1.0
"""A node with a failed disk halts after this time even if the mark is not written yet."""


class Recovered(NamedTuple):
    """What a journal held when it was opened."""

    snapshot: bytes | None
    """State up to and including `base`."""
    base: int
    """Index of the last record that the snapshot covers; 0: none."""
    records: list[bytes]
    """Those with the indices base + 1, base + 2, …"""
    clean: bool
    """False: something acknowledged may be missing."""
    reason: str
    """Why it is not clean."""
    rotten: bool = False
    """Durable bytes changed or went missing; without this, all that is known of is an error of
    the disk in an earlier life, and the records are whole as far as they go."""


class Journal:
    """Records numbered 1, 2, … on the node's disk."""

    def __init__(
        self,
        world: World,
        name: str,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        counters: Counter[str] | None = None,
    ) -> None:
        self._world = world
        self._name = name
        self._segment_bytes_max = segment_bytes_max
        self._counters: Counter[str] = Counter() if counters is None else counters
        self._files = Files(world.disk, name)
        self._segments: list[Segment] = []
        self._end: Start
        """The end of what was handed to the disk: last index, batch and digest."""
        self._synced = (0, 0, b"")
        """Segment, size in it and digest at the end of what is durable."""
        self._opening: list[Entry] = []
        """The first batch of this life."""
        self._buffer: deque[Entry] = deque()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._appended = 0
        self._durable = 0
        self._sealed = 0
        """Of `_durable`, what was under a seal when it was last written."""
        self._seal_timer: Timer | None = None
        self._snapshot_bytes = 0
        self._before: list[Step] | None = None
        """What has to be done to a rotten journal before anything is written."""
        self._rot = ""
        self._rotate: Callable[[], None] | None = None
        self._ready = False
        self._busy = False
        self._held = False
        """Records behind `_covered` wait until a snapshot is in place."""
        self._covered = 0
        """Records that were appended before the snapshot was asked for: it must not be in place
        before they are, or it would join on to records that they cut."""
        self._failed = False
        self.snapshotting = False
        self.base = 0
        self.last_index = 0
        self._floor = 0

    @property
    def bytes(self) -> int:
        """What the journal takes on the disk."""
        return self._snapshot_bytes + sum(segment.size for segment in self._segments)

    # Opening.

    def open(self, done: Callable[[Recovered], None]) -> None:
        """Read and verify everything; a torn tail is cut. Halts if the disk does not answer."""

        def read(content: Content | DiskError) -> None:
            if isinstance(content, DiskError):
                self._halt("read", content)
            else:
                self._opened(content, done)

        Reading(self._world.disk, self._files, self._name, read).start()

    def _opened(self, content: Content, done: Callable[[Recovered], None]) -> None:
        """Go on where the valid part ends."""
        replay, snapshot = content
        self._snapshot_bytes = 0 if snapshot is None else snapshot.size
        files = self._files
        self._segments = replay.segments or [Segment(replay.next)]
        self._end = replay.next
        self.base = self._floor = replay.base
        records = replay.valid_records()
        self.last_index = self.base + len(records)
        self._opening = [Entry(Kind.SEAL, self._end.last, b"")]
        if self._end.last > self.last_index:
            self._opening.append(Entry(Kind.CUT, self.last_index, b""))
        new = snapshot is None and not replay.used
        vouched = not files.has(files.unclean) and (files.has(files.clean) or new)
        reason = "" if vouched else "an error of the disk ended an earlier life"
        if replay.rot:
            reason = f"{replay.rot}: it was durable once and is not what was written"
            self._rot = replay.rot
            self._counters["journal-rot"] += 1
        state = None if snapshot is None else snapshot.state
        recovered = Recovered(state, self.base, records, not reason, reason, bool(replay.rot))
        if replay.rot:
            self._before = steps_after_rot(files, content)
            self._ready = True
            self._world.call_later(0.0, lambda: done(recovered))
            return
        old = self._segments[0].number
        steps = files.drop(files.segment(number) for number in files.segments() if number < old)
        if replay.torn or replay.padded:
            self._counters["journal-torn"] += replay.torn
            newest = self._segments[-1]
            steps.append(files.truncate(files.segment(newest.number), newest.size))

        def opened() -> None:
            create = vouched and not files.has(files.clean)
            self._run([files.create(files.clean)] if create else [], ready)

        def ready() -> None:
            self._ready = True
            self._busy = False
            if replay.segments:
                done(recovered)
            else:
                self._pump()

        self._busy = True
        if not replay.segments:
            # A new journal: there is nothing to vouch for, so nothing to wait for.
            self._ready = True
            self._world.call_later(0.0, lambda: done(recovered))
        self._run(steps, lambda: self._write(self._opening, opened))

    # Writing.

    def append(self, record: Bytes) -> int:
        """The record's index; it is durable after a `sync`."""
        assert self._ready, "open the journal first"
        if len(record) > RECORD_BYTES_MAX:
            raise TooLargeError(
                f"a record of {len(record)} bytes is too long for the journal: "
                f"at most {RECORD_BYTES_MAX}"
            )
        self.last_index += 1
        self._buffer.append(Entry(Kind.DATA, self.last_index, record))
        self._appended += 1
        return self.last_index

    def cut(self, index: int) -> None:
        """Forget every record behind `index`; durable with the next `sync`."""
        assert self._ready, "open the journal first"
        assert self._floor <= index <= self.last_index, "cut below the snapshot or beyond the end"
        if index < self.last_index:
            self.last_index = index
            self._buffer.append(Entry(Kind.CUT, index, b""))
            self._appended += 1

    def sync(self, done: Callable[[], None]) -> None:
        """`done` runs when everything appended and cut so far is durable."""
        assert self._ready, "open the journal first"
        if self._durable == self._appended and self._before is None:
            self._world.call_later(0.0, lambda: None if self._failed else done())
            return
        self._waiting.append((self._appended, done))
        self._pump()

    def _pump(self) -> None:
        """Start what is next, if nothing is under way."""
        if self._busy or self._failed:
            return
        if self._before is not None:
            self._busy = True

            def accepted() -> None:
                self._before, self._rot = None, ""
                self._written()

            self._run(self._before, lambda: self._write(self._opening, accepted))
        elif self._rotate is not None and self._durable >= self._covered:
            self._busy = True
            rotated, self._rotate = self._rotate, None
            self._begin_segment()

            def begun() -> None:
                rotated()
                self._written()

            self._write([], begun)
        elif (self._waiting or self._rotate is not None) and self._durable < self._writable:
            self._busy = True
            batch = self._take()
            self._counters["journal-batches"] += 1
            self._counters["journal-records"] += len(batch)

            def synced() -> None:
                self._durable += len(batch)
                self._written()

            self._write(batch, synced)

    @property
    def _writable(self) -> int:
        """How many of all the appended records may go to the disk."""
        return self._covered if self._held else self._appended

    def _take(self) -> list[Entry]:
        """What goes into the next batch: all that may be written, as far as it fits a segment."""
        buffer, batch, size = self._buffer, list[Entry](), 0
        while self._durable + len(batch) < self._writable:
            size += HEAD_BYTES + len(buffer[0].payload)
            if batch and size > self._segment_bytes_max:
                break
            batch.append(buffer.popleft())
        return batch

    def _write(self, entries: list[Entry], then: Callable[[], None]) -> None:
        """One batch, in a new segment if this one is full: one append and one sync."""
        if self._segments[-1].size + encoded_bytes(entries) > self._segment_bytes_max:
            self._begin_segment()
        segment = self._segments[-1]
        end = self._end
        before: list[Step] = []
        if not segment.size:
            begin = Entry(Kind.SEGMENT, end.last, number_payload(segment.number))
            entries = [begin, *entries]
            # An older segment ends with its last batch, whatever room the disk had made behind it.
            for older in self._segments[-2:-1]:
                before.append(self._files.truncate(self._files.segment(older.number), older.size))
        data, digest = encode_batch(entries, end.batch + 1, end.digest)
        for kind, index, _ in entries:
            if kind == Kind.CUT:
                for older in self._segments:
                    older.first = min(older.first, index + 1)
        self._end = Start(segment.number + 1, entries[-1].number, end.batch + 1, digest)
        segment.size += len(data)
        file = self._files.segment(segment.number)
        size = segment.size

        def append(done: Callable[[DiskError | None], None]) -> None:
            self._world.disk.append(file, data)
            self._world.disk.sync(file, done)

        def synced() -> None:
            self._synced = (segment.number, size, digest)
            then()

        self._run([*before, append], synced)

    def _begin_segment(self) -> None:
        if self._segments[-1].size:
            self._segments.append(Segment(self._end))

    def _written(self) -> None:
        """Tell those who waited; what they append meanwhile shares the next batch."""
        ready = []
        while self._waiting and self._waiting[0][0] <= self._durable:
            ready.append(self._waiting.popleft()[1])
        try:
            for done in ready:
                done()
        finally:
            self._busy = False
        self._pump()
        if not self._busy and self._sealed < self._durable and self._seal_timer is None:
            self._seal_timer = self._world.call_later(SEAL_AFTER_S, self._seal)

    def _seal(self) -> None:
        """Write a batch of nothing behind the newest one if the journal has been idle: damage to
        what it seals is rot from now on, and damage to the seal itself costs nothing."""
        self._seal_timer = None
        if self._busy or self._failed or self._before is not None:
            return
        self._busy = True
        self._sealed = self._durable
        self._write([Entry(Kind.SEAL, self._end.last, b"")], self._written)

    # Snapshots.

    def snapshot(self, state: Bytes, upto: int, done: Callable[[], None]) -> None:
        """Replace the records up to `upto` by `state`. One at a time (`snapshotting`). `upto` may
        lie beyond the last record (a state that came from elsewhere): then the next record is
        `upto` + 1, and syncs wait until the snapshot is in place."""
        assert self._ready, "open the journal first"
        assert not self.snapshotting, "one snapshot at a time"
        assert upto >= self.base, "the journal has a later snapshot"
        if len(state) > STATE_BYTES_MAX:
            raise TooLargeError(
                f"a state of {len(state)} bytes is too long for a snapshot: "
                f"at most {STATE_BYTES_MAX}"
            )
        self.snapshotting = True
        self._floor = upto
        self._covered = self._appended
        if upto > self.last_index:
            self.last_index = upto
            self._held = True
        self._rotate = lambda: self._place(state, upto, done)
        self._pump()

    def _place(self, state: Bytes, upto: int, done: Callable[[], None]) -> None:
        files = self._files
        first = max(place for place, s in enumerate(self._segments) if s.first <= upto + 1)
        keep = self._segments[first]
        data = snapshots.encode(Snapshot(upto, keep.start, state))

        def placed() -> None:
            self.base = upto
            self._snapshot_bytes = len(data)
            gone = [segment for segment in self._segments if segment.number < keep.number]
            del self._segments[: len(gone)]
            self._held = False
            self._counters["journal-snapshots"] += 1
            self._run(files.drop(files.segment(s.number) for s in gone), dropped)
            self._pump()

        def dropped() -> None:
            self.snapshotting = False
            done()

        steps = files.write(files.new_snapshot, data)
        self._run([*steps, files.rename(files.new_snapshot, files.snapshot)], placed)

    def repaired(self, done: Callable[[], None]) -> None:
        """The owner vouches for the content again: what was missing was appended, or lies in a
        snapshot taken since. The next open is clean."""
        files = self._files

        def synced() -> None:
            steps = [files.rename(files.unclean, files.clean)] if files.has(files.unclean) else []
            if not steps and not files.has(files.clean):
                steps = [files.create(files.clean)]
            self._run(steps, done)

        self.sync(synced)

    # Verifying.

    def scrub(self, done: Callable[[list[str]], None]) -> None:
        """Read and verify everything again; `done` gets what is wrong, a sentence each."""
        assert self._ready, "open the journal first"
        if self._rot:
            self._world.call_later(0.0, lambda: done([self._rot]))
            return
        newest, size, digest = self._synced
        extents: list[Extent] = []
        for place, segment in enumerate(self._segments):
            file, start = self._files.segment(segment.number), segment.start
            if segment.number < newest:
                after = self._segments[place + 1].start
                extents.append(Extent(file, start, segment.size, after.digest))
            elif segment.number == newest:
                extents.append(Extent(file, start, size, digest))
        Scrub(self._world.disk, self._files, extents, done).start()

    # Failing.

    def _run(self, steps: list[Step], then: Callable[[], None]) -> None:
        def ran(error: DiskError | None) -> None:
            if self._failed:
                return
            if error is not None:
                self._fail(error)
            else:
                then()

        run(steps, ran)

    def fail(self, file: str, error: DiskError, done: str = "written") -> None:
        """A file that the owner keeps beside the journal cannot be written, or trusted: as fatal
        as an error of the journal's own files, and remembered in the same way."""
        if not self._failed:
            self._fail(error, file, done)

    def _fail(self, error: DiskError, what: str = "", done: str = "written") -> None:
        """Nothing is acknowledged from here on. The mark has to be seen only as long as the page
        cache lives, so it counts when it is visible, durable or not."""
        self._failed = True
        files = self._files
        self._world.call_later(MARK_S_MAX, lambda: self._halt(done, error, what))
        steps = [files.rename(files.clean, files.unclean)] if files.has(files.clean) else []
        run(steps, lambda _: self._halt(done, error, what))

    def _halt(self, done: str, error: DiskError, what: str = "") -> None:
        self._world.halt(
            f"{what or f'the journal {self._name}'} cannot be {done} ({error}): "
            "see to the disk, then start the node again"
        )
