"""The search for one key's linearization: Wing and Gong's, with Lowe's memory of what was tried.

A configuration is a set of operations placed so far and the state they lead to. An operation may be
placed next if no unplaced one returned before it was called; the search goes deeper while the model
accepts, and never enters a configuration twice. It ends with a linearization once every operation
that returned is placed; one of unknown outcome is placed only where it helps.

What keeps it small, and cannot change the answer:

- What is placed is a prefix in order of calls and a few bits beyond it, so a configuration's size
  follows the concurrency and not the length of the history.
- An operation that cannot change the state is placed as soon as the model accepts it: whatever
  follows is possible without it before, and just as possible with it.
- Of operations with equal input and output that may be placed next, only the one that returns
  first is tried; of unknown ones with equal input, the one called first.
- Of two configurations that differ only in the unknown operations they used up, the one that used
  up a part of what the other did can go on in more ways: the other is skipped. Deeper
  configurations go first, and among equally deep ones those that used up fewer.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
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

    def prepare(self, operations: list[Operation]) -> list[Operation]:
        """The key's operations one for one, simplified so that the answer stays the same: for
        example values made equal that no operation can tell apart. May return them as they are."""


@dataclass(slots=True, eq=False)
class Trail:
    """An operation placed, and what was placed before it."""

    operation: Operation
    before: Trail | None


@dataclass(slots=True, eq=False)
class Configuration(Generic[State]):
    """All of the first `low` operations that returned are placed, not the next one, and of those
    from there on the ones in `beyond`; of the unknown ones those in `used`."""

    low: int
    beyond: int
    used: int
    state: State
    trail: Trail | None

    @property
    def placed(self) -> int:
        return self.low + self.beyond.bit_count()


class Search(Generic[State]):
    """The search over one key's operations; it can be interrupted and continued."""

    def __init__(self, model: Model[State], operations: list[Operation]) -> None:
        self._model = model
        self._originals: list[Operation] = []
        self._returned: list[Operation] = []
        self._calls_ns: list[int] = []
        self._returns_ns: list[int] = []
        self._unknown_originals: list[Operation] = []
        self._unknown: list[Operation] = []
        self._sort(operations)
        self._reads = [model.is_read(one.input, one.output) for one in self._returned]
        self._kinds = _kinds(self._returned)
        self._unknown_calls_ns = [one.call_ns for one in self._unknown]
        self._twins = _twins(self._unknown)
        self._visited: dict[tuple[int, int, State], list[int]] = {}
        self._queue: list[tuple[int, int, int, bool, Configuration[State]]] = []
        self._queued = 0
        self._depth = (-1, -1)
        self._deepest = Configuration(0, 0, 0, model.init(), None)
        self.found = not self._returned
        self.configurations = 0
        self._enter(self._deepest)

    def run(self, configurations_max: int) -> bool | None:
        """Visits so many more configurations. Is there a linearization? None: not known yet."""
        limit = self.configurations + configurations_max
        while not self.found and self.configurations < limit:
            if not self._queue:
                return False
            *_, expanded, at = heapq.heappop(self._queue)
            if expanded:
                self._place_unknown(at)
            else:
                self._expand(at)
        return True if self.found else None

    def prefix(self) -> list[Operation]:
        """The linearization that was found, or the one that gets past most returns."""
        operations: list[Operation] = []
        trail = self._deepest.trail
        while trail is not None:
            operations.append(trail.operation)
            trail = trail.before
        return operations[::-1]

    def stuck(self) -> Operation:
        """The operation whose return no placement of the operations gets past."""
        window = self._window(self._deepest.low, self._deepest.beyond)
        # A model may have given an unknown operation the return of the one that saw it.
        _, _, stuck = min(
            (self._returns_ns[index], self._originals[index].is_unknown, index) for index in window
        )
        return self._originals[stuck]

    def unplaced(self) -> list[Operation]:
        """What else could have been placed where the search got stuck, and did not help."""
        window = self._window(self._deepest.low, self._deepest.beyond)
        deadline_ns = min(self._returns_ns[index] for index in window)
        others = [self._originals[index] for index in window]
        for index in range(bisect_right(self._unknown_calls_ns, deadline_ns)):
            if not self._deepest.used >> index & 1:
                others.append(self._unknown_originals[index])
        stuck = self.stuck()
        return [one for one in others if one is not stuck]

    def _sort(self, operations: list[Operation]) -> None:
        pairs = zip(self._model.prepare(operations), operations, strict=True)
        for one, original in sorted(pairs, key=lambda pair: pair[0].call_ns):
            if one.return_ns is not None:
                self._originals.append(original)
                self._returned.append(one)
                self._calls_ns.append(one.call_ns)
                self._returns_ns.append(one.return_ns)
            elif not self._model.is_read(one.input, UNKNOWN):
                self._unknown_originals.append(original)
                self._unknown.append(one)

    def _window(self, low: int, beyond: int) -> list[int]:
        """The unplaced operations that were called before any unplaced one returned."""
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
            if returns_ns[index] < deadline_ns:
                deadline_ns = returns_ns[index]
            free ^= bit

    def _expand(self, at: Configuration[State]) -> None:
        """Enters every configuration that is one returned operation further."""
        self.configurations += 1
        window = self._window(at.low, at.beyond)
        window.sort(key=self._returns_ns.__getitem__)
        depth = (self._returns_ns[window[0]], at.placed)
        if depth > self._depth:
            self._depth, self._deepest = depth, at
        # By kind, so that of equal operations the one that returns first stays. The last one
        # entered is the first one visited: what returned first was likely first.
        first = {self._kinds[index]: index for index in reversed(window)}
        for index in first.values():
            one = self._returned[index]
            accepted, state = self._model.step(at.state, one.input, one.output)
            if accepted:
                self._enter(self._place(at, index, state))
        if self._unknown:
            self._push(at, expanded=True)

    def _place_unknown(self, at: Configuration[State]) -> None:
        """Enters every configuration that is one unknown operation further."""
        deadline_ns = min(self._returns_ns[i] for i in self._window(at.low, at.beyond))
        for index in range(bisect_right(self._unknown_calls_ns, deadline_ns)):
            if at.used >> index & 1 or self._twins[index] & ~at.used:
                continue
            self.configurations += 1
            accepted, state = self._model.step(at.state, self._unknown[index].input, UNKNOWN)
            assert accepted, f"the model refused an unknown output of {self._unknown[index]}"
            if state != at.state:
                trail = Trail(self._unknown_originals[index], at.trail)
                used = at.used | 1 << index
                self._enter(Configuration(at.low, at.beyond, used, state, trail))

    def _place(self, at: Configuration[State], index: int, state: State) -> Configuration[State]:
        low, beyond = at.low, at.beyond | 1 << (index - at.low)
        if beyond & 1:
            whole = (~beyond & (beyond + 1)).bit_length() - 1
            low, beyond = low + whole, beyond >> whole
        return Configuration(low, beyond, at.used, state, Trail(self._originals[index], at.trail))

    def _enter(self, at: Configuration[State]) -> None:
        """Queues a configuration, with all reads placed, unless as good a one was before."""
        at = self._settle(at)
        if at.low == len(self._returned):
            self.found, self._deepest = True, at
            return
        visited = self._visited.setdefault((at.low, at.beyond, at.state), [])
        if not any(used & at.used == used for used in visited):
            visited.append(at.used)
            self._push(at, expanded=False)

    def _push(self, at: Configuration[State], expanded: bool) -> None:
        """`expanded`: only unknown operations remain to be tried there."""
        self._queued -= 1
        used = at.used.bit_count() + expanded
        heapq.heappush(self._queue, (-at.placed, used, self._queued, expanded, at))

    def _settle(self, at: Configuration[State]) -> Configuration[State]:
        """Places reads until none is left that fits."""
        reads, step = self._reads, self._model.step
        fits = True
        while fits and at.low < len(self._returned):
            fits = False
            for index in self._window(at.low, at.beyond):
                one = self._returned[index]
                if reads[index] and step(at.state, one.input, one.output)[0]:
                    at = self._place(at, index, at.state)
                    fits = True
        return at


def _kinds(operations: list[Operation]) -> list[int]:
    """A number for each operation, equal where input and output are."""
    numbers: dict[tuple[tuple[Value, ...], Output], int] = {}
    return [numbers.setdefault((one.input, one.output), len(numbers)) for one in operations]


def _twins(unknown: list[Operation]) -> list[int]:
    """For each operation the bit of the one of equal input called last before it, or no bit."""
    last: dict[tuple[Value, ...], int] = {}
    twins = []
    for index, one in enumerate(unknown):
        twins.append(last.get(one.input, 0))
        last[one.input] = 1 << index
    return twins
