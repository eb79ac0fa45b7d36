"""Records and batches as bytes.

A record is `mark 2 | crc32 4 | length 4 | batch 8 | index 8 | kind 1 | previous 8 | payload`. The
CRC covers everything behind it. The digest of a record is taken over the previous digest and its
payload, so the records of a journal form one chain across all of its segments. A batch is what one
sync makes durable; its last record says so, and a batch is read whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

RECORD_BYTES_MAX = 1 << 24

DIGEST_BYTES = 8

_MARK = b"\xa5J"
_front = Struct(">2sI")
_rest = Struct(">IQQB8s")
HEAD_BYTES = _front.size + _rest.size

_LAST = 0x80
"""Flag in `kind`: the batch ends with this record."""

_SEARCH_BYTES_PER_BYTE = 64
"""How much may be summed up in search of a valid record, per byte that is searched."""


class Kind(IntEnum):
    DATA = 1
    CUT = 2
    """Forget every record behind `index`."""
    SEGMENT = 3
    """Begins a segment: the payload is its number, `index` the last one before it."""
    SEAL = 4
    """Nothing: damage to the batches in front of it can be told from a torn tail."""


class Entry(NamedTuple):
    """One record without what its place in the chain adds."""

    kind: int
    number: int
    """Its index; of a record that is not the owner's, the last index then in force."""
    payload: bytes


class Fault(Enum):
    """Why there is no batch where one should be."""

    BAD = "damaged"
    """No whole record: damaged, or never written to its end."""
    BROKEN = "out of the chain"
    """A whole record that does not belong behind the one before it."""


class Batch(NamedTuple):
    """A whole batch, read."""

    entries: list[Entry]
    digest: bytes
    end: int


class _Record(NamedTuple):
    batch: int
    entry: Entry
    last: bool
    previous: bytes
    end: int


def chain(digest: bytes, payload: bytes) -> bytes:
    """The digest of a record behind one with `digest`."""
    return blake2b(digest + payload, digest_size=DIGEST_BYTES).digest()


def genesis(name: str) -> bytes:
    """What the first record of a journal is chained to."""
    return chain(b"", name.encode())


def encode_batch(entries: Sequence[Entry], batch: int, digest: bytes) -> tuple[bytes, bytes]:
    """(bytes, digest of the last record) of a batch behind a record with `digest`."""
    parts: list[bytes] = []
    end = len(entries) - 1
    for place, (kind, index, payload) in enumerate(entries):
        flags = kind | _LAST if place == end else int(kind)
        rest = _rest.pack(len(payload), batch, index, flags, digest)
        parts += (_front.pack(_MARK, crc32(payload, crc32(rest))), rest, payload)
        digest = chain(digest, payload)
    return b"".join(parts), digest


def encoded_bytes(entries: Iterable[Entry]) -> int:
    return sum(HEAD_BYTES + len(entry.payload) for entry in entries)


def read_batch(data: bytes, start: int, batch: int, digest: bytes) -> Batch | Fault:
    """The batch at `start`, if it is whole and chained to `digest`."""
    entries: list[Entry] = []
    position = start
    while True:
        record = _read(data, position)
        if record is None:
            return Fault.BAD
        if record.batch != batch or record.previous != digest:
            return Fault.BROKEN
        entries.append(record.entry)
        digest = chain(digest, record.entry.payload)
        position = record.end
        if record.last:
            return Batch(entries, digest, position)


def has_batch_from(data: bytes, start: int, batch: int) -> bool:
    """Does a valid record of this batch or a later one lie anywhere behind `start`?

    Bytes made up to look like the beginnings of many long records would take for ever to rule
    out: when the search gets that long the answer is yes, the careful one.
    """
    summed_max = _SEARCH_BYTES_PER_BYTE * (len(data) - start)
    position = data.find(_MARK, start)
    while position >= 0:
        if len(data) - position >= HEAD_BYTES:
            length, found, *_ = _rest.unpack_from(data, position + _front.size)
            if found >= batch and length <= len(data) - position - HEAD_BYTES:
                summed_max -= length
                if summed_max < 0 or _read(data, position) is not None:
                    return True
        position = data.find(_MARK, position + 1)
    return False


def _read(data: bytes, position: int) -> _Record | None:
    if len(data) - position < HEAD_BYTES:
        return None
    mark, check = _front.unpack_from(data, position)
    rest_at = position + _front.size
    length, batch, index, flags, previous = _rest.unpack_from(data, rest_at)
    body = position + HEAD_BYTES
    end = body + length
    if mark != _MARK or length > RECORD_BYTES_MAX or end > len(data):
        return None
    payload = data[body:end]
    if crc32(payload, crc32(data[rest_at:body])) != check:
        return None
    entry = Entry(flags & ~_LAST, index, payload)
    return _Record(batch, entry, bool(flags & _LAST), previous, end)
