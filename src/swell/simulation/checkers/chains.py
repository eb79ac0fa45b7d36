"""Chains: on some keys clients only ever replace the value they saw by a new one.

All values being unique, the replacements that happened form one chain from the first value to the
last. Two acknowledged replacements of one value mean that one of them was lost or that a refused
one was applied; an acknowledged one that is not on the way to the last value was lost; the last
value being none that anybody wrote means that something was invented. The linearizability checker
would say the same, in more words and after a search; this one names the lost write.
"""

from __future__ import annotations

from collections.abc import Iterable

from swell.simulation.checkers.history import Operation, Value


def problems(key: str, operations: Iterable[Operation], last: Value) -> list[str]:
    """What is wrong with the chain of `key`, whose value is `last` in the end."""
    acknowledged: dict[Value, list[Value]] = {}
    before: dict[Value, Value] = {}
    for operation in operations:
        if operation.input[0] not in ("put_if_absent", "replace"):
            continue
        old, new = (None, *operation.input[1:])[-2:]
        before[new] = old
        if operation.output is True:
            acknowledged.setdefault(old, []).append(new)
    found = [
        f"{key}: {' and '.join(map(str, news))} were both acknowledged as replacing {old!s}"
        for old, news in acknowledged.items()
        if len(news) > 1
    ]
    passed: dict[Value, None] = {}
    value = last
    while value is not None and value not in passed:
        if value not in before:
            return [*found, f"{key}: nobody wrote {value!s}"]
        passed[value] = None
        value = before[value]
    lost = [new for news in acknowledged.values() for new in news if new not in passed]
    found += [f"{key}: {new!s} was acknowledged and is not on the way to {last!s}" for new in lost]
    return found
