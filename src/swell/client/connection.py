"""A client of a cluster for programs with a loop of their own.

    async with swell.connect("127.0.0.1:7000,127.0.0.1:7001", cluster="local") as client:
        dht = client.dht()
        await dht.put("greeting", b"hello")

The protocol is `swell.client.store_session`; here are only the loop and futures, one per
operation and no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from swell.client.addresses import parse_address, parse_addresses
from swell.client.applications import list_applications
from swell.client.configs import Configs
from swell.client.deadlines import check_deadline
from swell.client.dht import Dht
from swell.client.session_pending import Answer, Done
from swell.client.store_session import Notice, StoreSession
from swell.client.token import find_token
from swell.config.operations import ApplicationRow
from swell.errors import ConfigurationError, SwellError, UnavailableError
from swell.runtime.identity import LOCAL_CLUSTER
from swell.runtime.security import TlsMaterial
from swell.runtime.world import Deadlines, RuntimeWorld
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
) -> Connection:
    """A client of the cluster that these nodes (HOST:PORT, separated by commas) belong to.

    `certificates`: a directory made by `swell cluster issue`; it says which cluster, so `cluster`
    is for clusters without TLS only. `deadline_s` holds for connecting and for every operation
    that is not given its own. `listener` hears of links and redirects. `token`: what
    `swell token create` printed; without one, that of the environment (SWELL_TOKEN) if any.
    """
    addresses = addresses_of(nodes)
    tls = TlsMaterial(Path(certificates)) if certificates is not None else None
    return Connection(addresses, cluster, tls, deadline_s, listener, token)


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
    ) -> None:
        self._addresses = addresses
        self._cluster = cluster
        self._tls = tls
        self._listener = listener
        self._token = find_token(token)
        self.deadline_s = check_deadline(deadline_s)
        self._world: RuntimeWorld | None = None
        self._session: StoreSession | None = None

    async def __aenter__(self) -> Connection:
        tls = self._tls
        name = tls.node if tls is not None else CLIENT_NAME
        deadlines = Deadlines(drain_s=DRAIN_S)
        world = self._world = RuntimeWorld(
            name, None, tls, cluster=self._cluster, deadlines=deadlines
        )
        session = StoreSession(world, world.cluster, self._addresses, self._listener, self._token)
        world.start(session)
        connected: asyncio.Future[None] = world.loop.create_future()
        session.connect(self.deadline_s, partial(_settle_connected, connected))
        try:
            await connected
        except BaseException:
            await world.stop()
            raise
        self._session = session
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = None
        if self._world is not None:
            await self._world.stop()

    def dht(self) -> Dht:
        """The distributed hash table."""
        return Dht(self.call)

    def configs(self, application: str) -> Configs:
        """The configurations of an application, to publish and to look at."""
        return Configs(self.call, application)

    async def applications(self, *, deadline_s: float | None = None) -> tuple[ApplicationRow, ...]:
        """All applications of the cluster, by name; asks every slot."""
        slots = self._session.slots if self._session is not None else 1
        return await list_applications(self.call, slots, deadline_s)

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
