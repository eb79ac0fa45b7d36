"""Verify what should be durable while the journal is in use.

Stricter than opening: the journal knows how long each segment is and which digest it ends with, so
a changed bit in the newest batch is found too. One segment is read at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swell.journal import snapshot as snapshots
from swell.journal.files import Files
from swell.journal.record import Fault, read_batch
from swell.journal.snapshot import Start
from swell.world import Disk, DiskError


class Extent(NamedTuple):
    """What a segment should hold."""

    file: str
    start: Start
    size: int
    digest: bytes
    """Of its last record."""


def check_extent(extent: Extent, data: bytes) -> str:
    """What is wrong with the content of a segment, or nothing."""
    position, batch, digest = 0, extent.start.batch, extent.start.digest
    while position < extent.size:
        found = read_batch(data, position, batch + 1, digest)
        if isinstance(found, Fault):
            return f"{extent.file} is {found.value} at byte {position}"
        position, batch, digest = found.end, batch + 1, found.digest
    return "" if digest == extent.digest else f"{extent.file} is not what was written"


class Scrub:
    """One pass over the files."""

    def __init__(
        self,
        disk: Disk,
        files: Files,
        extents: Sequence[Extent],
        done: Callable[[list[str]], None],
    ) -> None:
        self._disk = disk
        self._files = files
        self._extents = deque(extents)
        self._done = done
        self.problems: list[str] = []

    def start(self) -> None:
        size = self._disk.list().get(self._files.snapshot)
        if size is None:
            self._next()
        else:
            self._disk.read(self._files.snapshot, 0, size, self._on_snapshot)

    def _on_snapshot(self, data: bytes | DiskError) -> None:
        if isinstance(data, DiskError):
            self.problems.append(str(data))
        elif snapshots.decode(data) is None:
            self.problems.append(f"{self._files.snapshot} is damaged")
        self._next()

    def _next(self) -> None:
        if not self._extents:
            self._done(self.problems)
            return
        extent = self._extents.popleft()
        self._disk.read(extent.file, 0, extent.size, lambda data: self._on_segment(extent, data))

    def _on_segment(self, extent: Extent, data: bytes | DiskError) -> None:
        if not isinstance(data, DiskError):
            problem = check_extent(extent, data)
        elif self._files.has(extent.file) or self._is_missing(extent):
            problem = str(data)
        else:
            problem = ""  # replaced by a snapshot meanwhile
        if problem:
            self.problems.append(problem)
        self._next()

    def _is_missing(self, extent: Extent) -> bool:
        """Gone although an older segment, or no later one, is there."""
        present = self._files.segments()
        return not present or extent.start.segment > min(present)
