"""A node's disk: one flat directory, one writer thread, group commit.

`append` only buffers. `sync` hands the buffered bytes to the writer thread, which writes and syncs
them with one system call; syncs of one file that queue up while another runs become one. Operations
take effect, and their `done` runs, in the order of submission.

While syncs are short the loop does them itself, behind the frames that it has to send: handing one
over and back takes longer than the disk. What counts is how long they take on average, of late: one
that waited for the processor, not for the disk, changes nothing.

A file whose write or sync failed stays failed: what the kernel then holds of it is unknown, so no
later sync of that file ever reports success.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from swell.runtime.disk_writer import GROUPED, Operation, Writer
from swell.world import DiskError

SPILL_BYTES = 1024 * 1024
"""Buffered bytes of one file beyond this are written early, without a sync."""

QUEUED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes waiting for the writer. Beyond this the disk counts as failed rather than eat memory."""

SHORT_S = 0.002
"""While syncs take less than this on average, the loop does them itself."""
RECENT = 8
"""About how many syncs the average is over; one counts for `LONGEST_S` at most."""
LONGEST_S = 0.1

LOOP_BYTES_MAX = 256 * 1024
"""What the loop writes itself at one time."""

_FILE = re.compile(r"[a-z0-9][a-zA-Z0-9._-]{0,199}\Z")


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
        self._sync_s = 2 * SHORT_S
        """How long a sync takes, on average of late."""
        self._writer = Writer(path)
        self._thread = threading.Thread(target=self._work, name=f"disk {path}", daemon=True)
        self._thread.start()

    def append(self, file: str, data: bytes) -> None:
        size = self._sizes.get(file)
        if size is None:
            _check_file(file)
            size = 0
        self._buffers.setdefault(file, []).append(data)
        buffered_bytes = self._buffered_bytes.get(file, 0) + len(data)
        self._buffered_bytes[file] = buffered_bytes
        self._sizes[file] = size + len(data)
        if buffered_bytes > SPILL_BYTES:
            self._submit(Operation("write", file, self._take(file)))

    def sync(self, file: str, done: Callable[[DiskError | None], None]) -> None:
        if file not in self._sizes:
            _check_file(file)
            self._sizes[file] = 0
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
            operation.argument = f"more than {QUEUED_BYTES_MAX} bytes wait for the disk"
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
            and self._sync_s < SHORT_S
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
            began = perf_counter()
            result = self._writer.run(group)
            took_s = perf_counter() - began
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
            if group[0].kind in GROUPED:
                while batch and batch[0].file == group[0].file and batch[0].kind in GROUPED:
                    group.append(batch.popleft())
            began = perf_counter()
            result = self._writer.run(group)
            took_s = perf_counter() - began
            try:
                self._loop.call_soon_threadsafe(self._finish, group, result, took_s)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _finish(self, group: Sequence[Operation], result: Any, took_s: float) -> None:
        self._with_thread -= len(group)
        if group[0].kind == "sync":
            self._sync_s += (min(took_s, LONGEST_S) - self._sync_s) / RECENT
        for operation in group:
            self._queued_bytes -= len(operation.data)
            if operation.done is not None:
                self._guard(operation.done, result)


def _check_file(file: str) -> None:
    assert _FILE.match(file), f"bad file name {file!r}"
