"""Whether bytes are JSON that every reader understands alike.

Stricter than the standard library's reader, which does the bulk of the work: strict UTF-8 without
byte order mark, no NaN and Infinity, no key twice in an object, no half surrogate pairs, at most
256 levels. Numbers are never converted, so their length costs nothing. Nothing is built: every
object is dropped as soon as its keys are compared.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from swell.config.formats.json_scanner import (
    NESTING_MAX,
    SPACE,
    STRING,
    TOO_DEEP,
    container_end,
    root,
    skip_space,
)
from swell.config.formats.position import decode, invalid_at
from swell.config.splices import Delta
from swell.errors import InvalidContentError

QUICK_BYTES_MAX = 64 * 1024
"""A fast reader is tried first on texts up to this length; longer ones are read off the loop, where
nothing may be built that is as large as they are."""

RUN_KEYS_MAX = 4096
"""Keys of an object that are looked at in one go."""

_SENTENCES = {
    "Expecting value": "expected a value",
    "Expecting ',' delimiter": "expected a comma",
    "Expecting ':' delimiter": "expected a colon",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Unterminated string starting at": "this string is never closed",
    "Invalid control character at": "a control character in a string: write it as an escape",
    "Invalid \\escape": "this escape does not exist in JSON",
    "Invalid \\uXXXX escape": "an escape \\u needs four hexadecimal digits",
    "Extra data": "something follows the end of the document: remove it",
}

_constant = re.compile(STRING + rb"|(-?Infinity|NaN)", re.DOTALL)
_token = re.compile(rb"(" + STRING + rb")(" + SPACE + rb":)?|([{}\[\]])", re.DOTALL)
_HIGH, _LOW = rb"[dD][89abAB][0-9a-fA-F]{2}", rb"[dD][c-fC-F][0-9a-fA-F]{2}"
_surrogate = re.compile(rb"\\u[dD][89a-fA-F]").search
_escape = re.compile(rb"\\(?:u" + _HIGH + rb"\\u" + _LOW + rb"|(u[dD][89a-fA-F])|.)", re.DOTALL)


class _NotStrictError(ValueError):
    """What the standard library would let pass."""


def validate(data: bytes) -> None:
    """Raise `InvalidContentError` unless `data` is strict JSON."""
    text = decode(data)
    if len(data) <= QUICK_BYTES_MAX and is_plainly_valid(data):
        return
    if text.startswith("\ufeff"):
        raise invalid_at(data, 0, "a byte order mark: save the text without it")
    _bound_nesting(data)
    try:
        _decoder.decode(text)
    except json.JSONDecodeError as error:
        problem = _SENTENCES.get(error.msg, error.msg[:1].lower() + error.msg[1:])
        raise InvalidContentError(error.lineno, error.colno, problem) from None
    except _NotStrictError:
        raise _not_strict(data) from None
    if _surrogate(data):
        for match in _escape.finditer(data):
            if match[1] is not None:
                raise invalid_at(data, match.start(), "half of a surrogate pair: write both halves")


def stays_valid(base: bytes, splices: Delta) -> bool:
    """Whether valid JSON is certain to stay so: plain characters are changed within a string that
    is no key. Nothing is escaped up to there, so quotes come in pairs."""
    if len(splices) != 1:
        return False
    ((offset, length, data),) = splices
    end = offset + length
    close = base.find(b'"', end)
    if (
        close < 0
        or base[offset] >= 0x80  # perhaps within a character
        or _plain(data) is None
        or _plain(base, offset, end) is None
        or base.find(b"\\", 0, close) >= 0
        or base.count(b'"', 0, offset) % 2 == 0
    ):
        return False
    after = skip_space(base, close + 1)
    return base[after : after + 1] != b":"


_plain = re.compile(rb"[ !#-\[\]-~]*+").fullmatch


def is_plainly_valid(data: bytes) -> bool:
    """Whether this UTF-8 text is strict JSON for certain, by a fast reader and by counting. False
    says nothing: it may have an escape, deep nesting, or colons in strings that hide whether a key
    is there twice."""
    containers = data.count(b"{") + data.count(b"[")
    if containers > NESTING_MAX or b"\\u" in data:
        return False
    try:
        value = _read(data)
    except (ValueError, RecursionError):  # the other reader says what is wrong, and where
        return False
    keys = _keys_in(value, containers)
    # Keys that stand twice have become one. Each is followed by a colon, next to a quote or to
    # white space: so there are as many at least, and as many at most.
    return keys == data.count(b":") or keys == sum(map(data.count, _KEY_ENDS))


def _keys_in(value: Any, containers: int) -> int:
    """Of all objects. `containers`: how many there are at most."""
    if containers == 1:
        return len(value) if type(value) is dict else 0
    keys, within = 0, [value]
    while within:
        value = within.pop()
        if type(value) is dict:
            keys += len(value)
            within += [one for one in value.values() if type(one) in _CONTAINERS]
        elif type(value) is list:
            within += [one for one in value if type(one) in _CONTAINERS]
    return keys


_read = msgspec.json.Decoder().decode
_CONTAINERS = (dict, list)
_KEY_ENDS = (b'":', b" :", b"\t:", b"\n:", b"\r:")


def _bound_nesting(data: bytes) -> None:
    try:
        position = root(data)
        if data[position : position + 1] in (b"{", b"["):
            container_end(data, position)
    except InvalidContentError as error:
        if error.problem == TOO_DEEP:  # the reader describes everything else better
            raise


def _unique(pairs: list[tuple[str, None]]) -> None:
    """A long object is taken apart in runs, so that other threads have their turns in between."""
    if len(pairs) <= RUN_KEYS_MAX:
        if len(dict(pairs)) != len(pairs):
            raise _NotStrictError
        return
    count, keys = len(pairs), set[str]()
    while pairs:
        keys.update([key for key, _ in pairs[-RUN_KEYS_MAX:]])
        del pairs[-RUN_KEYS_MAX:]
    if len(keys) != count:
        raise _NotStrictError


def _number(text: str) -> None:
    """Leaves numbers alone. Being Python, it lets other threads run while a large text is read."""


def _refuse(constant: str) -> None:
    raise _NotStrictError


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_refuse
)


def _not_strict(data: bytes) -> InvalidContentError:
    """Finds the first constant or repeated key, in a document that has one."""
    constant = next((m for m in _constant.finditer(data) if m[1] is not None), None)
    limit = len(data) if constant is None else constant.start()
    levels: list[set[str]] = []
    for match in _token.finditer(data, 0, limit):
        string, colon, bracket = match.groups()
        if bracket is not None:
            if bracket in b"{[":
                levels.append(set())
            elif levels:
                levels.pop()
        elif colon is not None and levels:
            key = json.loads(string, strict=False)
            if key in levels[-1]:
                return invalid_at(data, match.start(), f"the key {key!r} is here twice: keep one")
            levels[-1].add(key)
    assert constant is not None
    name = constant[1].decode()
    return invalid_at(data, constant.start(), f"{name} is not JSON: write a number or null")
