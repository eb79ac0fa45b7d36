"""Edits of one path of a YAML text, made at the marks of its nodes.

New entries are written in the style of the collection they go into: block or flow, with its
indentation and quotes. An anchored value keeps its anchor, so what refers to it changes with it.
A path does not lead through an alias or a merged mapping, for that would change other places too;
a merged key can be set, which overrides it here. Only single documents are edited.
"""

from __future__ import annotations

import re

from swell.config.formats.changes import (
    Entry,
    append,
    gap_before,
    line_break_of,
    line_end,
    new_line,
    remove,
    replace,
)
from swell.config.formats.literal import Plain, check_depth, parse_value
from swell.config.formats.path import (
    Steps,
    existing,
    no_element,
    not_found,
    show_path,
)
from swell.config.formats.yaml_lookup import child, followed, is_blank, merged, single
from swell.config.formats.yaml_nodes import Document, Node, parse
from swell.config.formats.yaml_proof import prove_set, prove_unset, tree, tree_of
from swell.config.formats.yaml_text import block_entry, flow, flow_entry, flow_nested
from swell.config.splices import Splice
from swell.errors import EditRefusedError

_indented = re.compile(rb"^( +)[^\s#-]", re.MULTILINE).search


def get(data: bytes, steps: Steps) -> bytes:
    """The text of the value at a path; aliases and merges are followed. Blocks lose their
    indentation."""
    document = parse(data)
    node = single(document)
    if node is None:
        raise not_found(steps, 0)
    for depth, step in enumerate(existing(steps)):
        node = followed(document, node)
        found = child(node, steps, depth)
        if found is None and isinstance(step, str):
            found = merged(document, node, step)
        if found is None:
            raise not_found(steps, depth)
        node = found
    node = followed(document, node)
    text = data[node.start : node.end]
    if not node.children or node.flow:
        return text
    return text.replace(b"\n" + b" " * _column(data, node.start), b"\n")


def set_value(data: bytes, steps: Steps, value: str, as_text: bool) -> tuple[Splice, ...]:
    """The splices that make `value` the one at a path."""
    plain = parse_value(value, as_text)
    check_depth(plain, len(steps))
    document = parse(data)
    root = single(document)
    splices = _set(data, document, root, steps, plain)
    return prove_set(data, root, splices, steps, plain) if splices else ()


def _set(
    data: bytes, document: Document, root: Node | None, steps: Steps, plain: Plain
) -> tuple[Splice, ...]:
    if root is None or is_blank(root):
        _no_index(steps, 0)
        return new_line(data, len(data), _block(data, steps, plain, 0))
    node, parent = root, root
    for depth, step in enumerate(steps):
        if is_blank(node):
            _no_index(steps, depth)
            return _fill(data, parent, node, steps[depth:], plain)
        _refuse_alias(node, steps, depth)
        found = child(node, steps, depth)
        if found is None:
            if isinstance(step, int):
                raise no_element(steps, depth)
            _no_index(steps, depth + 1)
            if depth + 1 < len(steps) and isinstance(step, str) and merged(document, node, step):
                raise _elsewhere(steps, depth + 1)
            return _insert(data, node, steps[depth:], plain)
        parent, node = node, found
    if tree(node) == tree_of(plain):
        return ()
    return _replace(data, node, plain)


def unset(data: bytes, steps: Steps) -> tuple[Splice, ...]:
    """The splices that remove what is at a path."""
    document = parse(data)
    root = single(document)
    if root is None:
        raise not_found(steps, 0)
    node = parent = root
    for depth, step in enumerate(existing(steps)):
        _refuse_alias(node, steps, depth)
        found = child(node, steps, depth)
        if found is None:
            if isinstance(step, str) and merged(document, node, step):
                raise _elsewhere(steps, depth + 1)
            raise not_found(steps, depth)
        parent, node = node, found
    index = next(index for index, inner in enumerate(parent.children) if inner is node)
    splices = _remove(data, parent, index)
    return prove_unset(data, root, splices, steps)


def _no_index(steps: Steps, depth: int) -> None:
    """A list that is not there yet has no elements."""
    for number, step in enumerate(steps[depth:], depth):
        if isinstance(step, int):
            raise no_element(steps, number)


def _refuse_alias(node: Node, steps: Steps, depth: int) -> None:
    if node.kind == "alias":
        raise _elsewhere(steps, depth)


def _elsewhere(steps: Steps, depth: int) -> EditRefusedError:
    return EditRefusedError(
        f"{show_path(steps[:depth])} is an alias of what is written elsewhere:"
        " edit it there, or set it here as a whole first"
    )


def _column(data: bytes, position: int) -> int:
    return position - data.rfind(b"\n", 0, position) - 1


def _quote(data: bytes, node: Node) -> str:
    """The quotes that a scalar, or the first key of a mapping, is written in."""
    if node.kind == "mapping" and node.children:
        node = node.children[0]
    mark = data[node.start : node.start + 1]
    return mark.decode() if mark in (b"'", b'"') else ""


def _block(data: bytes, missing: Steps, plain: Plain, column: int, quote: str = "") -> bytes:
    """The lines of a new block entry."""
    line_break = line_break_of(data).decode()
    return block_entry(missing, flow(plain), column, _unit(data), line_break, quote).encode()


def _unit(data: bytes) -> int:
    """By how many blanks the text indents."""
    indented = _indented(data)
    return len(indented[1]) if indented is not None else 2


def _value_after(data: bytes, position: int, text: bytes) -> tuple[Splice, ...]:
    """A value where nothing is yet, behind a colon or dash."""
    blank = b"" if data[position - 1 : position] == b" " else b" "
    return (Splice(position, 0, blank + text),)


def _insert(data: bytes, node: Node, missing: Steps, plain: Plain) -> tuple[Splice, ...]:
    """A new last entry of a collection."""
    quote = _quote(data, node) if node.kind == "mapping" else ""
    if not node.flow:
        column = _column(data, node.children[0].outer if node.kind == "mapping" else node.start)
        text = b" " * column + _block(data, missing, plain, column, quote)
        return new_line(data, node.end, text)
    text = flow_entry(missing, flow(plain), quote).encode()
    if not node.children:
        return replace(data, node.start + 1, node.end - 1, text)
    return append(data, _entries(node)[-1], node.end - 1, text)


def _fill(
    data: bytes, parent: Node, node: Node, missing: Steps, plain: Plain
) -> tuple[Splice, ...]:
    """A collection where a key or a dash has no value yet."""
    if parent.flow:
        return _value_after(data, node.end, flow_nested(missing, flow(plain)).encode())
    if parent.kind == "sequence":
        column = _column(data, node.end - 1) + 2
        return _value_after(data, node.end, _block(data, missing, plain, column))
    key = next(key for key, value in parent.pairs() if value is node)
    column = _column(data, key.outer) + _unit(data)
    return new_line(data, node.end, b" " * column + _block(data, missing, plain, column))


def _replace(data: bytes, node: Node, plain: Plain) -> tuple[Splice, ...]:
    quote = _quote(data, node) if node.kind == "str" and isinstance(plain, str) else ""
    text = flow(plain, quote).encode()
    if is_blank(node):
        return _value_after(data, node.end, text)
    start = node.start if node.anchor else node.outer
    gap = gap_before(data, start)
    if node.children and not node.flow and b"\n" in gap:
        before = start - len(gap)
        if data[before - 1 : before] in (b":", b"-"):
            return replace(data, before, node.end, b" " + text)
    return replace(data, start, node.end, text)


def _entries(node: Node) -> list[Entry]:
    if node.kind == "mapping":
        return [Entry(key.outer, value.outer, value.end) for key, value in node.pairs()]
    return [Entry(child.outer, child.outer, child.end) for child in node.children]


def _remove(data: bytes, parent: Node, index: int) -> tuple[Splice, ...]:
    entries = _entries(parent)
    number = index // 2 if parent.kind == "mapping" else index
    entry = entries[number]
    before = entries[number - 1] if number else None
    after = entries[number + 1] if number + 1 < len(entries) else None
    if parent.flow:
        return remove(data, parent.start, parent.end - 1, before, entry, after)
    start = entry.start if parent.kind == "mapping" else _dash(data, entry.start)
    if before is None and after is None:
        empty = b"{}" if parent.kind == "mapping" else b" []"
        return replace(data, start, entry.end, empty)
    line = data.rfind(b"\n", 0, start) + 1
    if data[line:start].strip(b" "):  # it shares its line with the dash of a list around it
        assert after is not None
        follows = after.start if parent.kind == "mapping" else _dash(data, after.start)
        return (Splice(start, follows - start, b""),)
    return (Splice(line, line_end(data, entry.end) - line, b""),)


def _dash(data: bytes, position: int) -> int:
    """The dash before an element of a block sequence."""
    return data.rfind(b"-", 0, position)
