"""The way into the store: clients' commands and queries, on any node.

A node that serves the slot executes; any other passes the request on to the slot's primary as a
question of the overlay, once, and hands the answer back (SpiderCast 2.2: the access node acts as
proxy). An answer says who the primary is, unless that is the node which gives it, so that a client
goes there directly next time.

Invariants: every request is answered once, by its deadline; a request is passed on at most once
and never repeated here, since only its client knows whether it may be; open requests are bounded
per client and per node, answers that wait for a slow client by bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
from msgspec.structs import replace

from swell.errors import SwellError, WireError
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.overlay import Overlay
from swell.overlay.requests import Answer
from swell.overlay.routed import Routed
from swell.overlay.sessions import Access, Session, Sessions
from swell.store.messages import Execute, Executed, Read, Status, Table, TableRequest
from swell.store.once import opened_s
from swell.wire import codec
from swell.world import Link, Plane, World

STORE_TOPIC = 32
"""The overlay's questions that carry requests to a slot's primary."""

CLIENT_OPEN_MAX = 1024
NODE_OPEN_MAX = 8192
"""Requests under way."""

BACKLOG_BYTES_MAX = 8 * 1024 * 1024
"""Answers that wait for one client to read; one may overshoot it."""

DEADLINE_S_MAX = 120.0
SWEEP_S = 0.25
"""How often requests over their deadline are looked for."""

SESSION_AHEAD_S_MAX = 86_400
"""A session that was opened further in the future could outlive every horizon."""

Done = Callable[[Executed], None]

Check = Callable[[Access, bytes], str]
"""Why a session may not have this body executed, as a service's operations say; empty: it may."""

_DATA = Plane.DATA
_COMMAND = int(Read.COMMAND)
_DONE, _REDIRECT = Status.DONE, Status.REDIRECT


class Store(Protocol):
    """What the gateway needs of the replicated store."""

    @property
    def slots(self) -> int:
        """How many there are; 0 while unknown."""
        ...

    def execute(self, execute: Execute, done: Callable[[Status, bytes], None]) -> None:
        """`REDIRECT` if this node does not serve the slot. `done` may be called at once."""
        ...

    def primary(self, slot: int) -> Contact | None: ...

    def primaries(self) -> Sequence[int]: ...

    def contacts(self) -> Sequence[Contact]: ...


class Host(Protocol):
    """The node around it (`swell.node.Node`)."""

    @property
    def world(self) -> World: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def counters(self) -> Counter[str]: ...

    @property
    def overlay(self) -> Overlay | None: ...


class _Call(msgspec.Struct, eq=False):
    """One request under way. It ends once; what comes later is dropped."""

    gateway: Gateway
    execute: Execute
    due_at: float
    done: Done

    def settle(self, status: Status, body: bytes) -> None:
        """The store's answer."""
        if status is _DONE:
            self.gateway.finish(self, Executed(self.execute.number, status, body))
        elif status is _REDIRECT and not self.execute.hops:
            self.gateway.pass_on(self)
        else:
            self.gateway.end(self, status, body)


class _Backlog:
    """Answers that a client's link had no room for."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.size = 0


class Gateway:
    """Serves one node's clients, the programs inside it, and the gateways of other nodes."""

    def __init__(self, host: Host, store: Store, checks: Mapping[int, Check]) -> None:
        """`checks` by service: one without is closed to sessions without full access."""
        self._host = host
        self._checks = checks
        self._world = host.world
        self._store = store
        self._open: dict[_Call, None] = {}
        self._loads: dict[Session, int] = {}
        """Requests under way per client; clients without any are not listed."""
        self._backlogs: dict[Session, _Backlog] = {}
        self._sweeping = False
        self._newest = 0
        """The newest session that was let through: older ones need no look at the clock."""
        host.sessions.handle(Execute, self.on_execute, (LinkKind.CLIENT,))
        host.sessions.handle(TableRequest, self.on_table_request, (LinkKind.CLIENT,))

    def attach(self, overlay: Overlay) -> None:
        """The node has joined: take what other nodes pass on."""
        overlay.requests.answer_later(STORE_TOPIC, self.on_question)

    @property
    def open_requests(self) -> int:
        return len(self._open)

    # One request.

    def execute(self, execute: Execute, done: Done) -> None:
        """Execute it here or at the slot's primary; `done` may be called before this returns."""
        refusal = self._refusal(execute)
        if refusal is not None:
            done(refusal)
            return
        left_s = execute.deadline_s
        if not 0.0 < left_s <= DEADLINE_S_MAX:
            left_s = DEADLINE_S_MAX
            execute = replace(execute, deadline_s=left_s)
        call = _Call(self, execute, self._world.now() + left_s, done)
        self._open[call] = None
        if not self._sweeping:
            self._sweep_later()
        self._store.execute(execute, call.settle)

    def _refusal(self, execute: Execute) -> Executed | None:
        slots = self._store.slots
        if not slots:
            return self._executed(execute, Status.BUSY, b"this node does not know the slots yet")
        if execute.slot >= slots:
            sentence = f"slot {execute.slot} does not exist, there are {slots}: fetch the table"
            return Executed(execute.number, Status.REFUSED, sentence.encode())
        if len(self._open) >= NODE_OPEN_MAX:
            self._host.counters["store-node-full"] += 1
            return self._executed(execute, Status.BUSY, b"too many requests are open at this node")
        if execute.session > self._newest and execute.read == _COMMAND:
            latest_s = self._world.wall_us() // 1_000_000 + SESSION_AHEAD_S_MAX
            if opened_s(execute.session) > latest_s:
                sentence = "the session's id lies in the future: begin it with the table's second"
                return Executed(execute.number, Status.REFUSED, sentence.encode())
            self._newest = execute.session
        return None

    def _executed(self, execute: Execute, status: Status, body: bytes) -> Executed:
        return Executed(execute.number, status, body, self._store.primary(execute.slot))

    def end(self, call: _Call, status: Status, body: bytes, primary: Contact | None = None) -> None:
        """End a call with an answer that says who the primary is."""
        execute = call.execute
        if primary is None:
            primary = self._store.primary(execute.slot)
        self.finish(call, Executed(execute.number, status, body, primary))

    def finish(self, call: _Call, executed: Executed) -> None:
        """End a call, unless it has ended by its deadline."""
        if call in self._open:
            del self._open[call]
            call.done(executed)
        else:
            self._host.counters["store-late-answer"] += 1

    def pass_on(self, call: _Call) -> None:
        """To the slot's primary, by the overlay: one hop in the zone, at most three beyond."""
        overlay, execute = self._host.overlay, call.execute
        left_s = call.due_at - self._world.now()
        if overlay is None or left_s <= 0.0:
            self.end(call, Status.BUSY, b"this node has not joined yet")
            return
        primary = self._store.primary(execute.slot)
        if primary is None or primary.id == overlay.me.id:
            self.end(call, Status.REDIRECT, b"the slot has no primary at the moment")
            return
        self._host.counters["store-passed-on"] += 1
        question = codec.encode(replace(execute, hops=1, deadline_s=left_s))
        overlay.requests.ask(
            primary.zone, primary.id, STORE_TOPIC, question, left_s, partial(self._on_answer, call)
        )

    def _on_answer(self, call: _Call, answer: Answer | SwellError) -> None:
        if isinstance(answer, Answer):
            try:
                executed = codec.decode(answer.payload)
                if not isinstance(executed, Executed):
                    raise WireError("bad-body", "not an answer of the store")
                self.end(call, Status(executed.status), executed.body, executed.primary)
                return
            except (WireError, ValueError):
                self._host.counters["bad-answer"] += 1
        self.end(call, *_unanswered(call.execute))

    def on_question(self, routed: Routed, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Another node's gateway passes a request on to this node."""
        try:
            execute = codec.decode(body)
        except WireError:
            execute = None
        if not isinstance(execute, Execute) or not execute.hops:
            self._host.counters["bad-question"] += 1
            return
        self.execute(execute, lambda executed: reply(codec.encode(executed)))

    # Deadlines.

    def _sweep_later(self) -> None:
        self._sweeping = True
        self._world.call_later(SWEEP_S, self.expire_calls)

    def expire_calls(self) -> None:
        """End the calls whose time is up; forget answers for clients that have gone."""
        now = self._world.now()
        for call in [call for call in self._open if call.due_at <= now]:
            self._host.counters["store-timeout"] += 1
            self.end(call, *_unanswered(call.execute))
        for session in [session for session in self._backlogs if not session.open]:
            del self._backlogs[session]
        self._sweeping = False
        if self._open or self._backlogs:
            self._sweep_later()

    # Clients.

    def on_execute(self, session: Session, execute: Execute) -> None:
        load = self._loads.get(session, 0)
        if load >= CLIENT_OPEN_MAX:
            self._host.counters["store-client-full"] += 1
            body = b"too many requests of this client are open"
            self._send(session, self._executed(execute, Status.BUSY, body))
            return
        access = session.access
        if access is None or not access.everything:
            sentence = self._judge(access, execute)
            if sentence:
                self._host.counters["access-refused"] += 1
                self._send(session, Executed(execute.number, Status.REFUSED, sentence.encode()))
                return
        self._loads[session] = load + 1
        self.execute(execute, partial(self._reply, session))

    def _judge(self, access: Access | None, execute: Execute) -> str:
        """Only here, at the first node: others trust whoever passes a request on."""
        check = self._checks.get(execute.service)
        if access is None or check is None:
            return (
                f"service {execute.service} takes full access: use an administrator's certificate"
            )
        return check(access, execute.body)

    def _reply(self, session: Session, executed: Executed) -> None:
        load = self._loads[session] - 1
        if load:
            self._loads[session] = load
        else:
            del self._loads[session]
        self._send(session, executed)

    def _send(self, session: Session, executed: Executed) -> None:
        if not session.open:
            return
        frame = codec.encode(executed)
        backlog = self._backlogs.get(session)
        if backlog is None:
            if session.link.send(frame, _DATA):
                return
            backlog = self._backlogs[session] = _Backlog()
            if not self._sweeping:
                self._sweep_later()
        if backlog.size >= BACKLOG_BYTES_MAX:
            self._host.counters["store-answer-dropped"] += 1
            return
        backlog.frames.append(frame)
        backlog.size += len(frame)

    def on_writable(self, link: Link) -> None:
        """A client reads again: send what waited for it."""
        session = link.session
        backlog = self._backlogs.get(session)
        if backlog is None:
            return
        frames = backlog.frames
        while frames and link.send(frames[0], _DATA):
            backlog.size -= len(frames.popleft())
        if not frames:
            del self._backlogs[session]

    def on_table_request(self, session: Session, request: TableRequest) -> None:
        """Who serves which slot. The answering node is the client's access node from then on."""
        now_s = self._world.wall_us() // 1_000_000
        primaries, contacts = tuple(self._store.primaries()), tuple(self._store.contacts())
        session.send(Table(request.number, primaries, contacts, now_s))


def _unanswered(execute: Execute) -> tuple[Status, bytes]:
    """A query that nobody answered did nothing; a command may have been executed."""
    if execute.read == _COMMAND:
        return Status.RETRY, b"no answer in time"
    return Status.BUSY, b"no answer in time"
