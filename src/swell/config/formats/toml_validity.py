"""Whether bytes are TOML: `tomllib` decides; depth and number length are bounded before it runs,
since it recurses and is slow on very long keys."""

from __future__ import annotations

import re
import tomllib
from typing import Any, TypeAlias

from swell.config.formats.json_scanner import TOO_DEEP
from swell.config.formats.position import decode, invalid_at
from swell.config.formats.toml_scanner import scan
from swell.errors import InvalidContentError

Table: TypeAlias = "dict[str, Any]"

_position = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_long_number = re.compile(rb"[0-9_]{4000,}").search


def validate(data: bytes) -> None:
    """Raise `InvalidContentError` unless `data` is TOML."""
    load(data)


def load(data: bytes) -> Table:
    """The document in plain form; `InvalidContentError` if it is not valid."""
    text = decode(data)
    try:
        scan(data)
    except InvalidContentError as error:
        if error.problem == TOO_DEEP:  # tomllib describes everything else better
            raise
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _position.fullmatch(str(error))
        problem = match[1] if match else str(error)
        problem = problem[:1].lower() + problem[1:]
        if match and match[2]:
            raise InvalidContentError(int(match[2]), int(match[3]), problem) from None
        raise invalid_at(data, len(data), problem) from None
    except RecursionError:
        raise InvalidContentError(1, 1, TOO_DEEP) from None
    except ValueError:
        number = _long_number(data)
        position = number.start() if number is not None else 0
        raise invalid_at(data, position, "a number that no reader takes: make it shorter") from None
