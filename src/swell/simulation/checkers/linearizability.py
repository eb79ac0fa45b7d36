"""Does a history look as if every operation had happened at one instant between call and return?

Keys are independent, so each is checked alone (linearizability is a local property: Herlihy and
Wing, 1990); `linearization` holds the search. Searches take turns, so one hard key
does not keep a violation on another from being found.

A verdict is one of three. UNDECIDED, the budget being spent, is not a pass: `ok` and truth are for
OK alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from swell.simulation.checkers.history import UNKNOWN, History, Operation, Value
from swell.simulation.checkers.linearization import Model, Search, State

TIME_LIMIT_S = 60.0
CONFIGURATIONS_MAX = 10_000_000  # at some 250 bytes each, 2.5 GB at worst
SHARE = 2_000  # configurations of one key before the others have their turn
SHOWN_MAX = 12
VALUE_SHOWN_MAX = 40


class Outcome(Enum):
    OK = "ok"
    VIOLATION = "violation"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Why one key has no linearization.

    `prefix` is a linearization, in order, of everything that returned before `stuck` did; each
    operation with the state it left. No linearization of those has room for `stuck` as well.
    `unplaced` are the operations that were under way then and could not help.
    """

    key: Value
    prefix: list[tuple[Operation, str]]
    stuck: Operation
    unplaced: list[Operation]

    def __str__(self) -> str:
        lines = [f"key {_shown(self.key)} is not linearizable. Possible so far, in order:"]
        hidden = len(self.prefix) - SHOWN_MAX
        if hidden > 0:
            lines.append(f"  ... {hidden} operations before")
        for operation, state in self.prefix[-SHOWN_MAX:]:
            lines.append(f"  {_line(operation)}  leaves {state}")
        lines.append(f"then there is no place for\n  {_line(self.stuck)}")
        if self.unplaced:
            lines.append("and none of these, under way at the time, makes room for it:")
            lines += [f"  {_line(operation)}" for operation in self.unplaced[:SHOWN_MAX]]
            if len(self.unplaced) > SHOWN_MAX:
                lines.append(f"  ... {len(self.unplaced) - SHOWN_MAX} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `check` found. The counts let callers refuse a run that tested nothing."""

    outcome: Outcome
    keys: int
    returned: int
    unknown: int
    configurations: int
    counterexample: Counterexample | None = None
    undecided: list[Value] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.counterexample is not None:
            return str(self.counterexample)
        counts = (
            f"{self.returned} operations and {self.unknown} of unknown outcome on {self.keys} keys,"
            f" {self.configurations} configurations"
        )
        if self.ok:
            return f"linearizable: {counts}"
        keys = ", ".join(_shown(key) for key in self.undecided[:SHOWN_MAX])
        return f"undecided, the budget is spent: {counts}; {len(self.undecided)} keys open: {keys}"


def check(
    history: History,
    model: Model[State],
    time_limit_s: float = TIME_LIMIT_S,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Verdict:
    """Checks each key of the history against the model. Stops at the first violation."""
    parts: dict[Value, list[Operation]] = {}
    for operation in history.operations:
        parts.setdefault(operation.key, []).append(operation)
    unknown = sum(operation.is_unknown for operation in history.operations)
    returned = len(history.operations) - unknown
    searches = {key: Search(model, part) for key, part in parts.items()}
    deadline_s = time.process_time() + time_limit_s

    def verdict(outcome: Outcome, failed: Counterexample | None = None) -> Verdict:
        visited = sum(search.configurations for search in searches.values())
        return Verdict(outcome, len(parts), returned, unknown, visited, failed, undecided)

    undecided = list(searches)
    remaining = configurations_max
    while undecided:
        still: list[Value] = []
        for position, key in enumerate(undecided):
            if remaining <= 0 or time.process_time() >= deadline_s:
                undecided = still + undecided[position:]
                return verdict(Outcome.UNDECIDED)
            search = searches[key]
            before = search.configurations
            found = search.run(min(SHARE, remaining))
            remaining -= search.configurations - before
            if found is False:
                undecided = []
                return verdict(Outcome.VIOLATION, _counterexample(key, model, search))
            if found is None:
                still.append(key)
        undecided = still
    return verdict(Outcome.OK)


def _counterexample(key: Value, model: Model[State], search: Search[State]) -> Counterexample:
    prefix: list[tuple[Operation, str]] = []
    state = model.init()
    for operation in search.prefix():
        _, state = model.step(state, operation.input, operation.output)
        prefix.append((operation, _shown(state)))
    return Counterexample(key, prefix, search.stuck(), search.unplaced())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[: VALUE_SHOWN_MAX - 3]}..."


def _line(operation: Operation) -> str:
    name, *arguments = operation.input
    asked = f"{name!s}({', '.join(_shown(one) for one in arguments)})"
    heard = "?" if operation.output is UNKNOWN else _shown(operation.output)
    until = "..." if operation.return_ns is None else f"{operation.return_ns / 1e9:.6f}"
    return f"[{operation.call_ns / 1e9:.6f} – {until}] {operation.client}: {asked} → {heard}"
