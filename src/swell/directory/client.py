"""A node's side of the directory: one link on demand, closed when idle.

Everything but joining gives up after a deadline with an empty answer: the overlay goes on with
what it has cached while the directory is away. Joining tries for ever, with growing pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from swell.directory.messages import (
    CandidatesReply,
    CandidatesRequest,
    JoinRefused,
    JoinReply,
    JoinRequest,
    LookupReply,
    LookupRequest,
    ReportReply,
    ZoneReport,
)
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.wire.codec import Message
from swell.world import WRONG_AUTHORITY, Address, Timer, World

IDLE_S = 10.0
RETRY_S = 0.5
RETRY_S_MAX = 5.0
JOIN_ANSWER_S = 10.0
QUEUE_MAX = 256


class DirectoryClient:
    """Talks to whichever of the directory's addresses answers."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        addresses: Sequence[Address],
        timeout_s: float,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._sessions = sessions
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._counters = counters
        self._session: Session | None = None
        self._queue: list[Message] = []
        self._open: dict[int, tuple[Callable[[Any], None], Any, Timer]] = {}
        self._number = 0
        self._joining: JoinRequest | None = None
        self._on_joined: Callable[[JoinReply], None] = lambda reply: None
        self._on_refused: Callable[[JoinRefused], None] = lambda refusal: None
        self._reports: dict[int, Callable[[ReportReply], None]] = {}
        self._retry_s = RETRY_S
        self._retry: Timer | None = None
        self._idle: Timer | None = None
        kinds = (LinkKind.DIRECTORY,)
        sessions.handle(JoinReply, self.on_join_reply, kinds)
        sessions.handle(JoinRefused, self.on_join_refused, kinds)
        sessions.handle(CandidatesReply, self.on_candidates, kinds)
        sessions.handle(LookupReply, self.on_lookup, kinds)
        sessions.handle(ReportReply, self.on_report, kinds)

    def join(
        self,
        request: JoinRequest,
        joined: Callable[[JoinReply], None],
        refused: Callable[[JoinRefused], None],
    ) -> None:
        """Ask until the directory answers."""
        self._joining = request
        self._on_joined = joined
        self._on_refused = refused
        self._ask_to_join()

    def _ask_to_join(self) -> None:
        self._retry = None
        if self._joining is not None:
            self._send(self._joining)
            self._retry_later(JOIN_ANSWER_S)

    def candidates(self, zone: int, count: int, done: Callable[[Sequence[Contact]], None]) -> None:
        """Random members of a zone; none if the directory is away."""
        self._number += 1
        self._ask(CandidatesRequest(self._number, zone, count), done, ())

    def lookup(self, name: str, done: Callable[[Contact | None], None]) -> None:
        """Where a node is, by its name."""
        self._number += 1
        self._ask(LookupRequest(self._number, name), done, None)

    def report(self, report: ZoneReport, done: Callable[[ReportReply], None]) -> None:
        """Tell who is alive; no answer if the directory is away. What others send on links to
        this node, if it is a voter itself, is never taken for an answer."""
        if report.zone in self._reports or len(self._reports) < QUEUE_MAX:
            self._reports[report.zone] = done
            self._send(report)
        else:
            self._counters["directory-queue-full"] += 1

    def stop(self) -> None:
        waiting = [timer for _, _, timer in self._open.values()]
        for timer in (*waiting, self._retry, self._idle):
            if timer is not None:
                timer.cancel()

    def _ask(self, request: Any, done: Callable[[Any], None], empty: Any) -> None:
        number = request.number

        def expire() -> None:
            del self._open[number]
            self._counters["directory-timeout"] += 1
            done(empty)

        self._open[number] = (done, empty, self._world.call_later(self._timeout_s, expire))
        self._send(request)

    def _answer(self, number: int, result: Any) -> None:
        waiting = self._open.pop(number, None)
        if waiting is not None:
            waiting[2].cancel()
            waiting[0](result)

    def on_candidates(self, session: Session, reply: CandidatesReply) -> None:
        if session is self._session:
            self._answer(reply.number, reply.contacts)

    def on_lookup(self, session: Session, reply: LookupReply) -> None:
        if session is self._session:
            self._answer(reply.number, reply.contact)

    def on_report(self, session: Session, reply: ReportReply) -> None:
        if session is self._session:
            done = self._reports.pop(reply.zone, None)
            if done is not None:
                done(reply)

    def on_join_reply(self, session: Session, reply: JoinReply) -> None:
        if self._joining is not None and session is self._session:
            self._joining = None
            self._on_joined(reply)

    def on_join_refused(self, session: Session, refusal: JoinRefused) -> None:
        if self._joining is not None and session is self._session:
            self._joining = None
            self._on_refused(refusal)

    # The link.

    def _send(self, request: Message) -> None:
        if self._session is not None and self._session.open:
            self._session.send(request)
        elif len(self._queue) < QUEUE_MAX:
            self._queue.append(request)
            if self._session is None:
                self._connect()
        else:
            self._counters["directory-queue-full"] += 1
        self._watch_idle()

    def _connect(self) -> None:
        self._session = self._sessions.open(self._addresses[0], "", LinkKind.DIRECTORY, self)

    def on_open(self, session: Session) -> None:
        self._retry_s = RETRY_S
        queue, self._queue = self._queue, []
        for request in queue:
            session.send(request)

    def on_closed(self, session: Session, reason: str) -> None:
        if session is not self._session:
            return
        self._session = None
        self._queue.clear()
        self._reports.clear()
        self._addresses.append(self._addresses.pop(0))
        self._counters["directory-lost"] += 1
        refusal = _final_refusal(session, reason)
        if self._joining is not None and refusal is not None:
            self._joining = None
            self._on_refused(refusal)
        elif self._joining is not None:
            self._retry_later(self._retry_s * (0.5 + self._world.rng.random()))
            self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)

    def _retry_later(self, delay_s: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._world.call_later(delay_s, self._ask_to_join)

    def _watch_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._world.call_later(IDLE_S, self._expire_idle)

    def _expire_idle(self) -> None:
        self._idle = None
        if self._session is None:
            return
        if self._open or self._joining is not None:
            self._watch_idle()
            return
        self._session.close(drain=True, reason="idle")
        self._session = None


def _final_refusal(session: Session, reason: str) -> JoinRefused | None:
    """Why the directory will never let us in, if the link ended for such a reason."""
    if reason == WRONG_AUTHORITY:
        return JoinRefused(
            WRONG_AUTHORITY,
            f"the directory at {session.link.address} has a certificate of another authority than "
            "this node: both need certificates of one cluster",
        )
    refusal = session.refusal
    if refusal is not None and refusal.code in ("wrong-cluster", "wrong-identity"):
        sentence = f"the directory at {session.link.address} refuses: {refusal.sentence}"
        return JoinRefused(refusal.code, sentence)
    return None
