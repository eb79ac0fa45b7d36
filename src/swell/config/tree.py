"""The tree below a content: leaves of bytes, and nodes whose borders the items themselves choose.

Items of one height form a level. A level is divided from the left: a node ends behind the first
item, from its eighth on, whose digest says so (one in about 23), and at the latest behind its
96th. So about 30 items make a node, and where a node begins, all to the right of it depends on
nothing to the left. This gives both of:

- The shape is a function of the sequence of leaves alone. Whoever has the same leaves, by fetching
  them or by applying deltas, has the same root digest.
- An edit changes the nodes on its path and a few to the right, until a new border falls on an old
  one; all others are shared with the tree before. Only where thousands of leaves are equal byte for
  byte does the digest choose no border, and the nodes up to the end of that stretch are made anew.

The root is the lowest level that has only one item. Digests are computed when asked for, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 20

CHILDREN_MIN = 8
CHILDREN_MAX = 96
_BORDER_BELOW = 11
"""An item may end its node if the first byte of its digest is below this: 11 of 256 are."""

_PERSON = b"swell-node"
"""Sets the digests of nodes apart from those of leaves, which are plain BLAKE2b of the bytes."""


def digest_of(data: bytes) -> bytes:
    """The digest of a leaf with these bytes."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


class Leaf:
    """Some bytes of the content."""

    __slots__ = ("_digest", "data", "length")

    height = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = digest_of(self.data)
        return self._digest


class Node:
    """A run of items of the level below."""

    __slots__ = ("_digest", "children", "height", "length")

    def __init__(self, children: tuple[Item, ...]) -> None:
        self.children = children
        self.height: int = children[0].height + 1
        self.length: int = sum([child.length for child in children])
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            digests = b"".join([child.digest for child in self.children])
            self._digest = blake2b(digests, digest_size=DIGEST_BYTES, person=_PERSON).digest()
        return self._digest


Item = Leaf | Node


class Patch(NamedTuple):
    """The items of one level between two offsets of the base give way to others."""

    start: int
    end: int
    items: Sequence[Item]


class _Row:
    """Nodes under construction, from left to right."""

    __slots__ = ("nodes", "open")

    def __init__(self) -> None:
        self.nodes: list[Item] = []
        self.open: list[Item] = []

    def add(self, item: Item) -> None:
        group = self.open
        group.append(item)
        count = len(group)
        if count >= CHILDREN_MIN and (item.digest[0] < _BORDER_BELOW or count == CHILDREN_MAX):
            self.close()

    def close(self) -> None:
        if self.open:
            self.nodes.append(Node(tuple(self.open)))
            self.open.clear()


def grown(items: Sequence[Item]) -> Item:
    """The root over all items of one level."""
    if not items:
        return Leaf(b"")
    while len(items) > 1:
        row = _Row()
        for item in items:
            row.add(item)
        row.close()
        items = row.nodes
    root = items[0]
    while isinstance(root, Node) and len(root.children) == 1:
        root = root.children[0]
    return root


def patched(root: Item, patches: Sequence[Patch]) -> Item:
    """The root after some leaves gave way to others: the one that `grown` makes of all leaves.
    The patches ascend and do not overlap."""
    for height in range(root.height):
        patches = _lifted(root, height + 1, patches)
    return grown(patches[0].items)


def _lifted(root: Item, height: int, patches: Sequence[Patch]) -> list[Patch]:
    """What patches of the level below change among the nodes of this height."""
    lifted: list[Patch] = []
    todo = 0
    while todo < len(patches):
        node, start = _node_at(root, height, patches[todo].start)
        row = _Row()
        at = resume = start  # Items of the base before `resume` have given way.
        while True:
            for child in node.children:
                if todo < len(patches) and at == patches[todo].start:
                    for item in patches[todo].items:
                        row.add(item)
                    resume = patches[todo].end
                    todo += 1
                if at >= resume:
                    row.add(child)
                at += child.length
            end = max(at, resume)
            if end == root.length:
                row.close()
                break
            node, at = _node_at(root, height, end)
            if at == end and not row.open:
                break
        lifted.append(Patch(start, end, row.nodes))
    return lifted


def _node_at(root: Item, height: int, offset: int) -> tuple[Node, int]:
    item, start = item_at(root, height, offset)
    assert isinstance(item, Node), f"height {height} has leaves"
    return item, start


def item_at(root: Item, height: int, offset: int) -> tuple[Item, int]:
    """The item of that height that holds the byte at `offset`, and where it begins; the last one
    if `offset` is the end of the content."""
    item, start = root, 0
    while isinstance(item, Node) and item.height > height:
        child = item.children[0]
        for child in item.children:
            start += child.length
            if offset < start:
                break
        start -= child.length
        item = child
    return item, start


def leaves(item: Item, offset: int = 0) -> Iterator[Leaf]:
    """The leaf that holds the byte at `offset`, and all to the right of it."""
    stack = [item]
    while stack:
        item = stack.pop()
        if 0 < offset >= item.length:
            offset -= item.length
        elif isinstance(item, Node):
            stack.extend(reversed(item.children))
        else:
            offset = 0
            yield item


def read(root: Item, offset: int, length: int) -> bytes:
    """The bytes from `offset`: fewer than `length` where the content ends before."""
    leaf, start = item_at(root, 0, offset)
    assert isinstance(leaf, Leaf)
    skip = offset - start
    if skip + length <= leaf.length:
        return leaf.data[skip : skip + length]
    parts = []
    for leaf in leaves(root, offset):
        part = leaf.data[skip : skip + length]
        parts.append(part)
        skip = 0
        length -= len(part)
        if not length:
            break
    return b"".join(parts)
