"""Following a path inside an inline value of TOML, whose tables may have dotted keys too."""

from __future__ import annotations

from typing import NamedTuple

from swell.config.formats.changes import Entry
from swell.config.formats.path import Steps
from swell.config.formats.toml_scanner import entries


class Inline(NamedTuple):
    """Where a path ends in an inline value.

    If it exists, `entry` holds it, in the container around it, and `value` to `end` is its text.
    If not, `missing` are the steps that the container lacks, and `before` is its last entry.
    """

    value: int
    end: int
    opening: int = 0
    closing: int = 0
    entries: tuple[Entry, ...] = ()
    before: Entry | None = None
    entry: Entry | None = None
    after: Entry | None = None
    missing: Steps = ()
    keys: tuple[str, ...] = ()
    """The parts of the entry's key."""


def find_inline(data: bytes, value: int, end: int, steps: Steps) -> Inline:
    """Follows the steps from the value at `value` to `end`."""
    found = Inline(value, end)
    if not steps and data[value : value + 1] == b"{":
        return found._replace(entries=tuple(entry for _, entry in entries(data, value)))
    while steps:
        opening, closing = found.value, found.end - 1
        written = list(entries(data, opening))
        places = tuple(entry for _, entry in written)
        for number, (key, entry) in enumerate(written):
            matched = key == steps[: len(key)] if key else number == steps[0]
            if matched:
                before = places[number - 1] if number else None
                after = places[number + 1] if number + 1 < len(places) else None
                found = Inline(
                    entry.value,
                    entry.end,
                    opening,
                    closing,
                    places,
                    before,
                    entry,
                    after,
                    keys=key,
                )
                steps = steps[len(key) or 1 :]
                break
        else:
            last = places[-1] if places else None
            return Inline(opening, closing, opening, closing, places, last, missing=steps)
    return found
