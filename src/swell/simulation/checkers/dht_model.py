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

from swell.simulation.checkers.history import UNKNOWN, HistoryError, Output, Value


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
