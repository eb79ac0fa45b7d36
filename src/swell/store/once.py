"""Exactly once: what each session's commands came to, as far as they may still be asked again.

Part of a slot's state, so it is the same on every replica and moves with the slot. A session tells
with every command the lowest number that it still waits for; results below it are dropped. A
session's id begins with the second of its opening, so one number, the horizon, tells for ever
which sessions are forgotten: a command of such a session is never executed.

Invariant: a command is executed only if its session is not behind the horizon, its number has no
result yet, and its number is not below the session's lowest.
"""

from __future__ import annotations

from struct import Struct

from swell.errors import WireError

SECOND_SHIFT = 32
"""The upper bits of a session's id are the second of its opening."""

TOO_LONG = b""
"""Stands for a result that was too long to be kept."""

_top = Struct(">QI")
_session = Struct(">QQI")
_result = Struct(">QI")


def opened_s(session: int) -> int:
    """The second at which a session was opened."""
    return session >> SECOND_SHIFT


class Known:
    """One session: its lowest open number, and results by number in the order of execution."""

    __slots__ = ("lowest", "results")

    def __init__(self, lowest: int) -> None:
        self.lowest = lowest
        self.results: dict[int, bytes] = {}

    def rise(self, lowest: int) -> None:
        """Numbers below `lowest` are not asked for any more."""
        if lowest <= self.lowest:
            return
        self.lowest = lowest
        results = self.results
        # Results stand nearly in the order of their numbers: what is out of order goes later.
        while results and (first := next(iter(results))) < lowest:
            del results[first]


class Once:
    """The sessions of one slot."""

    __slots__ = ("horizon_s", "sessions")

    def __init__(self) -> None:
        self.horizon_s = 0
        self.sessions: dict[int, Known] = {}

    def is_expired(self, session: int) -> bool:
        return session >> SECOND_SHIFT < self.horizon_s

    def has(self, session: int, number: int) -> bool:
        """Whether a number was executed, or may have been."""
        known = self.sessions.get(session)
        return known is not None and (number in known.results or number < known.lowest)

    def of(self, session: int, lowest: int) -> Known | None:
        """A session, new if this is its first command here; None if it is expired."""
        if session >> SECOND_SHIFT < self.horizon_s:
            return None
        known = self.sessions.get(session)
        if known is None:
            known = self.sessions[session] = Known(lowest)
        return known

    def expire(self, horizon_s: int) -> None:
        """Forget the sessions opened before this second; the horizon never goes back."""
        if horizon_s <= self.horizon_s:
            return
        self.horizon_s = horizon_s
        for session in [session for session in self.sessions if self.is_expired(session)]:
            del self.sessions[session]

    def horizon_keeping(self, sessions_max: int) -> int:
        """The horizon that leaves at most so many sessions, the youngest."""
        surplus = len(self.sessions) - sessions_max
        if surplus <= 0:
            return self.horizon_s
        return max(self.horizon_s, opened_s(sorted(self.sessions)[surplus - 1]) + 1)

    # Bytes.

    def dump(self) -> bytes:
        parts = [_top.pack(self.horizon_s, len(self.sessions))]
        for session, known in self.sessions.items():
            parts.append(_session.pack(session, known.lowest, len(known.results)))
            for number, result in known.results.items():
                parts.append(_result.pack(number, len(result)))
                parts.append(result)
        return b"".join(parts)

    def load(self, data: bytes) -> None:
        """Become what was dumped; `WireError` if that is not what these bytes are."""
        sessions: dict[int, Known] = {}
        try:
            horizon_s, count = _top.unpack_from(data)
            at = _top.size
            for _ in range(count):
                session, lowest, results = _session.unpack_from(data, at)
                at += _session.size
                known = sessions[session] = Known(lowest)
                for _ in range(results):
                    number, length = _result.unpack_from(data, at)
                    at += _result.size + length
                    known.results[number] = data[at - length : at]
        except Exception as error:
            raise WireError("bad-state", f"sessions: {error}") from None
        if at != len(data) or len(sessions) != count:
            raise WireError("bad-state", "sessions: not as long as announced")
        self.horizon_s = horizon_s
        self.sessions = sessions
