"""Where things are in a TOML text: sections, pairs, and the entries of inline values.

Paths are absolute: below the second `[[servers]]`, `host` has the path `servers[1].host`. The
scanner trusts that the text is valid, which `tomllib` has the last word on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from swell.config.formats.changes import Entry
from swell.config.formats.json_scanner import NESTING_MAX, TOO_DEEP
from swell.config.formats.path import Steps
from swell.config.formats.position import invalid_at

_STRING = (
    rb'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'
    rb"|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"
    rb'|"(?:[^"\\\n]++|\\.)*+"'
    rb"|'[^'\n]*+'"
)
_PART = rb"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')"""
_KEY = _PART + rb"(?:[ \t]*+\.[ \t]*+" + _PART + rb")*+"

_blank = re.compile(rb"[ \t]*+(?:#[^\n]*+)?(?:\r?\n|\Z)").match
_header = re.compile(rb"[ \t]*+\[(\[)?[ \t]*+(" + _KEY + rb")[ \t]*+\]\]?").match
_pair = re.compile(rb"[ \t]*+(" + _KEY + rb")[ \t]*+=[ \t]*+").match
_part = re.compile(_PART)
_string = re.compile(_STRING, re.DOTALL).match
_bare = re.compile(rb"[^,\]}#\r\n]++").match
_to_bracket = re.compile(
    rb"(?:[^\"'#{}\[\]]++|#[^\n]*+|" + _STRING + rb")*+([{}\[\]])", re.DOTALL
).match
_space = re.compile(rb"(?:[ \t\r\n]++|#[^\n]*+)*+").match


class Pair(NamedTuple):
    """`key = value`: its path, where key and value begin, and the value's end."""

    path: Steps
    start: int
    value: int
    end: int


class Section(NamedTuple):
    """A header with the pairs below it. The first section is the root, which has no header."""

    path: Steps
    start: int
    end: int
    pairs: list[Pair]

    @property
    def last(self) -> int:
        """Where its last pair ends, or its header."""
        return self.pairs[-1].end if self.pairs else self.end


def scan(data: bytes) -> list[Section]:
    """The sections of a document in order. Bounds how deep it nests."""
    sections = [Section((), 0, 0, [])]
    lengths: dict[Steps, int] = {}
    position = 0
    while position < len(data):
        if (match := _blank(data, position)) is not None:
            position = match.end()
            continue
        if (match := _header(data, position)) is not None:
            path = _header_path(key_parts(data, match[2], position), bool(match[1]), lengths)
            sections.append(Section(path, position, match.end(), []))
        elif (match := _pair(data, position)) is not None:
            path = sections[-1].path + key_parts(data, match[1], position)
            end = value_end(data, match.end(), len(path))
            sections[-1].pairs.append(Pair(path, match.start(1), match.end(), end))
            position = end
        else:
            raise invalid_at(data, position, "expected key = value, a [table] or a # comment")
        position = data.find(b"\n", max(position, match.end())) + 1 or len(data)
    return sections


def _header_path(parts: Steps, is_array: bool, lengths: dict[Steps, int]) -> Steps:
    """The absolute path of a header. `lengths` counts the elements of arrays of tables so far."""
    path: Steps = ()
    for part in parts[:-1]:
        path += (part,)
        if path in lengths:
            path += (lengths[path] - 1,)
    path += parts[-1:]
    if is_array:
        lengths[path] = lengths.get(path, 0) + 1
    return (*path, lengths[path] - 1) if is_array else path


def key_parts(data: bytes, key: bytes, position: int) -> tuple[str, ...]:
    """The parts of a dotted key."""
    parts = []
    for match in _part.finditer(key):
        part = match[0].decode()
        if part.startswith('"'):
            part = json.loads(re.sub(r"\\U([0-9a-fA-F]{8})", _long_escape, part), strict=False)
        elif part.startswith("'"):
            part = part[1:-1]
        parts.append(part)
    if len(parts) > NESTING_MAX:
        raise invalid_at(data, position, TOO_DEEP)
    return tuple(parts)


def _long_escape(match: re.Match[str]) -> str:
    return json.dumps(chr(int(match[1], 16)))[1:-1]


def value_end(data: bytes, position: int, depth: int = 0) -> int:
    """Where the value that begins at `position` ends; `depth` is that of its surroundings."""
    match = _string(data, position)
    if match is not None:
        return match.end()
    if data[position : position + 1] not in (b"[", b"{"):
        match = _bare(data, position)
        if match is None:
            raise invalid_at(data, position, "expected a value")
        return position + len(match[0].rstrip(b" \t"))
    start, outside = position, depth
    while True:
        match = _to_bracket(data, position)
        if match is None:
            raise invalid_at(data, start, "this bracket is never closed")
        position = match.end()
        depth += 1 if match[1] in b"{[" else -1
        if depth > NESTING_MAX:
            raise invalid_at(data, position - 1, TOO_DEEP)
        if depth == outside:
            return position


def entries(data: bytes, opening: int) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Key (empty in arrays) and place of each entry of an inline value."""
    is_table = data[opening : opening + 1] == b"{"
    closing = b"}" if is_table else b"]"
    position = _skip(data, opening + 1)
    while data[position : position + 1] != closing:
        start = position
        key: tuple[str, ...] = ()
        if is_table:
            match = _pair(data, position)
            if match is None:
                raise invalid_at(data, position, "expected key = value")
            key, position = key_parts(data, match[1], position), match.end()
        end = value_end(data, position)
        yield key, Entry(start, position, end)
        position = _skip(data, end)
        if data[position : position + 1] == b",":
            position = _skip(data, position + 1)
        elif data[position : position + 1] != closing:
            raise invalid_at(data, position, "expected a comma")


def _skip(data: bytes, position: int) -> int:
    match = _space(data, position)
    assert match is not None
    return match.end()
