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


def heads(data: bytes, opening: int) -> Iterator[Head]:
    """The entries of a container. A value is passed over only when the next one is asked for."""
    is_object = data[opening : opening + 1] == b"{"
    closing = b"}" if is_object else b"]"
    position = skip_space(data, opening + 1)
    before: Entry | None = None
    while True:
        if data[position : position + 1] == closing:
            yield Head(b"}", position, position, before)
            return
        if before is not None:
            if data[position : position + 1] != b",":
                raise invalid_at(data, position, f"expected a comma or {closing.decode()}")
            position = skip_space(data, position + 1)
        start, key = position, b""
        if is_object:
            match = _key(data, position)
            if match is None:
                raise invalid_at(data, position, "expected a key in quotes and a colon")
            key, position = match[1], match.end()
        yield Head(key, start, position, before)
        before = Entry(start, position, value_end(data, position))
        position = skip_space(data, before.end)


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
