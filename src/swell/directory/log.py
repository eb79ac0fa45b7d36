"""The directory's durable log: one voter's form of what a replicated log will be.

Every record is `length u32 | crc32 u32 | payload`, never empty. `propose` appends and syncs; the
record counts once `done` ran. Records that are proposed while a sync runs share the next one. A
torn tail (the last record is incomplete) is cut at start; a bad record with valid ones behind it
is rot, and a sync error is fatal: the node halts rather than answer from a state it may not have.
When the log is much longer than its state it is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from zlib import crc32

from swell.world import DiskError, World

FILE = "directory.log"
_NEW_FILE = "directory.log.new"
_head = Struct(">II")
RECORD_BYTES_MAX = 1 << 24


def encode_record(payload: bytes) -> bytes:
    return _head.pack(len(payload), crc32(payload)) + payload


def split(data: bytes) -> tuple[list[bytes], int, bool]:
    """(records, bytes that they take, rotten): what a log file holds."""
    records: list[bytes] = []
    position = 0
    while position + _head.size <= len(data):
        length, check = _head.unpack_from(data, position)
        end = position + _head.size + length
        payload = data[position + _head.size : end]
        whole = 0 < length <= RECORD_BYTES_MAX and len(payload) == length
        if not whole or crc32(payload) != check:
            return records, position, _valid_later(data, position + 1)
        records.append(payload)
        position = end
    return records, position, False


def _valid_later(data: bytes, start: int) -> bool:
    """Is there a whole record somewhere behind a bad one?"""
    for position in range(start, len(data) - _head.size):
        length, check = _head.unpack_from(data, position)
        end = position + _head.size + length
        whole = 0 < length <= RECORD_BYTES_MAX and end <= len(data)
        if whole and crc32(data[position + _head.size : end]) == check:
            return True
    return False


class Log:
    """An append-only file of records on the node's disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._size = 0
        self._waiting: list[Callable[[], None]] = []
        self._held: list[bytes] = []
        self._syncing = False
        self._rewriting = False

    @property
    def size(self) -> int:
        return self._size

    def open(self, done: Callable[[Sequence[bytes]], None]) -> None:
        """Read the log; `done` gets its records. Halts the node if they cannot be trusted."""
        size = self._world.disk.list().get(FILE, 0)
        if not size:
            self._world.call_later(0.0, lambda: done([]))
            return

        def read(data: bytes | DiskError) -> None:
            if isinstance(data, DiskError):
                self._world.halt(f"the directory's log cannot be read: {data}")
                return
            records, used, rotten = split(data)
            if rotten:
                self._world.halt(
                    f"the directory's log is damaged at byte {used} and valid behind it: "
                    "restore it from a copy"
                )
                return
            self._size = used
            if used == len(data):
                done(records)
            else:
                self._world.disk.truncate(FILE, used, lambda error: self._cut(error, records, done))

        self._world.disk.read(FILE, 0, size, read)

    def _cut(
        self,
        error: DiskError | None,
        records: Sequence[bytes],
        done: Callable[[Sequence[bytes]], None],
    ) -> None:
        if error is not None:
            self._world.halt(f"the directory's log cannot be cut: {error}")
        else:
            done(records)

    def propose(self, payloads: Iterable[bytes], done: Callable[[], None]) -> None:
        """Append records; `done` runs when they are durable."""
        data = b"".join(encode_record(payload) for payload in payloads)
        self._waiting.append(done)
        if self._rewriting:
            self._held.append(data)
            return
        self._world.disk.append(FILE, data)
        self._size += len(data)
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._syncing = True
        batch, self._waiting = self._waiting, []

        def synced(error: DiskError | None) -> None:
            self._syncing = False
            if error is not None:
                self._world.halt(f"the directory's log cannot be written: {error}")
                return
            for done in batch:
                done()
            if self._waiting and not self._syncing:
                self._sync()

        self._world.disk.sync(FILE, synced)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace the log by these records. Does nothing while a sync runs: call it again.
        Records proposed meanwhile are held back and appended to the new file."""
        if self._syncing or self._waiting:
            return
        data = b"".join(encode_record(payload) for payload in payloads)
        disk = self._world.disk
        self._syncing = self._rewriting = True

        def replaced(error: DiskError | None) -> None:
            self._syncing = self._rewriting = False
            if error is not None:
                self._world.halt(f"the directory's log cannot be replaced: {error}")
                return
            self._size = len(data)
            if self._waiting:
                held = b"".join(self._held)
                self._held.clear()
                disk.append(FILE, held)
                self._size += len(held)
                self._sync()

        def synced(error: DiskError | None) -> None:
            if error is not None:
                self._world.halt(f"the directory's log cannot be rewritten: {error}")
            else:
                disk.replace(_NEW_FILE, FILE, replaced)

        def emptied(error: DiskError | None) -> None:
            if error is not None:
                self._world.halt(f"the directory's log cannot be rewritten: {error}")
                return
            disk.append(_NEW_FILE, data)
            disk.sync(_NEW_FILE, synced)

        if _NEW_FILE in disk.list():
            disk.truncate(_NEW_FILE, 0, emptied)
        else:
            emptied(None)
