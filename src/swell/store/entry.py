"""An entry of a slot's log: bytes that are made once, and journalled and sent as they are.

    slot u32 | epoch u32 | sequence u64 | digest of the entry before 8 | payload

The digest covers all of it, so equal digests at one sequence mean equal logs up to there.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

import msgspec

from swell.errors import WireError

DIGEST_BYTES = 8
NO_DIGEST = bytes(DIGEST_BYTES)
"""What stands before the first entry of a slot."""

_head = Struct(">IIQ8s")
PAYLOAD_AT = _head.size
"""Where the payload begins."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry, read."""

    slot: int
    epoch: int
    sequence: int
    previous: bytes
    digest: bytes
    data: bytes
    """All of it, as journalled and sent."""

    @property
    def payload(self) -> bytes:
        return self.data[PAYLOAD_AT:]


def make(slot: int, epoch: int, sequence: int, previous: bytes, payload: bytes) -> Entry:
    """A new entry behind the one with the digest `previous`."""
    data = _head.pack(slot, epoch, sequence, previous) + payload
    digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
    return Entry(slot, epoch, sequence, previous, digest, data)


def read(data: bytes) -> Entry:
    """An entry from its bytes; `WireError` if they are none."""
    if len(data) < _head.size:
        raise WireError("bad-body", "an entry is too short")
    slot, epoch, sequence, previous = _head.unpack_from(data)
    digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
    return Entry(slot, epoch, sequence, previous, digest, data)
