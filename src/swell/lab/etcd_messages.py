"""The few messages of etcd's API that a comparison needs, in protocol buffers' encoding.

A message is a row of fields: a tag (number and kind of the field) and a value, either a number of
variable length or bytes with their length. Numbers of fields: etcd's API reference, version 3.4.
"""

from __future__ import annotations

from typing import NamedTuple

PUT = "/etcdserverpb.KV/Put"
RANGE = "/etcdserverpb.KV/Range"
STATUS = "/etcdserverpb.Maintenance/Status"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = int | bytes


class Status(NamedTuple):
    """What a member says about itself; no leader is 0."""

    version: str
    member: int
    leader: int


def put_request(key: bytes, value: bytes) -> bytes:
    return _bytes(1, key) + _bytes(2, value)


def range_request(key: bytes) -> bytes:
    """A linearizable read of one key."""
    return _bytes(1, key)


def count_request() -> bytes:
    """How many keys there are, from the member's own state: it looks at every one of them."""
    every = b"\0"
    return _bytes(1, every) + _bytes(2, every) + _flag(7) + _flag(9)


def watch_request(key: bytes) -> bytes:
    """Every change of one key from now on."""
    return _bytes(1, _bytes(1, key))


def value_of(range_response: bytes) -> bytes | None:
    """The value of the first key in the response to a range request."""
    pair = fields(range_response).get(2)
    if not isinstance(pair, bytes):
        return None
    value = fields(pair).get(5, b"")
    return value if isinstance(value, bytes) else None


def status_of(status_response: bytes) -> Status:
    found = fields(status_response)
    header = found.get(1, b"")
    member = fields(header).get(2, 0) if isinstance(header, bytes) else 0
    version, leader = found.get(2, b""), found.get(4, 0)
    assert isinstance(version, bytes)
    assert isinstance(member, int)
    assert isinstance(leader, int)
    return Status(version.decode(), member, leader)


def fields(message: bytes) -> dict[int, Field]:
    """Number of field → value; of repeated ones the first."""
    found: dict[int, Field] = {}
    at, size = 0, len(message)
    while at < size:
        tag, at = read_number(message, at)
        kind = tag & 7
        value: Field
        if kind == _VARINT:
            value, at = read_number(message, at)
        else:
            if kind == _BYTES:
                length, at = read_number(message, at)
            else:
                assert kind in (_FIXED64, _FIXED32), "no other kinds exist"
                length = 8 if kind == _FIXED64 else 4
            value = message[at : at + length]
            at += length
        found.setdefault(tag >> 3, value)
    return found


def _bytes(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | _BYTES,)) + _number(len(value)) + value


def _flag(field: int) -> bytes:
    return bytes((field << 3 | _VARINT, 1))


def _number(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    return bytes((value & 127 | 128,)) + _number(value >> 7)


def read_number(message: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
