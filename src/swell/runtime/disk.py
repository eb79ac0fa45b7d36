"""A node's disk: one flat directory, one writer thread, group commit.

`append` only buffers. `sync` hands the buffered bytes to the writer thread, which writes and syncs
them with one system call; syncs of one file that queue up while another runs become one. Operations
take effect, and their `done` runs, in the order of submission.

While syncs are short the loop does them itself, behind the frames that it has to send: handing one
over and back takes longer than the disk. One that takes long sends the following ones to the thread
again, until it has seen many short ones.

A file whose write or sync failed stays failed: what the kernel then holds of it is unknown, so no
later sync of that file ever reports success.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from swell.runtime.identity import sync_directory
from swell.world import DiskError

SPILL_BYTES = 1024 * 1024
"""Buffered bytes of one file beyond this are written early, without a sync."""

QUEUED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes waiting for the writer. Beyond this the disk counts as failed rather than eat memory."""

OPEN_FILES_MAX = 32

SHORT_S = 0.002
SHORT_IN_A_ROW = 32
"""After so many syncs in a row that took less than this, the loop does them itself."""

LOOP_BYTES_MAX = 256 * 1024
"""What the loop writes itself at one time."""

Done = Callable[[Any], None]

_FILE = re.compile(r"[a-z0-9][a-zA-Z0-9._-]{0,199}\Z")
_GROUPED = ("sync", "write")
_DSYNC = os.RWF_DSYNC
"""Makes a write durable before it returns, as `fdatasync` behind it would."""


class RuntimeDisk:
    """`world.Disk` on a real directory. Used from the loop's thread only."""

    def __init__(
        self, path: Path, loop: asyncio.AbstractEventLoop, guard: Callable[..., None]
    ) -> None:
        self._loop = loop
        self._guard = guard
        self._buffers: dict[str, list[bytes]] = {}
        self._buffered_bytes: dict[str, int] = {}
        self._queued_bytes = 0
        self._closed = False
        self._sizes = {entry.name: entry.stat().st_size for entry in os.scandir(path)}
        self._queue: SimpleQueue[Operation] = SimpleQueue()
        self._with_thread = 0
        self._with_loop: deque[Operation] = deque()
        self._short = 0
        """Syncs in a row that were short."""
        self._writer = Writer(path)
        self._thread = threading.Thread(target=self._work, name=f"disk {path}", daemon=True)
        self._thread.start()

    def append(self, file: str, data: bytes) -> None:
        _check_file(file)
        self._buffers.setdefault(file, []).append(data)
        buffered_bytes = self._buffered_bytes.get(file, 0) + len(data)
        self._buffered_bytes[file] = buffered_bytes
        self._sizes[file] = self._sizes.get(file, 0) + len(data)
        if buffered_bytes > SPILL_BYTES:
            self._submit(Operation("write", file, self._take(file)))

    def sync(self, file: str, done: Callable[[DiskError | None], None]) -> None:
        _check_file(file)
        self._sizes.setdefault(file, 0)
        self._submit(Operation("sync", file, self._take(file), done))

    def read(
        self, file: str, offset: int, length: int, done: Callable[[bytes | DiskError], None]
    ) -> None:
        _check_file(file)
        self._spill(file)
        self._submit(Operation("read", file, done=done, argument=(offset, length)))

    def truncate(self, file: str, length: int, done: Callable[[DiskError | None], None]) -> None:
        _check_file(file)
        self._spill(file)
        if file in self._sizes:
            self._sizes[file] = min(length, self._sizes[file])
        self._submit(Operation("truncate", file, done=done, argument=length))

    def replace(self, old: str, new: str, done: Callable[[DiskError | None], None]) -> None:
        _check_file(old)
        _check_file(new)
        self._spill(old)
        self._take(new)
        if old in self._sizes:
            self._sizes[new] = self._sizes.pop(old)
        self._submit(Operation("replace", old, done=done, argument=new))

    def list(self) -> dict[str, int]:
        return dict(sorted(self._sizes.items()))

    async def close(self) -> None:
        """Let the writer finish what was submitted, then end it."""
        self._submit(Operation("stop", ""))
        self._closed = True
        await self._loop.run_in_executor(None, self._thread.join)

    def _take(self, file: str) -> bytes:
        self._buffered_bytes.pop(file, None)
        return b"".join(self._buffers.pop(file, ()))

    def _spill(self, file: str) -> None:
        """Operations other than sync must see what was appended before them."""
        if file in self._buffers:
            self._submit(Operation("write", file, self._take(file)))

    def _submit(self, operation: Operation) -> None:
        if self._closed:
            return
        self._queued_bytes += len(operation.data)
        if self._queued_bytes > QUEUED_BYTES_MAX:
            operation.kind = "overflow"
        if self._with_loop:
            self._with_loop.append(operation)
        elif self._is_for_loop(operation):
            self._with_loop.append(operation)
            self._loop.call_soon(self._work_on_loop)
        else:
            self._hand_over(operation)

    def _hand_over(self, operation: Operation) -> None:
        self._with_thread += 1
        self._queue.put(operation)

    def _is_for_loop(self, operation: Operation) -> bool:
        return (
            operation.kind == "sync"
            and self._short >= SHORT_IN_A_ROW
            and not self._with_thread
            and len(operation.data) <= LOOP_BYTES_MAX
        )

    def _work_on_loop(self) -> None:
        """Short syncs, in order; the rest goes to the thread, behind them."""
        batch, self._with_loop = self._with_loop, deque()
        while batch and self._is_for_loop(batch[0]):
            group = [batch.popleft()]
            while batch and batch[0].file == group[0].file and self._is_for_loop(batch[0]):
                group.append(batch.popleft())
            began = time.perf_counter()
            result = self._writer.run(group)
            took_s = time.perf_counter() - began
            self._with_thread += len(group)
            self._finish(group, result, took_s)
        for operation in batch:
            self._hand_over(operation)

    def _work(self) -> None:
        get_now = self._queue.get_nowait
        while True:
            batch = deque([self._queue.get()])
            with suppress(Empty):
                while True:
                    batch.append(get_now())
            stop = batch[-1].kind == "stop"
            if stop:
                batch.pop()
            self._run_batch(batch)
            if stop:
                self._writer.close()
                return

    def _run_batch(self, batch: deque[Operation]) -> None:
        while batch:
            group = [batch.popleft()]
            if group[0].kind in _GROUPED:
                while batch and batch[0].file == group[0].file and batch[0].kind in _GROUPED:
                    group.append(batch.popleft())
            began = time.perf_counter()
            result = self._writer.run(group)
            took_s = time.perf_counter() - began
            try:
                self._loop.call_soon_threadsafe(self._finish, group, result, took_s)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _finish(self, group: Sequence[Operation], result: Any, took_s: float) -> None:
        self._with_thread -= len(group)
        if group[0].kind == "sync":
            self._short = self._short + 1 if took_s < SHORT_S else 0
        for operation in group:
            self._queued_bytes -= len(operation.data)
            if operation.done is not None:
                self._guard(operation.done, result)


class Operation:
    """One request to the writer thread."""

    __slots__ = ("argument", "data", "done", "file", "kind")

    def __init__(
        self,
        kind: str,
        file: str,
        data: bytes = b"",
        done: Done | None = None,
        argument: Any = None,
    ) -> None:
        self.kind = kind
        self.file = file
        self.data = data
        self.done = done
        self.argument = argument


class Writer:
    """What the writer thread does: system calls, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, int] = {}
        self._failed: dict[str, DiskError] = {}
        self._unsynced: dict[str, None] = {}
        """Files with something written that no sync may have covered yet."""

    def run(self, group: Sequence[Operation]) -> Any:
        """Do operations on one file that belong together; the result or a `DiskError`."""
        file = group[0].file
        if file in self._failed:
            return self._failed[file]
        try:
            return self._do(group)
        except FileNotFoundError:
            return DiskError(f"{file}: there is no such file")
        except OSError as error:
            failure = DiskError(f"{file}: {error.strerror}")
            if group[0].kind != "read":
                self._failed[file] = failure
            return failure

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _do(self, group: Sequence[Operation]) -> Any:
        kind, file, argument = group[0].kind, group[0].file, group[0].argument
        if kind in _GROUPED:
            self._append(file, group)
        elif kind == "read":
            return os.pread(self._descriptor(file, create=False), argument[1], argument[0])
        elif kind == "truncate":
            descriptor = self._descriptor(file, create=False)
            os.ftruncate(descriptor, argument)
            os.fsync(descriptor)
        elif kind == "replace":
            self._replace(file, argument)
        else:
            raise OSError(0, f"more than {QUEUED_BYTES_MAX} bytes wait for the disk")
        return None

    def _append(self, file: str, group: Sequence[Operation]) -> None:
        """One system call for what is written and synced at once: with a busy loop, each return
        to Python waits for its turn."""
        descriptor = self._descriptor(file, create=True)
        data = group[0].data if len(group) == 1 else b"".join(item.data for item in group)
        sync = any(item.kind == "sync" for item in group)
        at_once = sync and data and file not in self._unsynced
        if data:
            self._unsynced[file] = None
            # Opened for appending: the place is the end, whatever is said here.
            written = (
                os.pwritev(descriptor, [data], 0, _DSYNC) if at_once else os.write(descriptor, data)
            )
            if written != len(data):
                raise OSError(0, "the disk took only part of a write; it is probably full")
        if sync:
            if not at_once:
                os.fdatasync(descriptor)
            self._unsynced.pop(file, None)

    def _replace(self, old: str, new: str) -> None:
        os.replace(self._path / old, self._path / new)
        if new in self._open:
            os.close(self._open.pop(new))
        if old in self._open:
            self._open[new] = self._open.pop(old)
        self._failed.pop(new, None)
        if old in self._unsynced:
            del self._unsynced[old]
            self._unsynced[new] = None
        sync_directory(self._path)

    def _descriptor(self, file: str, create: bool) -> int:
        """Files stay open, least recently opened first to go."""
        descriptor = self._open.get(file)
        if descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
            try:
                descriptor = os.open(self._path / file, flags)
                # An earlier life may have left bytes that no sync covered.
                self._unsynced[file] = None
            except FileNotFoundError:
                if not create:
                    raise
                descriptor = os.open(self._path / file, flags | os.O_CREAT, 0o600)
                sync_directory(self._path)
            if len(self._open) >= OPEN_FILES_MAX:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[file] = descriptor
        return descriptor


def _check_file(file: str) -> None:
    assert _FILE.match(file), f"bad file name {file!r}"
