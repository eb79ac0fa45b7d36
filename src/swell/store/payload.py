"""The payload of an entry: what a slot's log says at one place.

    kind u8 | nothing
            | command: session u64, number u64, lowest open number u64, service u8, body
            | expire: horizon u64, in seconds

Every replica reads the same bytes, so whatever is wrong with them is wrong everywhere alike.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from swell.errors import WireError


class Kind(IntEnum):
    NOTHING = 0
    COMMAND = 1
    EXPIRE = 2


NOTHING = bytes([Kind.NOTHING])
"""The payload that changes nothing."""

_COMMAND, _EXPIRE = int(Kind.COMMAND), int(Kind.EXPIRE)
_command = Struct(">BQQQB")
_expire = Struct(">BQ")
_new = tuple.__new__


class Command(NamedTuple):
    """A client's command: `number` of its `session`, whose open numbers begin at `lowest`."""

    session: int
    number: int
    lowest: int
    service: int
    body: bytes


class Expire(NamedTuple):
    """Sessions that were opened before this second are forgotten."""

    horizon_s: int


def encode_command(session: int, number: int, lowest: int, service: int, body: bytes) -> bytes:
    return _command.pack(_COMMAND, session, number, lowest, service) + body


def encode_expire(horizon_s: int) -> bytes:
    return _expire.pack(Kind.EXPIRE, horizon_s)


def decode(payload: bytes) -> Command | Expire | None:
    """What a payload says, None for nothing; `WireError` if it is no payload."""
    kind = payload[0] if payload else -1
    if kind == _COMMAND and len(payload) >= _command.size:
        _, session, number, lowest, service = _command.unpack_from(payload)
        return _new(Command, (session, number, lowest, service, payload[_command.size :]))
    if kind == _EXPIRE and len(payload) == _expire.size:
        return Expire(_expire.unpack(payload)[1])
    if payload == NOTHING:
        return None
    raise WireError("bad-payload", f"{len(payload)} bytes of kind {kind}")
