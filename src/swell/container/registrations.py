"""Registering instances of services, and keeping their leases (RIP-23).

A registration is a line in the service's list. Whoever made one with a session check names its
lease at the primary, well within the time after which it would count as dead. A primary that has
lost the line gets it again; an instance whose id another registration has taken is given up, and
its owner told.

Who the primary is, the store's session knows. When the link to it is gone or it does not answer,
the list is asked for: the answer comes from whoever is the primary by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from swell.client.session_peers import Peer
from swell.client.session_pending import Answer, Done
from swell.client.store_session import StoreSession
from swell.config import requests
from swell.config.edits import Line, Lines
from swell.config.names import INSTANCES, check_application, place
from swell.config.operations import CONFIG_SERVICE
from swell.errors import ConfigurationError, RefusedError, SwellError
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.services.instances import SESSION, Instance, checked
from swell.services.messages import LEASES_MAX, Doubt, Keep, Kept, Lease
from swell.store.request import Request
from swell.world import Timer, World

LEASE_BYTES = 8
KEEP_FACTOR = 3.0
"""A lease is named so many times within its `ttl_s`."""

KEEP_S_MAX = 10.0
CALL_S = 10.0
TICK_S = 0.02
RETRY_S_MAX = 1.0

REGISTRATIONS_MAX = 4096

Lost = Callable[[RefusedError], None]
"""Hears that a registration is given up, and why."""


class Registration:
    """One instance that was registered here."""

    __slots__ = ("asking", "doubts", "due_at", "instance", "lost", "service")

    def __init__(self, service: str, instance: Instance, lost: Lost | None) -> None:
        self.service = service
        self.instance = instance
        self.lost = lost
        self.due_at = math.inf
        """When to name its lease again."""
        self.asking = False
        """A question to the cluster about it is open."""
        self.doubts = 0
        """How often in a row its lease could not be kept at once."""

    @property
    def has_session(self) -> bool:
        """Whether it lives as long as this client."""
        return self.instance.check == SESSION

    @property
    def keep_s(self) -> float:
        return min(self.instance.ttl_s / KEEP_FACTOR, KEEP_S_MAX)


class _Open(NamedTuple):
    """A `Keep` without an answer."""

    peer: Peer
    session: Session
    registrations: list[Registration]
    until: float


class Registrations:
    """All of one client."""

    def __init__(self, world: World, store: StoreSession) -> None:
        self._world = world
        self._store = store
        self._peers = store.peers
        self._all: dict[tuple[str, str], Registration] = {}
        """What was registered here, by service and id."""
        self._open: dict[int, _Open] = {}
        self._number = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._peers.sessions.handle(Kept, self.on_kept, (LinkKind.CLIENT,))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> list[Registration]:
        return list(self._all.values())

    def register(
        self,
        service: str,
        instance: Instance,
        deadline_s: float,
        done: Callable[[Registration | SwellError], None],
        lost: Lost | None = None,
    ) -> None:
        """Put it into the list, in place of whatever was there under its id; its lease is chosen
        here."""
        check_application(service)
        if len(self._all) >= REGISTRATIONS_MAX:
            raise ConfigurationError(
                f"this client has registered {len(self._all)} instances, allowed are"
                f" {REGISTRATIONS_MAX}: use another"
            )
        lease = self._world.entropy(LEASE_BYTES).hex()
        since = self._world.wall_us() // 1_000_000
        instance = checked(replace(instance, lease=lease, since=since))
        registration = Registration(service, instance, lost)

        def settle(outcome: Answer | SwellError) -> None:
            if isinstance(outcome, SwellError):
                done(outcome)
                return
            self._keep(registration)
            done(registration)

        self._call(_publish(service, instance.line()), deadline_s, settle)

    def deregister(self, registration: Registration, deadline_s: float, done: Done) -> None:
        """Take it out of the list, unless another registration has taken its place."""
        instance = registration.instance
        self._forget(registration)
        line = Line(instance.id, None, instance.mark)
        self._call(_publish(registration.service, line), deadline_s, done)

    def stop(self) -> None:
        self._all.clear()
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _call(self, request: Request, deadline_s: float, done: Done) -> None:
        self._store.call(CONFIG_SERVICE, *request, deadline_s, done)

    # Keeping.

    def _keep(self, registration: Registration) -> None:
        self._all[registration.service, registration.instance.id] = registration
        if registration.has_session:
            self._due_in(registration, registration.keep_s)

    def _is_kept(self, registration: Registration) -> bool:
        key = registration.service, registration.instance.id
        return self._all.get(key) is registration

    def _forget(self, registration: Registration) -> None:
        if self._is_kept(registration):
            del self._all[registration.service, registration.instance.id]

    def _due_in(self, registration: Registration, delay_s: float) -> None:
        registration.due_at = self._world.now() + delay_s
        self._wake_by(registration.due_at)

    def _wake_by(self, due: float) -> None:
        now = self._world.now()
        due = max(due, now + TICK_S)
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._world.call_later(due - now, self._tick)

    def _tick(self) -> None:
        """Name the leases that are due, all of one node together."""
        self._timer = None
        now = self._world.now()
        self._expire(now)
        by_peer: dict[Peer, list[Registration]] = {}
        for registration in self._all.values():
            if registration.due_at <= now:
                registration.due_at = now + registration.keep_s
                peer = self._store.peer_of(place(registration.service))
                if peer is not None and peer.open:
                    by_peer.setdefault(peer, []).append(registration)
                else:
                    self._ask(registration)
        for peer, due in by_peer.items():
            for start in range(0, len(due), LEASES_MAX):
                self._name(peer, due[start : start + LEASES_MAX], now)
        waits = [one.due_at for one in self._all.values()]
        waits += [one.until for one in self._open.values()]
        due_at = min(waits, default=math.inf)
        if due_at < math.inf:
            self._wake_by(due_at)

    def _name(self, peer: Peer, due: list[Registration], now: float) -> None:
        session = peer.session
        assert session is not None
        peer.used_at = now
        self._number += 1
        leases = tuple([Lease(r.service, r.instance.id, r.instance.lease) for r in due])
        if session.send(Keep(self._number, leases)):
            until = now + min(one.keep_s for one in due)
            self._open[self._number] = _Open(peer, session, due, until)

    def _expire(self, now: float) -> None:
        """A node that did not answer in time is given up; somebody else may be the primary."""
        for number, waiting in list(self._open.items()):
            if waiting.until > now and waiting.session.open:
                continue
            del self._open[number]
            self._store.counters["silent-keeper"] += 1
            if waiting.peer.session is waiting.session:
                self._peers.give_up(waiting.peer, "no answer about leases")
            for registration in waiting.registrations:
                self._ask(registration)

    # Answers.

    def on_kept(self, session: Session, kept: Kept) -> None:
        waiting = self._open.pop(kept.number, None)
        if waiting is None or waiting.session is not session:
            return
        doubts = dict(kept.doubts)
        for at, registration in enumerate(waiting.registrations):
            if at in doubts:
                self._on_doubt(registration, doubts[at])
            else:
                registration.doubts = 0

    def _on_doubt(self, registration: Registration, why: int) -> None:
        if not self._is_kept(registration):
            return
        instance = registration.instance
        if why == Doubt.ABSENT:
            self._store.counters["registered-again"] += 1
            since = self._world.wall_us() // 1_000_000
            again = registration.instance = replace(instance, since=since)
            self._inquire(registration, _publish(registration.service, again.line(only="")))
        elif why == Doubt.ELSEWHERE:
            self._ask(registration)
        else:
            replaced = why == Doubt.REPLACED
            sentence = (
                f"another instance has registered as {instance.id} of {registration.service}"
                if replaced
                else f"the cluster does not let this client keep {instance.id} of"
                f" {registration.service} any more: its token has changed"
            )
            self._forget(registration)
            if registration.lost is not None:
                registration.lost(RefusedError("replaced" if replaced else "no-access", sentence))

    def _ask(self, registration: Registration) -> None:
        """Find out who is the primary now; then name the lease there."""
        self._inquire(registration, requests.get(registration.service, INSTANCES, data=False))

    def _inquire(self, registration: Registration, request: Request) -> None:
        if registration.asking:
            return
        registration.asking = True
        delay_s = min(RETRY_S_MAX, TICK_S * 2**registration.doubts)
        registration.doubts = min(registration.doubts + 1, 16)

        def settle(outcome: Answer | SwellError) -> None:
            registration.asking = False
            if self._is_kept(registration):
                self._due_in(registration, min(delay_s, registration.keep_s))

        self._call(request, CALL_S, settle)


def _publish(service: str, line: Line) -> Request:
    return requests.publish(service, (Lines(INSTANCES, (line,)),), line.key)
