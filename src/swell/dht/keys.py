"""What may be a key or a value of the DHT, and which slot a key belongs to.

A key is text of 1 to 512 bytes of UTF-8 without control characters. Slashes divide it into
segments; it neither begins nor ends with one, and no segment is `..`, so that a key can stand in
a path or a URL without meaning another one.
"""

from __future__ import annotations

import re
from zlib import crc32

from swell.errors import InvalidKeyError, TooLargeError

KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 1024 * 1024

_control = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]").search
"""The control characters of Unicode, as UTF-8 has them."""


def slot_of(key: bytes, slots: int) -> int:
    """The slot of an encoded key."""
    return crc32(key) % slots


def encode_key(key: str | bytes) -> bytes:
    """The bytes of a key that follows the rules; `InvalidKeyError` says which one it breaks."""
    if isinstance(key, str):
        try:
            data = key.encode()
        except UnicodeEncodeError:
            raise InvalidKeyError(f"the key {key!r} is not UTF-8: write it in UTF-8") from None
    elif isinstance(key, bytes):
        data = key
    else:
        raise InvalidKeyError(f"a key is text, not {type(key).__name__}")
    check_key(data)
    return data


def check_key(data: bytes) -> None:
    """Raise `InvalidKeyError` unless these bytes are a key."""
    if not data:
        raise InvalidKeyError("the key is empty: a key has 1 to 512 bytes")
    if len(data) > KEY_BYTES_MAX:
        raise InvalidKeyError(f"the key has {len(data)} bytes of UTF-8, allowed are 512")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise InvalidKeyError(f"the key {data!r} is not UTF-8: write it in UTF-8") from None
    if _control(data):
        raise InvalidKeyError(
            f"the key {data.decode()!r} contains a control character: leave it out"
        )
    if data.startswith(b"/") or data.endswith(b"/"):
        raise InvalidKeyError(f"the key {data.decode()!r} begins or ends with '/': leave it out")
    if b".." in data and b".." in data.split(b"/"):
        raise InvalidKeyError(f"the key {data.decode()!r} contains a segment '..': leave it out")


def check_value(value: bytes) -> None:
    """Raise `TooLargeError` if a value is longer than allowed."""
    if len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"the value has {len(value)} bytes, allowed are {VALUE_BYTES_MAX}")
