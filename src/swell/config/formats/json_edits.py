"""Edits of one path of a JSON text.

The path is followed by the scanner, so only what lies on it is looked at closely. A new member
takes the indentation, spacing and line ends of its siblings; in an empty object those of the
objects around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from swell.config.formats.changes import Entry, append, gap_before, last_line, remove, replace
from swell.config.formats.json_scanner import (
    Head,
    heads,
    leap,
    root,
    same_key,
    skip_space,
    value_end,
)
from swell.config.formats.literal import Plain, check_depth, literal, parse_json
from swell.config.formats.path import (
    END,
    Steps,
    existing,
    no_element,
    not_a,
    not_found,
    wanted,
)
from swell.config.splices import Splice

INDENTATION = b"  "


class _Spot(NamedTuple):
    """Where a step leads to: its container, the container's first entry, and the entry it names.

    Without `found` there is none yet: `closing` is then where the container ends.
    """

    opening: int
    first: int
    before: Entry | None
    found: Head | None
    closing: int
    following: Iterator[Head]


def get(data: bytes, steps: Steps) -> bytes:
    """The text of the value at a path."""
    value = _follow(data, existing(steps))
    return data[value : value_end(data, value)]


def set_value(data: bytes, steps: Steps, value: str, as_text: bool) -> tuple[Splice, ...]:
    """The splices that make `value` the one at a path."""
    text = literal(value, as_text)
    new = (json.dumps(value, ensure_ascii=False) if text is None else text).encode()
    plain: Plain = value if text is None else parse_json(text.encode())
    check_depth(plain, len(steps))
    spots: list[_Spot] = []
    start = root(data)
    for depth in range(len(steps)):
        spot = _spot(data, start, steps, depth)
        spots.append(spot)
        if spot.found is None:
            if isinstance(steps[depth], int):
                raise no_element(steps, depth)
            return _insert(data, spots, steps[depth:], steps, new)
        start = spot.found.value
    end = value_end(data, start)
    present = data[start:end]
    differs = _is_plain(present) and _is_plain(new)
    if present == new or (not differs and _same(present, plain)):
        return ()
    return replace(data, start, end, new)


def _is_plain(text: bytes) -> bool:
    """A string without escapes: another one of that kind means something else."""
    return text[:1] == b'"' and b"\\" not in text


def _same(present: bytes, plain: Plain) -> bool:
    try:
        return parse_json(present) == plain
    except ValueError:  # what is not JSON may be replaced
        return False


def unset(data: bytes, steps: Steps) -> tuple[Splice, ...]:
    """The splices that remove what is at a path."""
    last = len(steps) - 1
    container = _follow(data, existing(steps)[:last], steps)
    opening, _, before, found, _, following = _spot(data, container, steps, last)
    if found is None:
        raise not_found(steps, last)
    after = next(following)
    assert after.before is not None
    if after.key == b"}":
        return remove(data, opening, after.start, before, after.before, None)
    # Only the beginning of the next entry matters, and the closing bracket not at all.
    next_entry = Entry(after.start, after.value, after.value)
    return remove(data, opening, after.value, before, after.before, next_entry)


def _follow(data: bytes, steps: Steps, whole: Steps = ()) -> int:
    """Where the value at a path begins; errors name the whole path."""
    start = root(data)
    for depth in range(len(steps)):
        found = _spot(data, start, whole or steps, depth).found
        if found is None:
            raise not_found(whole or steps, depth)
        start = found.value
    return start


def _spot(data: bytes, opening: int, steps: Steps, depth: int) -> _Spot:
    """Looks for one step in the value that begins at `opening`."""
    step = steps[depth]
    if data[opening : opening + 1] != (b"{" if isinstance(step, str) else b"["):
        value_end(data, opening)
        raise not_a(wanted(steps, depth), steps, depth)
    if isinstance(step, int) and step < 0:
        step += sum(1 for _ in heads(data, opening)) - 1
    encoded = b""
    if isinstance(step, str):
        encoded = json.dumps(step, ensure_ascii=False).encode()
        found = leap(data, opening, encoded)
        if found is not None:
            following = heads(data, opening, found.start, found.before)
            first = skip_space(data, opening + 1)
            return _Spot(opening, first, found.before, next(following), -1, following)
    following = heads(data, opening)
    first = -1
    for index, head in enumerate(following):
        if head.key == b"}":
            return _Spot(opening, first, head.before, None, head.start, following)
        first = head.start if first < 0 else first
        if same_key(head.key, step, encoded) if isinstance(step, str) else index == step:
            return _Spot(opening, first, head.before, head, -1, following)
    raise AssertionError("the last head is the closing bracket")


class _Layout(NamedTuple):
    """How the entries of a container are laid out: on lines of their own if `line` is not empty."""

    line: bytes
    outer: bytes
    unit: bytes
    colon: bytes


def _layout(data: bytes, spots: list[_Spot]) -> _Layout:
    """That of the innermost container, taken from its entries or from the containers around it."""
    opening, first, before, found, closing, _ = spots[-1]
    outside = _layout(data, spots[:-1]) if len(spots) > 1 else None
    if first < 0:
        inside = last_line(data[opening + 1 : closing])
        if outside is not None and outside.line:
            return _deeper(outside)
        colon = outside.colon if outside is not None else b": "
        return _Layout(inside + INDENTATION if inside else b"", inside, INDENTATION, colon)
    line = last_line(gap_before(data, first))
    colon = b": "
    model = before or found
    if model is not None and data[opening : opening + 1] == b"{":
        colon = data[value_end(data, model.start) : model.value]
    elif outside is not None:
        colon = outside.colon
    if b"\n" in colon:
        colon = b": "
    outer = outside.line if outside is not None and outside.line else _line_break(line)
    unit = line[len(outer) :] if line.startswith(outer) else INDENTATION
    return _Layout(line, outer, unit or INDENTATION, colon)


def _line_break(line: bytes) -> bytes:
    return line[: line.rfind(b"\n") + 1]


def _deeper(layout: _Layout) -> _Layout:
    line = layout.line + layout.unit if layout.line else b""
    return layout._replace(line=line, outer=layout.line)


def _insert(
    data: bytes, spots: list[_Spot], missing: Steps, steps: Steps, new: bytes
) -> tuple[Splice, ...]:
    layout = _layout(data, spots)
    text = _nested(missing, steps, new, layout)
    spot = spots[-1]
    if spot.before is not None:
        return append(data, spot.before, spot.closing, text, layout.colon.endswith(b" "))
    inside = layout.line + text + layout.outer if layout.line else text
    return replace(data, spot.opening + 1, spot.closing, inside)


def _nested(missing: Steps, steps: Steps, new: bytes, layout: _Layout) -> bytes:
    """The entry for the first missing step, with containers for all that follow."""
    step = missing[0]
    inner = new
    if len(missing) > 1:
        below = _deeper(layout)
        following = missing[1]
        if isinstance(following, int):
            raise no_element(steps, len(steps) - len(missing) + 1)
        inner = below.line + _nested(missing[1:], steps, new, below) + layout.line
        inner = b"{" + inner + b"}" if isinstance(following, str) else b"[" + inner + b"]"
    if isinstance(step, str):
        return json.dumps(step, ensure_ascii=False).encode() + layout.colon + inner
    assert step is END
    return inner
