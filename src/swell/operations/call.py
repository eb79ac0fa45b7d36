"""One operation under way: it ends exactly once, with a result or an error, by its deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from swell.access.tokens import Tokens
from swell.directory.client import DirectoryClient
from swell.directory.service import DirectoryService
from swell.errors import SwellError, UnavailableError
from swell.overlay.contact import Contact
from swell.overlay.overlay import Overlay
from swell.overlay.sessions import Sessions
from swell.store.service import Store
from swell.world import World

Result = dict[str, Any]
Done = Callable[[Result | SwellError], None]

ANSWER_MARGIN = 0.8
"""Share of the time left that questions to other nodes may take: the rest is for the way back."""


class InvalidArgumentError(SwellError):
    """The arguments of an operation do not make sense; the sentence says which."""


class Host(Protocol):
    """The node that operations are about (`swell.node.Node`)."""

    @property
    def world(self) -> World: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def counters(self) -> Counter[str]: ...

    @property
    def overlay(self) -> Overlay | None: ...

    @property
    def service(self) -> DirectoryService | None: ...

    @property
    def directory(self) -> DirectoryClient: ...

    @property
    def store(self) -> Store: ...

    @property
    def tokens(self) -> Tokens: ...

    def me(self) -> Contact: ...


class Call:
    """An operation's arguments, time and outcome."""

    def __init__(
        self, host: Host, operation: str, arguments: Result, deadline_s: float, done: Done
    ) -> None:
        self.host = host
        self.operation = operation
        self.arguments = arguments
        self._due_at = host.world.now() + deadline_s
        self._done: Done | None = done
        self._timer = host.world.call_later(deadline_s, self._expire)

    @property
    def over(self) -> bool:
        return self._done is None

    def answer_time_s(self) -> float:
        """How long questions to other nodes may take from now on."""
        return max(0.0, self._due_at - self.host.world.now()) * ANSWER_MARGIN

    def overlay(self) -> Overlay | None:
        """The node's overlay; without one the call has failed."""
        overlay = self.host.overlay
        if overlay is None:
            self.finish(UnavailableError(f"{self.host.me().name} has not joined yet: try again"))
        return overlay

    def text(self, key: str, length_max: int) -> str:
        """A string argument; raises if it is missing or too long."""
        value = self.arguments.get(key)
        if not isinstance(value, str) or not value or len(value) > length_max:
            raise InvalidArgumentError(
                f"{self.operation} needs {key!r}, a text of 1 to {length_max} characters"
            )
        return value

    def finish(self, outcome: Result | SwellError) -> None:
        """End the call; later outcomes are ignored."""
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done(outcome)

    def _expire(self) -> None:
        self.host.counters["operation-timeout"] += 1
        self.finish(UnavailableError(f"{self.operation} did not end in time: try again"))
