"""Where things are in a JSON text, without building what is passed over.

The scanner finds the entries of a container and the ends of values by compiled patterns on the
bytes; a container that is skipped costs one match per bracket and no object. It trusts scalars
that it passes over: `json_validity` is the one that looks at every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from swell.config.formats.changes import Entry
from swell.config.formats.position import invalid_at

NESTING_MAX = 256
LEAPS_MAX = 8
"""Places that are looked at because they might be the key that is wanted."""

TOO_DEEP = f"nested deeper than {NESTING_MAX}: make it flatter"

STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
SPACE = rb"[ \t\n\r]*+"

_space = re.compile(SPACE).match
_key = re.compile(rb"(" + STRING + rb")" + SPACE + rb":" + SPACE, re.DOTALL).match
_scalar = re.compile(STRING + rb'|[^ \t\n\r"{}\[\],:]++', re.DOTALL).match
_to_bracket = re.compile(
    rb'[^"{}\[\]]*+(?:' + STRING + rb'[^"{}\[\]]*+)*+([{}\[\]])', re.DOTALL
).match


def skip_space(data: bytes, position: int) -> int:
    """The offset of the next byte that is not white space."""
    match = _space(data, position)
    assert match is not None
    return match.end()


def root(data: bytes) -> int:
    """The offset of the document's value."""
    return skip_space(data, 0)


def value_end(data: bytes, position: int) -> int:
    """Where the value that begins at `position` ends."""
    if data[position : position + 1] in (b"{", b"["):
        return container_end(data, position)
    match = _scalar(data, position)
    if match is None:
        raise invalid_at(data, position, "expected a value")
    return match.end()


def container_end(data: bytes, position: int) -> int:
    """Where the container that begins at `position` ends. Bounds how deep it nests."""
    depth = 0
    start = position
    while True:
        match = _to_bracket(data, position)
        if match is None:
            raise invalid_at(data, start, "this bracket is never closed")
        position = match.end()
        if match[1] in b"{[":
            depth += 1
            if depth > NESTING_MAX:
                raise invalid_at(data, position - 1, TOO_DEEP)
        else:
            depth -= 1
            if not depth:
                return position


class Head(NamedTuple):
    """The beginning of an entry: its key as it is written (empty in arrays), where it and its
    value begin, and the entry before it. The last one is the closing bracket, under the key `}`."""

    key: bytes
    start: int
    value: int
    before: Entry | None


def heads(
    data: bytes, opening: int, start: int = -1, before: Entry | None = None
) -> Iterator[Head]:
    """The entries of a container; from the one that begins at `start`, with `before` ahead of it.
    A value is passed over only when the next one is asked for."""
    is_object = data[opening : opening + 1] == b"{"
    closing = b"}" if is_object else b"]"
    position = skip_space(data, opening + 1) if start < 0 else start
    inside = start >= 0
    while True:
        if not inside:
            if data[position : position + 1] == closing:
                yield Head(b"}", position, position, before)
                return
            if before is not None:
                if data[position : position + 1] != b",":
                    raise invalid_at(data, position, f"expected a comma or {closing.decode()}")
                position = skip_space(data, position + 1)
        inside = False
        start, key = position, b""
        if is_object:
            match = _key(data, position)
            if match is None:
                raise invalid_at(data, position, "expected a key in quotes and a colon")
            key, position = match[1], match.end()
        yield Head(key, start, position, before)
        before = Entry(start, position, value_end(data, position))
        position = skip_space(data, before.end)


class Leap(NamedTuple):
    """An entry that was found without looking at those before it, but for the last of them."""

    start: int
    before: Entry | None


def leap(data: bytes, opening: int, encoded: bytes) -> Leap | None:
    """The first entry of an object under a key that is written as `encoded`, in a valid text; None
    if that cannot be told from afar. It can if nothing ahead of it is escaped or nested: then
    quotes come in pairs, and a key is what stands behind a comma and before a colon."""
    start = opening
    for _ in range(LEAPS_MAX):
        start = data.find(encoded, start + 1)
        if start < 0 or any(data.find(mark, opening + 1, start) >= 0 for mark in _NOT_FLAT):
            return None
        comma = _last_visible(data, start)
        if (
            data[comma] in b",{"
            and data.count(b'"', opening, start) % 2 == 0
            and _key(data, start) is not None
        ):
            return Leap(start, None if comma == opening else _entry_before(data, comma))
    return None


_NOT_FLAT = (b"\\", b"{", b"}", b"[")


def _last_visible(data: bytes, position: int) -> int:
    """The offset of the last byte ahead of `position` that is not white space."""
    position -= 1
    while data[position] in b" \t\n\r":
        position -= 1
    return position


def _entry_before(data: bytes, comma: int) -> Entry:
    """The flat entry that ends ahead of a comma."""
    last = _last_visible(data, comma)
    if data[last] == _QUOTE:
        value = data.rfind(b'"', 0, last)
        colon = data.rfind(b":", 0, value)
    else:
        colon = data.rfind(b":", 0, last)
        value = skip_space(data, colon + 1)
    key_end = data.rfind(b'"', 0, colon)
    return Entry(data.rfind(b'"', 0, key_end), value, last + 1)


_QUOTE = ord('"')


def same_key(written: bytes, key: str, encoded: bytes) -> bool:
    """Whether a key as it is written means `key`, whose plain encoding is `encoded`."""
    if written == encoded:
        return True
    if b"\\" not in written:
        return False
    try:
        return bool(json.loads(written) == key)
    except ValueError:
        return False
