"""Where two values agree: bytes compared at memory speed, and anchors between what differs.

An anchor is a chunk of bytes that occurs once in a stretch of either value. Chunks end at a
separator (a byte, or a pair of bytes) that is chosen from the content for the length that is
wanted: mostly the line feed of a text, but a comma in a document of one line and some rare pair of
bytes in a binary one. What was inserted or deleted therefore moves the chunks behind it and does
not change them. Of all anchors those are kept that ascend in both values and are the most
(patience sorting). The search is linear in the bytes and copies none of them.

Everything here is a function of the content alone, so that it comes out the same everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

CHUNKS_MAX = 1 << 18
"""Chunks of one stretch; bounds the memory of a search to some 100 MB for the largest values."""

_SAMPLE_BYTES = 1 << 14
_SAMPLE_PIECES = 64
_LINES_FROM_BYTES = 64  # Shorter chunks are for finding what changed within lines.
_PAIRS_FROM_BYTES = 1024  # For shorter chunks some single byte is rare enough.
_STEP_BYTES_MIN = 64
_STEP_BYTES_MAX = 1 << 20
_ALIGNED_BYTES = 16
_ALIGNED_PROBES = 64
_MISSES_MAX = 4096


class Stretch(NamedTuple):
    """A part of the old value, and the part of the new one that took its place."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def shorter(self) -> int:
        return min(self.old_end - self.old_start, self.new_end - self.new_start)

    @property
    def longer(self) -> int:
        return max(self.old_end - self.old_start, self.new_end - self.new_start)

    @property
    def new_length(self) -> int:
        return self.new_end - self.new_start


Anchor = tuple[int, int]
"""Offsets in the old and in the new value at which equal chunks begin."""

Chunk = tuple[int, int]
"""A number that stands for the bytes of a chunk, and its offset."""


class Values:
    """The two values, and comparisons between them that copy nothing."""

    __slots__ = ("_new_view", "_old_view", "new", "old")

    def __init__(self, old: bytes, new: bytes) -> None:
        self.old = old
        self.new = new
        self._old_view = memoryview(old)
        self._new_view = memoryview(new)

    def same(self, old_at: int, new_at: int, count: int) -> bool:
        # Two views would be compared byte by byte; this is memcmp.
        return self.old.startswith(self._new_view[new_at : new_at + count], old_at)

    def common_prefix(self, old_at: int, new_at: int, limit: int) -> int:
        """How many bytes from here on agree, at most `limit`."""
        done, step = 0, _STEP_BYTES_MIN
        while done < limit:
            step = min(step, limit - done)
            if not self.same(old_at + done, new_at + done, step):
                break
            done += step
            step = min(4 * step, _STEP_BYTES_MAX)
        else:
            return limit
        while step > 1:  # The first difference is in the next `step` bytes.
            half = step // 2
            if self.same(old_at + done, new_at + done, half):
                done += half
                step -= half
            else:
                step = half
        return done

    def common_suffix(self, old_end: int, new_end: int, limit: int) -> int:
        """How many bytes up to here agree, at most `limit`."""
        done, step = 0, _STEP_BYTES_MIN
        while done < limit:
            step = min(step, limit - done)
            if not self.same(old_end - done - step, new_end - done - step, step):
                break
            done += step
            step = min(4 * step, _STEP_BYTES_MAX)
        else:
            return limit
        while step > 1:
            half = step // 2
            if self.same(old_end - done - half, new_end - done - half, half):
                done += half
                step -= half
            else:
                step = half
        return done

    def trim(self, stretch: Stretch) -> Stretch:
        """The stretch without what agrees at its two ends."""
        old_start, old_end, new_start, new_end = stretch
        same = self.common_prefix(old_start, new_start, stretch.shorter)
        old_start, new_start = old_start + same, new_start + same
        limit = min(old_end - old_start, new_end - new_start)
        same = self.common_suffix(old_end, new_end, limit)
        return Stretch(old_start, old_end - same, new_start, new_end - same)

    def anchors(self, stretch: Stretch, chunk_bytes: int) -> list[Anchor]:
        """Anchors by chunks of about so many bytes. Their bytes most likely agree."""
        chunks = self._chunks(stretch, chunk_bytes)
        return _ascending(_unique(*chunks)) if chunks else []

    def ranked_anchors(self, stretch: Stretch, chunk_bytes: int) -> list[Anchor]:
        """The same for content in which nothing is unique: the first of several equal chunks
        stands for the first, the second for the second, and so on."""
        chunks = self._chunks(stretch, chunk_bytes)
        return _ascending(_ranked(*chunks)) if chunks else []

    def aligned(self, stretch: Stretch) -> list[Anchor]:
        """Anchors in place, for content without any chunks (such as one byte over and over) in
        which bytes were replaced by as many."""
        old_start, _, new_start, _ = stretch
        length = stretch.shorter - _ALIGNED_BYTES
        probes = range(0, length, max(length // _ALIGNED_PROBES, 1)) if length > 0 else range(0)
        alike = sum(self.same(old_start + at, new_start + at, _ALIGNED_BYTES) for at in probes)
        if 2 * alike <= len(probes):
            return []
        found = []
        at = misses = 0
        while at < length and misses < _MISSES_MAX:
            if self.same(old_start + at, new_start + at, _ALIGNED_BYTES):
                found.append((old_start + at, new_start + at))
                at += self.common_prefix(
                    old_start + at, new_start + at, length + _ALIGNED_BYTES - at
                )
            else:
                at += _ALIGNED_BYTES
                misses += 1
        return found

    def _chunks(
        self, stretch: Stretch, chunk_bytes: int
    ) -> tuple[Iterator[Chunk], Iterator[Chunk]] | None:
        """The chunks of both sides; None if they are too many."""
        old_start, old_end, new_start, new_end = stretch
        separator = _separator(self.new, new_start, new_end, chunk_bytes)
        old_count = self.old.count(separator, old_start, old_end)
        new_count = self.new.count(separator, new_start, new_end)
        if max(old_count, new_count) > CHUNKS_MAX:
            return None
        return (
            _chunks(self.old, self._old_view, old_start, old_end, separator),
            _chunks(self.new, self._new_view, new_start, new_end, separator),
        )


def _separator(data: bytes, start: int, end: int, chunk_bytes: int) -> bytes:
    """What occurs about every `chunk_bytes` bytes; the line feed if that comes near."""
    if chunk_bytes >= _LINES_FROM_BYTES:
        lines = data.count(b"\n", start, end)
        if chunk_bytes / 4 <= (end - start) / (lines or 1) <= chunk_bytes * 4:
            return b"\n"
    pairs = chunk_bytes >= _PAIRS_FROM_BYTES
    sample = _sample(data, start, end, _SAMPLE_BYTES if pairs else _SAMPLE_BYTES // 4)
    wanted = max(len(sample) / chunk_bytes, 1.0)
    found = {bytes((byte,)): count for byte, count in Counter(sample).items()}
    if pairs:
        found |= {bytes(pair): count for pair, count in Counter(pairwise(sample)).items()}

    def distance(separator: bytes) -> tuple[float, bytes]:
        count = found[separator]
        return max(count / wanted, wanted / count), separator

    return min(found, key=distance)


def _sample(data: bytes, start: int, end: int, length: int) -> bytes:
    if end - start <= length:
        return data[start:end]
    piece = length // _SAMPLE_PIECES
    stride = (end - start) // _SAMPLE_PIECES
    places = range(start, start + stride * _SAMPLE_PIECES, stride)
    return b"".join(data[place : place + piece] for place in places)


def _chunks(
    data: bytes, view: memoryview, start: int, end: int, separator: bytes
) -> Iterator[Chunk]:
    """Every chunk, by its length and checksum. Different ones may share these, so whoever uses
    them compares; a digest would cost more than it saves."""
    find, width = data.find, len(separator)
    while start < end:
        found = find(separator, start, end)
        stop = end if found < 0 else found + width
        yield crc32(view[start:stop]) << 32 | stop - start, start
        start = stop


def _unique(old_chunks: Iterator[Chunk], new_chunks: Iterator[Chunk]) -> list[Anchor]:
    """Offsets of the chunks that occur once in either value, in the order of the new one."""
    old_places, new_places = _single(old_chunks), _single(new_chunks)
    return [
        (old_at, new_at)
        for key, new_at in new_places.items()
        if new_at >= 0 and (old_at := old_places.get(key, -1)) >= 0
    ]


def _single(chunks: Iterator[Chunk]) -> dict[int, int]:
    """Where each chunk is; -1 if it is in several places."""
    places: dict[int, int] = {}
    for key, at in chunks:
        places[key] = -1 if key in places else at
    return places


def _ranked(old_chunks: Iterator[Chunk], new_chunks: Iterator[Chunk]) -> list[Anchor]:
    """Offsets of equal chunks, the nth of the old value with the nth of the new one."""
    old_places: dict[int, list[int]] = {}
    for key, at in old_chunks:
        old_places.setdefault(key, []).append(at)
    for places in old_places.values():
        places.reverse()
    return [(left.pop(), at) for key, at in new_chunks if (left := old_places.get(key))]


def _ascending(pairs: list[Anchor]) -> list[Anchor]:
    """The longest selection of `pairs`, which ascend by their second, that ascends by both."""
    ends: list[int] = []  # The least old offset at which a selection of each length may end.
    last: list[int] = []  # The pair that it ends with,
    before: list[int] = []  # and for each pair the one before it.
    for number, (old_at, _) in enumerate(pairs):
        length = bisect_left(ends, old_at)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(old_at)
            last.append(number)
        else:
            ends[length] = old_at
            last[length] = number
    chosen = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]
