"""Histories: what clients asked of a store and what they heard, on one clock.

The same recorder serves simulated and real clients. It hands out strictly increasing instants, so
what one recorder saw in order stays in order even where virtual time stands still; instants that
are equal across recorders count as concurrent.

A history file holds one JSON object per line. `call` is written and flushed before the request
leaves, so a client that is killed leaves a call without an end, whose outcome is then unknown, and
never a request without a call. Clocks of two machines cannot be compared: the first line names the
machine since its boot, and `merge` refuses to mix two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from swell.errors import SwellError

Value: TypeAlias = bool | int | str | bytes | None
Output: TypeAlias = Value | msgspec.UnsetType
UNKNOWN: Final = msgspec.UNSET  # an output that nobody heard; None is an output like any other

OPERATIONS_MAX = 5_000_000
VERSION = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HistoryError(SwellError):
    """A history that contradicts itself or cannot be read; the sentence says where."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of one client. Without `return_ns` it may have happened, at any time after
    `call_ns` or never."""

    client: str
    key: Value
    input: tuple[Value, ...]
    output: Output
    call_ns: int
    return_ns: int | None

    def __post_init__(self) -> None:
        if self.return_ns is not None and self.return_ns < self.call_ns:
            raise HistoryError(f"{self.client}: {self.input} returned before it was called.")

    @property
    def is_unknown(self) -> bool:
        return self.return_ns is None


@dataclass(frozen=True, slots=True)
class History:
    """The operations of one clock, definite failures left out."""

    machine: str
    operations: tuple[Operation, ...]
    failed: int = 0


class Recorder:
    """Writes down calls and their ends as one process sees them; `file` gets every line at once."""

    def __init__(
        self, machine: str, clock_ns: Callable[[], int], file: BinaryIO | None = None
    ) -> None:
        self.machine = machine
        self._clock_ns = clock_ns
        self._file = file
        self._last_ns = -1
        self._calls: list[Operation] = []
        self._open: dict[int, None] = {}
        self._failed: dict[int, None] = {}
        self._write(_Header(VERSION, machine))

    def call(self, client: str, key: Value, *input: Value) -> int:
        """To be said before the request leaves; the number is for what says how it ended."""
        number = len(self._calls)
        if number >= OPERATIONS_MAX:
            raise HistoryError(f"A history holds at most {OPERATIONS_MAX:,} operations.")
        operation = Operation(client, key, input, UNKNOWN, self._now_ns(), None)
        self._calls.append(operation)
        self._open[number] = None
        packed = [_pack(value) for value in input]
        self._write(_Call(number, client, _pack(key), packed, operation.call_ns))
        return number

    def returned(self, number: int, output: Output) -> None:
        """It happened; `output` is UNKNOWN when the answer does not say what came of it."""
        self._close(number)
        at_ns = self._now_ns()
        self._calls[number] = replace(self._calls[number], output=output, return_ns=at_ns)
        packed = UNKNOWN if output is UNKNOWN else _pack(output)
        self._write(_Return(number, at_ns, packed))

    def unknown(self, number: int) -> None:
        """A time-out, a lost link, a crash: it may have happened and may still happen."""
        self._close(number)
        self._write(_Unknown(number))

    def failed(self, number: int) -> None:
        """It was refused and will never happen."""
        self._close(number)
        self._failed[number] = None
        self._write(_Failed(number))

    def history(self) -> History:
        """All of it so far; what has not ended is unknown."""
        kept = (call for number, call in enumerate(self._calls) if number not in self._failed)
        return History(self.machine, tuple(kept), len(self._failed))

    def _close(self, number: int) -> None:
        if number not in self._open:
            raise HistoryError(f"Operation {number} ended twice, or was never called.")
        del self._open[number]

    def _now_ns(self) -> int:
        self._last_ns = max(self._clock_ns(), self._last_ns + 1)
        return self._last_ns

    def _write(self, line: _Line) -> None:
        if self._file is not None:
            self._file.write(_encoder.encode(line) + b"\n")
            self._file.flush()


def recorder_of_this_machine(file: BinaryIO | None = None) -> Recorder:
    """For real processes: all of one machine share the monotonic clock since its boot."""
    try:
        machine = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise HistoryError(f"Cannot tell this machine's boot from others: {error}.") from error
    return Recorder(machine, time.monotonic_ns, file)


def merge(histories: Iterable[History]) -> History:
    """Histories of several processes as one; they must share a clock."""
    parts = list(histories)
    machines = list(dict.fromkeys(part.machine for part in parts))
    if len(machines) != 1:
        raise HistoryError(
            f"Merge histories of exactly one machine; these are of {machines or 'none'}."
        )
    operations = sorted(
        (operation for part in parts for operation in part.operations),
        key=lambda operation: operation.call_ns,
    )
    return History(machines[0], tuple(operations), sum(part.failed for part in parts))


def read(path: Path) -> History:
    """The history in a file. A last line without its end was being written at a crash: ignored."""
    lines = path.read_bytes().split(b"\n")[:-1]
    machine: str | None = None
    calls: dict[int, Operation] = {}
    ended: dict[int, None] = {}
    failed = 0
    for position, text in enumerate(lines, start=1):
        where = f"{path}, line {position}"
        try:
            line = _decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise HistoryError(f"{where}: not a line of a history: {error}.") from error
        if isinstance(line, _Header):
            if machine is not None or line.version != VERSION:
                raise HistoryError(f"{where}: a second start, or another version of the format.")
            machine = line.machine
        elif machine is None:
            raise HistoryError(f"{where}: the first line must name the machine.")
        elif isinstance(line, _Call):
            if line.number in calls or line.number in ended:
                raise HistoryError(f"{where}: operation {line.number} was called before.")
            calls[line.number] = _operation(line)
        else:
            if line.number not in calls or line.number in ended:
                raise HistoryError(f"{where}: operation {line.number} is not under way.")
            ended[line.number] = None
            if isinstance(line, _Return):
                calls[line.number] = _ended(calls[line.number], line)
            elif isinstance(line, _Failed):
                del calls[line.number]
                failed += 1
    if machine is None:
        raise HistoryError(f"{path} holds no history: it lacks its first line.")
    return History(machine, tuple(calls.values()), failed)


class _Blob(msgspec.Struct, frozen=True):
    """Bytes, told from a string."""

    blob: bytes


_Packed: TypeAlias = bool | int | str | _Blob | None


class _Header(msgspec.Struct, tag="history", tag_field="line"):
    version: int
    machine: str


class _Call(msgspec.Struct, tag="call", tag_field="line"):
    number: int
    client: str
    key: _Packed
    input: list[_Packed]
    at_ns: int


class _Return(msgspec.Struct, tag="return", tag_field="line"):
    number: int
    at_ns: int
    output: _Packed | msgspec.UnsetType = msgspec.UNSET


class _Unknown(msgspec.Struct, tag="unknown", tag_field="line"):
    number: int


class _Failed(msgspec.Struct, tag="failed", tag_field="line"):
    number: int


_Line: TypeAlias = _Header | _Call | _Return | _Unknown | _Failed
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def _pack(value: Value) -> _Packed:
    return _Blob(value) if isinstance(value, bytes) else value


def _unpack(value: _Packed) -> Value:
    return value.blob if isinstance(value, _Blob) else value


def _operation(line: _Call) -> Operation:
    inputs = tuple(_unpack(value) for value in line.input)
    return Operation(line.client, _unpack(line.key), inputs, UNKNOWN, line.at_ns, None)


def _ended(call: Operation, line: _Return) -> Operation:
    output: Output = UNKNOWN if line.output is UNKNOWN else _unpack(line.output)
    return replace(call, output=output, return_ns=line.at_ns)
