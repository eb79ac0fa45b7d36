"""The formats of configurations, what is valid in each, and edits of one path.

The suffix of a configuration's name tells its format. All functions are pure and take and return
bytes; they are linear in the size of the value, so long values belong off the loop. An edit is
given as splices of the value: what they do not touch survives byte for byte, with its comments,
order and layout. The value is expected to be valid: an edit looks closely only at its path.
(Ripple's configurations are any text or bytes; edits of paths make its incremental updates.)
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Protocol

from swell.config.formats import (
    json_edits,
    json_validity,
    properties,
    toml_edits,
    toml_validity,
    xml_validity,
    yaml_edits,
    yaml_nodes,
)
from swell.config.formats.path import Steps, parse_path
from swell.config.formats.position import decode
from swell.config.splices import Delta, Splice
from swell.errors import EditRefusedError

NAMES_MAX = 4096
"""Names whose format is remembered."""


class Format(Enum):
    """What a configuration's bytes mean."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    TOML = "toml"
    PROPERTIES = "properties"
    XML = "xml"


_SUFFIXES = {
    ".json": Format.JSON,
    ".yaml": Format.YAML,
    ".yml": Format.YAML,
    ".toml": Format.TOML,
    ".properties": Format.PROPERTIES,
    ".env": Format.PROPERTIES,
    ".ini": Format.PROPERTIES,
    ".xml": Format.XML,
    ".txt": Format.TEXT,
    ".conf": Format.TEXT,
}


class _Edits(Protocol):
    """What a module of edits offers."""

    def get(self, data: bytes, steps: Steps) -> bytes: ...

    def set_value(
        self, data: bytes, steps: Steps, value: str, as_text: bool
    ) -> tuple[Splice, ...]: ...

    def unset(self, data: bytes, steps: Steps) -> tuple[Splice, ...]: ...


_EDITS: dict[Format, _Edits] = {
    Format.JSON: json_edits,
    Format.YAML: yaml_edits,
    Format.TOML: toml_edits,
    Format.PROPERTIES: properties,
}


@lru_cache(NAMES_MAX)
def format_of(name: str) -> Format:
    """The format that a configuration's name tells; bytes if its suffix is unknown."""
    dot = name.rfind(".")
    return _SUFFIXES.get(name[dot:].lower(), Format.BYTES) if dot >= 0 else Format.BYTES


def validate(format: Format, data: bytes) -> None:
    """Raise `InvalidContentError`, with line and column, unless `data` is of this format."""
    match format:
        case Format.JSON:
            json_validity.validate(data)
        case Format.YAML:
            yaml_nodes.validate(data)
        case Format.TOML:
            toml_validity.validate(data)
        case Format.PROPERTIES:
            properties.validate(data)
        case Format.XML:
            xml_validity.validate(data)
        case Format.TEXT:
            decode(data)
        case Format.BYTES:
            pass


def stays_valid(format: Format, base: bytes, splices: Delta) -> bool:
    """Whether what a delta makes of a valid value is certain to be valid too, without looking at
    all of it."""
    if format is Format.JSON:
        return json_validity.stays_valid(base, splices)
    return format is Format.BYTES


def get_path(format: Format, data: bytes, path: str) -> bytes:
    """The text of the value at a path, as it is written."""
    return _edits(format).get(data, parse_path(path))


def set_path(
    format: Format, data: bytes, path: str, value: str, as_text: bool = False
) -> tuple[Splice, ...]:
    """The splices that make `value` the one at a path; none if it is already.

    The value is a JSON literal, otherwise a string; with `as_text` always a string. Missing
    mappings on the way are made; `[-]` appends to a list and makes one where there is none.
    """
    return _edits(format).set_value(data, parse_path(path), value, as_text)


def unset_path(format: Format, data: bytes, path: str) -> tuple[Splice, ...]:
    """The splices that remove what is at a path."""
    return _edits(format).unset(data, parse_path(path))


def _edits(format: Format) -> _Edits:
    edits = _EDITS.get(format)
    if edits is None:
        raise EditRefusedError(
            f"{format.value} has no paths (JSON, YAML, TOML and key=value have): put it as a whole"
        )
    return edits
