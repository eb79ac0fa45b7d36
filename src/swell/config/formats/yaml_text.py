"""How new values are written in YAML: plain where no reader can misread it, else in quotes."""

from __future__ import annotations

import json
import re

from swell.config.formats.literal import Number, Plain
from swell.config.formats.path import Steps
from swell.config.formats.yaml_nodes import resolve

_plain = re.compile(r"[A-Za-z_/][\w./@%+-]*(?: [\w./@%+()-]+)*", re.ASCII).fullmatch
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
"""What some readers (YAML 1.1) take for something else than a string."""

_unprintable = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_line_or_control = re.compile("[\x00-\x1f]")


def string(value: str, quote: str = "") -> str:
    """The text of a string; in these quotes if any are wanted."""
    if not quote and _plain(value) and value.lower() not in _WORDS and resolve(value) == "str":
        return value
    if quote == "'" and not _unprintable.search(value) and not _line_or_control.search(value):
        return "'" + value.replace("'", "''") + "'"
    text = json.dumps(value, ensure_ascii=False)
    return _unprintable.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def flow(value: Plain, quote: str = "") -> str:
    """The text of a value on one line."""
    if isinstance(value, str):
        return string(value, quote)
    if isinstance(value, dict):
        inside = (f"{string(key, quote)}: {flow(inner, quote)}" for key, inner in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(inner, quote) for inner in value) + "]"
    return value.text if isinstance(value, Number) else json.dumps(value)


def flow_nested(steps: Steps, text: str, quote: str = "") -> str:
    """Text inside flow collections for all these steps."""
    for step in reversed(steps):
        text = f"{{{string(step, quote)}: {text}}}" if isinstance(step, str) else f"[{text}]"
    return text


def flow_entry(missing: Steps, text: str, quote: str = "") -> str:
    """An entry of a flow collection, with collections for all steps that follow."""
    first, text = missing[0], flow_nested(missing[1:], text, quote)
    return f"{string(first, quote)}: {text}" if isinstance(first, str) else text


def block_entry(
    missing: Steps, text: str, column: int, unit: int, line_break: str, quote: str = ""
) -> str:
    """An entry of a block collection at a column; its first line is not indented."""
    step, rest = missing[0], missing[1:]
    if not isinstance(step, str):
        if not rest:
            return f"- {text}"
        return "- " + block_entry(rest, text, column + 2, unit, line_break, quote)
    key = string(step, quote)
    if not rest:
        return f"{key}: {text}"
    below = column + unit
    inner = block_entry(rest, text, below, unit, line_break, quote)
    return f"{key}:{line_break}{' ' * below}{inner}"
