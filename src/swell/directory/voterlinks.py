"""Links between the voters: one live session to each other member of the group.

Whoever misses a link dials. A new session takes the place of an older one, since a peer that
dials has none; only when both sides dialled at the same time the one of the smaller name stays.
Every second each side says that it is there (`VoterState`); a link that was silent for long is
given up. What comes on a session that was replaced is not read.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol, get_args

from swell.directory.messages import Voter, VoterState
from swell.directory.raft.messages import RaftMessage
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.world import Address, Plane, Timer, World

REDIAL_S = 0.4
REFUSED_S = 3.0
STATE_S = 1.0
SILENCE_S = 4.0
CROSSING_S = 1.0
"""Sessions that open within this time of each other may have been dialled at the same time."""


class VoterListener(Protocol):
    """The voter behind the links."""

    def members(self) -> dict[str, Address | None]:
        """Everybody in the group by name, and where they are if that is known."""
        ...

    def voter_state(self) -> VoterState | None:
        """What to tell the others; None: nothing yet."""
        ...

    def on_voter_state(self, peer: str, state: VoterState) -> None: ...

    def on_reachable(self, peer: str) -> None: ...

    def on_raft(self, peer: str, message: RaftMessage) -> None: ...


class _Peer:
    __slots__ = ("heard_at", "opened_at", "session")

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.opened_at = now
        self.heard_at = now


class VoterLinks:
    """All sessions of kind `VOTER` of one voter."""

    def __init__(
        self,
        world: World,
        me: str,
        sessions: Sessions,
        listener: VoterListener,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._me = me
        self._sessions = sessions
        self._listener = listener
        self._counters = counters
        self._peers: dict[str, _Peer] = {}
        self._dialing: dict[Session, str] = {}
        self._told: dict[str, tuple[Voter, ...]] = {}
        """Voter → the members as it knows them: a voter that is behind hears of newer ones."""
        self._refused_until: dict[str, float] = {}
        """Voters that do not know us as one: dialled now and then, until they learn better."""
        self._timers: dict[str, Timer] = {}
        self._state_due = 0.0
        sessions.accept(LinkKind.VOTER, self)
        sessions.handle(VoterState, self._on_state, (LinkKind.VOTER,))
        for cls in get_args(RaftMessage):
            sessions.handle(cls, self._on_raft, (LinkKind.VOTER,))

    def start(self) -> None:
        self._state_due = self._world.now() + STATE_S
        self._timers["state"] = self._world.call_later(STATE_S, self._say_state)
        self._redial()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    @property
    def up(self) -> list[str]:
        """Voters that can be reached."""
        return sorted(self._peers)

    def send(self, peer: str, frame: bytes) -> bool:
        found = self._peers.get(peer)
        return found is not None and found.session.link.send(frame, Plane.CONTROL)

    def tell(self) -> None:
        """Say our state to everybody, now."""
        state = self._listener.voter_state()
        if state is not None:
            for peer in self._peers.values():
                peer.session.send(state)

    # -- opening -------------------------------------------------------------------------------

    def _members(self) -> dict[str, Address | None]:
        told = {voter.name: voter.address for told in self._told.values() for voter in told}
        members = dict[str, Address | None](told)
        for name, address in self._listener.members().items():
            members[name] = address or members.get(name)
        members.pop(self._me, None)
        return members

    def _redial(self) -> None:
        delay_s = REDIAL_S * (0.5 + self._world.rng.random())
        self._timers["redial"] = self._world.call_later(delay_s, self._redial)
        busy = {*self._peers, *self._dialing.values()}
        now = self._world.now()
        for name, address in self._members().items():
            waits = name in busy or self._refused_until.get(name, now) > now
            if address is not None and not waits:
                session = self._sessions.open(address, name, LinkKind.VOTER, self)
                self._dialing[session] = name

    def admit(self, contact: Contact) -> Refused | None:
        if contact.name in self._members():
            return None
        return Refused("not-voter", f"{contact.name} is not a voter of this directory")

    def on_open(self, session: Session) -> None:
        name = session.peer.name
        if session.link.dialed and self._dialing.pop(session) != name:
            session.close(reason="wrong-identity")
            return
        older = self._peers.get(name)
        if older is not None:
            if self._stays(older, session):
                session.close(reason="crossed")
                return
            older.session.close(reason="replaced")
        self._peers[name] = _Peer(session, self._world.now())
        self._counters["voter-link"] += 1
        state = self._listener.voter_state()
        if state is not None:
            session.send(state)
        self._listener.on_reachable(name)

    def _stays(self, older: _Peer, newer: Session) -> bool:
        """Did both sides dial at the same time, and is the older one that of the smaller name?"""
        crossed = (
            older.session.link.dialed != newer.link.dialed
            and older.session.peer.epoch == newer.peer.epoch
            and self._world.now() - older.opened_at < CROSSING_S
        )
        return crossed and older.session.link.dialed == (self._me < newer.peer.name)

    def on_closed(self, session: Session, reason: str) -> None:
        dialed = self._dialing.pop(session, "")
        if dialed and session.refusal is not None:
            self._refused_until[dialed] = self._world.now() + REFUSED_S
        for name, peer in list(self._peers.items()):
            if peer.session is session:
                self._forget(name)

    def _forget(self, name: str) -> None:
        del self._peers[name]
        self._told.pop(name, None)

    # -- talking -------------------------------------------------------------------------------

    def _say_state(self) -> None:
        now = self._world.now()
        late_s = now - self._state_due
        self._state_due = now + STATE_S
        self._timers["state"] = self._world.call_later(STATE_S, self._say_state)
        for name, peer in list(self._peers.items()):
            if late_s > STATE_S:
                # What others said while this process stood still waits to be read.
                peer.heard_at += late_s
            if now - peer.heard_at > SILENCE_S:
                self._counters["voter-silent"] += 1
                self._forget(name)
                peer.session.close(reason="silent")
        self.tell()

    def _heard(self, session: Session) -> str:
        """The name of the peer if this is its live session."""
        name = session.peer.name
        peer = self._peers.get(name)
        if peer is None or peer.session is not session:
            return ""
        peer.heard_at = self._world.now()
        return name

    def _on_state(self, session: Session, state: VoterState) -> None:
        name = self._heard(session)
        if name:
            self._told[name] = state.voters
            self._listener.on_voter_state(name, state)

    def _on_raft(self, session: Session, message: RaftMessage) -> None:
        name = self._heard(session)
        if name:
            self._listener.on_raft(name, message)
