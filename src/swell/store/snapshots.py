"""One slot as a file: its state after some entry, and the entries behind it.

    magic 8 | crc32 4 | slot u32 | lineage u64 | taken u64 | fence u64 | base u64 | base epoch u64
    | base digest 8 | commit u64 | has state u8 | bytes of state u64 | entries u32
    | state | per entry: length u32, its bytes

The CRC covers everything behind it. `taken` is the last index of the journal then: the file
stands for the slot's records up to it. Pure: reads no disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from swell.errors import WireError
from swell.store import entry as entries
from swell.store.entry import NO_DIGEST, Entry
from swell.store.parts import Parts

_MAGIC = b"SwellSl1"
_front = Struct(">8sI")
_head = Struct(">IQQQQQ8sQBQI")
_length = Struct(">I")
HEAD_BYTES = _front.size + _head.size


class SlotImage(NamedTuple):
    """One slot: the state after entry `base`, and what is prepared or committed behind it."""

    fence: int
    """The highest epoch promised."""
    base: int
    base_epoch: int
    base_digest: bytes
    state: bytes | Parts | None
    """None: the empty state, at base 0."""
    entries: list[Entry]
    """Behind `base`, contiguous, each chained to the one before it."""
    commit: int
    """The highest commit point known."""


EMPTY = SlotImage(0, 0, 0, NO_DIGEST, None, [], 0)


class SlotFile(NamedTuple):
    """The content of a slot's file."""

    slot: int
    lineage: int
    taken: int
    """The journal's last index when it was taken."""
    image: SlotImage
    check: int
    """Its CRC, by which the journal names an installed file."""


def follows(image: SlotImage, behind: Iterable[Entry], slot: int) -> bool:
    """Are these entries of this slot, and do they go on from the image's base?"""
    sequence, digest = image.base, image.base_digest
    for entry in behind:
        if (entry.slot, entry.sequence, entry.previous) != (slot, sequence + 1, digest):
            return False
        sequence, digest = entry.sequence, entry.digest
    return True


def encode(slot: int, lineage: int, taken: int, image: SlotImage) -> tuple[bytes, int]:
    """(bytes of the file, its CRC)."""
    data, check = encode_parts(slot, lineage, taken, image)
    return bytes(data), check


def encode_parts(slot: int, lineage: int, taken: int, image: SlotImage) -> tuple[Parts, int]:
    """The same without copying the state."""
    assert follows(image, image.entries, slot), f"the entries of slot {slot} do not follow"
    state = image.state
    head = _head.pack(
        slot,
        lineage,
        taken,
        image.fence,
        image.base,
        image.base_epoch,
        image.base_digest,
        image.commit,
        state is not None,
        len(state or b""),
        len(image.entries),
    )
    parts = [head, *state] if isinstance(state, Parts) else [head, state or b""]
    for entry in image.entries:
        parts += (_length.pack(len(entry.data)), entry.data)
    check = 0
    for part in parts:
        check = crc32(part, check)
    return Parts([_front.pack(_MAGIC, check), *parts]), check


def decode(data: bytes) -> SlotFile | None:
    """None if the bytes are not what `encode` made."""
    if len(data) < HEAD_BYTES:
        return None
    magic, check = _front.unpack_from(data)
    if magic != _MAGIC or crc32(memoryview(data)[_front.size :]) != check:
        return None
    fields = _head.unpack_from(data, _front.size)
    slot, lineage, taken, fence, base, base_epoch, base_digest, commit = fields[:8]
    has_state, state_bytes, count = fields[8:]
    position = HEAD_BYTES + state_bytes
    state = data[HEAD_BYTES:position] if has_state else None
    behind: list[Entry] = []
    try:
        for _ in range(count):
            begin = position + _length.size
            position = begin + _length.unpack_from(data, position)[0]
            behind.append(entries.read(data[begin:position]))
    except WireError:
        return None
    image = SlotImage(fence, base, base_epoch, base_digest, state, behind, commit)
    if position != len(data) or not follows(image, behind, slot):
        return None
    return SlotFile(slot, lineage, taken, image, check)
