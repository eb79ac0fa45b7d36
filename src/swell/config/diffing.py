"""The automatic delta: what turns one whole value into another (RIP-17).

What agrees at both ends is trimmed; the rest is divided at anchors (`swell.config.anchors`), each
grown to all bytes around it that agree, and what lies between two of them is divided in the same
way by shorter chunks, down to a few bytes. Chunks only get shorter, so the time is linear in the
size of the values whatever they contain. A value that has nothing in common with the old one is
given up early: a compressor that knows the old one makes it no shorter.

`delta` is a pure function for `World.offload`; small values can be diffed in place. The splices
ascend, do not touch, and always make the new value exactly; how short they are is best effort.
Bytes that moved are deleted in one place and added in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from zstandard import DICT_TYPE_RAWCONTENT, ZstdCompressionDict, ZstdCompressor

from swell.config.anchors import CHUNKS_MAX, Anchor, Stretch, Values
from swell.config.splices import SPLICES_MAX, Splice, size

WORTHWHILE = 0.7
"""A delta must be shorter than this part of the new value; else the value itself is sent."""

_COMPARED_BYTES_MAX = 256 * 1024  # The compressor looks back as far as both together.
_COMPARED_SHARE_MIN = 0.2
_NEW_SHARE = 0.95

_CHUNK_BYTES = (1 << 16, 1 << 12, 1 << 9, 1 << 6, 20, 6)
_LEVELS = len(_CHUNK_BYTES)
_CHUNKS_MIN = 16  # Fewer hardly contain an anchor: go on with shorter ones.
_AGREE_BYTES_MIN = 8  # Fewer cost more as the boundary of a splice than as its data.


def delta(old: bytes, new: bytes) -> tuple[Splice, ...] | None:
    """The splices that turn `old` into `new`; None if `new` itself is hardly longer."""
    if old == new:
        return ()
    if _is_all_new(old, new):
        return None
    stretches = _join(list(changes(old, new)))
    splices = tuple(
        Splice(old_start, old_end - old_start, new[new_start:new_end])
        for old_start, old_end, new_start, new_end in stretches
    )
    return splices if size(splices) < WORTHWHILE * len(new) else None


def _is_all_new(old: bytes, new: bytes) -> bool:
    """Whether it is not worth looking for what agrees. What the compressor finds anywhere in the
    old value is more than a delta can use; values that are short when compressed are left alone,
    since there it cannot tell."""
    if max(len(old), len(new)) > _COMPARED_BYTES_MAX:
        return False
    middle = Values(old, new).trim(Stretch(0, len(old), 0, len(new)))
    if middle.new_length < WORTHWHILE * len(new):
        return False
    sample = _sample(new)
    alone = len(_compressor.compress(sample))
    if alone < _COMPARED_SHARE_MIN * len(sample):
        return False
    known = ZstdCompressionDict(old, dict_type=DICT_TYPE_RAWCONTENT)
    return len(ZstdCompressor(1, dict_data=known).compress(sample)) >= _NEW_SHARE * alone


def _sample(data: bytes) -> bytes:
    """Some of it from everywhere: enough to tell whether much of it is known."""
    if len(data) <= _SAMPLES * _SAMPLE_BYTES:
        return data
    step = len(data) // _SAMPLES
    return b"".join([data[at : at + _SAMPLE_BYTES] for at in range(0, step * _SAMPLES, step)])


_SAMPLES = 8
_SAMPLE_BYTES = 256
_compressor = ZstdCompressor(1)


def changes(old: bytes, new: bytes) -> Iterator[Stretch]:
    """The stretches that differ, ascending; all bytes between them agree."""
    values = Values(old, new)
    waiting = [(Stretch(0, len(old), 0, len(new)), 0)]
    while waiting:
        whole, level = waiting.pop()
        stretch = values.trim(whole)
        if stretch.shorter < _AGREE_BYTES_MIN or level >= _LEVELS:
            if stretch.longer:
                yield stretch
            continue
        parts, level = _divide(values, stretch, level)
        waiting += ((part, level + 1) for part in reversed(parts))


def _divide(values: Values, stretch: Stretch, level: int) -> tuple[list[Stretch], int]:
    """The stretches between the anchors of this one, and the level of chunks they were found by.

    A division by which less than half agrees is only made if shorter chunks give no better one:
    a few anchors that happen to lie in a block that moved would part all the others."""
    best, best_level = [stretch], _LEVELS
    tried = level
    for tried in _levels(stretch, level):
        parts = _between(values, stretch, values.anchors(stretch, _CHUNK_BYTES[tried]))
        if _differs(parts) < _differs(best):
            best, best_level = parts, tried
        if 2 * (stretch.new_length - _differs(parts)) >= stretch.shorter:
            break
    if best_level == _LEVELS:  # Nothing in it is unique, or nothing agrees.
        in_place = _between(values, stretch, values.aligned(stretch))
        ranked = _between(values, stretch, values.ranked_anchors(stretch, _CHUNK_BYTES[tried]))
        best = min(in_place, ranked, key=_differs)
    return best, best_level


def _differs(parts: list[Stretch]) -> int:
    return sum(part.new_length for part in parts)


def _levels(stretch: Stretch, level: int) -> Iterator[int]:
    """The levels from this one on by which the stretch has enough chunks, but not too many."""
    for tried in range(level, _LEVELS):
        chunks = stretch.shorter // _CHUNK_BYTES[tried]
        if (chunks >= _CHUNKS_MIN or tried == _LEVELS - 1) and chunks <= CHUNKS_MAX:
            yield tried


def _between(values: Values, stretch: Stretch, anchors: list[Anchor]) -> list[Stretch]:
    """What is left of a stretch when every anchor has grown to all that agrees around it."""
    parts = []
    old_at, old_end, new_at, new_end = stretch
    for old_anchor, new_anchor in anchors:
        if old_anchor < old_at or new_anchor < new_at:
            continue  # Inside what the one before it has grown to.
        back = values.common_suffix(
            old_anchor, new_anchor, min(old_anchor - old_at, new_anchor - new_at)
        )
        ahead = values.common_prefix(
            old_anchor, new_anchor, min(old_end - old_anchor, new_end - new_anchor)
        )
        if back + ahead < _AGREE_BYTES_MIN:
            continue
        parts.append(Stretch(old_at, old_anchor - back, new_at, new_anchor - back))
        old_at, new_at = old_anchor + ahead, new_anchor + ahead
    parts.append(Stretch(old_at, old_end, new_at, new_end))
    return parts


def _join(stretches: list[Stretch]) -> list[Stretch]:
    """At most as many stretches as a delta may have splices: the nearest neighbours are joined."""
    surplus = len(stretches) - SPLICES_MAX
    if surplus <= 0:
        return stretches
    gaps = [after.old_start - stretch.old_end for stretch, after in pairwise(stretches)]
    order = sorted(range(len(gaps)), key=gaps.__getitem__)[:surplus]
    joined = bytearray(len(stretches))
    for number in order:
        joined[number + 1] = 1
    result = [stretches[0]]
    for number in range(1, len(stretches)):
        stretch = stretches[number]
        if joined[number]:
            first = result[-1]
            result[-1] = first._replace(old_end=stretch.old_end, new_end=stretch.new_end)
        else:
            result.append(stretch)
    return result
