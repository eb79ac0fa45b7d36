"""Splices that change one place: trimmed to what differs, and inside brackets with their commas.

Brackets are the objects and arrays of JSON, the flow collections of YAML and the inline values of
TOML. An entry that is added takes the layout of the last one; one that is removed takes its comma
along; comments (`#`) between entries stay.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swell.config.splices import Splice

_comma = re.compile(rb"(?:[ \t\r\n]|#[^\n]*+)*+,")
_rest_of_line = re.compile(rb"[ \t]*+(?:#[^\r\n]*+)?")

GAP_BYTES_MAX = 4096
"""How far back the white space before an entry is looked at."""


class Entry(NamedTuple):
    """A member or element between brackets: where it begins, where its value does, and its end."""

    start: int
    value: int
    end: int


def replace(data: bytes, start: int, end: int, new: bytes) -> tuple[Splice, ...]:
    """`data[start:end]` becomes `new`, without what both have in common at their ends."""
    old = data[start:end]
    if old == new:
        return ()
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    return (Splice(start + head, len(old) - head - tail, new[head : len(new) - tail]),)


def _common(left: bytes, right: bytes) -> int:
    """How many leading bytes two values share: by halving, since comparing slices is fast."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def gap_before(data: bytes, position: int) -> bytes:
    """The white space that ends at a position."""
    before = data[max(position - GAP_BYTES_MAX, 0) : position]
    return before[len(before.rstrip(b" \t\r\n")) :]


def last_line(gap: bytes) -> bytes:
    """The last line break of white space and the indentation after it; empty if it has none."""
    at = gap.rfind(b"\n")
    if at < 0:
        return b""
    return gap[at - 1 if gap[at - 1 : at] == b"\r" else at :]


def line_break_of(data: bytes) -> bytes:
    """The line end that a text uses."""
    return b"\r\n" if b"\r\n" in data else b"\n"


def line_end(data: bytes, position: int) -> int:
    """Where the line ends that holds the byte before `position`, its line break included."""
    if position and data[position - 1 : position] == b"\n":
        return position
    return data.find(b"\n", position) + 1 or len(data)


def new_line(data: bytes, position: int, text: bytes) -> tuple[Splice, ...]:
    """Text on a line of its own, after the one that holds the byte before `position`."""
    end = line_end(data, position)
    line_break = line_break_of(data)
    if end and data[end - 1 : end] != b"\n":
        text = line_break + text
    return (Splice(end, 0, text + line_break),)


def append(
    data: bytes, last: Entry, closing: int, text: bytes, roomy: bool = True
) -> tuple[Splice, ...]:
    """A new entry after the last one, before the bracket at `closing`.

    Roomy: a blank follows the comma where no other entry shows what is usual.
    """
    gap = gap_before(data, last.start)
    line = last_line(gap)
    comma = _comma.match(data, last.end, closing)
    if not line:
        gap = gap or (b" " if roomy else b"")
        if comma is not None:
            return (Splice(comma.end(), 0, gap + text),)
        return (Splice(last.end, 0, b"," + gap + text),)
    after = last.end if comma is None else comma.end()
    rest = _rest_of_line.match(data, after, closing)
    assert rest is not None
    if comma is not None:
        return (Splice(rest.end(), 0, line + text + b","),)
    if b"#" not in rest[0]:
        return (Splice(last.end, 0, b"," + line + text),)
    return Splice(last.end, 0, b","), Splice(rest.end(), 0, line + text)


def remove(
    data: bytes,
    opening: int,
    closing: int,
    before: Entry | None,
    entry: Entry,
    after: Entry | None,
) -> tuple[Splice, ...]:
    """An entry and its comma go. `opening` and `closing` are the offsets of the brackets."""
    start, end = entry.start, entry.end
    if after is not None:
        if b"#" not in data[end : after.start]:
            return _cut(start, after.start)
        comma = _comma.match(data, end, after.start)
        return _cut(start, end if comma is None else comma.end())
    if before is not None:
        if b"#" not in data[before.end : start]:
            return _cut(before.end, end)
        comma = _comma.match(data, before.end, start)
        if comma is None:
            return _cut(start, end)
        return *_cut(comma.end() - 1, comma.end()), *_cut(start, end)
    if b"#" not in data[opening + 1 : start] + data[end:closing]:
        return _cut(opening + 1, closing)
    comma = _comma.match(data, end, closing)
    return _cut(start, end if comma is None else comma.end())


def _cut(start: int, end: int) -> tuple[Splice, ...]:
    return (Splice(start, end - start, b""),)
