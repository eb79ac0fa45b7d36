"""Opening the storage: read journal and files, judge them, keep everything or nothing.

| what is found | what is done |
|---|---|
| nothing | a new lineage, the number of this start, durable before anything is said |
| all in order | kept |
| rot in the journal or a file, a file that is missing or not the one named | all dropped |
| an error of the disk ended an earlier life | all dropped; by the only replica rewritten and kept |

Dropping is one act: the journal's new snapshot names the new lineage and no file. What a crash
leaves of old files is of another lineage, named by nothing, and taken away at the next start.
A read error halts the node and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from swell.journal import Journal, Recovered
from swell.journal.files import run
from swell.store import recovery, slotfiles
from swell.store.recovery import Recovery
from swell.store.slotfiles import SlotFiles
from swell.store.snapshots import SlotImage, decode, encode
from swell.world import DiskError, World


class Restored(NamedTuple):
    """What the storage held when it was opened."""

    lineage: int
    clean: bool
    """False: data were dropped, the lineage is new."""
    reason: str
    slots: dict[int, SlotImage]
    """In order of their numbers."""


Opened = Callable[[Restored, dict[int, int], dict[int, int]], None]
"""Gets what was restored, slot → index of its file, slot → its last record behind that."""


class Opening:
    """One pass."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        files: SlotFiles,
        start: int,
        trust_unrotten: bool,
        promote_unclean: bool,
    ) -> None:
        self._world = world
        self._journal = journal
        self._files = files
        self._start = start
        self._trust_unrotten = trust_unrotten
        self._promote_unclean = promote_unclean
        self._recovered: Recovered
        self._recovery: Recovery
        self._present: dict[str, int]
        self._unread: deque[tuple[int, bool]]
        """Slot, and whether it is the file in the making that is to be read."""
        self._indices: dict[int, int] = {}
        self._unplaced: list[int] = []
        """Slots whose installed file is not in its place yet."""
        self._done: Opened

    def start(self, done: Opened) -> None:
        self._done = done
        self._journal.open(self._on_journal)

    def _on_journal(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self._recovery = Recovery(recovered)
        self._present = self._files.present()
        is_new = recovered.snapshot is None and not recovered.records
        if is_new and recovered.clean and not any(self._present.values()):
            self._journal.append(recovery.lineage_record(self._start))
            restored = Restored(self._start, True, "", {})
            self._journal.sync(lambda: self._tidy(restored))
            return
        self._unread = deque((slot, False) for slot in self._recovery.needs)
        self._read()

    # Files.

    def _read(self) -> None:
        """The next file that is needed; none more once it is clear that nothing is kept."""
        rotten = self._recovered.rotten or self._recovery.damage
        if not self._unread or (rotten and not self._promote_unclean):
            self._judge()
            return
        slot, is_new = self._unread.popleft()
        file = slotfiles.name(slot, is_new)
        size = self._present.get(file)
        if size is None:
            self._world.call_later(0.0, lambda: self._on_file(slot, is_new, b""))
        else:
            self._files.read(file, size, lambda data: self._on_file(slot, is_new, data))

    def _on_file(self, slot: int, is_new: bool, data: bytes | DiskError) -> None:
        if isinstance(data, DiskError):
            self._world.halt(
                f"the file of slot {slot} cannot be read ({data}): "
                "see to the disk, then start the node again"
            )
            return
        file = decode(data)
        if self._recovery.take(slot, file, is_new):
            assert file is not None
            self._indices[slot] = file.taken
            if is_new:
                self._unplaced.append(slot)
        elif is_new:
            self._recovery.fault(f"the file of slot {slot} is not the one that was written")
        else:
            self._unread.appendleft((slot, True))
        self._read()

    # Judgement.

    def _judge(self) -> None:
        recovered, found = self._recovered, self._recovery
        rot = recovered.reason if recovered.rotten else found.damage
        slots = {} if rot and not self._promote_unclean else found.replay()
        rot = rot or found.damage
        reason = rot or recovered.reason
        if not reason:
            self._place(Restored(found.lineage, True, "", slots))
        elif self._promote_unclean or (self._trust_unrotten and not rot):
            lineage = found.lineage or self._start
            self._rewrite(Restored(lineage, True, f"kept although {reason}", slots))
        elif self._trust_unrotten:
            self._world.halt(
                f"the store's data is damaged ({reason}) and there is no other copy of it: restore "
                "the data directory from a copy, or start with an empty one"
            )
        else:
            self._rewrite(Restored(self._start, False, reason, {}))

    def _place(self, restored: Restored) -> None:
        """Finish the installs that a crash interrupted behind their records."""
        steps = [self._files.place(slot) for slot in self._unplaced]
        run(steps, lambda error: self._fail(error) if error else self._tidy(restored))

    def _rewrite(self, restored: Restored) -> None:
        """Write all of it anew, or nothing of it; from the journal's snapshot on it counts."""
        index = self._journal.last_index
        slots = deque(restored.slots.items())
        self._indices = {}
        self._recovery.uncovered.clear()

        def next_slot(error: DiskError | None) -> None:
            if error:
                self._fail(error)
            elif slots:
                slot, image = slots.popleft()
                data, _ = encode(slot, restored.lineage, index, image)
                self._indices[slot] = index
                run([*self._files.write(slot, data), self._files.place(slot)], next_slot)
            else:
                manifest = recovery.manifest(restored.lineage, self._indices)
                self._journal.snapshot(manifest, index, repair)

        def repair() -> None:
            self._journal.repaired(lambda: self._tidy(restored))

        next_slot(None)

    def _tidy(self, restored: Restored) -> None:
        """Take away the files that nothing names."""
        named = {slotfiles.name(slot): None for slot in self._indices}
        steps = self._files.drop(file for file in self._files.present() if file not in named)

        def tidied(error: DiskError | None) -> None:
            if error:
                self._fail(error)
            else:
                self._done(restored, self._indices, self._recovery.uncovered)

        run(steps, tidied)

    def _fail(self, error: DiskError) -> None:
        self._journal.fail("a slot's file", error)
