"""The messages of zone membership, numbers 16 to 21; docs/protocols/membership.md tells their use.

Limits on keys and values are part of the types, so that the codec refuses what is too long.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.overlay.contact import Contact
from swell.overlay.coordinates import Coordinate
from swell.wire.codec import Message, message

ATTRIBUTE_KEY_LENGTH_MAX = 63
ATTRIBUTE_VALUE_BYTES_MAX = 64 * 1024
COUNT_MAX = 1 << 62
"""Bound of incarnations and versions on the wire: one more still fits the encoding."""

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_KEY_LENGTH_MAX)]
Value = Annotated[bytes, Meta(max_length=ATTRIBUTE_VALUE_BYTES_MAX)]


class State(IntEnum):
    """Of a member in our view; greater overrides smaller within one incarnation."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class MemberRumour(Message, frozen=True):
    """What `origin` says about a member."""

    contact: Contact
    incarnation: Count
    state: State
    origin: int


class AttributeRumour(Message, frozen=True):
    """One attribute of a member, as its owner set it; an empty value removes it."""

    member: int
    epoch: int
    key: Key
    version: Count
    value: Value


class Rumours(Message, frozen=True):
    """News of both kinds; members come first, since attributes of unknown ones are dropped."""

    members: tuple[MemberRumour, ...] = ()
    attributes: tuple[AttributeRumour, ...] = ()


NO_RUMOURS = Rumours()


class Digest(Message, frozen=True):
    """Which attributes of `member` the sender holds: all removals up to `version` are known."""

    member: int
    epoch: int
    version: Count
    keys: tuple[tuple[Key, Count], ...]


@message(16)
class Ping(Message, frozen=True):
    sequence: int
    rumours: Rumours = NO_RUMOURS


@message(17)
class Ack(Message, frozen=True):
    """`coordinate` is the sender's, and missing where a helper passes the answer on."""

    sequence: int
    coordinate: Coordinate | None = None
    rumours: Rumours = NO_RUMOURS


@message(18)
class PingRequest(Message, frozen=True):
    sequence: int
    target: int


@message(19)
class Nack(Message, frozen=True):
    sequence: int


@message(20)
class Gossip(Message, frozen=True):
    rumours: Rumours


@message(21)
class PushPull(Message, frozen=True):
    """The whole view of the sender; the receiver of the first one replies with its own."""

    members: tuple[MemberRumour, ...]
    digests: tuple[Digest, ...]
    is_reply: bool
