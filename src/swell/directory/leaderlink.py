"""A node's link to the directory's leader: found on demand, followed, closed when idle.

Only the leader serves. A voter that does not lead names the one that does, if it knows it; else
the voters are tried in turn. While something is waited for, the link is pinged, so that a leader
that vanished is noticed soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from swell.directory.messages import GroupReply, GroupRequest, Voter
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import Timer, World

IDLE_S = 10.0
ATTEMPT_S = 1.0
ATTEMPT_S_MAX = 5.0
"""How long one of several voters may take to open a link before the next is tried; doubled when
none of them did in time, since they may be far away."""
HINTS_MAX = 3
"""Voters that are followed to the leader they name without a pause in between."""
NEXT_S = 0.05
RETRY_S = 0.25
RETRY_S_MAX = 2.0
"""Pause before the next voter, and after all of them were tried."""
PING_S = 0.7
SILENT_S = 2.0
STAY_PING_S = 2.0
STAY_SILENT_S = 5.0
"""How often the leader is pinged and how long it may be silent: while an answer is waited for, and
while the link is only held."""


class LeaderListener(Protocol):
    """Who uses the link."""

    def waits(self) -> bool:
        """Is there anything to wait for?"""
        ...

    def asks(self) -> bool:
        """Is that an answer?"""
        ...

    def on_up(self, session: Session) -> None: ...

    def on_down(self, session: Session, reason: str) -> None:
        """The link, or an attempt to make one, has ended."""
        ...


class LeaderLink:
    """One link at a time."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        voters: Sequence[Voter],
        listener: LeaderListener,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._sessions = sessions
        self._first = tuple(voters)
        self._voters = list(voters)
        self._listener = listener
        self._counters = counters
        self._session: Session | None = None
        self._timers: dict[str, Timer] = {}
        self._tries = 0
        self._hints = 0
        self._retry_s = RETRY_S
        self._attempt_s = ATTEMPT_S
        self._dialed_at = 0.0
        self._heard_at = 0.0
        self._ping_due = 0.0
        self._ping_s = PING_S
        self._stopped = False

    @property
    def session(self) -> Session | None:
        """The link, if it is open."""
        session = self._session
        return session if session is not None and session.open else None

    def use(self) -> Session | None:
        """The open link, or None while one is made."""
        self._arm("idle", IDLE_S, self._expire_idle)
        session = self.session
        if session is not None:
            self._watch()
        elif self._session is None and "retry" not in self._timers and not self._stopped:
            self._connect(self._voters[0])
        return session

    def heard(self, session: Session) -> bool:
        """Something came: is it on our own link? Only that is an answer."""
        if session is not self._session:
            return False
        self._heard_at = self._world.now()
        return True

    def learn(self, reply: GroupReply) -> None:
        """Who the voters are now; those we began with stay behind them."""
        told = [member.voter for member in reply.members if member.voter.host]
        known = [voter.address for voter in told]
        self._voters = [*told, *(voter for voter in self._first if voter.address not in known)]

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _arm(self, what: str, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            del self._timers[what]
            action()

        self._cancel(what)
        self._timers[what] = self._world.call_later(delay_s, run)

    def _cancel(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    # -- finding the leader --------------------------------------------------------------------

    def _connect(self, voter: Voter) -> None:
        self._dialed_at = self._world.now()
        session = self._sessions.open(voter.address, voter.name, LinkKind.DIRECTORY, self)
        self._session = session
        if len(self._voters) > 1:
            self._arm("attempt", self._attempt_s, lambda: self._expire_attempt(session))

    def _expire_attempt(self, session: Session) -> None:
        if self._tries % len(self._voters) == len(self._voters) - 1:
            self._attempt_s = min(2 * self._attempt_s, ATTEMPT_S_MAX)
        self._give_up(session, "slow")

    def _give_up(self, session: Session, reason: str) -> None:
        session.close(reason=reason)
        self.on_closed(session, reason)

    def on_open(self, session: Session) -> None:
        now = self._world.now()
        self._cancel("attempt")
        self._tries = self._hints = 0
        self._retry_s = RETRY_S
        self._attempt_s = min(max(ATTEMPT_S, 2 * (now - self._dialed_at)), ATTEMPT_S_MAX)
        self._heard_at = now
        self._listener.on_up(session)
        self._watch()

    def on_closed(self, session: Session, reason: str) -> None:
        if session is not self._session:
            return
        self._session = None
        self._cancel("attempt")
        self._cancel("ping")
        self._counters["directory-refused" if session.contact is None else "directory-lost"] += 1
        self._listener.on_down(session, reason)
        if self._session is None and self._listener.waits() and not self._stopped:
            self._try_next(session)

    def _try_next(self, session: Session) -> None:
        """The voter that the last one named; else the next, with a pause after each round."""
        refusal = session.refusal
        if refusal is not None and refusal.name and self._hints < HINTS_MAX:
            self._hints += 1
            self._connect(Voter(refusal.name, refusal.host, refusal.port))
            return
        self._hints = 0
        self._tries += 1
        self._voters.append(self._voters.pop(0))
        jitter = 0.5 + 0.5 * self._world.rng.random()
        if self._tries % len(self._voters):
            delay_s = NEXT_S * jitter
        else:
            delay_s = self._retry_s * jitter
            self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
        self._arm("retry", delay_s, self._retry)

    def _retry(self) -> None:
        if self._session is None and self._listener.waits():
            self._connect(self._voters[0])

    # -- keeping it ----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Begin to ping, unless that is under way. The only voter is pinged too: a machine that
        lost power ends no link, and its next life knows nothing of what was asked on the old."""
        if "ping" not in self._timers or (self._ping_s > PING_S and self._listener.asks()):
            self._heard_at = max(self._heard_at, self._world.now() - PING_S)
            self._ping_later()

    def _ping_later(self) -> None:
        self._ping_s = PING_S if self._listener.asks() else STAY_PING_S
        self._ping_due = self._world.now() + self._ping_s
        self._arm("ping", self._ping_s, self._ping)

    def _ping(self) -> None:
        session, now = self.session, self._world.now()
        if session is None or not self._listener.waits():
            return
        late_s = now - self._ping_due
        if late_s > PING_S:
            # Answers that came while this process stood still wait to be read.
            self._heard_at += late_s
        if now - self._heard_at > (SILENT_S if self._ping_s == PING_S else STAY_SILENT_S):
            self._counters["directory-silent"] += 1
            self._give_up(session, "silent")
            return
        session.send(GroupRequest())
        self._ping_later()

    def _expire_idle(self) -> None:
        session = self._session
        if session is None:
            return
        if self._listener.waits():
            self._arm("idle", IDLE_S, self._expire_idle)
            return
        self._session = None
        self._cancel("ping")
        self._cancel("attempt")
        session.close(drain=True, reason="idle")
