"""The payload of an entry: what a slot's log says at one place.

    kind u8 | nothing
            | command: session u64, number u64, lowest open number u64, service u8, body
            | expire: horizon u64, in seconds

Every replica reads the same bytes, so whatever is wrong with them is wrong everywhere alike.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

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
_COMMAND_BYTES = _command.size
_command_at = _command.unpack_from

Command = tuple[int, int, int, int, bytes]
"""A client's command: the session, the number in it, its lowest open number, service and body."""

Horizon = int
"""Sessions that were opened before this second are forgotten."""


def encode_command(session: int, number: int, lowest: int, service: int, body: bytes) -> bytes:
    return _command.pack(_COMMAND, session, number, lowest, service) + body


def encode_expire(horizon_s: int) -> bytes:
    return _expire.pack(Kind.EXPIRE, horizon_s)


def decode(data: bytes, at: int = 0) -> Command | Horizon | None:
    """What the payload that begins at `at` says, None for nothing; `WireError` if it is none."""
    size = len(data) - at
    kind = data[at] if size > 0 else -1
    if kind == _COMMAND and size >= _COMMAND_BYTES:
        _, session, number, lowest, service = _command_at(data, at)
        return session, number, lowest, service, data[at + _COMMAND_BYTES :]
    if kind == _EXPIRE and size == _expire.size:
        horizon_s: int = _expire.unpack_from(data, at)[1]
        return horizon_s
    if data[at:] == NOTHING:
        return None
    raise WireError("bad-payload", f"{size} bytes of kind {kind}")
