"""A slot's state: each command once, the same on every replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.dht import operations as ops
from swell.dht.machine import DhtMachine
from swell.dht.operations import DHT_SERVICE
from swell.errors import WireError
from swell.store import payload
from swell.store.messages import Status
from swell.store.request import Request
from swell.store.state import EXPIRED, SlotState

SECOND = 1_700_000_000
SESSION = SECOND << 32 | 7
OTHER = (SECOND + 10) << 32 | 7

NOTHING, YES, NO = b"\x00", b"\x03", b"\x02"


def state(**options: int) -> SlotState:
    return SlotState({DHT_SERVICE: DhtMachine}, **options)


def command(
    request: Request, number: int, lowest: int = 1, session: int = SESSION, service: int = 1
) -> bytes:
    return payload.encode_command(session, number, lowest, service, request.body)


def held(slot: SlotState, key: str) -> bytes:
    status, body = slot.query(DHT_SERVICE, ops.get(key).body)
    assert status is Status.DONE
    return body


# Payloads.


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 255),
    st.binary(max_size=50),
)
def test_commands_are_read_as_written(
    session: int, number: int, lowest: int, service: int, body: bytes
) -> None:
    data = payload.encode_command(session, number, lowest, service, body)
    assert payload.decode(data) == (session, number, lowest, service, body)


def test_other_payloads_are_read_as_written() -> None:
    assert payload.decode(payload.NOTHING) is None
    assert payload.decode(payload.encode_expire(5)) == 5


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02", b"\x00\x00", b"\x03", b"\x02" + bytes(9)])
def test_what_is_no_payload_is_refused_alike_everywhere(data: bytes) -> None:
    with pytest.raises(WireError):
        payload.decode(data)
    status, sentence = state().apply(data)
    assert status is Status.REFUSED
    assert sentence == state().apply(data)[1] != b""


# Once.


def test_a_known_number_gives_its_result_again() -> None:
    slot = state()
    put = command(ops.put_and_retrieve("a", b"1"), 1)
    assert slot.apply(put) == (Status.DONE, NOTHING)
    assert slot.apply(command(ops.put("a", b"2"), 2)) == (Status.DONE, YES)
    assert slot.apply(put) == (Status.DONE, NOTHING)
    assert held(slot, "a") == b"\x01" + b"2"


def test_numbers_of_sessions_are_apart() -> None:
    slot = state()
    assert slot.apply(command(ops.put_if_absent("a", b"1"), 1)) == (Status.DONE, YES)
    other = command(ops.put_if_absent("a", b"1"), 1, session=OTHER)
    assert slot.apply(other) == (Status.DONE, NO)


def test_a_number_below_the_lowest_is_never_executed() -> None:
    slot = state()
    slot.apply(command(ops.put("a", b"5"), 5, lowest=5))
    assert slot.apply(command(ops.put("a", b"3"), 3, lowest=3)) == (Status.UNKNOWN, b"")
    slot.apply(command(ops.put("a", b"6"), 6, lowest=6))
    assert slot.apply(command(ops.put("a", b"5"), 5, lowest=5)) == (Status.UNKNOWN, b"")
    assert held(slot, "a") == b"\x01" + b"6"


def test_the_lowest_never_goes_back() -> None:
    slot = state()
    slot.apply(command(ops.put("a", b"1"), 9, lowest=9))
    slot.apply(command(ops.put("a", b"2"), 10, lowest=2))
    assert slot.apply(command(ops.put("a", b"3"), 8, lowest=2)) == (Status.UNKNOWN, b"")


def test_numbers_may_come_in_any_order_above_the_lowest() -> None:
    slot = state()
    for number in (3, 1, 2):
        assert slot.apply(command(ops.put(f"k{number}", b"v"), number)) == (Status.DONE, YES)
    for number in (1, 2, 3):
        assert slot.apply(command(ops.contains(f"k{number}"), number)) == (Status.DONE, YES)


def test_results_that_were_heard_are_dropped() -> None:
    slot = state()
    for number in range(1, 1001):
        slot.apply(command(ops.put("a", b"v"), number, lowest=number))
    assert len(slot.dump()) < 200


def test_long_results_are_not_kept() -> None:
    slot = state(results_bytes_max=100)
    slot.apply(command(ops.put("a", b"v" * 100), 1))
    swap = command(ops.put_and_retrieve("a", b"w"), 2)
    assert slot.apply(swap) == (Status.DONE, b"\x01" + b"v" * 100)
    assert slot.apply(swap) == (Status.UNKNOWN, b"")
    assert held(slot, "a") == b"\x01" + b"w"


def test_refusals_are_results() -> None:
    slot = state()
    bad = payload.encode_command(SESSION, 1, 1, DHT_SERVICE, b"\xff\x00\x01a")
    status, sentence = slot.apply(bad)
    assert status is Status.REFUSED
    assert b"no operation of the DHT" in sentence
    assert slot.apply(bad) == (status, sentence)
    assert slot.query(DHT_SERVICE, b"\xff") == (Status.REFUSED, b"the operation is cut off")


def test_a_service_that_is_not_known_is_refused() -> None:
    slot = state()
    assert slot.apply(command(ops.get("a"), 1, service=9))[0] is Status.REFUSED
    assert slot.query(9, ops.get("a").body)[0] is Status.REFUSED


# Expiry.


def test_sessions_behind_the_horizon_are_forgotten_and_never_executed() -> None:
    slot = state()
    put = command(ops.put("a", b"1"), 1)
    slot.apply(put)
    slot.apply(command(ops.put("b", b"1"), 1, session=OTHER))
    assert slot.sessions == 2
    assert slot.apply(payload.encode_expire(SECOND + 1)) == (Status.DONE, b"")
    assert slot.sessions == 1
    assert slot.apply(put) == (Status.UNKNOWN, EXPIRED)
    assert slot.apply(command(ops.put("a", b"2"), 2)) == (Status.UNKNOWN, EXPIRED)
    assert slot.apply(command(ops.put("b", b"2"), 2, session=OTHER)) == (Status.DONE, YES)
    assert held(slot, "a") == b"\x01" + b"1"


def test_the_horizon_never_goes_back() -> None:
    slot = state()
    slot.apply(payload.encode_expire(SECOND + 5))
    slot.apply(payload.encode_expire(SECOND))
    assert slot.horizon_s == SECOND + 5
    assert slot.apply(command(ops.put("a", b"1"), 1)) == (Status.UNKNOWN, EXPIRED)


def test_the_horizon_that_keeps_the_youngest() -> None:
    slot = state()
    for k in range(10):
        slot.apply(command(ops.put("a", b"1"), 1, session=(SECOND + k) << 32 | 1))
    assert slot.horizon_keeping(10) == 0
    assert slot.horizon_keeping(4) == SECOND + 6
    slot.apply(payload.encode_expire(slot.horizon_keeping(4)))
    assert slot.sessions == 4


# Dump and load.

Step = tuple[int, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from([SESSION, OTHER]), st.integers(1, 12), st.integers(0, 5), st.integers(0, 9)
    ),
    max_size=40,
)


def play(step: Step) -> bytes:
    session, number, open_numbers, what = step
    lowest = max(1, number - open_numbers)
    request = [
        ops.put("a", b"%d" % number),
        ops.put("b", b"%d" % number),
        ops.remove("a"),
        ops.put_and_retrieve("b", b"x" * number * 10),
        ops.replace_if("a", b"3", b"4"),
        ops.get("b"),
        ops.put_if_absent("a", b"%d" % number),
    ]
    if what == 7:
        return payload.encode_expire(SECOND + number)
    if what == 8:
        return payload.NOTHING
    if what == 9:
        return payload.encode_command(session, number, lowest, 5, b"")
    return command(request[what], number, lowest, session)


@given(steps, st.integers(0, 40))
def test_a_replica_that_loaded_a_dump_goes_on_like_the_others(taken: list[Step], at: int) -> None:
    one, other = state(results_bytes_max=60), state(results_bytes_max=60)
    for k, step in enumerate(taken):
        if k == at:
            copy = state(results_bytes_max=60)
            copy.load(other.dump())
            other = copy
        assert one.apply(play(step)) == other.apply(play(step))
    assert one.dump() == other.dump()


def test_loading_replaces_everything() -> None:
    slot, empty = state(), state().dump()
    slot.apply(command(ops.put("a", b"1"), 1))
    slot.load(empty)
    assert held(slot, "a") == NOTHING
    assert slot.dump() == empty


def test_what_is_no_dump_is_refused_and_changes_nothing() -> None:
    slot = state()
    for number in range(1, 4):
        slot.apply(command(ops.put(f"k{number}", b"v" * number), number))
    dump = slot.dump()
    for bad in [b"", dump[:-1], dump + b"\0", b"\x09" + dump[1:], *(dump[:k] for k in range(40))]:
        with pytest.raises(WireError):
            slot.load(bad)
    assert slot.dump() == dump
    with pytest.raises(WireError, match="service 1 is not known"):
        SlotState({}).load(dump)
