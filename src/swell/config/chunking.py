"""How bytes are divided into leaves, and which leaves an edit makes anew.

Leaves have 4 to 32 KiB, 16 by default; only a lone one may be shorter. Where they are divided
depends on the base and the delta, and on nothing else: every replica and every container that
applies the same deltas has the same leaves.
"""

from __future__ import annotations

from swell.config.splices import Delta
from swell.config.tree import Item, Leaf, Patch, item_at, read

CHUNK_BYTES = 16 * 1024
CHUNK_BYTES_MIN = 4 * 1024
CHUNK_BYTES_MAX = 32 * 1024


def cut(data: bytes) -> list[Leaf]:
    """The leaves of some bytes: one if it may be, else of 16 KiB each and the last of 4 to 20."""
    if len(data) <= CHUNK_BYTES_MAX:
        return [Leaf(data)] if data else []
    at = 0
    made = []
    while len(data) - at >= CHUNK_BYTES + CHUNK_BYTES_MIN:
        made.append(Leaf(data[at : at + CHUNK_BYTES]))
        at += CHUNK_BYTES
    made.append(Leaf(data[at:]))
    return made


def rewritten(root: Item, splices: Delta) -> list[Patch]:
    """The leaves that give way when a delta is applied, and those that take their place."""
    patches: list[Patch] = []
    stretch: _Stretch | None = None
    for offset, length, data in splices:
        if stretch is not None and offset > stretch.end:
            stretch.fill()
            if item_at(root, 0, offset)[1] > stretch.end:
                patches.append(stretch.patch())
                stretch = None
        if stretch is None:
            stretch = _Stretch(root, offset)
        stretch.take(offset, length, data)
    if stretch is not None:
        stretch.fill()
        patches.append(stretch.patch())
    return patches


class _Stretch:
    """Neighbouring leaves of the base that are rewritten together. Edits of leaves that touch are
    one stretch, so that the leaf before a stretch is always one of the base."""

    __slots__ = ("_at", "_parts", "_root", "_size", "end", "start")

    def __init__(self, root: Item, offset: int) -> None:
        leaf, start = item_at(root, 0, offset)
        self.start = start
        self.end = start + leaf.length
        self._root = root
        self._at = start  # The base is dealt with up to here.
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, offset: int, length: int, data: bytes) -> None:
        """Apply a splice that begins in this stretch or in the leaf behind it."""
        if offset + length > self.end:
            self._reach(offset + length - 1)
        self._put(read(self._root, self._at, offset - self._at))
        self._put(data)
        self._at = offset + length

    def fill(self) -> None:
        """If too little is left for a leaf, take in the next one, or at the end the one before."""
        if not 0 < self._size + self.end - self._at < CHUNK_BYTES_MIN:
            return
        if self.end < self._root.length:
            self._reach(self.end)
        elif self.start > 0:
            before = self.start
            _, self.start = item_at(self._root, 0, before - 1)
            self._parts.insert(0, read(self._root, self.start, before - self.start))

    def patch(self) -> Patch:
        self._put(read(self._root, self._at, self.end - self._at))
        return Patch(self.start, self.end, cut(b"".join(self._parts)))

    def _reach(self, offset: int) -> None:
        leaf, start = item_at(self._root, 0, offset)
        self.end = start + leaf.length

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
