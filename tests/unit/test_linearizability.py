"""SPI-5, checked from outside: the linearizability checker against histories with known answers,
against a brute-force oracle with semantics of its own, and against the clock."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.simulation.checkers.dht_model import DhtModel
from swell.simulation.checkers.history import (
    UNKNOWN,
    History,
    HistoryError,
    Operation,
    Output,
    Recorder,
    Value,
    merge,
    read,
    recorder_of_this_machine,
)
from swell.simulation.checkers.linearizability import Outcome, Verdict, check

Input = tuple[Value, ...]


def op(
    call: int,
    end: int | None,
    *input: Value,
    out: Output = UNKNOWN,
    client: str = "c",
    key: str = "k",
) -> Operation:
    return Operation(client, key, input, out, call, end)


def put(call: int, end: int | None, value: str) -> Operation:
    return op(call, end, "put", value, out=UNKNOWN if end is None else True)


def get(call: int, end: int, value: str | None) -> Operation:
    return op(call, end, "get", out=value)


def verdict_on(*operations: Operation) -> Verdict:
    return check(History("test", operations), DhtModel())


# Histories with known answers

GOOD = {
    "empty": [],
    "absent at first": [get(0, 1, None)],
    "one after the other": [put(0, 1, "a"), get(2, 3, "a"), put(4, 5, "b"), get(6, 7, "b")],
    "read before a concurrent write": [put(0, 9, "a"), get(1, 2, None), get(3, 4, "a")],
    "order of concurrent writes is free": [put(0, 5, "a"), put(0, 5, "b"), get(6, 7, "a")],
    "equal instants are concurrent": [put(0, 5, "a"), get(5, 6, None)],
    "one long write around many": [
        put(0, 100, "late"),
        *(step for i in range(1, 40) for step in (put(2 * i, 2 * i, f"{i}"),)),
        get(90, 91, "39"),
        get(92, 93, "late"),
    ],
}

BAD = {
    "stale read": [put(0, 1, "a"), put(2, 3, "b"), get(4, 5, "a")],
    "lost write": [put(0, 1, "a"), get(2, 3, None)],
    "reads go back": [put(0, 9, "a"), get(1, 2, "a"), get(3, 4, None)],
    "two readers, two orders": [
        put(0, 1, "a"),
        put(0, 1, "b"),
        get(2, 3, "a"),
        get(4, 5, "b"),
    ],
    "seen before its call": [get(0, 1, "a"), put(2, 3, "a")],
    "never written": [put(0, 1, "a"), get(2, 3, "x")],
    "applied twice": [
        op(0, 1, "put_if_absent", "a", out=True),
        op(2, 3, "remove", out=True),
        get(4, 5, "a"),
    ],
    "both of two conditional writes": [
        op(0, 5, "put_if_absent", "a", out=True),
        op(0, 5, "put_if_absent", "b", out=True),
    ],
    "both of two exchanges": [
        put(0, 1, "a"),
        op(2, 9, "replace", "a", "b", out=True),
        op(2, 9, "replace", "a", "c", out=True),
    ],
    "a write that says it failed": [op(0, 1, "put", "a", out=False)],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories_are_accepted(name: str) -> None:
    verdict = verdict_on(*GOOD[name])
    assert verdict.outcome is Outcome.OK
    assert verdict
    assert str(verdict).startswith("linearizable")


@pytest.mark.parametrize("name", BAD)
def test_bad_histories_are_rejected(name: str) -> None:
    verdict = verdict_on(*BAD[name])
    assert verdict.outcome is Outcome.VIOLATION
    assert not verdict
    assert not verdict.ok


def test_spi_5_each_operation_alone() -> None:
    """In the absent state, and with the key holding "a": the result, and what is held then."""
    table: list[tuple[Input, tuple[Value, Value], tuple[Value, Value]]] = [
        (("put", "n"), (True, "n"), (True, "n")),
        (("put_and_retrieve", "n"), (None, "n"), ("a", "n")),
        (("get",), (None, None), ("a", "a")),
        (("contains",), (False, None), (True, "a")),
        (("remove",), (False, None), (True, None)),
        (("put_if_absent", "n"), (True, "n"), (False, "a")),
        (("replace", "n"), (None, None), ("a", "n")),
        (("replace", "a", "n"), (False, None), (True, "n")),
        (("replace", "b", "n"), (False, None), (False, "a")),
        (("remove", "a"), (False, None), (True, None)),
        (("remove", "b"), (False, None), (False, "a")),
    ]
    every: list[Value] = [True, False, None, "a", "b", "n"]
    for input, absent, present in table:
        for before, (result, after) in (([], absent), ([put(0, 1, "a")], present)):
            for output, held in itertools.product(every, every):
                verdict = verdict_on(
                    *before, op(2, 3, *input, out=output), op(4, 5, "get", out=held)
                )
                expected = (output, held) == (result, after)
                assert verdict.ok is expected, (input, before, output, held)
            for held in every:
                verdict = verdict_on(*before, op(2, 3, *input), op(4, 5, "get", out=held))
                assert verdict.ok is (held == after), (input, before, "unknown output", held)


def test_what_is_no_operation_is_refused() -> None:
    for input in (("increment",), ("put",), ("put", None), ("get", "a"), ()):
        with pytest.raises(HistoryError, match="not an operation"):
            verdict_on(op(0, 1, *input))


# Unknown outcomes


def test_an_unknown_write_may_have_happened_or_not() -> None:
    lost = put(2, None, "b")
    assert verdict_on(put(0, 1, "a"), lost, get(4, 5, "b"))
    assert verdict_on(put(0, 1, "a"), lost, get(4, 5, "a"))
    assert verdict_on(put(0, 1, "a"), lost, get(4, 5, "a"), get(6, 7, "b"))
    assert not verdict_on(put(0, 1, "a"), lost, get(4, 5, "b"), get(6, 7, "a"))
    assert not verdict_on(put(0, 1, "a"), get(2, 3, "b"), put(4, None, "b"))


def test_an_unknown_write_happens_at_most_once() -> None:
    lost = put(0, None, "a")
    again = [get(1, 2, "a"), op(3, 4, "remove", out=True), get(5, 6, "a")]
    assert not verdict_on(lost, *again)
    assert verdict_on(lost, put(0, None, "a"), *again)


def test_an_unknown_conditional_write_needs_its_condition() -> None:
    exchange = op(2, None, "replace", "a", "b")
    assert verdict_on(put(0, 1, "a"), exchange, get(3, 4, "b"))
    assert not verdict_on(put(0, 1, "x"), exchange, get(3, 4, "b"))
    chain = [op(2, None, "replace", "b", "c"), exchange]
    assert verdict_on(put(0, 1, "a"), *chain, get(3, 4, "c"))


def test_a_write_that_nobody_saw_can_still_be_needed() -> None:
    assert verdict_on(put(0, None, "a"), op(1, 2, "contains", out=True))
    assert verdict_on(put(0, None, "a"), op(1, 2, "remove", out=True), get(3, 4, None))
    two = [op(1, 2, "remove", out=True), op(3, 4, "remove", out=True)]
    assert not verdict_on(put(0, None, "a"), *two)
    assert verdict_on(put(0, None, "a"), put(0, None, "b"), *two)


def test_a_condition_that_failed_does_not_prove_its_value() -> None:
    refused = op(1, 2, "remove", "b", out=False)
    assert verdict_on(put(0, None, "b"), refused, get(3, 4, None))
    assert verdict_on(put(0, None, "b"), op(1, 2, "remove", "b"), get(3, 4, None))


def test_which_unknown_write_was_used_up_matters_later() -> None:
    """Two of three have to be there for the removals, and one that wrote "a" has to be left."""
    lost = [put(0, None, "a"), op(0, None, "put_if_absent", "a"), put(0, None, "b")]
    removed = [op(1, 2, "remove", out=True), op(3, 4, "remove", out=True)]
    for order in itertools.permutations(lost):
        assert verdict_on(*order, *removed, get(5, 6, "a"))
        assert not verdict_on(*order, *removed, get(5, 6, "b"), get(7, 8, "a"), get(9, 10, "b"))


def test_of_equal_writes_the_later_one_can_be_saved_for_later() -> None:
    removed = op(3, 4, "remove", out=True)
    for order in itertools.permutations([put(0, 2, "a"), put(0, 99, "a")]):
        assert verdict_on(*order, removed, get(5, 6, None), get(7, 8, "a"))
        assert not verdict_on(*order, removed, get(5, 6, "a"), get(7, 8, None))


def test_many_unknown_writes_do_not_explode() -> None:
    """Thirty unknown writes of each kind; the search stays far below their power set."""
    lost = [
        op(i, None, *input)
        for i in range(30)
        for input in (("put", f"p{i}"), ("put_if_absent", f"q{i}"), ("remove",))
    ]
    seen = [get(100 + 2 * i, 101 + 2 * i, f"p{i}") for i in range(0, 30, 3)]
    good, bad = verdict_on(*lost, *seen), verdict_on(*lost, *seen, get(200, 201, "p0"))
    assert good.ok
    assert bad.outcome is Outcome.VIOLATION
    assert good.configurations + bad.configurations < 50_000


# Verdicts


def test_a_counterexample_names_key_prefix_and_culprit() -> None:
    good = [op(i, i, "put", f"v{i}", out=True, key="fine") for i in range(5)]
    stale = get(40, 45, "v3")
    bad = [put(10 + i, 10 + i, f"v{i}") for i in range(20)]
    beside = op(39, 60, "put", "w", out=True)
    verdict = verdict_on(*good, *bad, stale, beside, put(41, None, "x"), get(70, 71, "w"))
    found = verdict.counterexample
    assert found is not None
    assert (found.key, found.stuck) == ("k", stale)
    assert [operation for operation, _ in found.prefix[:20]] == bad
    assert found.prefix[19][1] == "'v19'"
    text = str(verdict)
    assert "key 'k' is not linearizable" in text
    assert "get() → 'v3'" in text
    assert "put('x') → ?" in text
    assert len(text.splitlines()) < 30


def test_the_culprit_is_who_saw_an_unknown_write_not_the_write() -> None:
    saw = get(3, 4, "b")
    verdict = verdict_on(put(0, None, "x"), op(1, None, "replace", "a", "b"), saw)
    assert verdict.counterexample is not None
    assert verdict.counterexample.stuck is saw


def test_the_prefix_is_a_linearization_of_all_that_returned_before() -> None:
    for seed in range(20):
        operations = list(atomic_history(seed, 60, keys=1, clients=4, unknown=0.1).operations)
        last = max(one.return_ns or 0 for one in operations)
        operations.append(op(last + 1, last + 2, "get", out="never", key="k0"))
        found = verdict_on(*operations).counterexample
        assert found is not None
        placed = [operation for operation, _ in found.prefix]
        assert found.stuck is operations[-1]
        assert [one for one in operations[:-1] if not one.is_unknown and one not in placed] == []
        assert fits(placed)


def test_a_spent_budget_is_not_a_pass() -> None:
    hard = atomic_history(1, 400, keys=2, clients=12)
    for verdict in (
        check(hard, DhtModel(), configurations_max=20),
        check(hard, DhtModel(), time_limit_s=0.0),
    ):
        assert verdict.outcome is Outcome.UNDECIDED
        assert not verdict
        assert verdict.undecided
        assert str(verdict).startswith("undecided")


def test_a_hard_key_does_not_hide_a_violation_on_another() -> None:
    written = [op(0, 1_000, "put", f"v{i}", out=True, key="hard") for i in range(24)]
    told_apart = [op(2_000, 2_001, "remove", f"v{i}", out=False, key="hard") for i in range(2, 24)]
    both = [op(3_000 + i, 3_000 + i, "get", out=f"v{i}", key="hard") for i in range(2)]
    hard = (*written, *told_apart, *both)
    alone = check(History("test", hard), DhtModel(), configurations_max=30_000)
    assert alone.outcome is Outcome.UNDECIDED
    verdict = check(History("test", (*hard, get(0, 1, "x"))), DhtModel(), configurations_max=30_000)
    assert verdict.outcome is Outcome.VIOLATION
    assert verdict.counterexample is not None
    assert verdict.counterexample.key == "k"


# The oracle: every order of every subset, with semantics written down a second time


def held_after(held: Value, input: Input) -> tuple[Value, Value]:
    name, *arguments = input
    table: dict[Value, Value] = {} if held is None else {"k": held}
    result: Value
    if name in ("replace", "remove") and len(arguments) == (2 if name == "replace" else 1):
        result = table.get("k") == arguments[0]
        if result and name == "replace":
            table["k"] = arguments[1]
        elif result:
            del table["k"]
    elif name == "put_if_absent":
        result = "k" not in table
        table.setdefault("k", arguments[0])
    elif name == "contains":
        result = "k" in table
    elif name == "remove":
        result = table.pop("k", None) is not None
    else:
        result = table.get("k")
        if name in ("put", "put_and_retrieve") or (name == "replace" and result is not None):
            table["k"] = arguments[0]
        if name == "put":
            result = True
    return result, table.get("k")


def fits(order: list[Operation] | tuple[Operation, ...]) -> bool:
    held: Value = None
    for position, one in enumerate(order):
        if any(
            later.return_ns is not None and later.return_ns < one.call_ns
            for later in order[position + 1 :]
        ):
            return False
        result, held = held_after(held, one.input)
        if one.output is not UNKNOWN and one.output != result:
            return False
    return True


def oracle(operations: list[Operation]) -> bool:
    returned = [one for one in operations if not one.is_unknown]
    unknown = [one for one in operations if one.is_unknown]
    return any(
        fits(order)
        for count in range(len(unknown) + 1)
        for happened in itertools.combinations(unknown, count)
        for order in itertools.permutations([*returned, *happened])
    )


values = st.sampled_from(["a", "b", "c"])
inputs: st.SearchStrategy[Input] = st.one_of(
    st.sampled_from([("get",), ("get",), ("contains",), ("remove",)]),
    st.tuples(
        st.sampled_from(["put", "put", "put_and_retrieve", "put_if_absent", "replace"]), values
    ),
    st.tuples(st.just("replace"), values, values),
    st.tuples(st.just("remove"), values),
)


@st.composite
def any_operation(draw: st.DrawFn) -> Operation:
    input = draw(inputs)
    call = draw(st.integers(0, 12))
    if draw(st.integers(0, 3)) == 0:
        return op(call, None, *input)
    possible, _ = held_after(draw(st.sampled_from([None, "a", "b"])), input)
    output: Output = UNKNOWN if draw(st.integers(0, 5)) == 0 else possible
    return op(call, call + draw(st.integers(0, 6)), *input, out=output)


@settings(max_examples=400, deadline=None)
@given(st.lists(any_operation(), max_size=6))
def test_agrees_with_the_oracle(operations: list[Operation]) -> None:
    assert verdict_on(*operations).ok is oracle(operations)


# Histories of a store that is atomic by construction


def atomic_history(seed: int, count: int, keys: int, clients: int, unknown: float = 0.0) -> History:
    """Closed-loop clients on an atomic store: each operation happens at an instant of its own
    between call and return; of the unknown ones every other one does not happen."""
    rng = Random(seed)
    free = [(0, client) for client in range(clients)]
    planned = []
    for _ in range(count):
        start, client = heapq.heappop(free)
        call, delay, way_back = (rng.randrange(1, 1_000) for _ in range(3))
        moment = start + call + delay
        planned.append((moment, start + call, moment + way_back, client))
        heapq.heappush(free, (moment + way_back, client))
    held: dict[str, Value] = {}
    operations = []
    for number, (_, call, end, client) in enumerate(sorted(planned)):
        key = f"k{rng.randrange(keys)}"
        input = random_input(rng, held.get(key) or "none", f"v{number}")
        if rng.random() < unknown:
            if rng.random() < 0.5:
                _, held[key] = held_after(held.get(key), input)
            operations.append(op(call, None, *input, client=f"c{client}", key=key))
        else:
            result, held[key] = held_after(held.get(key), input)
            operations.append(op(call, end, *input, out=result, client=f"c{client}", key=key))
    return History("test", tuple(operations))


def random_input(rng: Random, held: Value, fresh: str) -> Input:
    forms: list[Input] = [
        ("get",),
        ("get",),
        ("contains",),
        ("remove",),
        ("put", fresh),
        ("put", fresh),
        ("put_and_retrieve", fresh),
        ("put_if_absent", fresh),
        ("replace", fresh),
        ("replace", held, fresh),
        ("remove", held),
    ]
    return rng.choice(forms)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0, 0.1, 0.4]))
def test_atomic_histories_are_accepted(seed: int, keys: int, clients: int, unknown: float) -> None:
    verdict = check(atomic_history(seed, 120, keys, clients, unknown), DhtModel())
    assert verdict.ok, str(verdict)
    assert verdict.returned + verdict.unknown == 120


def with_other_output(rng: Random, operations: list[Operation]) -> list[Operation]:
    """One answer replaced by what another operation of its kind could have heard."""
    position = rng.choice([i for i, one in enumerate(operations) if not one.is_unknown])
    one = operations[position]
    others: list[Value] = [None, *(other.input[-1] for other in operations if len(other.input) > 1)]
    if isinstance(one.output, bool):
        others = [not one.output]
    output = rng.choice([value for value in others if value != one.output])
    return [*operations[:position], replace(one, output=output), *operations[position + 1 :]]


def without_a_write(rng: Random, operations: list[Operation]) -> list[Operation]:
    """One operation left out, as if a write had never been asked for."""
    position = rng.randrange(len(operations))
    return operations[:position] + operations[position + 1 :]


@pytest.mark.parametrize(
    ("mutate", "rejected_min"), [(with_other_output, 0.8), (without_a_write, 0.2)]
)
def test_mutated_histories_agree_with_the_oracle_and_are_mostly_rejected(
    mutate: Callable[[Random, list[Operation]], list[Operation]], rejected_min: float
) -> None:
    rejected = total = 0
    for seed in range(150):
        history = atomic_history(seed, 6, keys=1, clients=2, unknown=0.1)
        if all(one.is_unknown for one in history.operations):
            continue
        mutated = mutate(Random(seed), list(history.operations))
        verdict = verdict_on(*mutated)
        assert verdict.ok is oracle(mutated), seed
        rejected += not verdict.ok
        total += 1
    assert rejected / total >= rejected_min


def test_long_mutated_histories_are_mostly_rejected() -> None:
    rejected = 0
    for seed in range(40):
        history = atomic_history(seed, 300, keys=6, clients=6, unknown=0.03)
        mutated = with_other_output(Random(seed), list(history.operations))
        rejected += not check(History("test", tuple(mutated)), DhtModel())
    assert rejected >= 36


# Speed and size


def test_twenty_thousand_operations_take_seconds() -> None:
    for unknown in (0.0, 0.05):
        history = atomic_history(7, 20_000, keys=200, clients=16, unknown=unknown)
        began = time.perf_counter()
        assert check(history, DhtModel()).ok
        assert time.perf_counter() - began < 4.0  # 0.2 s on an idle machine


def test_one_long_history_of_one_key_needs_no_recursion() -> None:
    operations = [put(2 * i, 2 * i + 1, f"v{i}") for i in range(20_000)]
    assert verdict_on(*operations, get(50_000, 50_001, "v19999"))
    assert not verdict_on(*operations, get(50_000, 50_001, "v19998"))


# Recording


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


def test_a_recorder_keeps_order_while_its_clock_stands_still() -> None:
    recorder = Recorder("simulation", Clock())
    first = recorder.call("a", "k", "put", "v")
    recorder.returned(first, True)
    recorder.returned(recorder.call("a", "k", "get"), None)
    assert check(recorder.history(), DhtModel()).outcome is Outcome.VIOLATION


def test_what_has_not_ended_is_unknown_and_failures_are_dropped() -> None:
    recorder = Recorder("simulation", Clock())
    recorder.call("a", "k", "put", "open")
    recorder.unknown(recorder.call("b", "k", "put", "timed out"))
    recorder.failed(recorder.call("c", "k", "put", "refused"))
    recorder.returned(recorder.call("d", "k", "remove"), UNKNOWN)
    history = recorder.history()
    assert [one.client for one in history.operations] == ["a", "b", "d"]
    assert [one.is_unknown for one in history.operations] == [True, True, False]
    assert history.failed == 1
    with pytest.raises(HistoryError, match="ended twice"):
        recorder.returned(1, True)


def test_a_file_gives_back_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file:
        recorder = recorder_of_this_machine(file)
        recorder.returned(recorder.call("a", b"\0\xff", "put", b"\xfe"), True)
        recorder.returned(recorder.call("a", "key", "put", "wörd"), UNKNOWN)
        recorder.returned(recorder.call("a", "key", "get"), None)
        recorder.unknown(recorder.call("b", "key", "replace", "x", "y"))
        recorder.failed(recorder.call("b", "key", "remove"))
        recorder.call("c", "key", "put", 7)
        # Not closed yet: every line is out as soon as it is recorded, for a kill can come now.
        assert read(path) == recorder.history()
    assert len(recorder.history().operations) == 5


def test_a_torn_last_line_is_as_if_never_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file:
        recorder = Recorder("m", Clock(), file)
        recorder.returned(recorder.call("a", "k", "put", "v"), True)
    whole = path.read_bytes()
    start_of_last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for cut in range(start_of_last, len(whole)):
        path.write_bytes(whole[:cut])
        (operation,) = read(path).operations
        assert operation.is_unknown


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lacks its first line"),
        ("{}\n", "line 1: not a line"),
        ('{"line":"failed","number":0}\n', "must name the machine"),
        ('{"line":"history","version":9,"machine":"m"}\n', "another version"),
        ("HEAD{nonsense\n", "line 2: not a line"),
        ('HEAD{"line":"return","number":0,"at_ns":1,"output":true}\n', "not under way"),
        ("HEADCALLCALL", "called before"),
        ('HEADCALL{"line":"return","number":0,"at_ns":1}\n', "returned before it was called"),
    ],
)
def test_a_bad_file_is_refused_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    head = '{"line":"history","version":1,"machine":"m"}\n'
    call = '{"line":"call","number":0,"client":"a","key":"k","input":["get"],"at_ns":5}\n'
    path = tmp_path / "history.jsonl"
    path.write_text(text.replace("HEAD", head).replace("CALL", call))
    with pytest.raises(HistoryError, match=complaint):
        read(path)


def test_histories_of_one_clock_merge_and_others_do_not() -> None:
    writer, reader = History("m", (put(0, 1, "a"),), 2), History("m", (get(2, 3, None),), 1)
    merged = merge([reader, writer])
    assert merged.operations == (*writer.operations, *reader.operations)
    assert merged.failed == 3
    assert check(writer, DhtModel())
    assert check(reader, DhtModel())
    assert not check(merged, DhtModel())
    with pytest.raises(HistoryError, match="one machine"):
        merge([writer, History("other", ())])
    with pytest.raises(HistoryError, match="one machine"):
        merge([])
