"""What happened in a run, as a digest: two runs of one seed must agree on every event.

Each delivered event adds its time, process, kind and the CRC of its bytes. The numbers are
gathered in arrays and hashed in blocks, so that a note costs well under a microsecond. On demand
the trace also keeps readable lines, for scenario tests; nothing else is kept.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from swell.simulation.process import Process

_BLOCK = 4096


class Kind(IntEnum):
    """What a note is about."""

    FRAME = 1
    TIMER = 2
    LINK_UP = 3
    LINK_DOWN = 4
    WRITABLE = 5
    DONE = 6
    EVENT = 7
    PROCESS = 8
    FAULT = 9


Formatter = Callable[[float, str, Kind, Any, bytes], str | None]
"""(time, process name, kind, detail, bytes) → a line, or None to leave it out. The detail is the
link of a frame or of a change of a link, the event emitted, or a word."""


class Trace:
    """Running digest over all notes, and optionally their lines."""

    __slots__ = (
        "_formatter", "_hash", "_marks", "_times", "lines", "lines_dropped", "lines_max", "notes"
    )  # fmt: skip

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._times = array("d")
        self._marks = array("Q")
        self._formatter: Formatter | None = None
        self.notes = 0
        """Notes already hashed; `count` adds those still in the block."""
        self.lines: list[str] = []
        self.lines_max = 0
        self.lines_dropped = 0

    def record(self, formatter: Formatter, lines_max: int = 100_000) -> None:
        """Keep a line per note from now on, up to `lines_max`."""
        self._formatter = formatter
        self.lines_max = lines_max

    def note(
        self, time_s: float, process: Process | None, kind: int, data: bytes, detail: Any
    ) -> None:
        marks = self._marks
        number = 0 if process is None else process.number
        self._times.append(time_s)
        marks.append(number << 40 | kind << 32 | crc32(data))
        if len(marks) >= _BLOCK:
            self._flush()
        if self._formatter is not None:
            self._add_line(time_s, process, kind, data, detail)

    @property
    def count(self) -> int:
        return self.notes + len(self._marks)

    def digest(self) -> str:
        """Digest of everything noted so far."""
        state = self._hash.copy()
        state.update(self._times.tobytes())
        state.update(self._marks.tobytes())
        state.update(self.count.to_bytes(8, "big"))
        return state.hexdigest()

    def _flush(self) -> None:
        self.notes += len(self._marks)
        self._hash.update(self._times.tobytes())
        self._hash.update(self._marks.tobytes())
        del self._times[:]
        del self._marks[:]

    def _add_line(
        self, time_s: float, process: Process | None, kind: int, data: bytes, detail: Any
    ) -> None:
        assert self._formatter is not None
        name = "" if process is None else process.name
        line = self._formatter(time_s, name, Kind(kind), detail, data)
        if line is None:
            return
        if len(self.lines) < self.lines_max:
            self.lines.append(line)
        else:
            self.lines_dropped += 1
