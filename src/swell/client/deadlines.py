"""How long an operation may take, also one that consists of several requests."""

from __future__ import annotations

import time

from swell.errors import ConfigurationError, UnavailableError


def check_deadline(deadline_s: float) -> float:
    if not 0.0 < deadline_s < float("inf"):
        raise ConfigurationError(f"a deadline is a positive number of seconds, not {deadline_s}")
    return deadline_s


class Deadline:
    """Of all requests of one operation together; without one, each has the client's own, so that
    something long goes on as long as it gets on."""

    __slots__ = ("_deadline_s", "_until")

    def __init__(self, deadline_s: float | None) -> None:
        self._deadline_s = deadline_s
        self._until = None if deadline_s is None else time.monotonic() + check_deadline(deadline_s)

    def left_s(self) -> float | None:
        """For the next request; `UnavailableError` if nothing is left."""
        if self._until is None:
            return None
        left_s = self._until - time.monotonic()
        if left_s <= 0.0:
            raise UnavailableError(f"not done within {self._deadline_s:g} s: try again")
        return left_s
