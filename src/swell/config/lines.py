"""Lists: documents of sorted lines, `key TAB text LF`, that many change at the same time.

A change of one line is a splice at its place, whatever others do to other lines, so that changes
never conflict. The place is found by bisection over the beginnings of lines: what is read is of
the order of a line, not of the list. Keys are ordered by their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from swell.config.edits import Line
from swell.config.splices import Delta, Splice
from swell.errors import EditRefusedError, InvalidNameError

KEY_LENGTH_MAX = 255
LINE_BYTES_MAX = 16 * 1024
"""Of a line, with its key."""

WINDOW_BYTES = 512
"""Read at a time while the end of a line is looked for."""


class Readable(Protocol):
    """Bytes that need not lie in one piece (`swell.config.content.Content`)."""

    def __len__(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


class Place(NamedTuple):
    """Where the line of a key is, or would be: then `length` is 0 and there is no text."""

    offset: int
    length: int
    text: bytes | None


def check_key(key: str) -> str:
    """The key if a line may have it, else `InvalidNameError`."""
    if not 0 < len(key) <= KEY_LENGTH_MAX or " " in key or not key.isprintable():
        raise InvalidNameError(
            f"{key[:KEY_LENGTH_MAX]!a} is no key of a line:"
            f" use 1 to {KEY_LENGTH_MAX} visible characters"
        )
    return key


def encode_line(key: str, text: str) -> bytes:
    """A line of a list; an error if it cannot be one."""
    line = f"{check_key(key)}\t{text}\n".encode()
    if len(line) > LINE_BYTES_MAX:
        raise EditRefusedError(f"the line of {key} has {len(line)} bytes, at most {LINE_BYTES_MAX}")
    if "\n" in text:
        raise EditRefusedError(f"the text of {key} has several lines: write it in one")
    return line


def find(content: Readable, key: str) -> Place:
    """Where the line of a key is, or belongs."""
    wanted = key.encode()
    low, high = 0, len(content)
    while low < high:
        middle = _line_start(content, low, (low + high) // 2)
        line = _line(content, middle)
        found, _, text = line.partition(b"\t")
        if found == wanted:
            return Place(middle, len(line), text[:-1])
        if found < wanted:
            low = middle + len(line)
        else:
            high = middle
    return Place(low, 0, None)


def resolve(content: Readable, lines: Sequence[Line]) -> Delta:
    """The splices that change these lines; none where nothing changes or `only` does not hold."""
    splices = []
    for line in sorted(lines, key=lambda line: line.key.encode()):
        new = encode_line(line.key, line.text) if line.text is not None else b""
        offset, length, text = find(content, check_key(line.key))
        if not _allows(line.only, text):
            continue
        if (b"" if text is None else f"{line.key}\t".encode() + text + b"\n") != new:
            splices.append(Splice(offset, length, new))
    if len({line.key for line in lines}) != len(lines):
        raise EditRefusedError("an edit changes a line twice: join the two")
    return tuple(splices)


def _allows(only: str | None, text: bytes | None) -> bool:
    if only is None:
        return True
    if not only:
        return text is None
    return text is not None and text.startswith(only.encode())


def _line_start(content: Readable, low: int, at: int) -> int:
    """The beginning of the line that this byte belongs to; lines begin at `low` too."""
    while at > low:
        start = max(low, at - WINDOW_BYTES)
        window = content.read(start, at - start)
        newline = window.rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return low


def _line(content: Readable, start: int) -> bytes:
    """The line that begins here, with its end."""
    parts = []
    while True:
        window = content.read(start, WINDOW_BYTES)
        newline = window.find(b"\n")
        if newline >= 0 or not window:
            parts.append(window[: newline + 1])
            return b"".join(parts)
        parts.append(window)
        start += len(window)
