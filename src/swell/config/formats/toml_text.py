"""How keys and new values are written in TOML, and when two values are the same."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from swell.config.formats.literal import Number, Plain, parse_value
from swell.config.formats.path import Steps
from swell.config.formats.position import encode
from swell.errors import EditRefusedError

_bare = re.compile(r"[A-Za-z0-9_-]+").fullmatch


def new_value(value: str, as_text: bool) -> str:
    """The text of a value: a TOML or JSON literal, otherwise a string."""
    encode(value)
    if not as_text and is_literal(value):
        return value.strip()
    return inline(parse_value(value, as_text))


def is_literal(value: str) -> bool:
    """Whether a text is one TOML value."""
    try:
        return list(tomllib.loads(f"v = {value.strip()}\n")) == ["v"]
    except (ValueError, RecursionError):
        return False


def string(value: str) -> str:
    """A basic string."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline(value: Plain) -> str:
    """The text of a value on one line."""
    if isinstance(value, dict):
        pairs = (f"{dotted((key,))} = {inline(inner)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(inner) for inner in value) + "]"
    if value is None:
        raise EditRefusedError("TOML has no null: unset the path instead")
    if isinstance(value, Number):
        return value.text
    return string(value) if isinstance(value, str) else json.dumps(value)


def dotted(keys: Steps) -> str:
    """Keys joined by dots; indexes are left out, as in headers."""
    parts = (key for key in keys if isinstance(key, str))
    return ".".join(part if _bare(part) else string(part) for part in parts)


def split_keys(steps: Steps) -> tuple[Steps, Steps]:
    """The leading keys of some steps, and the rest, which begins with a list."""
    count = next((n for n, step in enumerate(steps) if not isinstance(step, str)), len(steps))
    return steps[:count], steps[count:]


def nested(steps: Steps, text: str) -> str:
    """Text inside inline values for all these steps."""
    if not steps:
        return text
    keys, rest = split_keys(steps)
    if not keys:
        return f"[{nested(rest[1:], text)}]"
    return f"{{{dotted(keys)} = {nested(rest, text)}}}"


def entry(steps: Steps, text: str) -> str:
    """An entry of an inline table or array."""
    keys, rest = split_keys(steps)
    return f"{dotted(keys)} = {nested(rest, text)}" if keys else nested(rest[1:], text)


def canonical(value: Any) -> Any:
    """A form in which equal values are the same: 1, 1.0 and true differ, nan equals nan."""
    if isinstance(value, dict):
        return {key: canonical(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [canonical(inner) for inner in value]
    return type(value).__name__, repr(value)
