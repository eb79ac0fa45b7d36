"""The system calls behind a node's disk: files written at their end, read, cut and renamed.

A sync of a file that grows has to write the file's new length and place as well, which takes about
as long as the bytes themselves. So a file that is appended to and synced again and again, a log, is
kept longer than its content: zeros are written ahead, and following appends go over them. `end` is
where the content ends; the zeros are cut off when the disk is closed. After a crash they are there,
and whoever reads a log must take zeros at its end for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swell.runtime.identity import sync_directory
from swell.world import DiskError

OPEN_FILES_MAX = 32

LOG_SYNCS = 4
"""A file with so many syncs, each with something to write, is a log."""

ROOM_BYTES = 256 * 1024
"""Zeros written ahead in a log at one time."""

GROUPED = ("sync", "write")
"""Kinds of operations that become one if they follow each other on one file."""

_DSYNC = os.RWF_DSYNC
"""Makes a write durable before it returns, as `fdatasync` behind it would."""

_ROOM = bytes(ROOM_BYTES)


class Operation:
    """One request to the writer."""

    __slots__ = ("argument", "data", "done", "file", "kind")

    def __init__(
        self,
        kind: str,
        file: str,
        data: bytes = b"",
        done: Callable[[Any], None] | None = None,
        argument: Any = None,
    ) -> None:
        self.kind = kind
        self.file = file
        self.data = data
        self.done = done
        self.argument = argument


class Extent:
    """How far a file goes."""

    __slots__ = ("end", "limit", "syncs")

    def __init__(self, end: int) -> None:
        self.end = end
        """Of its content."""
        self.limit = end
        """Of the file: zeros from `end` on."""
        self.syncs = 0


class Writer:
    """Does one operation, or one group of them, after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, int] = {}
        self._extents: dict[str, Extent] = {}
        """Of every file that was opened in this life."""
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
        """Nothing follows: leave files that end where their content ends."""
        for file, extent in self._extents.items():
            if extent.limit > extent.end and file not in self._failed:
                os.truncate(self._path / file, extent.end)
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _do(self, group: Sequence[Operation]) -> Any:
        kind, file, argument = group[0].kind, group[0].file, group[0].argument
        if kind in GROUPED:
            self._append(file, group)
        elif kind == "read":
            return self._read(file, *argument)
        elif kind == "truncate":
            self._truncate(file, argument)
        elif kind == "replace":
            self._replace(file, argument)
        else:
            raise OSError(0, argument)
        return None

    def _append(self, file: str, group: Sequence[Operation]) -> None:
        """One system call for what is written and synced at once: with a busy loop, each return
        to Python waits for its turn."""
        descriptor = self._descriptor(file, create=True)
        extent = self._extents[file]
        data = group[0].data if len(group) == 1 else b"".join(item.data for item in group)
        sync = any(item.kind == "sync" for item in group)
        at_once = sync and data and file not in self._unsynced
        if data:
            self._unsynced[file] = None
            is_short = at_once and extent.end + len(data) > extent.limit
            parts = [data, _ROOM] if is_short and extent.syncs >= LOG_SYNCS else [data]
            written = os.pwritev(descriptor, parts, extent.end, _DSYNC if at_once else 0)
            if written < len(data):
                raise OSError(0, "the disk took only part of a write; it is probably full")
            extent.limit = max(extent.limit, extent.end + written)
            extent.end += len(data)
        if sync:
            if not at_once:
                os.fdatasync(descriptor)
            if data:
                extent.syncs += 1
            self._unsynced.pop(file, None)

    def _read(self, file: str, offset: int, length: int) -> bytes:
        descriptor = self._descriptor(file, create=False)
        return os.pread(descriptor, max(0, min(length, self._extents[file].end - offset)), offset)

    def _truncate(self, file: str, length: int) -> None:
        descriptor = self._descriptor(file, create=False)
        end = min(length, self._extents[file].end)
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
        self._extents[file] = Extent(end)

    def _replace(self, old: str, new: str) -> None:
        os.replace(self._path / old, self._path / new)
        if new in self._open:
            os.close(self._open.pop(new))
        if old in self._open:
            self._open[new] = self._open.pop(old)
        self._extents.pop(new, None)
        if old in self._extents:
            self._extents[new] = self._extents.pop(old)
        self._failed.pop(new, None)
        if old in self._unsynced:
            del self._unsynced[old]
            self._unsynced[new] = None
        sync_directory(self._path)

    def _descriptor(self, file: str, create: bool) -> int:
        """Files stay open, least recently opened first to go."""
        descriptor = self._open.get(file)
        if descriptor is None:
            flags = os.O_RDWR | os.O_CLOEXEC
            try:
                descriptor = os.open(self._path / file, flags)
                # An earlier life may have left bytes that no sync covered.
                self._unsynced[file] = None
            except FileNotFoundError:
                if not create:
                    raise
                descriptor = os.open(self._path / file, flags | os.O_CREAT, 0o600)
                sync_directory(self._path)
            if file not in self._extents:
                self._extents[file] = Extent(os.fstat(descriptor).st_size)
            if len(self._open) >= OPEN_FILES_MAX:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[file] = descriptor
        return descriptor
