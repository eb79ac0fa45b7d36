"""A client's session: requests to whichever of the given nodes answers.

Protocol code, so it runs in both worlds. One link at a time. When it ends, the requests that have
no answer yet are sent again to the next node: every operation may be repeated safely. When no
node could be reached in a row of all addresses, all open requests fail at once. Every request ends
once, by its deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from swell.access import messages as access
from swell.client.session_token import Bearer
from swell.errors import RefusedError, SwellError, UnavailableError
from swell.operations.messages import Request, Response
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.world import WRONG_AUTHORITY, Address, Link, Timer, World

Done = Callable[[dict[str, Any] | SwellError], None]

OPEN_MAX = 64
FINAL_REFUSALS = ("wrong-cluster", "not-served", *access.FINAL)

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(dict[str, Any]).decode


class _Open(NamedTuple):
    request: Request
    due_at: float
    done: Done
    timer: Timer


class Requester:
    """The protocol object of a client; a world drives it."""

    def __init__(
        self, world: World, cluster: str, addresses: Sequence[Address], token: str = ""
    ) -> None:
        assert addresses, "a client needs the address of at least one node"
        self._world = world
        self._addresses = list(addresses)
        self._failures = 0
        self._number = 0
        self._open: dict[int, _Open] = {}
        self._session: Session | None = None
        self._ready = False
        """The session is open, and its token accepted."""
        self.counters: Counter[str] = Counter()
        self._sessions = Sessions(world, cluster, self._me, lambda: 0, self.counters)
        self._sessions.handle(Response, self.on_response, (LinkKind.CLIENT,))
        self._bearer = Bearer(self._sessions, token, self)

    def _me(self) -> Contact:
        return Contact(0, self._world.name, "", "", 0, "", 0, 0)

    def request(
        self, operation: str, arguments: dict[str, Any], deadline_s: float, done: Done
    ) -> None:
        """Ask for an operation; `done` gets the result or the error."""
        if len(self._open) >= OPEN_MAX:
            full = UnavailableError(f"at most {OPEN_MAX} requests may be open: wait for answers")
            self._world.call_later(0.0, lambda: done(full))
            return
        self._number += 1
        number = self._number
        request = Request(number, operation, _to_json(arguments), deadline_s)
        timer = self._world.call_later(deadline_s, lambda: self._expire(number))
        self._open[number] = _Open(request, self._world.now() + deadline_s, done, timer)
        if self._session is None:
            self._connect()
        elif self._ready:
            self._session.send(request)

    def _expire(self, number: int) -> None:
        self._end(number, UnavailableError(f"no answer in time from {self._addresses[0]}"))

    def _end(self, number: int, outcome: dict[str, Any] | SwellError) -> None:
        waiting = self._open.pop(number, None)
        if waiting is None:
            self.counters["late-answer"] += 1
            return
        waiting.timer.cancel()
        waiting.done(outcome)

    def on_response(self, session: Session, response: Response) -> None:
        if response.error:
            self._end(response.number, SwellError(response.error))
            return
        try:
            self._end(response.number, _from_json(response.body))
        except msgspec.DecodeError as error:
            self._end(response.number, SwellError(f"the answer cannot be read: {error}"))

    # The link.

    def _connect(self) -> None:
        address = self._addresses[0]
        self._session = self._sessions.open(address, "", LinkKind.CLIENT, self._bearer)

    def on_open(self, session: Session) -> None:
        self._failures = 0
        self._ready = True
        now = self._world.now()
        for waiting in self._open.values():
            left_s = max(0.001, waiting.due_at - now)
            session.send(msgspec.structs.replace(waiting.request, deadline_s=left_s))

    def on_closed(self, session: Session, reason: str) -> None:
        """Go on with the next address, or give up after all have failed in a row."""
        self._session = None
        self._ready = False
        self._failures += 1
        if not self._open:
            return
        error = final_error(session, reason)
        if error is None and self._failures >= len(self._addresses):
            if session.refusal is not None:
                reason = session.refusal.sentence
            error = UnavailableError(
                f"no node answers, the last at {self._addresses[0]} ({reason})"
            )
        self._addresses.append(self._addresses.pop(0))
        if error is None:
            self._connect()
            return
        self._failures = 0
        for number in list(self._open):
            self._end(number, error)

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        self._sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self._sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None:
        """Nothing is kept back for a full link: the deadline ends what was not sent."""

    def on_frame(self, link: Link, frame: bytes) -> None:
        self._sessions.on_frame(link, frame)

    def stop(self) -> None:
        for waiting in self._open.values():
            waiting.timer.cancel()
        self._open.clear()
        self._sessions.close_all("stopped")


def final_error(session: Session, reason: str) -> SwellError | None:
    """An error that no other node of the cluster would spare us."""
    refusal = session.refusal
    if refusal is not None and refusal.code in FINAL_REFUSALS:
        return RefusedError(refusal.code, f"{session.link.address} refuses: {refusal.sentence}")
    if reason == WRONG_AUTHORITY:
        return RefusedError(
            reason,
            f"{session.link.address} has a certificate of another authority: "
            "give the certificates of its cluster",
        )
    return None
