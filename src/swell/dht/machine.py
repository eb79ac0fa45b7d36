"""One slot's part of the DHT: a dictionary and the nine operations on it.

Each operation is atomic, since a slot applies one command after the other. The rules for keys and
values are checked here again: what a client sends is not to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from struct import Struct, unpack_from
from struct import error as StructError

from swell.dht.keys import check_key, check_value
from swell.dht.operations import Operation, Tag, head, old_length
from swell.errors import SwellError, WireError

_NOTHING = bytes([Tag.NOTHING])
_VALUE = bytes([Tag.VALUE])
_NO = bytes([Tag.NO])
_YES = bytes([Tag.YES])

_count = Struct(">I")


Values = dict[bytes, bytes]
Run = Callable[[Values, bytes, bytes], bytes]
"""An operation, on a key with its arguments; what it comes to."""


class BadOperationError(SwellError):
    """A body that is no operation of the DHT."""


class DhtMachine:
    """Keys and values of one slot."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Values = {}

    def __len__(self) -> int:
        return len(self._values)

    def apply(self, body: bytes) -> bytes:
        run, key, arguments = self._read(body)
        return run(self._values, key, arguments)

    def query(self, body: bytes) -> bytes:
        run, key, arguments = self._read(body)
        if run not in _QUERIES:
            raise BadOperationError("only get and contains are queries: send it as a command")
        return run(self._values, key, arguments)

    def _read(self, body: bytes) -> tuple[Run, bytes, bytes]:
        if len(body) < head.size:
            raise BadOperationError("the operation is cut off")
        operation, length = head.unpack_from(body)
        end = head.size + length
        key = body[head.size : end]
        run = _OPERATIONS.get(operation)
        if run is None or len(key) != length:
            raise BadOperationError(f"{operation} is no operation of the DHT, or it is cut off")
        if key not in self._values:
            check_key(key)
        return run, key, body[end:]

    # Bytes: all lengths, then all keys, then all values, so that no key costs a step of its own.

    def dump(self) -> bytes:
        values = self._values
        count = len(values)
        keys = Struct(f">{count}H").pack(*map(len, values))
        lengths = Struct(f">{count}I").pack(*map(len, values.values()))
        return b"".join((_count.pack(count), keys, lengths, *values, *values.values()))

    def load(self, data: bytes) -> None:
        """Become what was dumped; `WireError`, and nothing changed, if it is no dump."""
        try:
            (count,) = _count.unpack_from(data)
            at = _count.size + 2 * count
            keys = unpack_from(f">{count}H", data, _count.size)
            lengths = unpack_from(f">{count}I", data, at)
        except StructError as error:
            raise WireError("bad-state", f"DHT: {error}") from None
        edges = list(accumulate((*keys, *lengths), initial=at + 4 * count))
        if edges[-1] != len(data):
            raise WireError("bad-state", f"DHT: {len(data)} bytes, announced were {edges[-1]}")
        parts = [data[start:end] for start, end in pairwise(edges)]
        values = dict(zip(parts[:count], parts[count:], strict=True))
        if len(values) != count:
            raise WireError("bad-state", "DHT: a key occurs twice")
        self._values = values


def _held(value: bytes | None) -> bytes:
    return _NOTHING if value is None else _VALUE + value


def _put(values: Values, key: bytes, value: bytes) -> bytes:
    check_value(value)
    values[key] = value
    return _YES


def _put_and_retrieve(values: Values, key: bytes, value: bytes) -> bytes:
    check_value(value)
    held = _held(values.get(key))
    values[key] = value
    return held


def _get(values: Values, key: bytes, nothing: bytes) -> bytes:
    _expect_none(nothing)
    return _held(values.get(key))


def _contains(values: Values, key: bytes, nothing: bytes) -> bytes:
    _expect_none(nothing)
    return _YES if key in values else _NO


def _remove(values: Values, key: bytes, nothing: bytes) -> bytes:
    _expect_none(nothing)
    return _NO if values.pop(key, None) is None else _YES


def _put_if_absent(values: Values, key: bytes, value: bytes) -> bytes:
    check_value(value)
    if key in values:
        return _NO
    values[key] = value
    return _YES


def _replace(values: Values, key: bytes, value: bytes) -> bytes:
    check_value(value)
    held = _held(values.get(key))
    if key in values:
        values[key] = value
    return held


def _replace_if(values: Values, key: bytes, arguments: bytes) -> bytes:
    if len(arguments) < old_length.size:
        raise BadOperationError("replace_if needs the old and the new value")
    (length,) = old_length.unpack_from(arguments)
    end = old_length.size + length
    if len(arguments) < end:
        raise BadOperationError("replace_if is cut off")
    new = arguments[end:]
    check_value(new)
    if values.get(key) != arguments[old_length.size : end]:
        return _NO
    values[key] = new
    return _YES


def _remove_if(values: Values, key: bytes, value: bytes) -> bytes:
    if values.get(key) != value:
        return _NO
    del values[key]
    return _YES


def _expect_none(arguments: bytes) -> None:
    if arguments:
        raise BadOperationError(f"{len(arguments)} bytes follow the key, where nothing belongs")


_QUERIES = (_get, _contains)

_OPERATIONS: dict[int, Run] = {
    Operation.PUT: _put,
    Operation.PUT_AND_RETRIEVE: _put_and_retrieve,
    Operation.GET: _get,
    Operation.CONTAINS: _contains,
    Operation.REMOVE: _remove,
    Operation.PUT_IF_ABSENT: _put_if_absent,
    Operation.REPLACE: _replace,
    Operation.REPLACE_IF: _replace_if,
    Operation.REMOVE_IF: _remove_if,
}
