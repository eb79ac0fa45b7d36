"""Compression of what is longer than a packet, and decompression that cannot be abused.

A packed value is one byte that says how, then the bytes: 0 as they are, 1 zstd. The receiver
states how much it is willing to unpack: a bomb costs its sender more than its victim.
"""

from __future__ import annotations

import zstandard

from swell.errors import WireError

PACKET_BYTES = 1400
"""Shorter values are not worth the time: they travel in one packet anyway."""

_PLAIN = b"\0"
_ZSTD = b"\1"

_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


def pack(data: bytes) -> bytes:
    """Compress `data` if it is longer than a packet and gets shorter by it."""
    if len(data) > PACKET_BYTES:
        packed = _compressor.compress(data)
        if len(packed) < len(data):
            return _ZSTD + packed
    return _PLAIN + data


def unpack(data: bytes, bytes_max: int) -> bytes:
    """What `pack` was given, if it is at most `bytes_max` long; `WireError` otherwise."""
    kind, body = data[:1], data[1:]
    if kind == _PLAIN and len(body) <= bytes_max:
        return body
    if kind != _ZSTD:
        raise WireError("bad-packing", "unknown kind, or longer than allowed")
    try:
        length = zstandard.frame_content_size(body)
        if not 0 <= length <= bytes_max:
            raise WireError("too-large", f"unpacks to {length} bytes, limit {bytes_max}")
        return _decompressor.decompress(body, max_output_size=bytes_max)
    except zstandard.ZstdError as error:
        raise WireError("bad-packing", str(error)) from None
