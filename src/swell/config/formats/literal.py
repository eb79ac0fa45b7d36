"""New values as users write them: a JSON literal, otherwise a string.

`10`, `true`, `null`, `"x"`, `[1, 2]` and `{"a": 1}` are what they look like; `hello`, `10s` and
`NaN` are strings, and so is everything that is given as text.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from swell.config.formats import json_validity
from swell.config.formats.json_scanner import NESTING_MAX, TOO_DEEP
from swell.config.formats.position import encode
from swell.errors import InvalidContentError

Plain: TypeAlias = "bool | str | Number | list[Plain] | dict[str, Plain] | None"


class Number(tuple[str]):
    """A number by its text, which may have more digits than a float or a C integer."""

    __slots__ = ()

    @property
    def text(self) -> str:
        return self[0]


def _number(text: str) -> Number:
    return Number((text,))


def _refuse(constant: str) -> None:
    raise ValueError


_decoder = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_refuse)


def parse_json(data: bytes) -> Plain:
    """The plain form of valid JSON, numbers by their text."""
    plain: Plain = _decoder.decode(data.decode())
    return plain


def literal(value: str, as_text: bool) -> str | None:
    """The JSON text of a value that is a JSON literal, or None if it is a string to be quoted.

    `InvalidContentError` if it reads like JSON but has, for example, a key twice.
    """
    data = encode(value)
    if as_text:
        return None
    try:
        _decoder.decode(value)
    except ValueError:
        return None
    except RecursionError:
        raise InvalidContentError(1, 1, TOO_DEEP) from None
    json_validity.validate(data)
    return value.strip(" \t\r\n")


def parse_value(value: str, as_text: bool) -> Plain:
    """The plain form of a value."""
    text = literal(value, as_text)
    return value if text is None else parse_json(text.encode())


def check_depth(value: Plain, steps: int) -> None:
    """Raise unless a value may stand so many steps below the root."""
    level: list[Plain] = [value]
    while level := [inner for outer in level for inner in _inner(outer)]:
        steps += 1
        if steps > NESTING_MAX:
            raise InvalidContentError(1, 1, TOO_DEEP)


def _inner(value: Plain) -> list[Plain]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
