"""The newest steps of an application as they are sent, built once and shared by all who need them.

Not part of the replicated state: whoever loads a dump begins without any, and serves from the
histories of the configurations instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from swell.config.bursts import Change, StepChanges
from swell.config.versions import Kind

STEPS_MAX = 1024
BYTES_MAX = 512 * 1024

CHANGE_BYTES = 64
"""What a change takes beside its name and its data, about."""


def weight(change: Change) -> int:
    """Bytes of a change in a burst, about."""
    return CHANGE_BYTES + len(change.name) + len(change.data)


class Recent:
    """Consecutive steps up to the present one."""

    __slots__ = ("_bytes", "_sizes", "_steps")

    def __init__(self) -> None:
        self._steps: deque[StepChanges] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0

    def add(self, step: StepChanges) -> None:
        size = sum([weight(change) for change in step.changes])
        self._steps.append(step)
        self._sizes.append(size)
        self._bytes += size
        while self._bytes > BYTES_MAX or len(self._steps) > STEPS_MAX:
            self._steps.popleft()
            self._bytes -= self._sizes.popleft()

    def at(self, step: int) -> tuple[Change, ...] | None:
        """What a step has changed; None: it is not here."""
        steps = self._steps
        if not steps or not steps[0].number <= step <= steps[-1].number:
            return None
        return steps[step - steps[0].number].changes

    def since(
        self, after: int, matches: Callable[[str], bool], bytes_max: int
    ) -> tuple[int, tuple[StepChanges, ...]] | None:
        """The steps behind `after` as far as they match, and the last one looked at. None: they are
        not here, or the value of some configuration is shorter than all that was done to it."""
        steps = self._steps
        if not steps or after + 1 < steps[0].number:
            return None
        upto, room = after, bytes_max
        found: list[StepChanges] = []
        spent: dict[str, int] = {}
        # From the newest end: what is asked for is nearly always there.
        for place in range(after - steps[-1].number, 0):
            step = steps[place]
            changes = [change for change in step.changes if matches(change.name)]
            if room <= 0 and changes:
                break
            for change in changes:
                size = len(change.data)
                room -= weight(change)
                if change.name in spent and change.kind == Kind.DELTA:
                    size += spent[change.name]
                    if size > change.length:
                        return None
                spent[change.name] = size
            if changes:
                same = len(changes) == len(step.changes)
                found.append(step if same else StepChanges(step.number, tuple(changes)))
            upto = step.number
        return upto, tuple(found)
