"""Bytes in pieces: a long state that is written or sent without being copied into one.

The pieces are those of the state itself and never change, so the whole stays as it was when it was
taken, whatever happens to the state meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate


class Parts:
    """Has a length and slices as `bytes` has; iterating gives the pieces."""

    __slots__ = ("_ends", "_pieces")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self._ends = list(accumulate(map(len, self._pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)

    def __getitem__(self, span: slice) -> bytes:
        start, stop, step = span.indices(len(self))
        assert step == 1, "only whole runs of bytes"
        found = []
        place = bisect_right(self._ends, start)
        while start < stop:
            piece, end = self._pieces[place], self._ends[place]
            begin = end - len(piece)
            part = piece[start - begin : stop - begin]
            found.append(part)
            start += len(part)
            place += 1
        return b"".join(found)
