"""The view: the numbered list of zones that routing and placement are computed from.

The directory numbers it (`epoch`); a zone's delegate fetches it and shares it as its attribute
`view`, so that every member knows the whole upper tier locally.
"""

from __future__ import annotations

import msgspec

from swell.errors import WireError
from swell.wire.codec import Message
from swell.wire.compression import pack, unpack

VIEW = "view"
VIEW_BYTES_MAX = 1024 * 1024
"""Unpacked; at c = 130, with 3,742 zones, a view has some 50 KB and packs to a fraction."""


class ZoneInfo(Message, frozen=True):
    """One zone: the site it serves (or `region:NAME` where small sites share it), its size."""

    id: int
    site: str
    size: int


class View(Message, frozen=True):
    """All zones with living members."""

    epoch: int = 0
    zones: tuple[ZoneInfo, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(View).decode


def encode_view(view: View) -> bytes:
    """A view as an attribute's value."""
    return pack(_encode(view))


def decode_view(value: bytes) -> View:
    """The view that an attribute holds; `WireError` if it holds none."""
    try:
        return _decode(unpack(value, VIEW_BYTES_MAX))
    except msgspec.DecodeError as error:
        raise WireError("bad-body", f"view: {error}") from None
