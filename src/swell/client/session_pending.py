"""One operation of a client, from its call to its one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from swell.errors import OutcomeUnknownError, SwellError, UnavailableError
from swell.store.messages import Read

if TYPE_CHECKING:
    from swell.client.session_peers import Peer

RETRY_S = 0.5
RETRY_S_MAX = 1.0
RETRY_GROWTH = 1.5
"""After this silence an operation is sent to another node too."""

BUSY_S = 0.05
BUSY_S_MAX = 0.5
"""How long to wait after a node said that it cannot now; doubled each time."""

REDIRECTS_MAX = 3
"""Redirects followed at once; then one waits as after `BUSY`: two nodes may name each other."""


class Answer(NamedTuple):
    """The body of a result. `stale`: from a member that may be behind."""

    body: bytes
    stale: bool = False


Done = Callable[[Answer | SwellError], None]


class Pending:
    """An operation under way. Its number stays the same however often it is sent."""

    __slots__ = (
        "answers_seen", "avoid", "body", "busy", "deadline_s", "done", "due_at", "number", "peer",
        "place", "read", "redirects", "renewed", "retry_s", "service", "session",
        "uncertain", "wake_at",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        service: int,
        place: int,
        read: int,
        body: bytes,
        deadline_s: float,
        due_at: float,
        done: Done,
    ) -> None:
        self.number = number
        self.service = service
        self.place = place
        self.read = read
        self.body = body
        self.deadline_s = deadline_s
        self.due_at = due_at
        self.wake_at = due_at
        """When to look at it again: no answer, time to try again, or the deadline."""
        self.done = done
        self.session = 0
        """Of which session the number is; 0 until it is first sent."""
        self.peer: Peer | None = None
        """Where it is; None while it waits for a better moment."""
        self.avoid: Peer | None = None
        self.uncertain = 0
        """Attempts of which we do not know that they were not executed."""
        self.retry_s = RETRY_S
        self.busy = 0
        self.redirects = 0
        self.renewed = False
        self.answers_seen = 0

    def expired(self) -> SwellError:
        """What the deadline means for it."""
        within = f"within {self.deadline_s:g} s"
        if self.read != Read.COMMAND:
            return UnavailableError(f"no answer {within}: try again")
        if self.uncertain:
            return self.unknown(f"no answer {within}")
        return UnavailableError(
            f"no node could execute it {within}; it was not executed: try again"
        )

    def unknown(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{why}: it may have been executed or not; look before you repeat it"
        )
