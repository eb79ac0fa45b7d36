"""Opening a link to another zone (THOR 3.2).

Several members of the other zone are dialled, each answers with its load in its welcome; within
a time window the least loaded one is chosen and asked to adopt the link; the rest are closed.
Randomised candidates plus the choice of the least loaded keep the other zone's links even without
a coordinator.

A hand-over (THOR 3.3) and a recovery (3.5) end in the same way, with other candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from swell.overlay.contact import Contact
from swell.overlay.messages import CONTACTS_TOLD_MAX, Adopt, Adopted, LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.overlay.zonelinks import ZoneLink, ZoneLinks
from swell.settings import OverlaySettings
from swell.world import Timer, World

OPENING: Final = "opening"
RECOVERY: Final = "recovery"
HANDOVER: Final = "handover"
Why = Literal["opening", "recovery", "handover"]


class OpeningListener(Protocol):
    def some_members(self, count: int) -> tuple[Contact, ...]:
        """Members of this zone, to be told to a new neighbour."""
        ...

    def on_contacts(self, contacts: Sequence[Contact]) -> None:
        """Members of other zones were heard of."""
        ...

    def may_adopt(self, session: Session, why: Why) -> bool:
        """May this link be adopted? A hand-over needs a lease."""
        ...

    def on_adopted(self, link: ZoneLink) -> None: ...

    def on_link_lost(self, link: ZoneLink, reason: str) -> None: ...


class _Attempt:
    __slots__ = ("answered", "asked", "dialing", "done", "timer", "why", "zone")

    def __init__(self, zone: int, why: Why, done: Callable[[ZoneLink | None], None]) -> None:
        self.zone = zone
        self.why = why
        self.done = done
        self.dialing: list[Session] = []
        self.answered: list[Session] = []
        self.asked: Session | None = None
        self.timer: Timer | None = None


class Openings:
    """All attempts of this node to open links between zones, and its answers to those of others."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        me: Contact,
        sessions: Sessions,
        zonelinks: ZoneLinks,
        listener: OpeningListener,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._me = me
        self._sessions = sessions
        self._zonelinks = zonelinks
        self._listener = listener
        self._counters = counters
        self._attempts: dict[Session, _Attempt] = {}
        self._waiting: dict[Session, Timer] = {}
        self._running: dict[_Attempt, None] = {}
        sessions.accept(LinkKind.CANDIDATE, self)
        sessions.handle(Adopt, self.on_adopt, (LinkKind.CANDIDATE,))
        sessions.handle(Adopted, self.on_adopted, (LinkKind.CANDIDATE,))

    def open(
        self,
        zone: int,
        candidates: Sequence[Contact],
        why: Why,
        done: Callable[[ZoneLink | None], None],
    ) -> None:
        """Open a link to `zone` at the least loaded candidate; `done` gets it, or None."""
        attempt = _Attempt(zone, why, done)
        self._running[attempt] = None
        for contact in candidates:
            session = self._sessions.open(contact.address, contact.name, LinkKind.CANDIDATE, self)
            attempt.dialing.append(session)
            self._attempts[session] = attempt
        attempt.timer = self._world.call_later(
            self._settings.candidate_window_s if candidates else 0.0, lambda: self._choose(attempt)
        )

    @property
    def busy(self) -> bool:
        """Is any attempt under way?"""
        return bool(self._running)

    def is_opening(self, zone: int) -> bool:
        """Is an attempt under way to open a link to this zone?"""
        return any(attempt.zone == zone for attempt in self._running)

    def stop(self) -> None:
        """Give up everything under way; nobody is told. The sessions are closed by their owner."""
        timers = [attempt.timer for attempt in self._running]
        for timer in (*timers, *self._waiting.values()):
            if timer is not None:
                timer.cancel()
        self._running.clear()
        self._attempts.clear()
        self._waiting.clear()

    # The dialling side.

    def on_open(self, session: Session) -> None:
        attempt = self._attempts.get(session)
        if attempt is None:
            self._await_adoption(session)
            return
        attempt.dialing.remove(session)
        self._listener.on_contacts((session.peer,))
        if session.zone != attempt.zone:
            del self._attempts[session]
            session.close(reason="wrong-zone")
        else:
            attempt.answered.append(session)
        self._choose_if_complete(attempt)

    def on_closed(self, session: Session, reason: str) -> None:
        timer = self._waiting.pop(session, None)
        if timer is not None:
            timer.cancel()
        attempt = self._attempts.pop(session, None)
        if attempt is not None:
            self._counters["candidate-failed"] += 1
            for sessions in (attempt.dialing, attempt.answered):
                if session in sessions:
                    sessions.remove(session)
            if attempt.asked is session:
                attempt.asked = None
                self._choose(attempt)
            else:
                self._choose_if_complete(attempt)
            return
        link = self._zonelinks.find(session)
        if link is not None:
            self._zonelinks.remove(link, reason)
            self._listener.on_link_lost(link, reason)

    def _choose_if_complete(self, attempt: _Attempt) -> None:
        if not attempt.dialing and attempt.asked is None:
            self._choose(attempt)

    def _choose(self, attempt: _Attempt) -> None:
        """Ask the best of those that answered; give up when nobody is left."""
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        if attempt.asked is not None:
            self._discard(attempt, attempt.asked)
            attempt.asked = None
        for session in list(attempt.dialing):
            self._discard(attempt, session)
        if not attempt.answered:
            self._finish(attempt, None)
            return
        best = min(attempt.answered, key=lambda s: (s.load, self._world.rng.random()))
        attempt.answered.remove(best)
        attempt.asked = best
        best.send(Adopt(attempt.why))
        attempt.timer = self._world.call_later(
            self._settings.candidate_window_s, lambda: self._choose(attempt)
        )

    def on_adopted(self, session: Session, message: Adopted) -> None:
        attempt = self._attempts.get(session)
        if attempt is None or attempt.asked is not session:
            return
        self._listener.on_contacts(message.contacts)
        if not message.accepted:
            self._counters[f"adoption-{message.reason}"] += 1
            self._choose(attempt)
            return
        del self._attempts[session]
        attempt.asked = None
        link = self._zonelinks.add(session, attempt.why)
        self._listener.on_adopted(link)
        self._finish(attempt, link)

    def _discard(self, attempt: _Attempt, session: Session) -> None:
        self._attempts.pop(session, None)
        if session in attempt.dialing:
            attempt.dialing.remove(session)
        session.close(reason="not-chosen")

    def _finish(self, attempt: _Attempt, link: ZoneLink | None) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        for session in [*attempt.dialing, *attempt.answered]:
            self._discard(attempt, session)
        attempt.answered.clear()
        del self._running[attempt]
        if link is None:
            self._counters["opening-failed"] += 1
        attempt.done(link)

    # The accepting side.

    def admit(self, contact: Contact) -> Refused | None:
        if contact.zone == self._me.zone or contact.zone == 0:
            return Refused("same-zone", "links between zones join different zones")
        return None

    def _await_adoption(self, session: Session) -> None:
        def expire() -> None:
            del self._waiting[session]
            session.close(reason="not-adopted")

        self._waiting[session] = self._world.call_later(self._settings.lease_s, expire)

    def on_adopt(self, session: Session, message: Adopt) -> None:
        timer = self._waiting.pop(session, None)
        if timer is None:
            return
        timer.cancel()
        if not self._listener.may_adopt(session, message.why):
            self._await_adoption(session)
            session.send(Adopted(False, "no-lease"))
            return
        session.send(Adopted(True, "", self._listener.some_members(CONTACTS_TOLD_MAX)))
        self._listener.on_contacts((session.peer,))
        self._listener.on_adopted(self._zonelinks.add(session, message.why))
