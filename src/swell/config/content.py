"""The bytes of one version of a configuration: immutable, and cheap to make from those before.

A content of up to 32 KiB is one leaf and costs little more than its bytes. A longer one is a tree
of leaves (`swell.config.chunking`, `swell.config.tree`). An edit makes new leaves where it falls
and shares all others with its base, so that its time and memory follow the edit and not the value:
a small edit of hundreds of megabytes is what Ripple's incremental updates are for.

The digest stands for the bytes and for how they are divided. Those who applied the same deltas to
the same base agree on it, and so does who fetched the chunks; contents with the same bytes and
another history need not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from swell.config.chunking import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, cut, rewritten
from swell.config.splices import Delta, apply_to, check
from swell.config.tree import Item, Leaf, grown, leaves, patched, read
from swell.errors import WireError

Data = bytes
"""`bytes`, where that name is taken by the method."""


class ChunkId(NamedTuple):
    """What a chunk is known by to those who do not have it."""

    length: int
    digest: bytes


class Missing(NamedTuple):
    """A chunk to be fetched: so many bytes at `offset` of the content."""

    offset: int
    length: int
    digest: bytes


class Content:
    """A value that never changes."""

    __slots__ = ("_root",)

    def __init__(self, root: Item) -> None:
        """Of a root that `swell.config.tree` made; else use `of` and `from_chunks`."""
        self._root = root

    @classmethod
    def of(cls, data: Data) -> Content:
        """The content of a value that is given whole."""
        return cls(Leaf(data) if len(data) <= CHUNK_BYTES_MAX else grown(cut(data)))

    @classmethod
    def from_chunks(cls, chunks: Iterable[Data]) -> Content:
        """The content that gave these chunks, the same tree; `WireError` if none can have."""
        return cls.from_leaves([Leaf(chunk) for chunk in chunks])

    @classmethod
    def from_leaves(cls, made: Sequence[Leaf]) -> Content:
        """The same of leaves, which may be shared with other contents."""
        return cls(_root_of(made))

    def __len__(self) -> int:
        return self._root.length

    @property
    def digest(self) -> Data:
        """Computed when first asked for, from the digests of all that is shared."""
        return self._root.digest

    def splice(self, splices: Delta) -> Content:
        """What the delta makes of this content; `BadDeltaError` if it does not fit."""
        root = self._root
        if isinstance(root, Leaf):
            return Content.of(apply_to(root.data, splices))
        check(splices, root.length)
        return Content(patched(root, rewritten(root, splices))) if splices else self

    def read(self, offset: int, length: int) -> Data:
        """The bytes from `offset`: fewer than `length` where the content ends before."""
        assert min(offset, length) >= 0, f"{length} bytes at {offset}"
        return read(self._root, offset, length)

    def bytes(self) -> Data:
        """All of it: the very object if it is one chunk, else a copy."""
        root = self._root
        return root.data if isinstance(root, Leaf) else b"".join(self.chunks())

    def chunks(self) -> Iterator[Data]:
        """The bytes of the leaves, in order; at least one."""
        return (leaf.data for leaf in leaves(self._root))

    def leaves(self) -> Iterator[Leaf]:
        """At least one."""
        return leaves(self._root)

    def chunk_ids(self) -> Iterator[ChunkId]:
        """What each of the chunks is known by, in order."""
        return (ChunkId(leaf.length, leaf.digest) for leaf in leaves(self._root))

    def leaves_by_digest(self) -> dict[Data, Leaf]:
        """The leaves themselves, to be shared with another content."""
        return {leaf.digest: leaf for leaf in leaves(self._root)}


def missing(mine: Content | None, theirs: Sequence[ChunkId]) -> list[Missing]:
    """The chunks of another content that `mine` does not have, in order, equal ones once."""
    known = {chunk.digest for chunk in mine.chunk_ids()} if mine is not None else set()
    found = []
    offset = 0
    for length, digest in theirs:
        if digest not in known:
            known.add(digest)
            found.append(Missing(offset, length, digest))
        offset += length
    return found


def assembled(
    mine: Content | None, theirs: Sequence[ChunkId], fetched: Mapping[bytes, bytes]
) -> Content:
    """The content with these chunks, out of those of `mine` and the ones `fetched`, by digest.
    `WireError`: a chunk is not there, or is not what it is known by."""
    known = mine.leaves_by_digest() if mine is not None else {}
    made = []
    for length, digest in theirs:
        leaf = known.get(digest)
        if leaf is None:
            data = fetched.get(digest)
            if data is None:
                raise WireError("bad-chunk", f"chunk {digest.hex()} was not fetched")
            leaf = known[digest] = Leaf(data)
        if leaf.length != length or leaf.digest != digest:
            raise WireError("bad-chunk", f"chunk {digest.hex()} has other bytes")
        made.append(leaf)
    return Content.from_leaves(made)


def _root_of(made: Sequence[Leaf]) -> Item:
    shortest = CHUNK_BYTES_MIN if len(made) > 1 else 0
    for leaf in made:
        if not shortest <= leaf.length <= CHUNK_BYTES_MAX:
            raise WireError("bad-chunk", f"{leaf.length} bytes in one of {len(made)} chunks")
    return grown(made)
