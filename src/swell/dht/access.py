"""What an operation of the DHT takes: rights on its key."""

from __future__ import annotations

from struct import error as StructError

from swell.access.grants import DHT, Right
from swell.dht.operations import Operation, head
from swell.overlay.sessions import Access

_READ = (Right.READ,)
_WRITE = (Right.WRITE,)
_BOTH = (Right.READ, Right.WRITE)

_NEEDS = {
    Operation.PUT: _WRITE,
    Operation.PUT_AND_RETRIEVE: _BOTH,
    Operation.GET: _READ,
    Operation.CONTAINS: _READ,
    Operation.REMOVE: _WRITE,
    Operation.PUT_IF_ABSENT: _WRITE,
    Operation.REPLACE: _BOTH,
    Operation.REPLACE_IF: _WRITE,
    Operation.REMOVE_IF: _WRITE,
}
"""Whoever hears the old value must be allowed to read it."""


def refusal(access: Access, body: bytes) -> str:
    """Why this operation may not be, by the rights on its key; empty if it may. It goes by the
    operation, not by what the request claims to be."""
    try:
        operation, length = head.unpack_from(body)
        needs = _NEEDS[operation]
        key = body[head.size : head.size + length].decode()
    except (ValueError, KeyError, StructError):
        return "this is no operation of the DHT"
    for right in needs:
        sentence = access.refusal(right, DHT, key)
        if sentence:
            return sentence
    return ""
