"""Sessions of clients and what they may do: by role at first, by the token that is shown then.

Invariants: a session whose token is being looked up may do nothing; one whose token is revoked or
has expired is told so and closed, whatever it has under way; access is never wider than the token's
record as this node knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from swell.access import messages
from swell.access.grants import EVERYTHING, NOTHING, Everything, Granted, Nothing
from swell.access.messages import Authenticate, Authenticated
from swell.access.token import BadTokenError, Token, TokenRecord, parse
from swell.access.tokens import Tokens
from swell.errors import SwellError, WireError
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import Role, Timer, World

LOOK_S = 5.0
"""How often sessions that have ended are forgotten; tokens expire on time."""

FAR_S = 1 << 62

UNKNOWN = "no token is known by this text: it may be mistyped, or it expired long ago"
"""The same for a wrong id and for a wrong secret."""


def access_by_role(role: Role) -> Everything | Nothing:
    """What a peer may do without a token. Plain TCP exists on loopback only."""
    return NOTHING if role is Role.CLIENT else EVERYTHING


class Authentication:
    """Judges the clients of one node."""

    def __init__(
        self, world: World, sessions: Sessions, tokens: Tokens, counters: Counter[str]
    ) -> None:
        self._world = world
        self._tokens = tokens
        self._counters = counters
        self._shown: dict[Session, str] = {}
        """The id of the token that a session has shown."""
        self._asking: dict[Session, None] = {}
        """Sessions whose token is being looked up."""
        self._timer: Timer | None = None
        self._due_s = 0.0
        tokens.on_changed = self.on_changed
        sessions.access_of = lambda session: access_by_role(session.link.role)
        sessions.handle(Authenticate, self.on_authenticate, (LinkKind.CLIENT,))

    @property
    def token_sessions(self) -> int:
        """How many are judged by a token; those that ended lately may be among them."""
        return len(self._shown)

    def on_authenticate(self, session: Session, message: Authenticate) -> None:
        if session in self._asking:
            raise WireError("token-twice", "another token before the answer to the first")
        self._shown.pop(session, None)
        session.access = NOTHING
        try:
            token = parse(message.token)
        except BadTokenError as error:
            self._refuse(session, error.code, str(error))
            return
        self._asking[session] = None
        self._tokens.find(token.id, partial(self._on_found, session, token))

    def _on_found(
        self, session: Session, token: Token, found: TokenRecord | SwellError | None
    ) -> None:
        del self._asking[session]
        if not session.open:
            return
        if isinstance(found, SwellError):
            self._refuse(session, messages.UNVERIFIED, str(found))
        elif found is None or not found.fits(token):
            self._refuse(session, messages.UNKNOWN, UNKNOWN)
        elif self._judge(session, token.id, found):
            self._shown[session] = token.id
            self._counters["token-accepted"] += 1
            session.send(Authenticated(found.expires_s, found.label))
            self._look_by(found.expires_s)

    def _judge(self, session: Session, id: str, record: TokenRecord | None) -> bool:
        """Give a session what its token grants now; False if it was refused."""
        if record is None or record.revoked_s:
            self._refuse(session, messages.REVOKED, f"the token {id} was revoked: get a new one")
        elif record.expires_s <= self._tokens.now_s():
            self._refuse(session, messages.EXPIRED, f"the token {id} has expired: get a new one")
        else:
            session.access = Granted(record.grants, id)
            return True
        return False

    def _refuse(self, session: Session, code: str, sentence: str) -> None:
        self._counters[code] += 1
        session.access = NOTHING
        session.refuse(code, sentence)

    # -- changes and time ----------------------------------------------------------------------

    def on_changed(self, ids: Sequence[str]) -> None:
        """Records have changed: so may have what their sessions may do."""
        changed = dict.fromkeys(ids)
        for session, id in [item for item in self._shown.items() if item[1] in changed]:
            if not session.open or not self._judge(session, id, self._tokens.get(id)):
                del self._shown[session]

    def _look_by(self, expires_s: int) -> None:
        """Wake when a token expires, or when it is time to forget who has gone."""
        now_s = self._world.wall_us() / 1e6
        due_s = min(now_s + LOOK_S, expires_s)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._world.call_later(max(0.001, due_s - now_s), self.expire_tokens)

    def expire_tokens(self) -> None:
        """End the sessions whose token has expired."""
        self._timer = None
        now_s = self._tokens.now_s()
        earliest_s = FAR_S
        for session, id in list(self._shown.items()):
            record = self._tokens.get(id)
            expires_s = record.expires_s if record is not None else 0
            over = expires_s <= now_s and not self._judge(session, id, record)
            if over or not session.open:
                del self._shown[session]
            else:
                earliest_s = min(earliest_s, expires_s)
        if self._shown:
            self._look_by(earliest_s)
