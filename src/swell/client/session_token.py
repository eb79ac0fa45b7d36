"""Showing a token on every new link before anything else is sent on it."""

from __future__ import annotations

from swell.access.messages import Authenticate, Authenticated
from swell.errors import WireError
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Owner, Session, Sessions


class Bearer:
    """Owns a client's sessions in the place of `owner`, whose `on_open` comes once the token has
    been accepted. A refusal, at any time, ends the session like one in the handshake."""

    def __init__(self, sessions: Sessions, token: str, owner: Owner) -> None:
        self._token = token
        self._owner = owner
        self._showing: dict[Session, None] = {}
        sessions.handle(Authenticated, self.on_authenticated, (LinkKind.CLIENT,))
        sessions.handle(Refused, sessions.on_refused, (LinkKind.CLIENT,))

    def on_open(self, session: Session) -> None:
        if not self._token:
            self._owner.on_open(session)
            return
        self._showing = {other: None for other in self._showing if other.open}
        self._showing[session] = None
        session.send(Authenticate(self._token))

    def on_authenticated(self, session: Session, message: Authenticated) -> None:
        if session not in self._showing:
            raise WireError("unexpected-answer", "nothing was shown to be authenticated")
        del self._showing[session]
        self._owner.on_open(session)

    def on_closed(self, session: Session, reason: str) -> None:
        self._showing.pop(session, None)
        self._owner.on_closed(session, reason)
