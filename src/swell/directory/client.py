"""A node's questions to the directory, and its reports.

What was asked and not answered when a link ends is asked again on the next one. Everything but
joining gives up after a deadline with an empty answer: the overlay goes on with what it has
cached while the directory is away. Joining tries for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from swell.directory.leaderlink import LeaderLink
from swell.directory.messages import (
    CandidatesReply,
    CandidatesRequest,
    GroupReply,
    GroupRequest,
    JoinRefused,
    JoinReply,
    JoinRequest,
    LookupReply,
    LookupRequest,
    ReportReply,
    Voter,
    ZoneReport,
)
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import WRONG_AUTHORITY, Timer, World

JOIN_ANSWER_S = 10.0
OPEN_MAX = 256
"""Questions, and reports, that wait for an answer."""


class _Question:
    __slots__ = ("again", "done", "empty", "request", "sent", "timer")

    def __init__(
        self, request: Any, done: Callable[[Any], None], empty: Any, again: bool, timer: Timer
    ) -> None:
        self.request = request
        self.done = done
        self.empty = empty
        self.again = again
        self.timer = timer
        self.sent = False


class DirectoryClient:
    """Talks to whichever voter leads."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        voters: Sequence[Voter],
        timeout_s: float,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._sessions = sessions
        self._timeout_s = timeout_s
        self._counters = counters
        self._open: dict[int, _Question] = {}
        self._number = 0
        self._joining: JoinRequest | None = None
        self._on_joined: Callable[[JoinReply], None] = lambda reply: None
        self._on_refused: Callable[[JoinRefused], None] = lambda refusal: None
        self._reports: dict[int, tuple[ZoneReport, Callable[[ReportReply], None], float]] = {}
        self._stays: list[tuple[Callable[[Session], None], Callable[[], None]]] = []
        self._join_timer: Timer | None = None
        self._link = LeaderLink(world, sessions, voters, self, counters)
        kinds = (LinkKind.DIRECTORY,)
        sessions.handle(JoinReply, self._on_join_reply, kinds)
        sessions.handle(JoinRefused, self._on_join_refused, kinds)
        sessions.handle(ReportReply, self._on_report, kinds)
        sessions.handle(GroupReply, self._on_group, kinds)
        self.answered_by(CandidatesReply)
        self.answered_by(LookupReply)

    # -- for its users -------------------------------------------------------------------------

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

    def candidates(self, zone: int, count: int, done: Callable[[Sequence[Contact]], None]) -> None:
        """Random members of a zone; none if the directory is away."""
        request = CandidatesRequest(self.number(), zone, count)
        self.ask(request, lambda reply: done(reply.contacts if reply else ()), None)

    def lookup(self, name: str, done: Callable[[Contact | None], None]) -> None:
        """Where a node is, by its name."""
        request = LookupRequest(self.number(), name)
        self.ask(request, lambda reply: done(reply.contact if reply else None), None)

    def report(self, report: ZoneReport, done: Callable[[ReportReply], None]) -> None:
        """Tell who is alive; no answer if the directory is away. What others send on links to
        this node, if it is a voter itself, is never taken for an answer."""
        if report.zone in self._reports or len(self._reports) < OPEN_MAX:
            self._reports[report.zone] = (report, done, self._world.now())
            self._send(report)
        else:
            self._counters["directory-queue-full"] += 1

    def number(self) -> int:
        """A number for a question."""
        self._number += 1
        return self._number

    def answered_by(self, cls: type) -> None:
        """Messages of this class are answers; their `number` tells to which question."""
        self._sessions.handle(cls, self._on_answer, (LinkKind.DIRECTORY,))

    def ask(
        self,
        request: Any,
        done: Callable[[Any], None],
        empty: Any,
        *,
        again: bool = True,
        timeout_s: float = 0.0,
    ) -> None:
        """Ask the leader; `done` gets the answer with the same `number`, or `empty` after a time.
        A link that ends meanwhile: asked on the next one, or without `again` given up at once."""
        if len(self._open) >= OPEN_MAX:
            self._counters["directory-queue-full"] += 1
            self._world.call_later(0.0, lambda: done(empty))
            return
        number = request.number

        def expire() -> None:
            del self._open[number]
            self._counters["directory-timeout"] += 1
            done(empty)

        timer = self._world.call_later(timeout_s or self._timeout_s, expire)
        question = _Question(request, done, empty, again, timer)
        self._open[number] = question
        question.sent = self._send(request)

    def stay(self, on_up: Callable[[Session], None], on_down: Callable[[], None]) -> None:
        """Hold a link to the leader from now on; hear whenever there is a new one, and when it
        ends."""
        self._stays.append((on_up, on_down))
        session = self._link.use()

        def tell() -> None:
            if session is not None and session is self._link.session:
                on_up(session)

        if session is not None:
            self._world.call_later(0.0, tell)

    def group(self, done: Callable[[GroupReply | None], None], timeout_s: float) -> None:
        """Who the voters are, and how they stand."""
        self.ask(GroupRequest(self.number()), done, None, timeout_s=timeout_s)

    def change_voters(
        self, add: bool, voter: Voter, done: Callable[[GroupReply | None], None], timeout_s: float
    ) -> None:
        """Add a voter or remove one; None: the outcome is not known."""
        request = GroupRequest(self.number(), "add" if add else "remove", voter)
        self.ask(request, done, None, again=False, timeout_s=timeout_s)

    def stop(self) -> None:
        self._link.stop()
        for timer in (*(q.timer for q in self._open.values()), self._join_timer):
            if timer is not None:
                timer.cancel()

    def _ask_to_join(self) -> None:
        if self._joining is not None:
            if self._join_timer is not None:
                self._join_timer.cancel()
            self._join_timer = self._world.call_later(JOIN_ANSWER_S, self._ask_to_join)
            self._send(self._joining)

    # -- answers -------------------------------------------------------------------------------

    def _on_answer(self, session: Session, reply: Any) -> None:
        if self._link.heard(session):
            question = self._open.pop(reply.number, None)
            if question is not None:
                question.timer.cancel()
                question.done(reply)

    def _on_report(self, session: Session, reply: ReportReply) -> None:
        if self._link.heard(session):
            waiting = self._reports.pop(reply.zone, None)
            if waiting is not None:
                waiting[1](reply)

    def _on_group(self, session: Session, reply: GroupReply) -> None:
        if session is self._link.session:
            self._link.learn(reply)
        self._on_answer(session, reply)

    def _on_join_reply(self, session: Session, reply: JoinReply) -> None:
        if self._link.heard(session) and self._joining is not None:
            self._joining = None
            self._on_joined(reply)

    def _on_join_refused(self, session: Session, refusal: JoinRefused) -> None:
        if self._link.heard(session) and self._joining is not None:
            self._joining = None
            self._on_refused(refusal)

    # -- the link ------------------------------------------------------------------------------

    def waits(self) -> bool:
        return bool(self._stays) or self.asks()

    def asks(self) -> bool:
        return bool(self._open or self._reports) or self._joining is not None

    def _send(self, request: Any) -> bool:
        """Send at once if there is a link; else it is sent when there is one."""
        session = self._link.use()
        return session is not None and session.send(request)

    def on_up(self, session: Session) -> None:
        if self._joining is not None:
            session.send(self._joining)
        for question in self._open.values():
            question.sent = session.send(question.request)
        self._drop_old_reports()
        for report, _, _ in self._reports.values():
            session.send(report)
        for on_up, _ in list(self._stays):
            on_up(session)

    def on_down(self, session: Session, reason: str) -> None:
        if session.contact is not None:
            self._drop_unanswered()
        self._drop_old_reports()
        refusal = _final_refusal(session, reason)
        if self._joining is not None and refusal is not None:
            self._joining = None
            self._on_refused(refusal)

    def _drop_unanswered(self) -> None:
        """A link that was open has ended: reports are overtaken by the next ones, and who wants
        no second try hears so."""
        self._reports.clear()
        lost = [q for q in self._open.values() if q.sent and not q.again]
        for question in lost:
            del self._open[question.request.number]
            question.timer.cancel()
        for question in lost:
            question.done(question.empty)
        for _, on_down in list(self._stays):
            on_down()

    def _drop_old_reports(self) -> None:
        """What was true some time ago is not said any more."""
        oldest = self._world.now() - self._timeout_s
        self._reports = {zone: item for zone, item in self._reports.items() if item[2] >= oldest}


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
