"""The nine operations as bytes: what a client sends, and what it reads back (SPI-5).

Body of a request:   operation u8 | key length u16 | key | arguments
Body of a result:    tag u8 | value

Arguments are nothing, a value, or for `replace_if` the length of the old value (u32), the old and
the new one. Results are what `swell.simulation.checkers.dht_model` says.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from zlib import crc32

from swell.dht.keys import check_value, encode_key
from swell.errors import WireError
from swell.store.messages import Read
from swell.store.request import Request

DHT_SERVICE = 1
"""The number of this service in commands."""


class Operation(IntEnum):
    PUT = 1
    PUT_AND_RETRIEVE = 2
    GET = 3
    CONTAINS = 4
    REMOVE = 5
    PUT_IF_ABSENT = 6
    REPLACE = 7
    REPLACE_IF = 8
    REMOVE_IF = 9


class Tag(IntEnum):
    """First byte of a result."""

    NOTHING = 0
    VALUE = 1
    NO = 2
    YES = 3


head = Struct(">BH")
old_length = Struct(">I")

_NOTHING = bytes([Tag.NOTHING])
_NO = bytes([Tag.NO])
_YES = bytes([Tag.YES])

_PUT, _GET, _CONTAINS = int(Operation.PUT), int(Operation.GET), int(Operation.CONTAINS)
_VALUE = int(Tag.VALUE)
_COMMAND, _LINEARIZABLE, _STALE = int(Read.COMMAND), int(Read.LINEARIZABLE), int(Read.STALE)


def _request(operation: int, key: str | bytes, arguments: bytes = b"") -> Request:
    data = encode_key(key)
    return Request(crc32(data), _COMMAND, head.pack(operation, len(data)) + data + arguments)


def _with_value(operation: int, key: str | bytes, value: bytes) -> Request:
    check_value(value)
    return _request(operation, key, bytes(value))


def _query(operation: int, key: str | bytes, stale: bool) -> Request:
    data = encode_key(key)
    read = _STALE if stale else _LINEARIZABLE
    return Request(crc32(data), read, head.pack(operation, len(data)) + data)


def put(key: str | bytes, value: bytes) -> Request:
    return _with_value(_PUT, key, value)


def put_and_retrieve(key: str | bytes, value: bytes) -> Request:
    return _with_value(Operation.PUT_AND_RETRIEVE, key, value)


def get(key: str | bytes, stale: bool = False) -> Request:
    return _query(_GET, key, stale)


def contains(key: str | bytes, stale: bool = False) -> Request:
    return _query(_CONTAINS, key, stale)


def remove(key: str | bytes, value: bytes | None = None) -> Request:
    """With a value: only if it is the one that the key has."""
    if value is None:
        return _request(Operation.REMOVE, key)
    return _with_value(Operation.REMOVE_IF, key, value)


def put_if_absent(key: str | bytes, value: bytes) -> Request:
    return _with_value(Operation.PUT_IF_ABSENT, key, value)


def replace(key: str | bytes, value: bytes) -> Request:
    return _with_value(Operation.REPLACE, key, value)


def replace_if(key: str | bytes, old: bytes, new: bytes) -> Request:
    check_value(old)
    check_value(new)
    arguments = old_length.pack(len(old)) + old + new
    return _request(Operation.REPLACE_IF, key, arguments)


def value_of(result: bytes) -> bytes | None:
    """The value that a result holds, None if it holds nothing."""
    tag = result[0] if result else -1
    if tag == _VALUE:
        return result[1:]
    if result == _NOTHING:
        return None
    raise WireError("bad-result", f"tag {tag} where a value was expected")


def truth_of(result: bytes) -> bool:
    """The yes or no that a result says."""
    if result == _YES:
        return True
    if result == _NO:
        return False
    raise WireError("bad-result", f"{result[:1]!r} where yes or no was expected")
