"""The DHT: nine operations against the model that the checker uses, keys, values, bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.dht import operations as ops
from swell.dht.keys import KEY_BYTES_MAX, VALUE_BYTES_MAX, check_key, encode_key, slot_of
from swell.dht.machine import BadOperationError, DhtMachine
from swell.dht.operations import Operation, truth_of, value_of
from swell.errors import InvalidKeyError, SwellError, TooLargeError, WireError
from swell.simulation.checkers.dht_model import apply
from swell.store.messages import Read
from swell.store.request import Request

HOLDING = ("get", "put_and_retrieve", "replace")
"""Operations whose result is what the key held, but for `replace` with a condition."""

values = st.sampled_from([b"", b"x", b"yy"])
inputs = st.one_of(
    st.tuples(st.just("get")),
    st.tuples(st.just("contains")),
    st.tuples(st.just("remove")),
    st.tuples(
        st.sampled_from(["put", "put_and_retrieve", "put_if_absent", "replace", "remove"]), values
    ),
    st.tuples(st.just("replace"), values, values),
)


def request_of(key: str, input: tuple[str, ...]) -> Request:
    match input:
        case ("replace", old, new):
            return ops.replace_if(key, old, new)  # type: ignore[arg-type]
        case (name, *arguments):
            made: Request = getattr(ops, name)(key, *arguments)
            return made
    raise AssertionError(input)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), inputs), max_size=30))
def test_the_machine_does_what_the_model_says(taken: list[tuple[str, tuple[str, ...]]]) -> None:
    machine = DhtMachine()
    model: dict[str, bytes | None] = {}
    for key, input in taken:
        expected, model[key] = apply(model.get(key), input)  # type: ignore[assignment]
        result = machine.apply(request_of(key, input).body)
        holds = input[0] in ("get", "put_and_retrieve") or (
            input[0] == "replace" and len(input) < 3
        )
        assert (value_of(result) if holds else truth_of(result)) == expected
        assert value_of(machine.query(ops.get(key).body)) == model[key]
        assert truth_of(machine.query(ops.contains(key).body)) == (model[key] is not None)
    assert len(machine) == sum(value is not None for value in model.values())


def test_queries_change_nothing() -> None:
    machine = DhtMachine()
    for request in (ops.put("a", b"1"), ops.remove("a"), ops.put_and_retrieve("a", b"1")):
        with pytest.raises(BadOperationError, match="only get and contains"):
            machine.query(request.body)
    assert len(machine) == 0


@given(st.binary(max_size=40))
def test_any_bytes_are_executed_or_refused(body: bytes) -> None:
    machine = DhtMachine()
    try:
        result = machine.apply(body)
    except SwellError:
        assert len(machine) == 0
    else:
        assert result[0] in range(4)


@pytest.mark.parametrize("operation", list(Operation))
def test_every_cut_is_refused_or_another_operation(operation: Operation) -> None:
    body = ops.head.pack(operation, 3) + b"key"
    if operation is Operation.REPLACE_IF:
        body += ops.old_length.pack(3) + b"old"
    machine = DhtMachine()
    machine.apply(body)
    for end in range(ops.head.size + 3 if operation is not Operation.REPLACE_IF else len(body)):
        with pytest.raises(SwellError):
            machine.apply(body[:end])


def test_the_machine_checks_what_clients_should_have() -> None:
    machine = DhtMachine()
    with pytest.raises(TooLargeError):
        machine.apply(ops.put("a", b"").body + bytes(VALUE_BYTES_MAX + 1))
    for key in (b"a\0", b"\xff", b"", b"x" * 513, b"../x"):
        with pytest.raises(InvalidKeyError):
            machine.apply(ops.head.pack(Operation.PUT, len(key)) + key + b"v")
    assert len(machine) == 0


@given(st.dictionaries(st.text("abcäß", min_size=1, max_size=9), st.binary(max_size=9)))
def test_dumps_are_loaded_as_they_were(content: dict[str, bytes]) -> None:
    machine, copy = DhtMachine(), DhtMachine()
    for key, value in content.items():
        machine.apply(ops.put(key, value).body)
    dump = machine.dump()
    copy.load(dump)
    assert copy.dump() == dump
    for key, value in content.items():
        assert value_of(copy.query(ops.get(key).body)) == value
    for bad in (dump[:-1], dump + b"\0"):
        with pytest.raises(WireError):
            copy.load(bad)
    assert copy.dump() == dump


def test_a_dump_with_a_key_twice_is_refused() -> None:
    dump = b"\0\0\0\2" + b"\0\1\0\1" + b"\0\0\0\0" * 2 + b"aa"
    with pytest.raises(WireError, match="twice"):
        DhtMachine().load(dump)


# Keys and values.


@pytest.mark.parametrize(
    "key",
    ["a", "a/b", "..a", "a../b", "a..b", "grüße/日本/🎉", "a b", "x" * KEY_BYTES_MAX, ".", "\xa0"],
)
def test_good_keys(key: str) -> None:
    assert encode_key(key) == key.encode() == encode_key(key.encode())


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", "is empty"),
        ("x" * 513, "513 bytes of UTF-8, allowed are 512"),
        ("ß" * 257, "514 bytes"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a\x9f", "control character"),
        ("/a", "begins or ends with '/'"),
        ("a/", "begins or ends with '/'"),
        ("..", "segment '..'"),
        ("a/../b", "segment '..'"),
        ("a/..", "segment '..'"),
        ("a\udcff", "not UTF-8"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (5, "a key is text, not int"),
    ],
)
def test_bad_keys_get_one_clear_sentence(key: str | bytes, sentence: str) -> None:
    with pytest.raises(InvalidKeyError, match=sentence) as caught:
        encode_key(key)
    assert "\n" not in str(caught.value)
    assert "\0" not in str(caught.value)


@given(st.text(max_size=20))
def test_a_good_key_is_good_for_the_machine(key: str) -> None:
    try:
        data = encode_key(key)
    except InvalidKeyError:
        return
    check_key(data)
    DhtMachine().apply(ops.put(key, b"v").body)


def test_values_that_are_too_large_name_both_sizes() -> None:
    ops.put("a", bytes(VALUE_BYTES_MAX))
    for make in (ops.put, ops.put_if_absent, ops.put_and_retrieve, ops.replace, ops.remove):
        with pytest.raises(TooLargeError, match="1048577 bytes, allowed are 1048576"):
            make("a", bytes(VALUE_BYTES_MAX + 1))
    with pytest.raises(TooLargeError):
        ops.replace_if("a", b"", bytes(VALUE_BYTES_MAX + 1))


def test_requests_say_where_they_belong_and_what_they_are() -> None:
    assert ops.put("a", b"").place % 256 == slot_of(b"a", 256)
    assert ops.get("a").read == Read.LINEARIZABLE
    assert ops.get("a", stale=True).read == Read.STALE
    assert ops.remove("a").read == Read.COMMAND


@pytest.mark.parametrize("result", [b"", b"\x09", b"\x03x", b"\x00x"])
def test_strange_results_are_refused(result: bytes) -> None:
    with pytest.raises(WireError):
        value_of(result)
    with pytest.raises(WireError):
        truth_of(result)
