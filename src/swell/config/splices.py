"""Deltas: what an update changes, as splices of the base.

A splice replaces `length` bytes at `offset` by `data`: an add has no length, a delete no data, an
update both (Ripple's incremental updates). A delta is a tuple of splices; all offsets are those of
the base, ascend, and do not overlap. Splices may touch: what they add then stands in their order.

Encoded, a delta is `count, then for each splice: gap, length, size, data`, the numbers as varints
of seven bits, lowest first. The gap counts from the end of the splice before, so overlapping and
descending splices cannot be written down; a varint has no spare bytes. One delta therefore has one
encoding, and digests over it can name a version.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from swell.errors import SwellError, WireError

SPLICES_MAX = 65_536
"""Splices of one delta. Who has more joins neighbours or sends the whole value."""

NUMBER_BYTES_MAX = 7
"""Bytes of one varint: offsets and lengths are below 2 ** 49."""

_LIMIT = 1 << 7 * NUMBER_BYTES_MAX
_new = tuple.__new__


class BadDeltaError(SwellError):
    """A delta does not fit its base or contradicts itself."""


class Splice(NamedTuple):
    """`length` bytes at `offset` of the base give way to `data`."""

    offset: int
    length: int
    data: bytes


Delta = tuple[Splice, ...]


class Readable(Protocol):
    """Bytes that need not lie in one piece."""

    def read(self, offset: int, length: int) -> bytes: ...


def check(splices: Delta, base_length: int) -> None:
    """Raise `BadDeltaError` unless this is a delta of a base of so many bytes."""
    if len(splices) > SPLICES_MAX:
        raise BadDeltaError(
            f"the delta has {len(splices)} splices, allowed are {SPLICES_MAX}: put the whole value"
        )
    end = 0
    for number, (offset, length, data) in enumerate(splices, 1):
        if length < 0 or not (length or data):
            raise BadDeltaError(f"splice {number} of the delta changes nothing: leave it out")
        if offset < end:
            where = "inside the one before it" if number > 1 else "before the first byte"
            raise BadDeltaError(f"splice {number} of the delta begins {where}: mind the order")
        end = offset + length
    if end > base_length:
        raise BadDeltaError(
            f"the delta reaches byte {end} of a base of {base_length} bytes:"
            " make it from the current version"
        )


def apply_to(data: bytes, splices: Delta) -> bytes:
    """What the delta makes of `data`; `BadDeltaError` if it does not fit."""
    if len(splices) == 1:
        offset, length, new = splices[0]
        end = offset + length
        if offset < 0 or length < 0 or end > len(data) or not (length or new):
            check(splices, len(data))
        return b"".join((data[:offset], new, data[end:]))
    check(splices, len(data))
    parts = []
    end = 0
    for offset, length, new in splices:
        parts.append(data[end:offset])
        parts.append(new)
        end = offset + length
    parts.append(data[end:])
    return b"".join(parts)


def length_after(splices: Delta, base_length: int) -> int:
    """The bytes of the value that the delta makes from a base of so many."""
    return base_length + sum(len(data) - length for _, length, data in splices)


def inverse(splices: Delta, base: bytes | Readable) -> Delta:
    """The delta that leads back to `base`, from which it takes the bytes that were replaced."""
    back = []
    shift = 0
    for offset, length, data in splices:
        end = offset + length
        old = base[offset:end] if isinstance(base, bytes) else base.read(offset, length)
        back.append(Splice(offset + shift, len(data), old))
        shift += len(data) - length
    return tuple(back)


def compose(first: Delta, second: Delta) -> Delta:
    """One delta that does what `first` and then `second` do; its splices do not touch."""
    source = _Replay(first)
    end = 0
    for offset, length, data in second:
        source.keep(offset - end)
        source.drop(length)
        source.put(data)
        end = offset + length
    source.keep_rest()
    return tuple(source.made)


class _Replay:
    """Walks over the value between two deltas, which `first` made from the base, and writes down
    what becomes of the base. A splice stays open until bytes of the base are kept behind it."""

    __slots__ = ("_end", "_first", "_length", "_next", "_offset", "_parts", "_used", "made")

    def __init__(self, first: Delta) -> None:
        self.made: list[Splice] = []
        self._first = first
        self._next = 0
        self._used = 0  # Of the data of the next splice.
        self._end = 0  # Of the base that is dealt with, except the length of the next splice.
        self._offset, self._length = 0, 0
        self._parts: list[bytes] = []

    def put(self, data: bytes) -> None:
        if data:
            self._parts.append(data)

    def keep(self, count: int) -> None:
        self._pass(count, True)

    def drop(self, count: int) -> None:
        self._pass(count, False)

    def keep_rest(self) -> None:
        """Keep whatever `first` made up to the end of the value."""
        while self._next < len(self._first):
            offset, _, data = self._first[self._next]
            self._keep_base(offset - self._end)
            self.put(data[self._used :] if self._used else data)
            self._leave_splice()
        self._close()

    def _pass(self, count: int, keep: bool) -> None:
        while count > 0:
            if self._next == len(self._first):
                self._pass_base(count, keep)
                return
            offset, _, data = self._first[self._next]
            gap = offset - self._end
            if gap:
                taken = min(gap, count)
                self._pass_base(taken, keep)
            else:
                taken = min(len(data) - self._used, count)
                if keep:
                    self.put(data[self._used : self._used + taken])
                self._used += taken
                if self._used == len(data):
                    self._leave_splice()
            count -= taken

    def _leave_splice(self) -> None:
        length = self._first[self._next].length
        self._length += length
        self._end += length
        self._next += 1
        self._used = 0

    def _pass_base(self, count: int, keep: bool) -> None:
        if keep:
            self._keep_base(count)
        else:
            self._length += count
            self._end += count

    def _keep_base(self, count: int) -> None:
        if count:
            self._close()
            self._end += count
            self._offset = self._end

    def _close(self) -> None:
        if self._length or self._parts:
            self.made.append(Splice(self._offset, self._length, b"".join(self._parts)))
        self._length, self._parts = 0, []


def size(splices: Delta) -> int:
    """Bytes of the encoded delta."""
    total = _varint_bytes(len(splices))
    end = 0
    for offset, length, data in splices:
        total += _varint_bytes(offset - end) + _varint_bytes(length)
        total += _varint_bytes(len(data)) + len(data)
        end = offset + length
    return total


def encode(splices: Delta) -> bytes:
    """The one encoding of a delta; `BadDeltaError` if it contradicts itself."""
    if len(splices) == 1:
        offset, length, data = splices[0]
        size = len(data)
        if 0x80 <= offset < 0x4000 and 0 <= length < 0x80 and 0 < size < 0x80:
            return b"%c%c%c%c%c%b" % (1, offset & 0x7F | 0x80, offset >> 7, length, size, data)
    check(splices, _LIMIT - 1)
    out = bytearray()
    _put_varint(out, len(splices))
    end = 0
    for offset, length, data in splices:
        _put_varint(out, offset - end)
        _put_varint(out, length)
        _put_varint(out, len(data))
        out += data
        end = offset + length
    return bytes(out)


def decode(data: bytes) -> Delta:
    """The delta that was encoded; `WireError` for anything that `encode` does not write."""
    count, at = _varint(data, 0)
    if count > SPLICES_MAX:
        raise WireError("bad-delta", f"{count} splices, limit {SPLICES_MAX}")
    splices = []
    end = 0
    for _ in range(count):
        gap, at = _varint(data, at)
        length, at = _varint(data, at)
        added, at = _varint(data, at)
        if not (length or added):
            raise WireError("bad-delta", "a splice changes nothing")
        if at + added > len(data):
            raise WireError("bad-delta", "the data of a splice are cut off")
        offset = end + gap
        splices.append(_new(Splice, (offset, length, data[at : at + added])))
        at += added
        end = offset + length
    if end >= _LIMIT:
        raise WireError("bad-delta", f"a splice ends at byte {end}")
    if at != len(data):
        raise WireError("bad-delta", f"{len(data) - at} bytes behind the last splice")
    return tuple(splices)


def _varint_bytes(number: int) -> int:
    return (number.bit_length() + 6) // 7 or 1


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    number = shift = 0
    for byte in data[at : at + NUMBER_BYTES_MAX]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if not byte and shift > 7:
                raise WireError("bad-delta", "a number has spare bytes")
            return number, at + shift // 7
    raise WireError("bad-delta", "a number is cut off or too long")
