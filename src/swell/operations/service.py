"""Operations: the table of what a node does on request, and how clients reach it.

`submit` is the one entrance, for facades inside the process and for clients on links alike.
Invariants: every operation ends once, by its deadline; a client has at most `OPEN_MAX` operations
under way; nothing a client sends does more than fail its own request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from swell.errors import RefusedError, SwellError, UnavailableError, WireError
from swell.operations import group, tokens
from swell.operations.call import Call, Done, Host, InvalidArgumentError, Result
from swell.operations.messages import (
    DEADLINE_S_MAX,
    MemberState,
    Request,
    Response,
)
from swell.operations.tracing import Broadcast, Ping, Traces, answer_pings
from swell.operations.zones import Gathering, answer_questions, graph
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.overlay import Overlay
from swell.overlay.sessions import Session
from swell.wire import codec

OPEN_MAX = 64
"""Operations under way per client."""

OPEN_TO_ALL = ("ping", "status")
"""Operations for everybody who has a certificate; all others need full access."""

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(dict[str, Any]).decode


_NO_ACCESS = RefusedError(
    "no-access",
    "this is for administrators, without a token: use a certificate made with "
    "`swell cluster issue --admin`",
)


class Operations:
    """Serves one node's clients."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._began_at = host.world.now()
        self._traces = Traces()
        self._open: dict[Session, int] = {}
        self.on_gone: Callable[[Session], None] = lambda session: None
        """For others who serve clients: a client's link has ended."""
        self._operations: dict[str, Callable[[Call], None]] = {
            "status": self._status,
            "members": self._members,
            "overlay": self._overlay,
            "ping": lambda call: Ping(call).start(),
            "broadcast": lambda call: Broadcast(call, self._traces).start(),
            "directory": group.show,
            "voters": group.change,
            "token-create": tokens.create,
            "token-list": tokens.show,
            "token-revoke": tokens.revoke,
        }
        host.sessions.accept(LinkKind.CLIENT, self)
        host.sessions.handle(Request, self.on_request, (LinkKind.CLIENT,))

    def attach(self, overlay: Overlay) -> None:
        """The node has joined: answer what other nodes ask about it and its zone."""
        answer_questions(overlay)
        answer_pings(overlay)
        self._traces.listen(overlay, self._host.counters)

    def submit(self, operation: str, arguments: Result, deadline_s: float, done: Done) -> None:
        """Begin an operation; `done` gets its result or its error, never re-entrantly."""
        world = self._host.world
        begin = self._operations.get(operation)
        if begin is None:
            known = ", ".join(self._operations)
            unknown = InvalidArgumentError(f"no operation is called {operation!r}: use {known}")
            world.call_later(0.0, lambda: done(unknown))
            return
        if not 0.0 < deadline_s <= DEADLINE_S_MAX:
            deadline_s = DEADLINE_S_MAX
        call = Call(self._host, operation, arguments, deadline_s, done)

        def start() -> None:
            try:
                begin(call)
            except SwellError as error:
                call.finish(error)

        world.call_later(0.0, start)

    # Clients.

    def admit(self, contact: Contact) -> Refused | None:
        return None

    def on_open(self, session: Session) -> None:
        self._open[session] = 0

    def on_closed(self, session: Session, reason: str) -> None:
        self._open.pop(session, None)
        self.on_gone(session)

    def on_request(self, session: Session, request: Request) -> None:
        """One request of a client; the answer goes to the session it came on."""
        if session not in self._open:
            raise WireError("unexpected-request", "requests come on links of clients only")

        def respond(outcome: Result | SwellError) -> None:
            if session in self._open:
                self._open[session] -= 1
                if not session.link.send(_response(request.number, outcome)):
                    self._host.counters["response-dropped"] += 1

        self._open[session] += 1
        if self._open[session] > OPEN_MAX:
            self._host.counters["operations-full"] += 1
            respond(UnavailableError(f"at most {OPEN_MAX} requests may be open: wait for answers"))
            return
        access = session.access
        if (access is None or not access.everything) and request.operation not in OPEN_TO_ALL:
            self._host.counters["access-refused"] += 1
            respond(_NO_ACCESS)
            return
        try:
            arguments = _from_json(request.arguments)
        except msgspec.DecodeError as error:
            respond(InvalidArgumentError(f"the arguments are not a JSON object: {error}"))
            return
        self.submit(request.operation, arguments, request.deadline_s, respond)

    # Operations without questions to others.

    def _status(self, call: Call) -> None:
        host, me = self._host, self._host.me()
        overlay = host.overlay
        result: Result = {
            "name": me.name,
            "id": me.id,
            "site": me.site,
            "rack": me.rack,
            "zone": me.zone,
            "epoch": me.start,
            "address": str(me.address),
            "joined": overlay is not None,
            "uptime_s": round(host.world.now() - self._began_at, 3),
            "clients": len(self._open),
            "counters": dict(sorted(host.counters.items())),
        }
        if overlay is not None:
            result["zone_size"] = overlay.members.size
            result["view_epoch"] = overlay.view.epoch
            result["delegate"] = overlay.is_delegate()
        if host.service is not None:
            result["directory"] = host.service.statistics()
        result["store"] = host.store.statistics()
        call.finish(result)

    def _members(self, call: Call) -> None:
        overlay = call.overlay()
        if overlay is None:
            return
        me, delegate = overlay.me, overlay.members.alive()[0].id
        members = [
            {
                "name": contact.name,
                "id": contact.id,
                "site": contact.site,
                "rack": contact.rack,
                "epoch": contact.start,
                "address": str(contact.address),
                "state": MemberState(state).name,
                "linked": contact.id in overlay.clique.up or contact.id == me.id,
                "zone_links": overlay.zonelinks.load_of(contact.id),
                "delegate": contact.id == delegate,
            }
            for contact, state in overlay.members.states()
        ]
        call.finish({"from": me.name, "zone": me.zone, "site": me.site, "members": members})

    def _overlay(self, call: Call) -> None:
        overlay = call.overlay()
        if overlay is not None:
            Gathering(call, overlay, lambda *found: call.finish(graph(*found))).start()


def _response(number: int, outcome: Result | SwellError) -> bytes:
    if isinstance(outcome, SwellError):
        return codec.encode(Response(number, str(outcome), b""))
    try:
        return codec.encode(Response(number, "", _to_json(outcome)))
    except WireError as error:
        return codec.encode(Response(number, f"the result is too large ({error})", b""))
