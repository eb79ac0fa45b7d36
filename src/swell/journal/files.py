"""The files of one journal, and sequences of operations on them.

`NAME.00000001.log` … are the segments, `NAME.snapshot` the state they go on from. `NAME.clean`
exists while the owner may vouch for the content; at an error of the disk it is renamed, which takes
no space, to `NAME.unclean`. A disk does not delete: a file that is not needed is renamed to
`NAME.dropped`, over the one dropped before, and that is cut to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from swell.world import Disk, DiskError

Done = Callable[[DiskError | None], None]
Step = Callable[[Done], None]


class Files:
    """Names, and steps to be run by `run`."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._segment = re.compile(re.escape(name) + r"\.([0-9]{8,})\.log\Z")
        self.snapshot = f"{name}.snapshot"
        self.new_snapshot = f"{name}.snapshot.new"
        self.clean = f"{name}.clean"
        self.unclean = f"{name}.unclean"
        self._dropped = f"{name}.dropped"

    def segment(self, number: int) -> str:
        return f"{self._name}.{number:08d}.log"

    def segments(self) -> dict[int, int]:
        """Number → size of every segment, oldest first."""
        found = ((self._segment.match(file), size) for file, size in self._disk.list().items())
        return dict(sorted((int(match[1]), size) for match, size in found if match))

    def has(self, file: str) -> bool:
        return file in self._disk.list()

    def create(self, file: str) -> Step:
        """An empty file, durable."""

        def step(done: Done) -> None:
            self._disk.append(file, b"")
            self._disk.sync(file, done)

        return step

    def write(self, file: str, data: bytes) -> list[Step]:
        """A file with exactly this content, durable."""

        def write(done: Done) -> None:
            self._disk.append(file, data)
            self._disk.sync(file, done)

        return [self.truncate(file, 0), write] if self.has(file) else [write]

    def truncate(self, file: str, size: int) -> Step:
        return lambda done: self._disk.truncate(file, size, done)

    def rename(self, old: str, new: str) -> Step:
        return lambda done: self._disk.replace(old, new, done)

    def drop(self, files: Iterable[str]) -> list[Step]:
        """Take files away one after the other."""
        steps = [self.rename(file, self._dropped) for file in files]
        if steps or self._disk.list().get(self._dropped):
            steps.append(self.truncate(self._dropped, 0))
        return steps


def run(steps: Sequence[Step], done: Done) -> None:
    """Run each step when the one before it succeeded; `done` at the end or at the first error.
    Without steps it is called at once."""
    _Steps(steps, done).go_on(None)


class _Steps:
    """Steps on their way. No cycle of references: every batch of a journal goes through here, and
    the garbage of a busy one would be collected in pauses of a tenth of a second."""

    __slots__ = ("_done", "_place", "_steps")

    def __init__(self, steps: Sequence[Step], done: Done) -> None:
        self._steps = steps
        self._done = done
        self._place = 0

    def go_on(self, error: DiskError | None) -> None:
        if error is not None or self._place == len(self._steps):
            self._done(error)
        else:
            self._place += 1
            self._steps[self._place - 1](self.go_on)
