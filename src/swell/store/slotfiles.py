"""The slots' files on the disk: `slot.0007`, and `slot.0007.new` while it is made.

A file is written in full and synced under the second name, then renamed, so that what lies under
the first was durable once: if it is not whole, it rotted. Large files are written and read in
pieces, so that the journal's syncs come in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from swell.journal.files import Done, Files, Step
from swell.store.parts import Parts
from swell.world import Disk, DiskError

CHUNK_BYTES = 4 * 1024 * 1024

_FILE = re.compile(r"slot\.([0-9]{4,10})(\.new)?\Z")


def name(slot: int, new: bool = False) -> str:
    return f"slot.{slot:04d}.new" if new else f"slot.{slot:04d}"


class SlotFiles:
    """Names, sizes, and steps for `swell.journal.files.run`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files = Files(disk, "slot")

    def present(self) -> dict[str, int]:
        """Name → size of every file of a slot, finished or not."""
        return {file: size for file, size in self._disk.list().items() if _FILE.match(file)}

    def write(self, slot: int, data: bytes | Parts) -> list[Step]:
        """The file in the making, durable."""
        file = name(slot, new=True)
        steps = [self._files.truncate(file, 0)] if self._files.has(file) else []
        chunks = range(0, len(data), CHUNK_BYTES)
        return steps + [self._append(file, data, at) for at in chunks]

    def _append(self, file: str, data: bytes | Parts, at: int) -> Step:
        def step(done: Done) -> None:
            self._disk.append(file, data[at : at + CHUNK_BYTES])
            self._disk.sync(file, done)

        return step

    def place(self, slot: int) -> Step:
        """The file in the making becomes the slot's file."""
        return self._files.rename(name(slot, new=True), name(slot))

    def drop(self, files: Iterable[str]) -> list[Step]:
        present = self.present()
        return self._files.drop(file for file in files if file in present)

    def read(self, file: str, size: int, done: Callable[[bytes | DiskError], None]) -> None:
        """All of a file."""
        chunks: list[bytes] = []

        def on_chunk(data: bytes | DiskError) -> None:
            if isinstance(data, DiskError):
                done(data)
                return
            chunks.append(data)
            position = len(chunks) * CHUNK_BYTES
            if position < size and len(data) == CHUNK_BYTES:
                self._disk.read(file, position, CHUNK_BYTES, on_chunk)
            else:
                done(chunks[0] if len(chunks) == 1 else b"".join(chunks))

        self._disk.read(file, 0, CHUNK_BYTES, on_chunk)
