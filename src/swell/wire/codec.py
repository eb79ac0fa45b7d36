"""Messages: frozen msgspec structs, one number each, encoded as a frame.

A frame is `length u32 | type u8 | flags u8 | body`, big endian; `length` counts everything behind
itself. The body of a message is a msgpack array of its fields. Protocol packages declare their
messages with `@message(number)`; numbers are given out in blocks:

    1-15 links    16-31 membership    32-47 overlay    48-63 directory    64-79 requests
    80-95 store   96-127 config and services           128-159 topics     160-175 board
    176-191 experiments                                240-249 Raft
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

import msgspec

from swell.errors import WireError
from swell.wire.limits import FRAME_BYTES_MAX

HEADER_BYTES = 6
TYPE_OFFSET = 4
FLAGS_OFFSET = 5
COPIED_BYTES_MAX = 2048

_pack_header = Struct(">IBB").pack

Decode = Callable[[bytes], Any]

_encoder = msgspec.msgpack.Encoder()
_decoders: list[Decode | None] = [None] * 256
_types: list[type | None] = [None] * 256

T = TypeVar("T")


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all messages. Fields are positional on the wire: append, never reorder."""


def message(number: int) -> Callable[[type[T]], type[T]]:
    """Give a message class its number on the wire."""

    def register(cls: type[T]) -> type[T]:
        assert _types[number] is None, f"message number {number} is taken"
        _types[number] = cls
        _decoders[number] = _decoder(number, cls)
        cls.wire_type = number  # type: ignore[attr-defined]
        return cls

    return register


def _decoder(number: int, cls: type) -> Decode:
    decode_body: Callable[[Any], Any] = msgspec.msgpack.Decoder(cls).decode

    def decode_frame(data: bytes) -> Any:
        # Short ones are copied sooner than looked at in place.
        short = len(data) < COPIED_BYTES_MAX
        try:
            return decode_body(data[HEADER_BYTES:] if short else memoryview(data)[HEADER_BYTES:])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise WireError("bad-body", f"type {number}: {error}") from None

    return decode_frame


def encode(value: Any) -> bytes:
    """Encode one message as a whole frame, ready to be sent to any number of links."""
    return frame(value.wire_type, _encoder.encode(value))


def frame(number: int, body: bytes, flags: int = 0) -> bytes:
    """Build a frame around a body that is already bytes."""
    length = len(body) + 2
    if length > FRAME_BYTES_MAX:
        raise WireError("frame-too-long", f"{length} bytes, limit {FRAME_BYTES_MAX}")
    return _pack_header(length, number, flags) + body


def decode(data: bytes) -> Any:
    """Decode one whole frame into its message; `WireError` for anything that is not one."""
    if len(data) < HEADER_BYTES:
        raise WireError("bad-body", "not a whole frame")
    decode_body = _decoders[data[TYPE_OFFSET]]
    if decode_body is None:
        raise WireError("unknown-type", f"type {data[TYPE_OFFSET]}")
    return decode_body(data)


def decoder(cls: type) -> Decode:
    """What decodes whole frames whose type is known to be this class's."""
    found = _decoders[cls.wire_type]  # type: ignore[attr-defined]
    assert found is not None
    return found


def known(number: int) -> bool:
    """True if some package has declared this message number."""
    return _types[number] is not None
