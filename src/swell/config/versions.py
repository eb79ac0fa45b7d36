"""Ids of versions: digests chained over the base and what was done to it (RIP-15; Ripple 3.5).

An id stands for the whole history that led to it. Every replica and every container computes it
from its own base: two that have the same id have the same bytes.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta

VERSION_ID_BYTES = 20
VersionId = Annotated[bytes, Meta(min_length=VERSION_ID_BYTES, max_length=VERSION_ID_BYTES)]

NO_VERSION = bytes(VERSION_ID_BYTES)
"""Base of a first version; as a condition: must not exist."""


class Kind(IntEnum):
    """How a version came from its base, and how a change is carried."""

    WHOLE = 1
    """A whole value, inline."""
    DELTA = 2
    DELETE = 3
    FETCH = 4
    """A whole value too long to be carried: the data is its content digest."""
    GONE = 5
    """No version, but many deletions (`swell.config.gone`): whatever is older than the step, from
    behind the name up to before the one in the data."""


def version_id(base: bytes, kind: int, what: bytes) -> bytes:
    """`what`: the encoded delta, the content digest of a whole value, nothing for a deletion.
    A value that is fetched has the id of the whole value that it is."""
    kind = Kind.WHOLE if kind == Kind.FETCH else kind
    return blake2b(
        b"%b%c%b" % (base, kind, what), digest_size=VERSION_ID_BYTES, person=b"swell-version"
    ).digest()
