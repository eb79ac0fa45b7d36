"""What may be a key or a value of the DHT, and which slot a key belongs to.

A key is text of 1 to 512 bytes of UTF-8 without control characters. Slashes divide it into
segments; it neither begins nor ends with one, and no segment is `..`, so that a key can stand in
a path or a URL without meaning another one.
"""

from __future__ import annotations

from zlib import crc32

from swell.errors import InvalidKeyError, TooLargeError
from swell.ids import check_path

KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 1024 * 1024


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
    check_path(data, "key", KEY_BYTES_MAX, InvalidKeyError)


def check_value(value: bytes) -> None:
    """Raise `TooLargeError` if a value is longer than allowed."""
    if len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"the value has {len(value)} bytes, allowed are {VALUE_BYTES_MAX}")
