"""Publishing what health checks find: commands of the node's own, each under a number of its own.

A finding says which line it was made for, so a command whose outcome nobody knows needs no second
attempt: whoever is the primary looks again and finds what is left to be said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from swell.config import operations as ops
from swell.config.edits import Line, Lines
from swell.config.names import INSTANCES
from swell.config.operations import CONFIG_SERVICE, Publish
from swell.store.messages import Execute, Read, Status
from swell.store.once import SECOND_SHIFT
from swell.world import World

AUTHOR = "health"
SESSION_S = 3600.0
"""A new session is begun that often, well before the store forgets the old one."""

DEADLINE_S = 10.0


class Publisher(Protocol):
    """What it needs of `swell.config.publishing.Publishing`."""

    def publish(
        self, execute: Execute, publish: Publish, done: Callable[[Status, bytes], None]
    ) -> None: ...


class Publication:
    """The session of one node's findings."""

    def __init__(self, world: World, publisher: Publisher, counters: Counter[str]) -> None:
        self._world = world
        self._publisher = publisher
        self._counters = counters
        self._session = 0
        self._session_until = 0.0
        self._number = 0
        self._open: dict[int, None] = {}

    def publish(
        self, slot: int, service: str, lines: tuple[Line, ...], done: Callable[[bool], None]
    ) -> None:
        """Change these lines of a list; `done` hears whether that is known to have happened. It
        may be called at once."""
        now = self._world.now()
        if now >= self._session_until:
            opened_s = self._world.wall_us() // 1_000_000
            chance = int.from_bytes(self._world.entropy(SECOND_SHIFT // 8), "big")
            self._session = opened_s << SECOND_SHIFT | chance
            self._session_until = now + SESSION_S
        self._number += 1
        number = self._number
        self._open[number] = None
        publish = Publish(service, (Lines(INSTANCES, lines),), AUTHOR)
        execute = Execute(
            self._session, number, next(iter(self._open)), slot, CONFIG_SERVICE, Read.COMMAND,
            ops.encode(publish), DEADLINE_S,
        )  # fmt: skip

        def settle(status: Status, body: bytes) -> None:
            self._open.pop(number, None)
            if status is Status.UNKNOWN:
                self._session_until = 0.0
            if status is not Status.DONE:
                self._counters[f"service-publish-{status.name.lower()}"] += 1
            done(status is Status.DONE)

        self._publisher.publish(execute, publish, settle)
