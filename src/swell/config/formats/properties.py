r"""Key=value files (.properties, .env, .ini): validation and edits of one key.

A line is `key=value` or `key: value`; one that ends in a backslash goes on in the next. Lines that
begin with `#`, `!` or `;` are comments. If a key is there several times, the last one counts.
Below a line `[section]`, keys belong to the section: the path of `size` in `[pool]` is `pool.size`.
Elsewhere dots are part of the key: `database.pool.size=10` has the path `database.pool.size`.

Values are text and are written as given, since files differ in what they escape; with `as_text`
backslashes and line breaks are escaped as Java's properties do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from swell.config.formats.changes import replace
from swell.config.formats.path import Steps, existing, not_found, show_path
from swell.config.formats.position import decode, encode, invalid_at
from swell.config.splices import Splice, apply_to
from swell.errors import EditRefusedError, InvalidPathError

_line = re.compile(
    rb"(?P<blank>[ \t\f]*+(?:[#!;][^\r\n]*+)?(?=[\r\n]|\Z))"
    rb"|[ \t\f]*+\[(?P<section>[^\]\r\n]*+)\][ \t\f]*+(?:[#;][^\r\n]*+)?(?=[\r\n]|\Z)"
    rb"|(?P<head>[ \t\f]*+(?:export[ \t]++(?![=:]))?)"
    rb"(?P<key>(?:[^\\\r\n=:]|\\[^\r\n])*+)(?P<sign>[=:][ \t\f]*+)"
    rb"(?P<value>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]|\Z))*+)"
)
_end = re.compile(rb"\r\n|\n|\r|\Z")
_BOM = b"\xef\xbb\xbf"


class _Line(NamedTuple):
    """A logical line with a key, or (without one) a `[section]`. `end` is before the line break,
    `sign` what stands between key and value."""

    start: int
    end: int
    section: bytes
    key: bytes = b""
    head: bytes = b""
    sign: bytes = b""
    value: int = 0


def validate(data: bytes) -> None:
    """Raise `InvalidContentError` unless every line is a key with a value, or a comment."""
    decode(data)
    for _ in _lines(data):
        pass


def get(data: bytes, steps: Steps) -> bytes:
    """The value of a key, as it is written."""
    line = _find(data, _key_of(existing(steps)))
    if line is None:
        raise not_found(steps, 0)
    return data[line.value : line.end]


def set_value(data: bytes, steps: Steps, value: str, as_text: bool) -> tuple[Splice, ...]:
    """The splices that make `value` the value of a key."""
    key = _key_of(steps)
    new = encode(_escaped(value) if as_text else value)
    if b"\n" in new or b"\r" in new or (len(new) - len(new.rstrip(b"\\"))) % 2:
        raise EditRefusedError(
            f"the value of {show_path(steps)} must be one line that does not end in a backslash:"
            " give it as text, so that it is escaped"
        )
    if not as_text and new != new.lstrip(b" \t\f"):
        raise EditRefusedError(
            f"blanks before the value of {show_path(steps)} would be lost: give it as text"
        )
    line = _find(data, key)
    if line is not None:
        return replace(data, line.value, line.end, new)
    splices = _added(data, key, new)
    added = _find(apply_to(data, splices), key)
    if added is None or added.end - added.value != len(new):
        raise EditRefusedError(
            f"{show_path(steps)} cannot be added to lines that go on: change the text"
            " and put it as a whole"
        )
    return splices


def unset(data: bytes, steps: Steps) -> tuple[Splice, ...]:
    """The splices that remove a key, wherever it is given."""
    key = _key_of(existing(steps))
    splices = []
    for line in _lines(data):
        if line.key and _full_key(line) == key:
            splices.append(Splice(line.start, _after(data, line.end) - line.start, b""))
    if not splices:
        raise not_found(steps, 0)
    return tuple(splices)


def _key_of(steps: Steps) -> bytes:
    if len(steps) == 1 and isinstance(steps[0], str):
        key = steps[0]
    elif any(not isinstance(step, str | int) for step in steps):
        raise InvalidPathError("key=value files have no lists to append to: leave out [-]")
    else:
        key = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)[1:]
    if not key.strip() or key != key.strip() or "\n" in key or "\r" in key:
        raise InvalidPathError(f"{key!r} cannot be a key: use letters, digits, dots and dashes")
    return encode(key)


def _lines(data: bytes) -> Iterator[_Line]:
    """All but blanks and comments, in order; `InvalidContentError` at anything else."""
    position = len(_BOM) if data.startswith(_BOM) else 0
    section = b""
    while position < len(data):
        match = _line.match(data, position)
        if match is None:
            raise invalid_at(data, position, "expected key=value, a [section] or a # comment")
        if match["section"] is not None:
            section = match["section"].strip()
            yield _Line(position, match.end(), section)
        elif match["blank"] is None:
            key = match["key"].rstrip(b" \t\f")
            if not key:
                raise invalid_at(data, match.start("sign"), "expected a key before this sign")
            sign = data[match.start("key") + len(key) : match.start("value")]
            value = match.start("value")
            yield _Line(position, match.end(), section, key, match["head"], sign, value)
        position = _after(data, match.end())


def _after(data: bytes, end: int) -> int:
    """The beginning of the next line."""
    match = _end.match(data, end)
    assert match is not None
    return match.end()


def _full_key(line: _Line) -> bytes:
    key = re.sub(rb"\\(.)", rb"\1", line.key) if b"\\" in line.key else line.key
    return line.section + b"." + key if line.section else key


def _find(data: bytes, key: bytes) -> _Line | None:
    found = None
    for line in _lines(data):
        if line.key and (line.key in key or b"\\" in line.key):
            found = line if _full_key(line) == key else found
    return found


def _escaped(value: str) -> str:
    for plain, escape in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escape)
    return "\\" + value if value[:1] in (" ", "\t", "\f") else value


def _added(data: bytes, key: bytes, new: bytes) -> tuple[Splice, ...]:
    """A line after the last one of the section that the key belongs to, in the manner of it."""
    position, model, section = _place(data, key)
    name = key[len(section) + 1 :] if section else key
    name = re.sub(rb"([\\=:]|^[#!;\[])", rb"\\\1", name)
    head, sign = (model.head, model.sign) if model is not None else (b"", b"=")
    line_break = b"\r\n" if b"\r\n" in data else b"\n"
    text = head + name + sign + new + line_break
    if position and data[position - 1 : position] not in (b"\n", b"\r") and data != _BOM:
        text = line_break + text
    return (Splice(position, 0, text),)


def _place(data: bytes, key: bytes) -> tuple[int, _Line | None, bytes]:
    """Where a new key goes: the offset, a line to imitate, and the section."""
    top = len(_BOM) if data.startswith(_BOM) else 0
    best: tuple[int, _Line | None, bytes] | None = None
    sections = False
    for line in _lines(data):
        sections = sections or not line.key
        section = line.section
        if section and not key.startswith(section + b"."):
            continue
        if best is None or len(section) >= len(best[2]):
            best = _after(data, line.end), line if line.key else None, section
    if sections:
        return best or (top, None, b"")
    return len(data), best[1] if best else None, b""
