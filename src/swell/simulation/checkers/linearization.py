"""The search for one key's linearization: Wing and Gong's, with Lowe's memory of what was tried.

A configuration is a set of operations placed so far and the state they lead to. An operation may be
placed next if no unplaced one returned before it was called; the search goes deeper while the model
accepts, and never enters a configuration twice. It ends with a linearization once every operation
that returned is placed; one of unknown outcome is placed only where it helps.

Four things keep it small, none of which can change the answer:

- What is placed is a prefix in order of calls and a few bits beyond it, so a configuration's size
  follows the concurrency and not the length of the history.
- An operation that cannot change the state is placed as soon as the model accepts it: whatever
  follows is possible without it before, and just as possible with it.
- Of unknown operations with equal input the one called first is placed first.
- Configurations are visited in order of how many unknown operations they used up. One that differs
  from a visited one only in having used up more of them has fewer ways to go on: it is skipped. So
  unknown writes that nobody saw cost their number, not its power set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from swell.simulation.checkers.history import UNKNOWN, Operation, Output, Value

State = TypeVar("State")


class Model(Protocol[State]):
    """What operations do to one key. States are immutable, hashable and compared by value."""

    def init(self) -> State:
        """The state before all operations."""

    def step(self, state: State, input: tuple[Value, ...], output: Output) -> tuple[bool, State]:
        """Can the operation give this output in this state, and the state it leaves. An UNKNOWN
        output is always possible."""

    def is_read(self, input: tuple[Value, ...], output: Output) -> bool:
        """Does an operation that gave this output leave every state as it was?"""


@dataclass(slots=True, eq=False)
class Trail(Generic[State]):
    """An operation placed, the state it left, and what was placed before it."""

    operation: Operation
    state: State
    before: Trail[State] | None


@dataclass(slots=True, eq=False)
class Configuration(Generic[State]):
    """All of the first `low` operations that returned are placed, not the next one, and of those
    from there on the ones in `beyond`; of the unknown ones those in `used`."""

    low: int
    beyond: int
    used: int
    state: State
    trail: Trail[State] | None

    @property
    def placed(self) -> int:
        return self.low + self.beyond.bit_count()


class Search(Generic[State]):
    """The search over one key's operations; it can be interrupted and continued."""

    def __init__(self, model: Model[State], operations: list[Operation]) -> None:
        self._model = model
        self._returned: list[Operation] = []
        self._calls_ns: list[int] = []
        self._returns_ns: list[int] = []
        self._unknown: list[Operation] = []
        self._sort(operations)
        self._reads = [model.is_read(one.input, one.output) for one in self._returned]
        self._unknown_calls_ns = [one.call_ns for one in self._unknown]
        self._twins = _twins(self._unknown)
        self._visited: dict[tuple[int, int, State], list[int]] = {}
        self._stack: list[Configuration[State]] = []
        self._parents: list[Configuration[State]] = []
        self._expanded: list[Configuration[State]] = []
        self._deepest: tuple[int, int] = (-1, -1)
        self.deepest = Configuration(0, 0, 0, model.init(), None)
        self.found = not self._returned
        self.configurations = 0
        if not self.found:
            self._enter(self.deepest)

    def run(self, configurations_max: int) -> bool | None:
        """Visits so many more configurations. Is there a linearization? None: not known yet."""
        limit = self.configurations + configurations_max
        while not self.found and self.configurations < limit:
            if self._stack:
                self._expand(self._stack.pop())
            elif self._parents:
                self._place_unknown(self._parents.pop())
            elif self._expanded:
                # The most advanced last, to be taken first: where the search got stuck is where an
                # unknown operation is most likely missing.
                self._parents = sorted(self._expanded, key=lambda one: one.placed)
                self._expanded = []
            else:
                return False
        return True if self.found else None

    def stuck(self) -> Operation:
        """The operation whose return no placement of the operations gets past."""
        window = self._window(self.deepest.low, self.deepest.beyond)
        return self._returned[min(window, key=lambda index: self._returns_ns[index])]

    def unplaced(self) -> list[Operation]:
        """What else could have been placed where the search got stuck, and did not help."""
        stuck = self.stuck()
        window = self._window(self.deepest.low, self.deepest.beyond)
        others = [self._returned[index] for index in window]
        callable_max = bisect_right(self._unknown_calls_ns, stuck.return_ns or 0)
        used = self.deepest.used
        others += [self._unknown[i] for i in range(callable_max) if not used >> i & 1]
        return [one for one in others if one is not stuck]

    def _sort(self, operations: list[Operation]) -> None:
        for one in sorted(operations, key=lambda one: one.call_ns):
            if one.return_ns is not None:
                self._returned.append(one)
                self._calls_ns.append(one.call_ns)
                self._returns_ns.append(one.return_ns)
            elif not self._model.is_read(one.input, UNKNOWN):
                self._unknown.append(one)

    def _window(self, low: int, beyond: int) -> list[int]:
        """The unplaced operations of which none returned before another was called."""
        calls_ns, returns_ns, count = self._calls_ns, self._returns_ns, len(self._calls_ns)
        window: list[int] = []
        deadline_ns = returns_ns[low]
        free = ~beyond
        while True:
            bit = free & -free
            index = low + bit.bit_length() - 1
            if index >= count or calls_ns[index] > deadline_ns:
                return window
            window.append(index)
            deadline_ns = min(deadline_ns, returns_ns[index])
            free ^= bit

    def _expand(self, at: Configuration[State]) -> None:
        self.configurations += 1
        window = self._window(at.low, at.beyond)
        window.sort(key=lambda index: self._returns_ns[index], reverse=True)
        depth = (self._returns_ns[window[-1]], at.placed)
        if depth > self._deepest:
            self._deepest, self.deepest = depth, at
        if self._unknown:
            self._expanded.append(at)
        # The last one entered is the first one visited: what returned first was likely first.
        for index in window:
            one = self._returned[index]
            accepted, state = self._model.step(at.state, one.input, one.output)
            if accepted:
                self._enter(self._place(at, index, state))

    def _place(self, at: Configuration[State], index: int, state: State) -> Configuration[State]:
        low, beyond = at.low, at.beyond | 1 << (index - at.low)
        if beyond & 1:
            whole = (~beyond & (beyond + 1)).bit_length() - 1
            low, beyond = low + whole, beyond >> whole
        trail = Trail(self._returned[index], state, at.trail)
        return Configuration(low, beyond, at.used, state, trail)

    def _place_unknown(self, at: Configuration[State]) -> None:
        """Enters every configuration that is one unknown operation further."""
        deadline_ns = min(self._returns_ns[i] for i in self._window(at.low, at.beyond))
        for index in range(bisect_right(self._unknown_calls_ns, deadline_ns)):
            if at.used >> index & 1 or self._twins[index] & ~at.used:
                continue
            self.configurations += 1
            one = self._unknown[index]
            accepted, state = self._model.step(at.state, one.input, UNKNOWN)
            assert accepted, f"the model must accept an unknown output of {one.input}"
            if state != at.state:
                trail = Trail(one, state, at.trail)
                used = at.used | 1 << index
                self._enter(Configuration(at.low, at.beyond, used, state, trail))

    def _enter(self, at: Configuration[State]) -> None:
        """Puts a configuration on the stack, with all reads placed, unless a better one was."""
        at = self._settle(at)
        if at.low == len(self._returned):
            self.found, self.deepest = True, at
            return
        visited = self._visited.setdefault((at.low, at.beyond, at.state), [])
        if not any(used & at.used == used for used in visited):
            visited.append(at.used)
            self._stack.append(at)

    def _settle(self, at: Configuration[State]) -> Configuration[State]:
        while at.low < len(self._returned):
            for index in self._accepted_reads(at):
                at = self._place(at, index, at.state)
                break
            else:
                return at
        return at

    def _accepted_reads(self, at: Configuration[State]) -> Iterator[int]:
        for index in self._window(at.low, at.beyond):
            if self._reads[index]:
                one = self._returned[index]
                if self._model.step(at.state, one.input, one.output)[0]:
                    yield index


def _twins(unknown: list[Operation]) -> list[int]:
    """For each operation the bit of the one of equal input called last before it, or no bit."""
    last: dict[tuple[Value, ...], int] = {}
    twins = []
    for index, one in enumerate(unknown):
        twins.append(last.get(one.input, 0))
        last[one.input] = 1 << index
    return twins
