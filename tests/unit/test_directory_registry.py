"""The registry's state: versions, comparison, limits, snapshots."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.directory import records, registry
from swell.directory.records import State
from swell.directory.registry import (
    BATCH_BYTES_MAX,
    CHANGES_MAX,
    ENTRY_OVERHEAD_BYTES,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Change,
    Entry,
    Outcome,
    Registry,
    RegistrySet,
    RegistryState,
    Wish,
    check,
    deal,
    groups,
    split,
)
from swell.directory.registry_messages import RegistryRequest, RegistryWatch
from swell.errors import InvalidNameError, TooLargeError, WireError
from swell.wire import codec

keys = st.sampled_from(["a", "a/1", "a/2", "ab", "b"])
changes = st.builds(Change, keys, st.integers(0, 12), st.none() | st.binary(max_size=3))


def put(state: Registry, key: str, expected: int, value: bytes | None) -> Outcome:
    (outcome,) = state.apply(RegistrySet((Change(key, expected, value),)))
    return outcome


def test_a_change_is_accepted_only_at_the_version_that_it_expects() -> None:
    state = Registry()
    assert put(state, "k", 1, b"x") == Outcome(False, None)
    assert put(state, "k", 0, b"x") == Outcome(True, Entry(1, b"x"))
    assert put(state, "k", 0, b"y") == Outcome(False, Entry(1, b"x"))
    assert put(state, "k", 1, b"y") == Outcome(True, Entry(2, b"y"))
    assert put(state, "k", 1, None) == Outcome(False, Entry(2, b"y"))
    assert put(state, "k", 2, None) == Outcome(True, None)


def test_a_version_never_comes_back() -> None:
    state = Registry()
    put(state, "k", 0, b"x")
    put(state, "k", 1, None)
    assert put(state, "k", 0, b"x") == Outcome(True, Entry(3, b"x"))
    assert put(state, "other", 0, b"") == Outcome(True, Entry(4, b"")), "one counter for all keys"


def test_to_delete_what_is_absent_changes_nothing() -> None:
    state = Registry()
    assert put(state, "k", 0, None) == Outcome(True, None)
    assert state.revision == 0


def test_changes_of_one_batch_are_compared_one_after_the_other() -> None:
    state = Registry()
    batch = (Change("a", 0, b"1"), Change("b", 7, b""), Change("a", 0, b"2"), Change("a", 1, b"3"))
    assert [o.accepted for o in state.apply(RegistrySet(batch))] == [True, False, False, True]
    assert state.outcomes[-1].entry == Entry(2, b"3")


def test_reading_by_prefix_is_sorted() -> None:
    state = Registry()
    for key in ("slots/2", "slots/10", "slot", "plan", "slots/1", "slots0"):
        put(state, key, 0, b"")
    assert list(state.read("slots/")) == ["slots/1", "slots/10", "slots/2"]
    assert list(state.read("")) == sorted(["slots/2", "slots/10", "slot", "plan", "slots/1",
                                           "slots0"])  # fmt: skip
    assert state.keys("~") == []


def test_a_full_registry_refuses_and_counts_what_would_not_fit() -> None:
    room = 2 * (1 + 10 + ENTRY_OVERHEAD_BYTES)
    state = Registry(bytes_max=room)
    assert put(state, "a", 0, b"x" * 10).accepted
    assert put(state, "b", 0, b"x" * 10).accepted
    assert state.bytes == room
    assert put(state, "b", 2, b"x" * 11) == Outcome(False, Entry(2, b"x" * 10))
    assert put(state, "c", 0, b"") == Outcome(False, None)
    assert state.refused_full == 2
    assert put(state, "b", 2, b"").accepted, "what shrinks is let in"
    assert put(state, "a", 1, None).accepted
    assert state.bytes == 1 + ENTRY_OVERHEAD_BYTES


@given(st.lists(changes, max_size=40))
def test_a_snapshot_restores_everything_and_bytes_are_counted_right(wanted: list[Change]) -> None:
    state = State()
    for change in wanted:
        state.apply(RegistrySet((change,)))
    copy = State()
    for record in records.decode_all(records.encode(list(state.snapshot()))):
        copy.apply(record)
    assert copy.registry.read("") == state.registry.read("")
    assert copy.registry.revision == state.registry.revision
    assert copy.registry.bytes == state.registry.bytes
    assert list(copy.registry.read("")) == sorted(copy.registry.read(""))
    sizes = [
        len(k) + len(e.value) + ENTRY_OVERHEAD_BYTES for k, e in state.registry.read("").items()
    ]
    assert state.registry.bytes == sum(sizes)


def test_a_large_registry_is_restored_from_several_records() -> None:
    state, copy = Registry(), Registry()
    for number in range(20):
        put(state, f"k{number}", 0, b"x" * VALUE_BYTES_MAX)
    parts = list(state.snapshot())
    assert len(parts) > 2
    for part in parts:
        copy.restore(part)
    assert copy.read("") == state.read("")


def test_an_empty_registry_has_no_snapshot_but_remembers_its_revision() -> None:
    state = Registry()
    assert list(state.snapshot()) == []
    put(state, "k", 0, b"")
    put(state, "k", 1, None)
    assert list(state.snapshot()) == [RegistryState(2, ())]


@pytest.mark.parametrize("key", ["", "a b", "é", "a\n", "a\0", "\x7f", "k" * (KEY_BYTES_MAX + 1)])
def test_keys_are_checked_here_and_on_the_wire(key: str) -> None:
    with pytest.raises(InvalidNameError, match="registry key"):
        check([Change(key, 0, b"")])
    with pytest.raises(WireError, match="bad-body"):
        codec.decode(codec.encode(RegistryRequest(1, (Change(key, 0, b""),))))
    with pytest.raises(WireError, match="bad-body"):
        codec.decode(codec.encode(RegistryRequest(1, (), (key,))))
    if key:
        with pytest.raises(WireError, match="bad-body"):
            codec.decode(codec.encode(RegistryWatch(key)))


def test_values_and_batches_are_bounded_here_and_on_the_wire() -> None:
    large = Change("k", 0, b"x" * (VALUE_BYTES_MAX + 1))
    with pytest.raises(TooLargeError, match="262145 bytes"):
        check([large])
    with pytest.raises(WireError, match="bad-body"):
        codec.decode(codec.encode(RegistryRequest(1, (large,))))
    many = (Change("k", 0, None),) * (CHANGES_MAX + 1)
    with pytest.raises(WireError, match="bad-body"):
        codec.decode(codec.encode(RegistryRequest(1, many)))
    whole = RegistryRequest(1, many[1:])
    assert codec.decode(codec.encode(whole)) == whole


def test_the_longest_batch_fits_into_one_command_of_the_log() -> None:
    value = b"x" * (BATCH_BYTES_MAX // CHANGES_MAX - ENTRY_OVERHEAD_BYTES - 5)
    batch = tuple(Change(f"k{n:04}", 1 << 40, value) for n in range(CHANGES_MAX))
    assert registry.batch_bytes(batch) == BATCH_BYTES_MAX
    encoded = records.encode(RegistrySet(batch))
    assert len(encoded) < 1024 * 1024
    assert msgspec.msgpack.decode(encoded, type=records.Record) == RegistrySet(batch)


@given(st.lists(st.integers(0, 700), max_size=12))
def test_wishes_are_grouped_in_order_and_hear_their_own_outcomes(sizes: list[int]) -> None:
    heard: dict[int, list[Outcome] | None] = {}
    wishes = [
        Wish([Change(f"{n}-{k}", 0, b"") for k in range(size)], lambda o, n=n: heard.update({n: o}))
        for n, size in enumerate(sizes)
    ]
    cut = list(groups(wishes))
    assert [wish for group in cut for wish in group] == wishes
    state = Registry()
    for group in cut:
        batch = tuple(change for wish in group for change in wish.changes)
        assert len(batch) <= CHANGES_MAX
        deal(group, state.apply(RegistrySet(batch)))
    for n, size in enumerate(sizes):
        assert heard[n] == [Outcome(True, state.get(f"{n}-{k}")) for k in range(size)]


def test_a_wish_for_more_than_a_batch_is_split_and_heard_as_one() -> None:
    heard: list[list[Outcome] | None] = []
    wish = Wish([Change(f"k{n}", 0, b"") for n in range(2 * CHANGES_MAX + 1)], heard.append)
    parts = split(wish)
    assert [len(part.changes) for part in parts] == [CHANGES_MAX, CHANGES_MAX, 1]
    state = Registry()
    for part in parts:
        assert heard == []
        deal([part], state.apply(RegistrySet(tuple(part.changes))))
    assert heard == [[Outcome(True, state.get(f"k{n}")) for n in range(2 * CHANGES_MAX + 1)]]
    heard.clear()
    for part, known in zip(split(wish), (True, False, True), strict=True):
        deal([part], [Outcome(False, None)] * len(part.changes) if known else None)
    assert heard == [None]
