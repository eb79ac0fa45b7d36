"""Nodes that speak the store's wire protocol to clients and behave as a test wants them to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from swell.client.session_pending import Answer
from swell.client.store_session import Notice, StoreSession
from swell.dht.machine import DhtMachine
from swell.dht.operations import DHT_SERVICE
from swell.errors import SwellError
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.simulation.simulation import Simulation
from swell.store import payload
from swell.store.messages import Execute, Executed, Read, Status, Table, TableRequest
from swell.store.request import Request
from swell.store.state import SlotState
from swell.world import Address, Link, World

CLUSTER = "toy"
SLOTS = 8

Mood = Callable[["ToyNode", Execute], Status | None]
"""What a node does with a request: None drops it, DONE serves it if the node may."""


def serve(node: ToyNode, execute: Execute) -> Status | None:
    return Status.DONE


class ToyStore:
    """What the toy nodes share: the slots' states, and who serves them."""

    def __init__(self) -> None:
        self.states = [SlotState({DHT_SERVICE: DhtMachine}) for _ in range(SLOTS)]
        self.contacts: dict[int, Contact] = {}
        self.primaries = [1] * SLOTS
        self.knows_slots = True
        self.mood: Mood = serve
        self.delay_s = 0.0
        self.under_way = 0
        self.under_way_max = 0
        self.heard: list[tuple[str, Execute]] = []
        """Every request, by the node that got it."""

    def numbers(self, node: str = "") -> list[int]:
        return [execute.number for name, execute in self.heard if node in ("", name)]

    def apply(self, execute: Execute) -> tuple[Status, bytes]:
        state = self.states[execute.slot]
        if execute.read == Read.STALE:
            return Status.STALE, state.query(execute.service, execute.body)[1]
        if execute.read:
            return state.query(execute.service, execute.body)
        e = execute
        return state.apply(payload.encode_command(e.session, e.number, e.lowest, e.service, e.body))


class ToyNode:
    """One node; also serves as owner of its clients' sessions."""

    def __init__(self, world: World, store: ToyStore, contact: Contact) -> None:
        self.world = world
        self.store = store
        self.contact = contact
        store.contacts[contact.id] = contact
        self.sessions = Sessions(world, CLUSTER, lambda: contact, lambda: 0, Counter())
        self.sessions.accept(LinkKind.CLIENT, self)
        self.sessions.handle(Execute, self.on_execute, (LinkKind.CLIENT,))
        self.sessions.handle(TableRequest, self.on_table_request, (LinkKind.CLIENT,))
        self.clients = 0

    def on_execute(self, session: Session, execute: Execute) -> None:
        store = self.store
        store.heard.append((self.contact.name, execute))
        status, body = store.mood(self, execute), b""
        primary = store.contacts.get(store.primaries[execute.slot])
        if status is None:
            return
        if status is Status.DONE:
            status = Status.REDIRECT
            if primary is self.contact or execute.read == Read.STALE:
                status, body = store.apply(execute)
        executed = Executed(execute.number, status, body, primary)
        if not store.delay_s:
            session.send(executed)
            return
        store.under_way += 1
        store.under_way_max = max(store.under_way, store.under_way_max)
        self.world.call_later(store.delay_s, lambda: self._answer(session, executed))

    def _answer(self, session: Session, executed: Executed) -> None:
        self.store.under_way -= 1
        session.send(executed)

    def on_table_request(self, session: Session, request: TableRequest) -> None:
        store = self.store
        primaries = tuple(store.primaries) if store.knows_slots else ()
        now_s = self.world.wall_us() // 1_000_000
        session.send(Table(request.number, primaries, tuple(store.contacts.values()), now_s))

    def admit(self, contact: Contact) -> Refused | None:
        return None

    def on_open(self, session: Session) -> None:
        self.clients += 1

    def on_closed(self, session: Session, reason: str) -> None:
        self.clients -= 1

    def on_link_up(self, link: Link) -> None:
        self.sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self.sessions.on_frame(link, frame)

    def stop(self) -> None:
        self.sessions.close_all("stopped")


class ToyCluster:
    """Nodes `n1`, `n2`, ... and one client, in a simulation."""

    def __init__(
        self, nodes: int = 3, seeds: tuple[str, ...] = ("n1", "n2", "n3"), cluster: str = CLUSTER
    ) -> None:
        self.simulation = Simulation(1)
        self.store = ToyStore()
        self.notices: list[Notice] = []
        for number in range(1, nodes + 1):
            self._add_node(number)
        self.client: StoreSession
        addresses = [Address(name, 0) for name in seeds]

        def factory(world: World) -> StoreSession:
            self.client = StoreSession(world, cluster, addresses, self.notices.append)
            return self.client

        self.simulation.add("client", "a", factory).start()
        self.simulation.run_for(0.001)

    def _add_node(self, number: int) -> None:
        contact = Contact(number, f"n{number}", "a", "", 1, f"n{number}", 0, 1)
        self.simulation.add(
            contact.name, "a", lambda world: ToyNode(world, self.store, contact)
        ).start()

    def node(self, name: str) -> ToyNode:
        node = self.simulation.processes[name].node
        assert isinstance(node, ToyNode)
        return node

    def begin(self, request: Request, deadline_s: float = 5.0) -> list[Answer | SwellError]:
        """Start an operation; the list gets its outcome."""
        outcomes: list[Any] = []
        place, read, body = request
        self.client.call(DHT_SERVICE, place, read, body, deadline_s, outcomes.append)
        return outcomes

    def run(self, request: Request, deadline_s: float = 5.0) -> Answer | SwellError:
        """Run one operation to its end, at most a tick behind its deadline."""
        outcomes = self.begin(request, deadline_s)
        ended = self.simulation.run_until_true(lambda: bool(outcomes), deadline_s + 0.1, 0.01)
        assert ended, "an operation outlived its deadline"
        self.simulation.run_for(0.01)
        (outcome,) = outcomes
        return outcome
