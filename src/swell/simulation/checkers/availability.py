"""How long was a part of the store silent while somebody waited for it?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from swell.simulation.checkers.history import History, Operation, Value


def longest_wait_s(
    history: History, part: Callable[[Value], int], since_ns: int = 0
) -> tuple[float, int]:
    """The longest time from a call to the next answer, to anybody, of the same part; and which
    part that was. Calls before `since_ns` do not count, nor do those that nothing ever followed:
    whether there is an answer in the end is another question."""
    parts: dict[int, list[Operation]] = {}
    for operation in history.operations:
        parts.setdefault(part(operation.key), []).append(operation)
    longest_ns, where = 0, -1
    for number, operations in parts.items():
        answers = sorted(one.return_ns for one in operations if one.return_ns is not None)
        for one in operations:
            next_answer = bisect_left(answers, one.call_ns)
            if one.call_ns < since_ns or next_answer == len(answers):
                continue
            waited_ns = answers[next_answer] - one.call_ns
            if waited_ns > longest_ns:
                longest_ns, where = waited_ns, number
    return longest_ns / 1e9, where
