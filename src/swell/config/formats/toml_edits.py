"""Edits of one path of a TOML text.

A new key goes to the end of its table: below its header, into the inline table, or beside its
dotted siblings. Missing tables get a header after the last section of the table around them;
`[-]` on an array of tables adds a `[[header]]`. Every result is read again and compared with what
was wanted; what cannot be written in place is refused.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from swell.config.formats.changes import append, line_break_of, line_end, new_line, remove, replace
from swell.config.formats.path import (
    END,
    Steps,
    existing,
    no_element,
    not_a,
    not_found,
    show_path,
    wanted,
)
from swell.config.formats.toml_inline import Inline, find_inline
from swell.config.formats.toml_scanner import Pair, Section, scan
from swell.config.formats.toml_text import (
    canonical,
    dotted,
    entry,
    new_value,
    split_keys,
)
from swell.config.formats.toml_text import nested as nested_text
from swell.config.formats.toml_validity import Table, load
from swell.config.splices import Splice, apply_to
from swell.errors import EditRefusedError, InvalidContentError

_blank_lines = re.compile(rb"(?:[ \t]*\r?\n)*").match
_indentation = re.compile(rb"[ \t]*").match


def get(data: bytes, steps: Steps) -> bytes:
    """The text of the value at a path. Tables with headers have none of their own."""
    steps, depth, _ = _walk(load(data), existing(steps))
    if depth < len(steps):
        raise not_found(steps, depth)
    pair = _pair_of(scan(data), steps)
    if pair is None:
        raise EditRefusedError(f"{show_path(steps)} is a table: get its keys one by one")
    inline = _exactly(data, pair, steps)
    return data[inline.value : inline.end]


def set_value(data: bytes, steps: Steps, value: str, as_text: bool) -> tuple[Splice, ...]:
    """The splices that make `value` the one at a path."""
    text = new_value(value, as_text)
    table = load(data)
    steps, depth, present = _walk(table, steps)
    wished = tomllib.loads(f"v = {text}\n")["v"]
    if depth == len(steps):
        if canonical(present) == canonical(wished):
            return ()
        splices = _replace(data, steps, text)
    else:
        splices = _insert(data, steps, depth, text, wished)
    _assign(table, steps, wished)
    return _proven(data, splices, steps, table)


def unset(data: bytes, steps: Steps) -> tuple[Splice, ...]:
    """The splices that remove what is at a path."""
    table = load(data)
    steps, depth, _ = _walk(table, existing(steps))
    if depth < len(steps):
        raise not_found(steps, depth)
    _, _, parent = _walk(table, steps[:-1])
    del parent[steps[-1]]
    sections = scan(data)
    pair = _pair_of(sections, steps)
    if pair is not None and len(pair.path) < len(steps):
        inline = _exactly(data, pair, steps)
        splices = _remove_inline(data, inline, bool(parent))
    else:
        splices = _remove(data, sections, steps, bool(parent))
    return _proven(data, splices, steps, table)


def _walk(table: Table, steps: Steps) -> tuple[Steps, int, Any]:
    """Follows the steps as far as they exist: the steps with indexes counted from the start, how
    many of them exist, and the last value reached."""
    present: Any = table
    for depth, step in enumerate(steps):
        fits = isinstance(present, dict if isinstance(step, str) else list)
        if not fits:
            raise not_a(wanted(steps, depth), steps, depth)
        if isinstance(step, int):
            if not -len(present) <= step < len(present):
                raise no_element(steps, depth)
            index = step % len(present)
            steps = (*steps[:depth], index, *steps[depth + 1 :])
            present = present[index]
        elif isinstance(step, str) and step in present:
            present = present[step]
        else:
            for number, missing in enumerate(steps[depth + 1 :], depth + 1):
                if isinstance(missing, int):
                    raise no_element(steps, number)
            return steps, depth, present
    return steps, len(steps), present


def _assign(table: Table, steps: Steps, value: Any) -> None:
    inner: Any = table
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        fresh = value if following is None else {} if isinstance(following, str) else []
        if step is END:
            inner.append(fresh)
            inner = fresh
        elif following is None:
            inner[step] = value
        else:
            inner = inner[step] if isinstance(step, int) else inner.setdefault(step, fresh)


def _proven(
    data: bytes, splices: tuple[Splice, ...], steps: Steps, wished: Table
) -> tuple[Splice, ...]:
    """The splices, if the text that they make is the wished one."""
    try:
        proven = canonical(load(apply_to(data, splices))) == canonical(wished)
    except InvalidContentError:
        proven = False
    if not proven:
        raise EditRefusedError(
            f"{show_path(steps)} cannot be edited in the way this TOML is written:"
            " change the text and put it as a whole"
        )
    return splices


def _pair_of(sections: list[Section], steps: Steps) -> Pair | None:
    """The pair whose value is, or contains, what is at the path."""
    for section in sections:
        if section.path == steps[: len(section.path)]:
            for pair in section.pairs:
                if pair.path == steps[: len(pair.path)]:
                    return pair
    return None


def _exactly(data: bytes, pair: Pair, steps: Steps) -> Inline:
    """Where in a pair's value the path is, which exists."""
    inline = find_inline(data, pair.value, pair.end, steps[len(pair.path) :])
    if inline.missing:
        raise EditRefusedError(
            f"{show_path(steps)} is there only as part of dotted keys: edit these one by one"
        )
    return inline


def _replace(data: bytes, steps: Steps, text: str) -> tuple[Splice, ...]:
    pair = _pair_of(scan(data), steps)
    if pair is None:
        raise EditRefusedError(
            f"{show_path(steps)} is a table: set its keys one by one, or unset it first"
        )
    inline = _exactly(data, pair, steps)
    if data[inline.value : inline.value + 1] == b"'" and text.startswith('"'):
        plain = tomllib.loads(f"v = {text}")["v"]
        if plain.isprintable() and "'" not in plain:
            text = f"'{plain}'"
    return replace(data, inline.value, inline.end, text.encode())


def _insert(data: bytes, steps: Steps, depth: int, text: str, wished: Any) -> tuple[Splice, ...]:
    sections = scan(data)
    pair = _pair_of(sections, steps[:depth])
    if pair is not None:
        inline = find_inline(data, pair.value, pair.end, steps[len(pair.path) :])
        new = entry(inline.missing, text).encode()
        if inline.before is None:
            return replace(data, inline.opening + 1, inline.closing, new)
        return append(data, inline.before, inline.closing, new)
    around = [s for s in sections if s.path[:depth] == steps[:depth]]
    if steps[depth] is END:
        return _new_element(data, around[-1], steps, depth, text, wished)
    keys, rest = split_keys(steps[depth:])
    text = nested_text(rest, text)
    own = next((s for s in sections if s.path == steps[:depth]), None)
    if own is not None and len(keys) == 1:
        return _new_pair(data, sections, own, own.pairs[-1:], dotted(keys), text)
    for section in sections if own is None else ():
        if len(section.path) >= depth:
            continue
        beside = [p for p in section.pairs if p.path[:depth] == steps[:depth]]
        if beside:
            key = dotted(steps[len(section.path) : depth] + keys)
            return _new_pair(data, sections, section, beside[-1:], key, text)
    header = f"[{dotted(steps[:depth] + keys[:-1])}]"
    return _new_section(data, around[-1], [header, f"{dotted(keys[-1:])} = {text}"])


def _new_pair(
    data: bytes, sections: list[Section], own: Section, beside: list[Pair], key: str, text: str
) -> tuple[Splice, ...]:
    """A pair after another one, in its manner; or as the first of its section."""
    if beside:
        last = beside[0]
        line = data.rfind(b"\n", 0, last.start) + 1
        sign = re.search(rb"[ \t]*=[ \t]*\Z", data[last.start : last.value])
        new = data[line : last.start] + key.encode() + (sign[0] if sign else b" = ")
        return new_line(data, last.end, new + text.encode())
    new = f"{key} = {text}".encode()
    if own.path:
        indentation = _indentation(data, own.start)
        assert indentation is not None
        return new_line(data, own.end, indentation[0] + new)
    if len(sections) == 1:
        return new_line(data, len(data), new)
    return (Splice(_comments_above(data, sections[1].start), 0, new + line_break_of(data) * 2),)


def _comments_above(data: bytes, line: int) -> int:
    """Where the comment lines begin that stand right above a line."""
    while line:
        above = data.rfind(b"\n", 0, line - 1) + 1
        if not data[above:line].lstrip(b" \t").startswith(b"#"):
            break
        line = above
    return line


def _new_section(data: bytes, after: Section, lines: list[str]) -> tuple[Splice, ...]:
    """A header with its pairs, set apart by a blank line."""
    line_break = line_break_of(data)
    text = line_break.join(line.encode() for line in lines)
    end = len(data) if not after.path else after.last
    return new_line(data, end, (line_break if data.strip() else b"") + text)


def _new_element(
    data: bytes, after: Section, steps: Steps, depth: int, text: str, wished: Any
) -> tuple[Splice, ...]:
    """One more `[[header]]` of an array of tables."""
    header = f"[[{dotted(steps[:depth])}]]"
    missing = steps[depth + 1 :]
    if missing:
        return _new_section(data, after, [header, entry(missing, text)])
    if not isinstance(wished, dict):
        raise EditRefusedError(
            f"the elements of {show_path(steps[:depth])} are tables: give the new one as {{...}}"
        )
    inline = find_inline(text.encode(), 0, len(text.encode()), ())
    pairs = [text.encode()[e.start : e.end].decode() for e in inline.entries]
    return _new_section(data, after, [header, *pairs])


def _remove_inline(data: bytes, inline: Inline, others: bool) -> tuple[Splice, ...]:
    """An entry goes. A table that only its dotted key made stays, empty."""
    opening, closing, entry = inline.opening, inline.closing, inline.entry
    assert entry is not None
    if not others and len(inline.keys) > 1:
        return replace(data, entry.start, entry.end, f"{dotted(inline.keys[:-1])} = {{}}".encode())
    return remove(data, opening, closing, inline.before, entry, inline.after)


def _remove(data: bytes, sections: list[Section], steps: Steps, others: bool) -> tuple[Splice, ...]:
    """Whole lines: the pair, or all that is in a table. `others`: its parent has more."""
    depth, parent = len(steps), steps[:-1]
    keeps_parent = others or not parent or any(s.path == parent for s in sections)
    splices: list[Splice] = []
    for section in sections:
        if section.path[:depth] == steps:
            end = line_end(data, section.last)
            blank = _blank_lines(data, end)
            assert blank is not None
            text = b""
            if not keeps_parent and not isinstance(parent[-1], int):
                text = f"[{dotted(parent)}]".encode() + line_break_of(data)
            keeps_parent = True
            stop = blank.end() if not text else end
            splices.append(Splice(section.start, stop - section.start, text))
            continue
        for pair in section.pairs:
            if pair.path[:depth] != steps:
                continue
            line = data.rfind(b"\n", 0, pair.start) + 1
            text = b""
            if not keeps_parent and len(section.path) < len(parent):
                key = dotted(parent[len(section.path) :])
                text = data[line : pair.start] + f"{key} = {{}}".encode() + line_break_of(data)
            keeps_parent = True
            splices.append(Splice(line, line_end(data, pair.end) - line, text))
    return tuple(splices)
