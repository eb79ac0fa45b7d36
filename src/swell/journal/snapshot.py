"""The snapshot of a journal as bytes: a state, and where the segments go on from it.

`magic 8 | digest 16 | base 8 | segment 8 | last 8 | batch 8 | chain 8 | state`; the digest covers
everything behind it. Segments below `segment` are of no use any more.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

STATE_BYTES_MAX = 192 * 1024 * 1024
"""A snapshot is written in one piece and must fit the queue of the disk."""

_MAGIC = b"SwellSn1"
_DIGEST_BYTES = 16
_head = Struct(">QQQQ8s")
HEAD_BYTES = len(_MAGIC) + _DIGEST_BYTES + _head.size


class Start(NamedTuple):
    """What lies in front of a segment."""

    segment: int
    last: int
    """Index of the last record written before it."""
    batch: int
    digest: bytes


class Snapshot(NamedTuple):
    base: int
    start: Start
    state: bytes

    @property
    def size(self) -> int:
        """Of the file."""
        return HEAD_BYTES + len(self.state)


def encode(snapshot: Snapshot) -> bytes:
    start = snapshot.start
    head = _head.pack(snapshot.base, start.segment, start.last, start.batch, start.digest)
    return b"".join((_MAGIC, _digest(head, snapshot.state), head, snapshot.state))


def decode(data: bytes) -> Snapshot | None:
    """None if the bytes are not what `encode` made."""
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    head_at = len(_MAGIC) + _DIGEST_BYTES
    head, state = data[head_at:HEAD_BYTES], data[HEAD_BYTES:]
    if _digest(head, state) != data[len(_MAGIC) : head_at]:
        return None
    base, segment, last, batch, digest = _head.unpack(head)
    return Snapshot(base, Start(segment, last, batch, digest), state)


def _digest(head: bytes, state: bytes) -> bytes:
    digest = blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(state)
    return digest.digest()
