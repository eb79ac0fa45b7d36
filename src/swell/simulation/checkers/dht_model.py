"""What the DHT's nine operations do to one key, for the linearizability checker (SPI-5).

SpiderCast's design, section 2.3, names the operations and the kinds of their results; as there, the
two forms of `replace` and of `remove` share a name and differ in their arguments. The state is the
key's value, None while it is absent.

| input | result | the key then holds |
|---|---|---|
| put, v | True | v |
| put_and_retrieve, v | what it held | v |
| get | what it holds | the same |
| contains | does it hold something? | the same |
| remove | did it hold something? | nothing |
| put_if_absent, v | was it absent? | v if it was, else the same |
| replace, v | what it held | v unless it was absent |
| replace, old, new | did it hold old? | new if so, else the same |
| remove, v | did it hold v? | nothing if so, else the same |
"""

from __future__ import annotations

from dataclasses import replace

from swell.simulation.checkers.history import UNKNOWN, HistoryError, Operation, Output, Value

UNSEEN = "\0unseen"


class DhtModel:
    """One key of the DHT."""

    def init(self) -> Value:
        return None

    def step(self, state: Value, input: tuple[Value, ...], output: Output) -> tuple[bool, Value]:
        result, after = apply(state, input)
        return output is UNKNOWN or output == result, after

    def is_read(self, input: tuple[Value, ...], output: Output) -> bool:
        match input:
            case ("get",) | ("contains",):
                return True
            case ("put_if_absent", _) | ("remove",) | ("replace", _, _) | ("remove", _):
                return output is False
            case ("replace", _):
                return output is None
            case _:
                return False

    def prepare(self, operations: list[Operation]) -> list[Operation]:
        """Settles what workloads with unique values let us know beforehand.

        A value that no answer holds and no condition names cannot be told from another such value:
        all become one. A write of unknown outcome whose value was seen, and that no other write
        can have written, did happen, at the latest when the first to see it returned.
        """
        seen_ns = _first_seen_ns(operations)
        writers: dict[Value, int] = {}
        for one in operations:
            written = _written(one.input)
            writers[written] = writers.get(written, 0) + 1
        named = {value for one in operations for value in _named(one)}
        prepared = []
        for one in operations:
            written = _written(one.input)
            if written is not None and written not in named:
                one = replace(one, input=(*one.input[:-1], UNSEEN))
            elif one.is_unknown and written in seen_ns and writers[written] == 1:
                # An answer from before the call is impossible, which is for the search to find.
                one = replace(one, return_ns=max(seen_ns[written], one.call_ns))
            prepared.append(one)
        return prepared


def _written(input: tuple[Value, ...]) -> Value:
    """The value an operation may leave behind, always its last argument; None if it has none."""
    match input:
        case (("put" | "put_and_retrieve" | "put_if_absent" | "replace"), value):
            return value
        case ("replace", _, new):
            return new
        case _:
            return None


def _named(operation: Operation) -> list[Value]:
    """The values an operation tells from others: its condition and its answer."""
    named: list[Value] = [] if operation.output is UNKNOWN else [operation.output]
    match operation.input:
        case ("replace", old, _) | ("remove", old):
            named.append(old)
    return named


def _first_seen_ns(operations: list[Operation]) -> dict[Value, int]:
    """When the first operation returned whose answer proves that the key held the value."""
    seen_ns: dict[Value, int] = {}
    for one in operations:
        match one.input:
            case ("get",) | ("put_and_retrieve" | "replace", _):
                held = one.output
            case ("replace", old, _) | ("remove", old) if one.output is True:
                held = old
            case _:
                continue
        if held is not UNKNOWN and held is not None and one.return_ns is not None:
            seen_ns[held] = min(one.return_ns, seen_ns.get(held, one.return_ns))
    return seen_ns


def apply(state: Value, input: tuple[Value, ...]) -> tuple[Value, Value]:
    """The result of an operation, and the state it leaves."""
    match input:
        case ("get",):
            return state, state
        case ("put", value) if value is not None:
            return True, value
        case ("contains",):
            return state is not None, state
        case ("remove",):
            return state is not None, None
        case ("put_if_absent", value) if value is not None:
            return state is None, value if state is None else state
        case ("put_and_retrieve", value) if value is not None:
            return state, value
        case ("replace", value) if value is not None:
            return state, None if state is None else value
        case ("replace", old, new) if old is not None and new is not None:
            return (True, new) if state == old else (False, state)
        case ("remove", value) if value is not None:
            return (True, None) if state == value else (False, state)
        case _:
            raise HistoryError(f"{input} is not an operation of the DHT.")
