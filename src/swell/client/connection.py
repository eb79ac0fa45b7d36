"""A client of a cluster for programs with a loop of their own.

    async with swell.connect("127.0.0.1:7000,127.0.0.1:7001", cluster="local") as client:
        dht = client.dht()
        await dht.put("greeting", b"hello")

The protocol is `swell.client.store_session`, of a container also `swell.container`; here are only
the loop and futures, one per operation and no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from swell.client.addresses import parse_address, parse_addresses
from swell.client.applications import list_applications
from swell.client.configs import Configs
from swell.client.containers import Callback, Containers
from swell.client.deadlines import check_deadline
from swell.client.dht import Dht
from swell.client.documents import Document, Update
from swell.client.openings import Opening, default_name, listen_address, opening_of
from swell.client.services import Service, leave
from swell.client.session_pending import Answer, Done
from swell.client.store_session import Notice, StoreSession
from swell.client.token import find_token
from swell.client.uploads import Held
from swell.config.operations import ApplicationRow
from swell.container.registrations import Registrations
from swell.container.session import ContainerSession
from swell.errors import ConfigurationError, SwellError, UnavailableError
from swell.events.rows import Life
from swell.runtime.event_log import EventLog
from swell.runtime.identity import LOCAL_CLUSTER
from swell.runtime.security import TlsMaterial
from swell.runtime.world import Deadlines, RuntimeWorld
from swell.settings import EventSettings
from swell.world import Address

CLIENT_NAME = "client"
DEADLINE_S = 5.0
DRAIN_S = 0.5
"""How long the end of a client waits for nodes that do not close their links."""

Listener = Callable[[Notice], None]


def connect(
    nodes: str | Sequence[str],
    *,
    cluster: str = LOCAL_CLUSTER,
    certificates: str | Path | None = None,
    deadline_s: float = DEADLINE_S,
    listener: Listener | None = None,
    token: str | None = None,
    app: str | None = None,
    site: str = "",
    container: str | None = None,
    interest: str | Sequence[str] = (),
    snapshot: str | Path | None = None,
    relay: bool = True,
    listen: str | None = None,
    events: str | Path | EventLog | None = None,
) -> Connection:
    """A client of the cluster that these nodes (HOST:PORT, separated by commas) belong to.

    `certificates`: a directory made by `swell cluster issue`; it says which cluster, so `cluster`
    is for clusters without TLS only. `deadline_s` holds for connecting and for every operation
    that is not given its own. `listener` hears of links and redirects. `token`: what
    `swell token create` printed; without one, that of the environment (SWELL_TOKEN) if any.

    With `app` it is a container of that application, at `site`, named `container`, and gets the
    configurations in `interest` (names and `prefix*`, all by default). `snapshot`: a directory of
    its own, from which it starts when no node answers. It relays for siblings that can reach it
    at `listen`, unless `relay` is off.

    `events`: a directory where it writes its API events, or a log that several clients of one loop
    share and whoever opened it stops.
    """
    addresses = addresses_of(nodes)
    tls = TlsMaterial(Path(certificates)) if certificates is not None else None
    opening = None
    if app is not None:
        address = listen_address(relay, listen, tls is not None)
        opening = opening_of(app, container, site, interest, snapshot, address)
    return Connection(addresses, cluster, tls, deadline_s, listener, token, opening, events)


def addresses_of(nodes: str | Sequence[str]) -> list[Address]:
    addresses = parse_addresses(nodes) if isinstance(nodes, str) else [*map(parse_address, nodes)]
    if not addresses:
        raise ConfigurationError("a client needs the address of at least one node: HOST:PORT")
    return addresses


class Connection:
    """Use it with `async with`: it is connected inside."""

    def __init__(
        self,
        addresses: Sequence[Address],
        cluster: str = LOCAL_CLUSTER,
        tls: TlsMaterial | None = None,
        deadline_s: float = DEADLINE_S,
        listener: Listener | None = None,
        token: str | None = None,
        opening: Opening | None = None,
        events: str | Path | EventLog | None = None,
    ) -> None:
        self._events = events
        self._log: EventLog | None = None
        """Its own, to be stopped."""
        self._addresses = addresses
        self._cluster = cluster
        self._tls = tls
        self._listener = listener
        self._token = find_token(token)
        self.deadline_s = check_deadline(deadline_s)
        self._world: RuntimeWorld | None = None
        self._session: StoreSession | None = None
        self._opening = opening
        self._containers: Containers | None = None
        self._held = Held()
        self._registrations: Registrations | None = None

    async def __aenter__(self) -> Connection:
        opening, tls = self._opening, self._tls
        own = opening.name if opening is not None else CLIENT_NAME
        world = self._world = RuntimeWorld(
            tls.node if tls is not None else own,
            opening.snapshot if opening is not None else None,
            tls,
            cluster=self._cluster,
            deadlines=Deadlines(drain_s=DRAIN_S),
        )
        try:
            if self._events is not None:
                self._record(world)
            if opening is None:
                session = self._begin_client(world)
            else:
                session = self._begin_container(world, opening)
            await self._connect(session)
        except BaseException:
            await self._end()
            raise
        self._session = session
        return self

    def _record(self, world: RuntimeWorld) -> None:
        """Lives are told apart by their beginnings."""
        opening = self._opening
        name = opening.name if opening is not None else default_name()
        site = opening.site if opening is not None else ""
        start, log = world.wall_us(), self._events
        if not isinstance(log, EventLog):
            log = self._log = EventLog(EventSettings(directory=str(log)), name, start)
            log.counters = world.counters
            start = log.start
        world.record(log.recorder(Life(world.cluster, name, start, site)))

    def _begin_client(self, world: RuntimeWorld) -> StoreSession:
        session = StoreSession(world, world.cluster, self._addresses, self._listener, self._token)
        world.start(session)
        return session

    def _begin_container(self, world: RuntimeWorld, opening: Opening) -> StoreSession:
        containers = self._containers = Containers(opening.application, self.deadline_s)
        session = ContainerSession(
            world,
            world.cluster,
            self._addresses,
            opening.name,
            opening.application,
            opening.site,
            address=world.listen(*opening.listen) if opening.listen is not None else None,
            keep=opening.snapshot is not None,
            token=self._token,
            hear=containers.on_change,
            notice=self._listener,
            refused=containers.on_refused,
            current=containers.on_current,
        )
        world.start(session)
        containers.begin(session, opening.interest)
        return session.store

    async def _connect(self, session: StoreSession) -> None:
        """A container with a snapshot starts without any node; its session goes on trying."""
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.connect(self.deadline_s, partial(_settle_connected, connected))
        try:
            await connected
        except UnavailableError:
            if self._containers is None or not await self._containers.has_snapshot():
                raise

    async def _end(self) -> None:
        registrations, self._registrations = self._registrations, None
        if registrations is not None:
            await leave(registrations)
        self._session = None
        if self._containers is not None:
            self._containers.close()
        if self._world is not None:
            await self._world.stop()
        if self._log is not None:
            await self._log.stop()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    def dht(self) -> Dht:
        """The distributed hash table."""
        return Dht(self.call)

    def configs(self, application: str) -> Configs:
        """The configurations of an application, to publish and to look at."""
        return Configs(self.call, application, self._held)

    def service(self, name: str) -> Service:
        """A service: to register its instances, and to find them."""
        return Service(self, name)

    async def services(self, *, deadline_s: float | None = None) -> tuple[ApplicationRow, ...]:
        """All applications that have instances, or had, by name; asks every slot."""
        slots = self._session.slots if self._session is not None else 1
        return await list_applications(self.call, slots, deadline_s, services=True)

    async def applications(self, *, deadline_s: float | None = None) -> tuple[ApplicationRow, ...]:
        """All applications of the cluster, by name; asks every slot."""
        slots = self._session.slots if self._session is not None else 1
        return await list_applications(self.call, slots, deadline_s)

    async def config(
        self, name: str, *, application: str | None = None, deadline_s: float | None = None
    ) -> Document | None:
        """The newest version here, None if there is none; of the container's own application
        unless another is named. Waits for the first answer of a node, or uses the snapshot."""
        return await self.containers().config(name, application, deadline_s)

    def watch(
        self, *names: str, application: str | None = None, manual: bool = False
    ) -> AsyncGenerator[Update, None]:
        """What is here under these names (or `prefix*`; none: everything), then every change, in
        order. A reader that is slow gets the newest version of every name. An update counts as
        applied when it was taken; `manual`: when the reader says so."""
        return self.containers().watch(names, application, manual)

    def on_update(
        self, names: str | Sequence[str], callback: Callback, *, application: str | None = None
    ) -> Callable[[], None]:
        """Call a function, or a coroutine function, with every update that `watch` would give. What
        it raises is the reason why the update is rejected. Returns a function that ends it."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        return self.containers().on_update(wanted, callback, application)

    @property
    def is_container(self) -> bool:
        return self._opening is not None

    def registrations(self) -> Registrations:
        """The instances that it has registered; for other facades."""
        if self._session is None or self._world is None:
            raise UnavailableError("the client is not connected: use it inside `async with`")
        if self._registrations is None:
            self._registrations = Registrations(self._world, self._session)
        return self._registrations

    def containers(self) -> Containers:
        """What it follows; for other facades."""
        if self._opening is None:
            raise ConfigurationError("only containers follow configurations: connect with app=")
        if self._containers is None or self._session is None:
            raise UnavailableError("the client is not connected: use it inside `async with`")
        return self._containers

    def call(
        self, service: int, place: int, read: int, body: bytes, deadline_s: float | None = None
    ) -> asyncio.Future[Answer]:
        """One operation on slot `place` modulo their number; for services' own facades."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.submit(service, place, read, body, deadline_s, partial(_settle, outcome))
        return outcome

    def submit(
        self,
        service: int,
        place: int,
        read: int,
        body: bytes,
        deadline_s: float | None,
        done: Done,
    ) -> None:
        """As `call`, on the client's loop, with a callback instead of a future."""
        session = self._session
        if session is None:
            raise UnavailableError("the client is not connected: use it inside `async with`")
        left_s = self.deadline_s if deadline_s is None else check_deadline(deadline_s)
        session.call(service, place, read, body, left_s, done)


def _settle(outcome: asyncio.Future[Answer], answer: Answer | SwellError) -> None:
    if outcome.done():  # cancelled by whoever waited for it
        return
    if isinstance(answer, SwellError):
        outcome.set_exception(answer)
    else:
        outcome.set_result(answer)


def _settle_connected(connected: asyncio.Future[None], error: SwellError | None) -> None:
    if connected.done():
        return
    if error is not None:
        connected.set_exception(error)
    else:
        connected.set_result(None)
