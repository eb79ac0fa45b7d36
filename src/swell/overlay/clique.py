"""The complete graph inside a zone: one link between every two living members (THOR 2).

The member with the higher id, the later arrival, dials; the other side dials only if nothing
came of that after a while. Of two links between the same members the one that the higher id
dialled stays; of two dialled by the same side the newer one. Only living members are dialled
again: a peer that connects is one when it has spoken for itself (`Members`).
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.settings import OverlaySettings
from swell.world import Plane, Timer, World


class CliqueListener(Protocol):
    def on_clique_up(self, contact: Contact) -> None: ...

    def on_clique_down(self, member: int) -> None: ...


class Clique:
    """Keeps a link to every wanted member; the carrier of membership and of local forwarding."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        me: Contact,
        sessions: Sessions,
        listener: CliqueListener,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._me = me
        self._sessions = sessions
        self._listener = listener
        self._counters = counters
        self.up: dict[int, Session] = {}
        self._wanted: dict[int, Contact] = {}
        self._dialing: dict[int, Session] = {}
        self._retries: dict[int, Timer] = {}
        sessions.accept(LinkKind.CLIQUE, self)

    def want(self, contact: Contact) -> None:
        """`contact` is a living member: connect to it."""
        known = self._wanted.get(contact.id)
        self._wanted[contact.id] = contact
        if contact.id in self.up or (known == contact and contact.id in self._dialing):
            return
        if self._me.id > contact.id:
            self._dial(contact)
        else:
            self._retry_later(contact.id)

    def meet(self, contact: Contact) -> None:
        """`contact` may be a member that this node has lost sight of: try once to reach it."""
        if contact.id not in self._wanted and contact.id != self._me.id:
            self._dial(contact)

    def drop(self, member: int) -> None:
        """`member` is dead or gone: forget it."""
        self._wanted.pop(member, None)
        timer = self._retries.pop(member, None)
        if timer is not None:
            timer.cancel()
        for table in (self._dialing, self.up):
            session = table.pop(member, None)
            if session is not None:
                session.close(reason="member-gone")

    def send(self, member: int, frame: bytes, plane: Plane = Plane.CONTROL) -> bool:
        session = self.up.get(member)
        return session is not None and session.link.send(frame, plane)

    def close(self) -> None:
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()
        self._wanted.clear()

    # Sessions.

    def admit(self, contact: Contact) -> Refused | None:
        if contact.zone != self._me.zone:
            return Refused("wrong-zone", f"this is zone {self._me.zone}, not {contact.zone}")
        known = self._wanted.get(contact.id)
        if known is not None and known.name != contact.name:
            return Refused("wrong-identity", f"member {contact.id} is called {known.name}")
        if known is not None and known.epoch > contact.epoch:
            return Refused("stale-epoch", f"a later start of {contact.name} is known")
        if contact.id == self._me.id:
            return Refused("name-in-use", f"{contact.name} is this node itself")
        return None

    def on_open(self, session: Session) -> None:
        peer = session.peer
        dialed = self._take_dialing(session)
        if dialed is not None and dialed != peer.id:
            session.close(reason="wrong-peer")
            self._counters["clique-wrong-peer"] += 1
            self._retry_later(dialed)
            return
        existing = self.up.get(peer.id)
        if existing is not None:
            preferred = existing.link.dialed != session.link.dialed and existing.link.dialed == (
                self._me.id > peer.id
            )
            if (existing.peer.epoch, preferred) > (peer.epoch, False):
                session.close(reason="duplicate")
                return
            existing.close(reason="replaced")
        self.up[peer.id] = session
        if peer.id in self._wanted:
            self._wanted[peer.id] = peer
        self._listener.on_clique_up(peer)

    def on_closed(self, session: Session, reason: str) -> None:
        member = self._take_dialing(session)
        if member is not None:
            self._counters["clique-dial-failed"] += 1
            self._retry_later(member)
        if session.contact is not None and self.up.get(session.contact.id) is session:
            del self.up[session.contact.id]
            self._retry_later(session.contact.id)
            self._listener.on_clique_down(session.contact.id)

    def _take_dialing(self, session: Session) -> int | None:
        for member, dialing in self._dialing.items():
            if dialing is session:
                del self._dialing[member]
                return member
        return None

    def _dial(self, contact: Contact) -> None:
        if contact.id in self.up or contact.id in self._dialing:
            return
        self._dialing[contact.id] = self._sessions.open(
            contact.address, contact.name, LinkKind.CLIQUE, self
        )

    def _retry_later(self, member: int) -> None:
        if member not in self._wanted or member in self._retries:
            return
        delay = self._settings.dial_retry_s * (0.5 + self._world.rng.random())
        if self._me.id < member:
            delay *= 2

        def retry() -> None:
            self._retries.pop(member, None)
            contact = self._wanted.get(member)
            if contact is not None:
                self._dial(contact)

        self._retries[member] = self._world.call_later(delay, retry)
