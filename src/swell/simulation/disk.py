"""The simulated disk of one machine: bytes that can be lost, torn, flipped, refused and late.

An operation takes effect in the order of submission at once, as in a page cache, and is durable
when its `done` runs. At a crash everything not done yet is uncertain: a renaming or cut may be
undone, and of the bytes behind the last sync a prefix survives; a power loss may leave garbage
at the end of that prefix. A file that was synced many times may end in zeros after a crash: a real
disk writes them ahead in a log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swell.world import DiskError

if TYPE_CHECKING:
    from swell.simulation.process import Process
    from swell.simulation.simulation import Simulation
    from swell.simulation.world import SimWorld

SYNC_S = (0.000_1, 0.002)
READ_S = (0.000_02, 0.000_2)

GARBAGE_BYTES_MAX = 512
"""A sector: how much of a torn write may be anything."""


ROOM_BYTES_MAX = 4096
LOG_SYNCS = 4
"""Zeros that a crash may leave behind a file with so many syncs in the life that it ends."""


class SimFile:
    """Content and how much of it, from the front, is durable."""

    __slots__ = ("data", "refused", "synced", "syncs")

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data = bytearray(data)
        self.synced = synced
        self.refused = False
        """An append found the disk full; the next sync says so."""
        self.syncs = 0


Files = dict[str, SimFile]


class _Operation:
    """Something submitted and not done: how to end it, and how to undo it at a crash."""

    __slots__ = ("done", "finish", "result", "undo")

    def __init__(
        self,
        done: Callable[[Any], None],
        result: Any,
        finish: Callable[[], None] | None = None,
        undo: dict[str, tuple[bytes, int] | None] | None = None,
    ) -> None:
        self.done = done
        self.result = result
        self.finish = finish
        self.undo = undo


class SimDisk:
    """An implementation of `swell.world.Disk` that outlives the process."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self.delay_s = 0.0
        """Added to every operation (a slow disk)."""
        self.full = False
        """Appends are refused (no space left)."""
        self.failed = False
        """An operation of this life ended with an error."""
        self.ready_s = 0.0
        self._simulation = simulation
        self._rng = simulation.rng(f"disk/{process.name}")
        self._room_rng = simulation.rng(f"disk-room/{process.name}")
        self._world: SimWorld | None = None
        self._files: Files = {}
        self._pending: deque[_Operation] = deque()
        self._busy_until_s = 0.0
        self._failing: dict[str, None] = {}
        self._tear = False

    # -- swell.world.Disk ----------------------------------------------------------------------

    def append(self, file: str, data: bytes) -> None:
        if self._world is None:
            return
        entry = self._files.setdefault(file, SimFile())
        if self.full or entry.refused:
            entry.refused = True
            return
        entry.data += data

    def sync(self, file: str, done: Callable[[DiskError | None], None]) -> None:
        entry = self._files.get(file)
        error = self._check("sync", file, entry)
        if entry is None or error is not None:
            self._submit(SYNC_S, _Operation(done, error))
            return
        if entry.refused:
            entry.refused = False
            self._submit(SYNC_S, _Operation(done, DiskError(f"{file}: no space left")))
            return
        length = len(entry.data)

        def finish() -> None:
            entry.synced = max(entry.synced, min(length, len(entry.data)))
            entry.syncs += 1

        self._submit(SYNC_S, _Operation(done, None, finish))

    def read(
        self, file: str, offset: int, length: int, done: Callable[[bytes | DiskError], None]
    ) -> None:
        entry = self._files.get(file)
        error = self._check("read", file, entry)
        if entry is None or error is not None:
            self._submit(READ_S, _Operation(done, error))
        else:
            data = bytes(entry.data[offset : offset + length])
            self._submit(READ_S, _Operation(done, data))

    def truncate(self, file: str, length: int, done: Callable[[DiskError | None], None]) -> None:
        entry = self._files.get(file)
        error = self._check("truncate", file, entry)
        if entry is None or error is not None:
            self._submit(SYNC_S, _Operation(done, error))
            return
        undo = self._copies(file)
        del entry.data[length:]
        entry.synced = min(entry.synced, length)
        entry.syncs = 0
        self._submit(SYNC_S, _Operation(done, None, undo=undo))

    def replace(self, old: str, new: str, done: Callable[[DiskError | None], None]) -> None:
        entry = self._files.get(old)
        error = self._check("replace", old, entry)
        if entry is None or error is not None:
            self._submit(SYNC_S, _Operation(done, error))
            return
        undo = self._copies(old, new)
        self._files[new] = self._files.pop(old)
        self._submit(SYNC_S, _Operation(done, None, undo=undo))

    def list(self) -> dict[str, int]:
        return {name: len(self._files[name].data) for name in sorted(self._files)}

    # -- faults --------------------------------------------------------------------------------

    def fail_next(self, *operations: str) -> None:
        """The next `sync`, `read`, `truncate` or `replace` ends with an input/output error."""
        for operation in operations:
            self._failing[operation] = None

    def flip_bit(self) -> str:
        """Flip one random bit of the durable bytes; the name of the file, or empty if none."""
        names = [name for name in sorted(self._files) if self._files[name].synced]
        if not names:
            return ""
        name = self._rng.choice(names)
        entry = self._files[name]
        bit = self._rng.randrange(entry.synced * 8)
        entry.data[bit // 8] ^= 1 << (bit % 8)
        return name

    def tear_next(self) -> None:
        """The coming power loss tears what is being written, for certain."""
        self._tear = True

    def heal(self) -> None:
        """End errors, fullness and slowness; what was lost or flipped stays so."""
        self._failing.clear()
        self.full = False
        self.delay_s = 0.0

    def snapshot(self) -> dict[str, bytes]:
        """The durable bytes of every file, as a backup would hold them."""
        return {name: bytes(file.data[: file.synced]) for name, file in self._files.items()}

    def restore(self, copy: dict[str, bytes]) -> None:
        """Put an (old) copy in place of everything; only while the process is down."""
        assert self._world is None, "stop or crash the process before restoring its disk"
        self._files = {name: SimFile(data, len(data)) for name, data in copy.items()}

    # -- the machine's side --------------------------------------------------------------------

    def attach(self, world: SimWorld) -> None:
        self._world = world
        self._busy_until_s = self.ready_s = 0.0
        self.failed = False

    def detach(self) -> None:
        """The process ended in order: what it wrote stays, nothing is called back."""
        self._world = None
        for operation in self._pending:
            if operation.finish is not None:
                operation.finish()
        self._pending.clear()
        for file in self._files.values():
            file.synced = len(file.data)
            file.refused = False
            file.syncs = 0

    def lose_unsynced(self, power: bool) -> None:
        """The process or the machine died with operations under way."""
        self._world = None
        tear, self._tear = self._tear, False
        rng = self._rng
        undoable = [operation.undo for operation in self._pending if operation.undo is not None]
        survivors = rng.randint(0, len(undoable))
        for undo in reversed(undoable[survivors:]):
            self._put_back(undo)
        self._pending.clear()
        for name in list(self._files):
            file = self._files[name]
            unsynced = len(file.data) - file.synced
            file.refused = False
            if not unsynced:
                continue
            kept = rng.randint(1, unsynced) if tear else rng.randint(0, unsynced)
            del file.data[file.synced + kept :]
            if power and kept and (tear or rng.random() < 0.5):
                garbage = rng.randint(1, min(kept, GARBAGE_BYTES_MAX))
                file.data[-garbage:] = rng.randbytes(garbage)
            if not file.data and not file.synced and rng.random() < 0.5:
                del self._files[name]
            else:
                file.synced = len(file.data)
        self._leave_room()

    def _leave_room(self) -> None:
        """Zeros behind the content of logs, old and new: nobody could cut them off."""
        rng = self._room_rng
        for name in sorted(self._files):
            file = self._files[name]
            if file.syncs >= LOG_SYNCS and rng.random() < 0.5:
                file.data += bytes(rng.randint(1, ROOM_BYTES_MAX))
                file.synced = len(file.data)
            file.syncs = 0

    def _check(self, operation: str, file: str, entry: SimFile | None) -> DiskError | None:
        if operation in self._failing:
            del self._failing[operation]
            return DiskError(f"{file}: input/output error")
        return DiskError(f"{file}: no such file") if entry is None else None

    def _copies(self, *names: str) -> dict[str, tuple[bytes, int] | None]:
        """What the named files are now, to be put back."""
        copies: dict[str, tuple[bytes, int] | None] = {}
        for name in names:
            file = self._files.get(name)
            copies[name] = None if file is None else (bytes(file.data), file.synced)
        return copies

    def _put_back(self, copies: dict[str, tuple[bytes, int] | None]) -> None:
        for name, copy in copies.items():
            if copy is None:
                self._files.pop(name, None)
            else:
                self._files[name] = SimFile(*copy)

    def _submit(self, duration_s: tuple[float, float], operation: _Operation) -> None:
        simulation = self._simulation
        if self._world is None:
            return
        begin_s = max(self._busy_until_s, simulation.time_s)
        self._busy_until_s = begin_s + self._rng.uniform(*duration_s) + self.delay_s
        self._pending.append(operation)
        simulation.push(self._busy_until_s, self._complete, (self._world, operation))

    def _complete(self, item: tuple[SimWorld, _Operation]) -> None:
        world, operation = item
        if world is not self._world:
            return
        assert self._pending[0] is operation
        self._pending.popleft()
        if operation.finish is not None:
            operation.finish()
        if isinstance(operation.result, DiskError):
            self.failed = True
        world.post(self, operation.done, operation.result)
