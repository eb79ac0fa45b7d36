"""Proposals on their way into the log: many records share one command of Raft.

Whatever is proposed in one turn of the loop is packed into as few commands as their limit allows,
in order. A proposal hears the outcome of each of its records once all of them are applied, or
None, once, when that cannot be known any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from swell.directory import records
from swell.directory.records import Record
from swell.world import World

Outcomes = list[bool] | None
"""For each record whether it took effect; None: nobody knows."""

COMMAND_OVERHEAD_BYTES = 16


class _Proposal:
    __slots__ = ("done", "left", "outcomes")

    def __init__(self, left: int, done: Callable[[Outcomes], None]) -> None:
        self.left = left
        self.outcomes: list[bool] = []
        self.done: Callable[[Outcomes], None] | None = done

    def take(self, outcomes: Outcomes) -> None:
        """The outcomes of the next records."""
        if self.done is None:
            return
        if outcomes is not None:
            self.outcomes += outcomes
            self.left -= len(outcomes)
            if self.left:
                return
        done, self.done = self.done, None
        done(None if outcomes is None else self.outcomes)


class Proposals:
    """The records that wait for the end of this turn."""

    def __init__(
        self,
        world: World,
        command_bytes_max: int,
        submit: Callable[[bytes, Callable[[Outcomes], None]], None],
    ) -> None:
        self._world = world
        self._bytes_max = command_bytes_max - COMMAND_OVERHEAD_BYTES
        self._submit = submit
        self._waiting: list[tuple[_Proposal, bytes]] = []
        self._pumping = False

    def add(self, changes: Sequence[Record], done: Callable[[Outcomes], None]) -> None:
        proposal = _Proposal(len(changes), done)
        if not changes:
            self._world.call_later(0.0, lambda: proposal.take([]))
            return
        self._waiting += [(proposal, records.encode(change)) for change in changes]
        if not self._pumping:
            self._pumping = True
            self._world.call_later(0.0, self._pump)

    def fail(self) -> None:
        """Leadership is over: what waits was meant for a state that may be another one by now."""
        waiting, self._waiting = self._waiting, []
        for proposal, _ in waiting:
            proposal.take(None)

    def _pump(self) -> None:
        self._pumping = False
        waiting, self._waiting = self._waiting, []
        begin = size = 0
        for end, (_, encoded) in enumerate(waiting):
            if size + len(encoded) > self._bytes_max and end > begin:
                self._send(waiting[begin:end])
                begin, size = end, 0
            size += len(encoded)
        if waiting:
            self._send(waiting[begin:])

    def _send(self, batch: list[tuple[_Proposal, bytes]]) -> None:
        def done(outcomes: Outcomes) -> None:
            shares: dict[_Proposal, list[bool]] = {}
            for place, (proposal, _) in enumerate(batch):
                share = shares.setdefault(proposal, [])
                if outcomes is not None:
                    share.append(outcomes[place])
            for proposal, share in shares.items():
                proposal.take(None if outcomes is None else share)

        self._submit(records.encode([msgspec.Raw(encoded) for _, encoded in batch]), done)
