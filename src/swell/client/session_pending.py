"""One operation of a client, from its call to its one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

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


class Pending(msgspec.Struct, eq=False):
    """An operation under way. Its number stays the same however often it is sent."""

    number: int
    service: int
    place: int
    read: int
    body: bytes
    deadline_s: float
    due_at: float
    done: Done
    wake_at: float
    """When to look at it again: no answer, time to try again, or the deadline."""
    session: int = 0
    """Of which session the number is; 0 until it is first sent."""
    peer: Peer | None = None
    """Where it is; None while it waits for a better moment."""
    avoid: Peer | None = None
    uncertain: int = 0
    """Attempts of which we do not know that they were not executed."""
    retry_s: float = RETRY_S
    busy: int = 0
    redirects: int = 0
    renewed: bool = False
    answers_seen: int = 0

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
