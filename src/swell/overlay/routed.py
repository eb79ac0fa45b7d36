"""The binary form of multicasts and detours: headers that forwarding reads without decoding.

A routed frame is encoded once by its source and forwarded as it came:

    frame header | source u32 | source zone u32 | epoch u32 | sequence u64 | matcher u8 | port u8
                 | target length u16 | target | payload [| path: node u32 ... | count u8]

With the flag `TRACED` every node that handles the frame appends itself to the path; only such
frames are rebuilt on their way. A detour wraps a routed frame untouched:

    frame header | origin zone u32 | via zone u32 | target zone u32 | bounced u8
                 | tried u8 | zone u32 ... | routed frame
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from swell.errors import WireError
from swell.ids import MessageId
from swell.overlay.messages import DETOUR, ROUTED
from swell.wire import codec
from swell.wire.codec import FLAGS_OFFSET, HEADER_BYTES, TYPE_OFFSET
from swell.wire.limits import FRAME_BYTES_MAX

TRACED = 1

PATH_LENGTH_MAX = 16

ROUTED_BYTES_MAX = FRAME_BYTES_MAX - 2048
"""Longest routed frame: there is room for its path, and for a detour around it."""

_routed = Struct(">IIIQBBH")
_detour = Struct(">IIIBB")
_ROUTED_BYTES = HEADER_BYTES + _routed.size
_DETOUR_BYTES = HEADER_BYTES + _detour.size
_FRAME_BYTES_MAX = ROUTED_BYTES_MAX + 1 + 4 * PATH_LENGTH_MAX

unpack_routed = _routed.unpack_from
_new = tuple.__new__


class Routed(NamedTuple):
    """A routed frame, read."""

    source: int
    source_zone: int
    epoch: int
    sequence: int
    matcher: int
    port: int
    target: bytes
    frame: bytes

    @property
    def id(self) -> MessageId:
        return MessageId(self.source, self.epoch, self.sequence)

    @property
    def payload(self) -> bytes:
        start = _ROUTED_BYTES + len(self.target)
        if self.frame[FLAGS_OFFSET] & TRACED:
            return self.frame[start : len(self.frame) - 1 - 4 * self.frame[-1]]
        return self.frame[start:]

    @property
    def path(self) -> tuple[int, ...]:
        """The nodes that handled a traced frame, its source first."""
        if not self.frame[FLAGS_OFFSET] & TRACED:
            return ()
        count = self.frame[-1]
        start = len(self.frame) - 1 - 4 * count
        return tuple(
            int.from_bytes(self.frame[start + 4 * k : start + 4 * k + 4], "big")
            for k in range(count)
        )


class Detour(NamedTuple):
    """A wrapped routed frame on its way through one intermediate zone."""

    origin: int
    via: int
    target: int
    bounced: bool
    tried: tuple[int, ...]
    inner: bytes


def encode_routed(
    message: MessageId,
    source_zone: int,
    matcher: int,
    port: int,
    target: bytes,
    payload: bytes,
    traced: bool = False,
) -> bytes:
    """Encode a multicast; `traced` frames start with an empty path."""
    length = _ROUTED_BYTES + len(target) + len(payload)
    if length > ROUTED_BYTES_MAX or len(target) > 0xFFFF:
        raise WireError("frame-too-long", f"{length} bytes, limit {ROUTED_BYTES_MAX}")
    header = _routed.pack(
        message.source, source_zone, message.epoch, message.sequence, matcher, port, len(target)
    )
    if traced:
        return codec.frame(ROUTED, b"".join((header, target, payload, b"\0")), TRACED)
    return codec.frame(ROUTED, b"".join((header, target, payload)))


def decode_routed(frame: bytes) -> Routed:
    """Read a routed frame; `WireError` if it is not a whole one."""
    try:
        source, zone, epoch, sequence, matcher, port, length = unpack_routed(frame, HEADER_BYTES)
    except error:
        raise WireError("bad-body", "routed header is too short") from None
    end = least = _ROUTED_BYTES + length
    if frame[FLAGS_OFFSET] & TRACED:
        least += 1 + 4 * frame[-1]
        if frame[-1] > PATH_LENGTH_MAX:
            raise WireError("bad-body", "routed path is too long")
    if not least <= len(frame) <= _FRAME_BYTES_MAX:
        raise WireError("bad-body", "routed target or path is too short, or the frame too long")
    target = frame[_ROUTED_BYTES:end]
    # The constructor of a named tuple is a Python function; this is what it does.
    return _new(Routed, (source, zone, epoch, sequence, matcher, port, target, frame))


def with_hop(frame: bytes, node: int) -> bytes:
    """The frame to pass on: a traced one has `node` appended to its path."""
    if not frame[FLAGS_OFFSET] & TRACED or frame[-1] >= PATH_LENGTH_MAX:
        return frame
    body = b"%b%b%c" % (frame[HEADER_BYTES:-1], node.to_bytes(4, "big"), frame[-1] + 1)
    return codec.frame(ROUTED, body, frame[FLAGS_OFFSET])


def encode_detour(detour: Detour) -> bytes:
    head = _detour.pack(detour.origin, detour.via, detour.target, detour.bounced, len(detour.tried))
    tried = b"".join(zone.to_bytes(4, "big") for zone in detour.tried)
    return codec.frame(DETOUR, b"".join((head, tried, detour.inner)))


def decode_detour(frame: bytes) -> Detour:
    """Read a detour; its inner frame is checked when it is unwrapped."""
    try:
        origin, via, target, bounced, count = _detour.unpack_from(frame, HEADER_BYTES)
    except error:
        raise WireError("bad-body", "detour header is too short") from None
    start = _DETOUR_BYTES + 4 * count
    inner = frame[start:]
    whole = len(inner) >= _ROUTED_BYTES and int.from_bytes(inner[:4], "big") == len(inner) - 4
    if not whole or inner[TYPE_OFFSET] != ROUTED:
        raise WireError("bad-body", "detour does not hold a whole routed frame")
    tried = tuple(int.from_bytes(frame[k : k + 4], "big") for k in range(_DETOUR_BYTES, start, 4))
    return Detour(origin, via, target, bool(bounced), tried, inner)
