"""Positions on rings: one SHA-1 digest, split in two halves of 80 bits.

Each tier of a two-level ring reads its own half of the same digest, so that the two positions of
a key are independent. With a shared position the upper tier would leave each zone only the keys
of its own arcs, and most of the zone's ring would stay unused (THOR 4.1.3).
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha1

HALF_BYTES = 10
HALF_BITS = 8 * HALF_BYTES
RING_SIZE = 1 << HALF_BITS
"""Positions run from 0 to RING_SIZE − 1 and wrap around."""


class Tier(IntEnum):
    """Which half of a digest a ring reads."""

    UPPER = 0
    ZONE = 1


def halves(key: bytes) -> tuple[int, int]:
    """Both positions of a key, indexed by `Tier`; SHA-1 spreads keys here, it protects nothing."""
    digest = sha1(key, usedforsecurity=False).digest()
    return (
        int.from_bytes(digest[:HALF_BYTES], "big"),
        int.from_bytes(digest[HALF_BYTES:], "big"),
    )


def virtual_id(member: object, tier: Tier) -> int:
    """A member's own position: the first of its points (SpiderCast 2, rule 1)."""
    return halves(str(member).encode())[tier]


def points_of(member: object, count: int, tier: Tier) -> list[int]:
    """The `count` positions of a member: its virtual id first, then those of `member#j`."""
    name = str(member).encode()
    start = tier * HALF_BYTES
    end = start + HALF_BYTES
    names = [name, *(b"%b#%d" % (name, j) for j in range(1, count))]
    return [
        int.from_bytes(sha1(n, usedforsecurity=False).digest()[start:end], "big") for n in names
    ]
