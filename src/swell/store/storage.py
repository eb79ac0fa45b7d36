"""What the replicated store keeps on the disk: one journal for the node, a file for each slot.

Entries, fences, cuts and commit points of all slots go through one journal, so that they share
its syncs. When the journal gets long, the slots are written to their files and it begins anew.

Invariants:
- What `sync` and `install` acknowledged survives every crash; what was cut does not come back.
- A file comes into its place only when the journal is durable up to where the file was taken, so
  no file is ahead of the journal.
- An installed copy counts from its record in the journal on. The record is written behind the
  durable file; what is called for that slot meanwhile waits and comes behind the record.
- File work is done one piece at a time, in the order in which it was asked for.
- Data that cannot be vouched for are dropped as a whole, and the lineage is new; the moment is
  the renaming of the journal's snapshot.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from swell.journal import Journal
from swell.journal.files import Step, run
from swell.journal.journal import SEGMENT_BYTES_MAX, Bytes
from swell.journal.record import HEAD_BYTES
from swell.store import recovery, slotfiles
from swell.store.entry import Entry
from swell.store.opening import Opening, Restored
from swell.store.parts import Parts
from swell.store.recovery import Kind, entry_head
from swell.store.scrubbing import Scrubbing
from swell.store.slotfiles import SlotFiles
from swell.store.snapshots import SlotImage, encode_parts
from swell.world import DiskError, World

__all__ = ["Restored", "SlotImage", "Storage"]

PAUSE_S = 0.008
"""Between two slots of a compaction: the loop and the disk do other things."""

_SEGMENTS_MIN = 8
"""The journal is split at least so finely, so that a compaction can drop most of it."""

ENTRIES_BYTES_MAX = 1024 * 1024
"""Entries in one record; one entry may overshoot it."""

NO_SLOT = -1

Action = Callable[[], None]


class Storage:
    """`dump(slot)` gives the slot as it is in memory; it is called as an event of its own."""

    def __init__(
        self,
        world: World,
        start: int,
        dump: Callable[[int], SlotImage],
        counters: Counter[str],
        journal_bytes_max: int,
        trust_unrotten: bool = False,
        bugs: frozenset[str] = frozenset(),
        scrub_interval_s: float = 3600.0,
    ) -> None:
        self._world = world
        self._start = start
        self._dump = dump
        self._counters = counters
        self._journal_bytes_max = journal_bytes_max
        self._trust_unrotten = trust_unrotten
        self._bugs = bugs
        segment_bytes_max = min(SEGMENT_BYTES_MAX, journal_bytes_max // _SEGMENTS_MIN)
        self._journal = Journal(world, "store", segment_bytes_max, counters)
        self._files = SlotFiles(world.disk)
        self._scrubbing = Scrubbing(
            world, self._journal, self._files, lambda: self._indices, scrub_interval_s, counters
        )
        self._indices: dict[int, int] = {}
        """Slot → the journal's index at which its file was taken."""
        self._sizes: dict[int, int] = {}
        """Slot → bytes of its file."""
        self._uncovered: dict[int, int] = {}
        """Slot → its last record in the journal that no file stands for."""
        self._entries: list[bytes] = []
        """Those called since the last record, each behind its head: they become one record."""
        self._entries_bytes = 0
        self._entries_slots: dict[int, None] = {}
        self._commits: dict[int, int] = {}
        """Commit points that wait for the next sync."""
        self._held: dict[int, deque[Action]] = {}
        """Slots with an install under way → what was called for them since. The owner bounds it:
        it is what it has under way in that slot."""
        self._jobs: deque[Callable[[Action], None]] = deque()
        self._working = False
        self._making = NO_SLOT
        """The slot whose file is being made, unless it was dropped meanwhile."""
        self._compacting = False
        self._length = 0
        """About how long the journal is."""
        self._length_max = journal_bytes_max
        self.lineage = 0

    @property
    def bytes(self) -> int:
        """What is on the disk."""
        return self._journal.bytes + sum(self._sizes.values())

    def open(self, done: Callable[[Restored], None]) -> None:
        """Read and verify everything. Halts if the disk does not answer."""

        def opened(restored: Restored, indices: dict[int, int], uncovered: dict[int, int]) -> None:
            present = self._files.present()
            self._indices = indices
            self._sizes = {slot: present[slotfiles.name(slot)] for slot in indices}
            self._uncovered = uncovered
            self._measure()
            self.lineage = restored.lineage
            self._scrubbing.start()
            done(restored)

        promote = "promote-unclean" in self._bugs
        Opening(
            self._world, self._journal, self._files, self._start, self._trust_unrotten, promote
        ).start(opened)

    # Records.

    def append(self, entry: Entry, commit: int) -> None:
        """Of a slot's log; `commit` is the slot's commit point now."""
        slot = entry.slot
        if slot in self._held:
            self._held[slot].append(partial(self.append, entry, commit))
            return
        data = entry.data
        size = len(data)
        self._entries += (entry_head(commit, size), data)
        self._entries_slots[slot] = None
        self._entries_bytes += size
        if self._entries_bytes >= ENTRIES_BYTES_MAX:
            self._flush_entries()

    def fence(self, slot: int, epoch: int) -> None:
        """Promise to take nothing of a lower epoch."""
        self._note(Kind.FENCE, slot, epoch)

    def cut(self, slot: int, sequence: int) -> None:
        """Forget the entries behind `sequence`."""
        self._note(Kind.CUT, slot, sequence)

    def _note(self, kind: Kind, slot: int, number: int) -> None:
        if slot in self._held:
            self._held[slot].append(partial(self._note, kind, slot, number))
            return
        self._uncovered[slot] = self._write(recovery.number_record(kind, slot, number))

    def commit(self, slot: int, sequence: int) -> None:
        """A commit point; it is written along with the next `sync` and asks for none itself."""
        if slot in self._held:
            self._held[slot].append(partial(self.commit, slot, sequence))
        else:
            self._commits[slot] = sequence

    def drop(self, slot: int) -> None:
        """Forget the slot."""
        if slot in self._held:
            self._held[slot].append(partial(self.drop, slot))
            return
        self._write(recovery.number_record(Kind.DROP, slot, 0))
        self._commits.pop(slot, None)
        self._uncovered.pop(slot, None)
        # From now on no manifest names the file: it may stay until its turn comes.
        if self._indices.pop(slot, None) is not None or self._making == slot:
            self._enqueue(partial(self._remove, slot))
        if self._making == slot:
            self._making = NO_SLOT

    def sync(self, done: Action) -> None:
        """`done` runs when everything called so far is durable. Installs have a `done` of their
        own; what was called behind one waits for it."""
        if self._commits:
            self._flush_commits()
        behind = [actions for actions in self._held.values() if actions]
        if not behind:
            self._sync(done)
            return
        left = len(behind)

        def released() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._sync(done)

        for actions in behind:
            actions.append(released)

    def _sync(self, done: Action) -> None:
        if self._commits:
            self._flush_commits()
        self._flush_entries()
        if self._length > self._length_max and not self._compacting:
            self._compacting = True
            self._world.call_later(0.0, self._compact)
        if "skip-sync" in self._bugs:
            self._world.call_later(0.0, done)
            done = _nothing
        self._journal.sync(done)

    def _write(self, record: Bytes) -> int:
        """A record behind everything that was called so far; its index."""
        self._flush_entries()
        self._length += HEAD_BYTES + len(record)
        return self._journal.append(record)

    def _flush_entries(self) -> None:
        if self._entries:
            record = recovery.entries_record(self._entries)
            slots = self._entries_slots
            self._entries, self._entries_slots, self._entries_bytes = [], {}, 0
            self._uncovered.update(dict.fromkeys(slots, self._write(record)))

    def _flush_commits(self) -> None:
        index = self._write(recovery.commits_record(self._commits))
        self._uncovered.update(dict.fromkeys(self._commits, index))
        self._commits.clear()

    # Files.

    def install(self, slot: int, image: SlotImage, done: Action) -> None:
        """Replace all of the slot by a copy that was received; `done` when it is durable."""
        if slot in self._held:
            self._held[slot].append(partial(self.install, slot, image, done))
            return
        if slot in self._commits:
            self._flush_commits()  # it is of the log before the copy
        self._held[slot] = deque()
        self._enqueue(partial(self._install, slot, image, done))

    def _install(self, slot: int, image: SlotImage, done: Action, finished: Action) -> None:
        def written(index: int, check: int) -> int:
            record = self._write(recovery.install_record(slot, index, check))
            self._uncovered[slot] = record
            self._release(slot)
            return record

        def placed() -> None:
            self._counters["storage-installs"] += 1
            done()
            finished()

        self._make(slot, image, written, placed)

    def _release(self, slot: int) -> None:
        """What waited for an install follows it."""
        actions = self._held.pop(slot)
        while actions:
            actions.popleft()()
            if slot in self._held:
                self._held[slot].extend(actions)
                return

    def _make(
        self, slot: int, image: SlotImage, written: Callable[[int, int], int], done: Action
    ) -> None:
        """Write the slot's file. `written` gets its index and CRC before it is put in its place
        and says up to which record it stands for the slot."""
        self._flush_entries()
        index = self._journal.last_index
        self._making = slot
        upto = index
        check = size = 0

        def on_encoded(result: tuple[Parts, int] | Exception) -> None:
            nonlocal check, size
            if isinstance(result, Exception):  # it was not done elsewhere
                result = encode_parts(slot, self.lineage, index, image)
            data, check = result
            size = len(data)
            self._run(slot, self._files.write(slot, data), on_written)

        def on_written() -> None:
            nonlocal upto
            upto = written(index, check)
            self._journal.sync(on_synced)

        def on_synced() -> None:
            self._run(slot, [self._files.place(slot)], on_placed)

        def on_placed() -> None:
            if self._making == slot:
                self._making = NO_SLOT
                self._indices[slot] = index
                self._sizes[slot] = size
                if self._uncovered.get(slot, upto + 1) <= upto:
                    del self._uncovered[slot]
            done()

        what = slot, self.lineage, index, image
        if isinstance(image.state, Parts):
            self._world.offload(_encode, what, on_encoded)
        else:
            on_encoded(_encode(what))

    def _remove(self, slot: int, finished: Action) -> None:
        """Take away the file of a slot that was dropped, once the drop is durable. The slot may
        have begun anew, and have a new file in place of that one, by now."""

        def synced() -> None:
            gone = [slotfiles.name(slot), slotfiles.name(slot, new=True)]
            steps = [] if slot in self._indices else self._files.drop(gone)
            self._run(slot, steps, removed)

        def removed() -> None:
            if slot not in self._indices:
                self._sizes.pop(slot, None)
            finished()

        self._journal.sync(synced)

    def _enqueue(self, job: Callable[[Action], None]) -> None:
        self._jobs.append(job)
        if not self._working:
            self._work()

    def _work(self) -> None:
        self._working = bool(self._jobs)
        if self._jobs:
            self._jobs.popleft()(self._work)

    def _run(self, slot: int, steps: list[Step], then: Action) -> None:
        def ran(error: DiskError | None) -> None:
            if error is not None:
                self._journal.fail(f"the file of slot {slot}", error)
            else:
                then()

        run(steps, ran)

    # Compaction.

    def _compact(self) -> None:
        """Write the file of every slot with records in the journal, one after the other, then
        let the journal forget what it held at the beginning. Each file is taken after that."""
        self._flush_entries()
        upto = self._journal.last_index
        slots = deque(sorted(self._uncovered))

        def step() -> None:
            slot = next_slot()
            if slot is None:
                files = recovery.manifest(self.lineage, self._indices)
                self._journal.snapshot(files, upto, finished)
            elif slot in self._held:
                slots.append(slot)
                pause()
            else:
                self._enqueue(partial(self._save, slot, pause))

        def next_slot() -> int | None:
            while slots:
                slot = slots.popleft()
                if slot in self._uncovered or slot in self._held:
                    return slot
            return None

        def pause() -> None:
            self._world.call_later(PAUSE_S, step)

        def finished() -> None:
            self._counters["storage-compactions"] += 1
            self._compacting = False
            self._measure()

        step()

    def _save(self, slot: int, done: Action, finished: Action) -> None:
        """Write the slot as the owner has it now."""

        def placed() -> None:
            self._counters["storage-snapshots"] += 1
            done()
            finished()

        if slot in self._uncovered and slot not in self._held:
            self._make(slot, self._dump(slot), lambda index, _: index, placed)
        else:
            done()
            finished()

    def _measure(self) -> None:
        self._length = self._journal.bytes
        self._length_max = max(self._journal_bytes_max, sum(self._sizes.values()))


def _encode(what: tuple[int, int, int, SlotImage]) -> tuple[Parts, int]:
    return encode_parts(*what)


def _nothing() -> None:
    pass
