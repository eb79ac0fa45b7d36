"""The checkers of the store's workloads bite: each is shown what it must find."""

from __future__ import annotations

from swell.simulation.checkers import chains
from swell.simulation.checkers.availability import longest_wait_s
from swell.simulation.checkers.history import UNKNOWN, History, Operation, Output, Value


def _operation(input: tuple[Value, ...], output: Output, call_ns: int = 0) -> Operation:
    return Operation("c", "chain0", input, output, call_ns, call_ns + 1)


FIRST = _operation(("put_if_absent", "a"), True)


def test_a_chain_that_holds() -> None:
    unknown = Operation("c", "chain0", ("replace", "b", "c"), UNKNOWN, 3, None)
    refused = _operation(("replace", "a", "x"), False)
    operations = [FIRST, _operation(("replace", "a", "b"), True), refused, unknown]
    assert chains.problems("chain0", operations, "b") == []
    assert chains.problems("chain0", operations, "c") == []


def test_two_replacements_of_one_value() -> None:
    twice = [FIRST, *(_operation(("replace", "a", new), True) for new in ("b", "c"))]
    found = chains.problems("chain0", twice, "c")
    assert found == [
        "chain0: b and c were both acknowledged as replacing a",
        "chain0: b was acknowledged and is not on the way to c",
    ]


def test_a_lost_end_and_an_invented_one() -> None:
    operations = [FIRST, _operation(("replace", "a", "b"), True)]
    assert chains.problems("chain0", operations, "a") == [
        "chain0: b was acknowledged and is not on the way to a"
    ]
    assert chains.problems("chain0", operations, "z") == ["chain0: nobody wrote z"]
    assert len(chains.problems("chain0", operations, None)) == 2


def test_the_longest_wait_counts_answers_to_anybody() -> None:
    second = 1_000_000_000
    operations = (
        Operation("a", "k0", ("get",), None, 0, second),
        Operation("b", "k0", ("get",), UNKNOWN, 2 * second, None),
        Operation("a", "k0", ("get",), None, 6 * second, 7 * second),
        Operation("a", "k1", ("get",), None, 0, second),
        Operation("a", "k1", ("get",), UNKNOWN, 2 * second, None),
    )
    history = History("m", operations)
    part = {"k0": 0, "k1": 1}
    assert longest_wait_s(history, lambda key: part[str(key)]) == (5.0, 0)
    assert longest_wait_s(history, lambda key: part[str(key)], 3 * second) == (1.0, 0)
