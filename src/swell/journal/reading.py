"""Read all files of a journal, one at a time, and say what to do about rot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from swell.journal import snapshot as snapshots
from swell.journal.files import Files, Step
from swell.journal.replay import Replay
from swell.journal.snapshot import Snapshot
from swell.world import Disk, DiskError


class Content(NamedTuple):
    """All that a journal holds."""

    replay: Replay
    snapshot: Snapshot | None


class Reading:
    """One pass over the files; reading stops at the first rot."""

    def __init__(
        self, disk: Disk, files: Files, name: str, done: Callable[[Content | DiskError], None]
    ) -> None:
        self._disk = disk
        self._files = files
        self._name = name
        self._done = done
        self._snapshot: Snapshot | None = None
        self._replay: Replay
        self._numbers: deque[int]

    def start(self) -> None:
        size = self._disk.list().get(self._files.snapshot)
        if size is None:
            self._begin(Replay(self._name, None))
        else:
            self._disk.read(self._files.snapshot, 0, size, self._on_snapshot)

    def _on_snapshot(self, data: bytes | DiskError) -> None:
        if isinstance(data, DiskError):
            self._done(data)
            return
        self._snapshot = snapshots.decode(data)
        replay = Replay(self._name, self._snapshot)
        if self._snapshot is None:
            replay.rot = "the snapshot is damaged"
        self._begin(replay)

    def _begin(self, replay: Replay) -> None:
        first = replay.next.segment
        self._replay = replay
        self._numbers = deque(number for number in self._files.segments() if number >= first)
        is_new = self._snapshot is None and not self._files.has(self._files.clean)
        if not self._numbers and not is_new and not replay.rot:
            replay.rot = f"segment {first} is missing"
        self._next()

    def _next(self) -> None:
        if not self._numbers or self._replay.rot:
            self._done(Content(self._replay, self._snapshot))
            return
        number = self._numbers.popleft()
        file = self._files.segment(number)
        size = self._disk.list()[file]
        self._disk.read(file, 0, size, lambda data: self._on_segment(number, data))

    def _on_segment(self, number: int, data: bytes | DiskError) -> None:
        if isinstance(data, DiskError):
            self._done(data)
            return
        self._replay.feed(number, data, newest=not self._numbers)
        self._next()


def steps_after_rot(files: Files, content: Content) -> list[Step]:
    """Mark the journal unclean, then take away all that cannot be trusted, newest first."""
    present = files.segments()
    kept = {segment.number: segment.size for segment in content.replay.segments}
    steps: list[Step] = []
    if files.has(files.clean):
        steps.append(files.rename(files.clean, files.unclean))
    elif not files.has(files.unclean):
        steps.append(files.create(files.unclean))
    gone = [files.segment(number) for number in reversed(present) if number not in kept]
    if content.snapshot is None and files.has(files.snapshot):
        gone.insert(0, files.snapshot)
    steps += files.drop(gone)
    steps += (
        files.truncate(files.segment(number), size)
        for number, size in kept.items()
        if size < present[number]
    )
    return steps
