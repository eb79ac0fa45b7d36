"""YAML documents as nodes that know where they stand, and which documents are valid.

The nodes are composed from libyaml's events, without recursion and without constructing a single
object: nothing in a document can be executed. Refused are tags that mean objects, keys that are
there twice, nesting deeper than 256, aliases of nothing or of what contains them, and aliases that
make a document very much longer than it is written (alias bombs).

`start` of a node is that of its content, after anchor and tag; `end` is where its last character
is, so neither comments nor blank lines that follow belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from yaml.cyaml import CParser
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

from swell.config.formats.json_scanner import NESTING_MAX, TOO_DEEP
from swell.config.formats.position import decode, invalid_at
from swell.errors import InvalidContentError

EXPANDED_NODES_FREE = 100_000
EXPANSION_MAX = 10
"""With all aliases expanded, a document has at most this many times the nodes that are written
down, or `EXPANDED_NODES_FREE` if that is more."""

_CORE = "tag:yaml.org,2002:"
_COLLECTIONS = ["map", "omap", "pairs", "seq", "set"]
_SCALARS = ["binary", "bool", "float", "int", "merge", "null", "str", "timestamp", "value"]
_TAGS = frozenset(_CORE + name for name in _COLLECTIONS + _SCALARS)
_properties = re.compile(rb"(?:[&!][^ \t\r\n,\[\]{}]*+|[ \t\r\n]|#[^\n]*+)*+").match
_RESOLVED = (
    ("null", re.compile(r"~|null|Null|NULL|").fullmatch),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE").fullmatch),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+").fullmatch),
    (
        "float",
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ).fullmatch,
    ),
)


class Node:
    """A scalar, alias, sequence or mapping. Mappings hold keys and values in turn."""

    __slots__ = ("anchor", "children", "end", "flow", "kind", "outer", "size", "start", "value")

    def __init__(self, kind: str, outer: int, start: int, end: int) -> None:
        self.kind = kind
        """`mapping`, `sequence`, `alias`, or the type of a scalar: `str`, `int`, `null` ..."""
        self.outer = outer
        """Where its anchor and tag begin, if it has any."""
        self.start = start
        self.end = end
        self.flow = False
        self.value = ""
        self.anchor = ""
        self.size = 1
        """Nodes it stands for when all aliases are expanded."""
        self.children: list[Node] = []

    def pairs(self) -> Iterator[tuple[Node, Node]]:
        """Keys and values of a mapping."""
        return zip(self.children[::2], self.children[1::2], strict=True)


class Document:
    """A parsed text: its roots (a text may hold several documents) and what each alias means."""

    def __init__(self) -> None:
        self.roots: list[Node] = []
        self.targets: dict[int, Node] = {}
        """By the offset of the alias."""


def validate(data: bytes) -> None:
    """Raise `InvalidContentError` unless `data` is YAML that is safe to load."""
    parse(data)


def parse(data: bytes) -> Document:
    """The nodes of a text; `InvalidContentError` if it is not valid."""
    return _Composer(data).compose()


class _Composer:
    """Turns events into nodes; `_open` are the collections around the present event."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        text = decode(data)
        self._shift = len("\ufeff".encode()) if text.startswith("\ufeff") else 0
        self._text = text[1:] if self._shift else text
        self._ascii = self._text.isascii()
        self._at = 0, self._shift  # the last mark that was converted: characters, bytes
        self._document = Document()
        self._open: list[Node] = []
        self._anchors: dict[str, Node] = {}
        self._written = 0

    def compose(self) -> Document:
        parser = CParser(self._text)
        try:
            while not isinstance(event := parser.get_event(), StreamEndEvent):
                self._take(event)
        except ReaderError as error:
            raise invalid_at(self._data, self._offset(error.position), error.reason) from None
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
            problem = str(error.problem or error.context or "this is not YAML")
            raise InvalidContentError(line, column, problem) from None
        return self._document

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is ScalarEvent:
            self._add(self._scalar(event))
        elif kind is AliasEvent:
            self._add(self._alias(event))
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            node = self._node("mapping" if kind is MappingStartEvent else "sequence", event)
            node.flow = bool(event.flow_style)
            self._open.append(node)
            if len(self._open) > NESTING_MAX:
                raise invalid_at(self._data, node.start, TOO_DEEP)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            node = self._open.pop()
            node.end = self._offset(event.end_mark.index) if node.flow else node.children[-1].end
            if kind is MappingEndEvent:
                self._check_keys(node)
            self._add(node)
        elif kind is DocumentStartEvent:
            self._anchors = {}

    def _node(self, kind: str, event: Any) -> Node:
        outer = start = self._offset(event.start_mark.index)
        end = self._offset(event.end_mark.index)
        if event.anchor or event.tag:
            if event.tag and event.tag not in _TAGS and event.tag != "!":
                raise invalid_at(
                    self._data, outer, f"the tag {event.tag} is not allowed: write plain values"
                )
            match = _properties(self._data, outer)
            assert match is not None
            start = match.end() if kind in ("mapping", "sequence") else min(match.end(), end)
        node = Node(kind, outer, start, end)
        if event.anchor:
            node.anchor = event.anchor
            self._anchors[event.anchor] = node
        return node

    def _scalar(self, event: Any) -> Node:
        node = self._node("str", event)
        node.value = event.value
        if event.style in ("|", ">"):
            text = self._data[node.start : node.end]
            if b"+" not in text.split(b"\n", 1)[0].split(b"#", 1)[0]:
                node.end = node.start + len(text.rstrip())
        if event.tag and event.tag != "!":
            node.kind = event.tag.removeprefix(_CORE)
        elif event.implicit[0] and not event.tag:
            node.kind = resolve(event.value)
        return node

    def _alias(self, event: Any) -> Node:
        outer = self._offset(event.start_mark.index)
        node = Node("alias", outer, outer, self._offset(event.end_mark.index))
        node.value = event.anchor
        target = self._anchors.get(event.anchor)
        if target is None:
            raise invalid_at(self._data, outer, f"there is no anchor &{event.anchor} above")
        if any(target is around for around in self._open):
            raise invalid_at(self._data, outer, f"the anchor &{event.anchor} contains itself")
        node.size = target.size
        self._document.targets[outer] = target
        return node

    def _add(self, node: Node) -> None:
        self._written += 1
        if not self._open:
            self._document.roots.append(node)
            return
        around = self._open[-1]
        around.children.append(node)
        around.size += node.size
        if around.size > max(EXPANDED_NODES_FREE, EXPANSION_MAX * self._written):
            raise invalid_at(
                self._data, node.outer, "aliases make the document much longer than it is written"
            )

    def _check_keys(self, node: Node) -> None:
        seen = set()
        for key in node.children[::2]:
            if key.children or key.kind == "alias" or is_merge(key):
                continue
            if (key.kind, key.value) in seen:
                raise invalid_at(
                    self._data, key.outer, f"the key {key.value!r} is here twice: keep one"
                )
            seen.add((key.kind, key.value))

    def _offset(self, index: int) -> int:
        """The byte offset of a character; marks come nearly in order, so each step is short."""
        if self._ascii:
            return index + self._shift
        characters, offset = self._at
        if index >= characters:
            offset += len(self._text[characters:index].encode())
        else:
            offset -= len(self._text[index:characters].encode())
        self._at = index, offset
        return offset


def resolve(value: str) -> str:
    """The type of a plain scalar, by YAML's core schema."""
    return next((kind for kind, matches in _RESOLVED if matches(value)), "str")


def is_merge(key: Node) -> bool:
    """Whether a key is `<<`, whose value is merged into the mapping."""
    return key.value == "<<" and key.kind in ("str", "merge")
