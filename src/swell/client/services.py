"""Services for programs: register an instance, find and follow those of others (RIP-23).

    pay = client.service("pay")
    await pay.register("10.0.0.7", 8080, weight=2, metadata={"zone": "a"})
    instance = await client.service("stock").pick()

An instance with a session check lives as long as its client does: it is renewed while the client
is connected and removed when that is closed. All others stay until they are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from swell.client.configs import Configs
from swell.client.containers import Containers
from swell.client.session_pending import Answer
from swell.config.edits import Line, Lines
from swell.config.names import INSTANCES, check_application
from swell.config.operations import Options
from swell.container.registrations import Lost, Registration, Registrations
from swell.errors import SwellError, UnavailableError
from swell.services.instances import (
    EMPTY,
    SESSION,
    TTL_S,
    Change,
    Instance,
    Instances,
    check_id,
    following,
    parse,
)

LEAVE_S = 2.0
"""How long the end of a client waits for its instances to be removed."""

T = TypeVar("T")


class Listed(NamedTuple):
    """The list of a service, and what has changed since the last one."""

    instances: Instances
    added: tuple[Instance, ...]
    removed: tuple[Instance, ...]
    changed: tuple[Instance, ...]


class Host(Protocol):
    """The connection around it."""

    deadline_s: float

    def configs(self, application: str) -> Configs: ...

    def containers(self) -> Containers: ...

    @property
    def is_container(self) -> bool: ...

    def registrations(self) -> Registrations: ...


class Service:
    """One service. All operations take `deadline_s`; without it they have the client's own."""

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self.name = check_application(name)
        self._known = EMPTY
        """The last list that was picked from."""
        self._rng = Random()

    # Instances of this client.

    async def register(
        self,
        host: str,
        port: int,
        *,
        id: str | None = None,
        weight: float = 1.0,
        metadata: Mapping[str, str] | None = None,
        check: str = SESSION,
        ttl_s: float = TTL_S,
        on_lost: Lost | None = None,
        deadline_s: float | None = None,
    ) -> Instance:
        """Add an instance, in place of any of the same id (HOST:PORT unless it is given).

        `check`: `session` (this client says that it lives), `tcp`, `http:/path` or `none`. With
        `session` it is unhealthy when nothing was heard for `ttl_s`, and removed after twice as
        long. `on_lost` hears that another instance has taken the id."""
        instance = Instance(
            lease="",
            host=host,
            port=port,
            weight=float(weight),
            check=check,
            ttl_s=float(ttl_s),
            metadata=dict(metadata or {}),
            id=f"{host}:{port}" if id is None else id,
        )
        outcome: asyncio.Future[Registration] = asyncio.get_running_loop().create_future()
        self._host.registrations().register(
            self.name, instance, self._within_s(deadline_s), partial(_settle, outcome), on_lost
        )
        return (await outcome).instance

    async def deregister(self, id: str | None = None, *, deadline_s: float | None = None) -> bool:
        """Remove what this client has registered, unless others have replaced it; or the instance
        of this id, whoever registered it. Whether there was one."""
        if id is not None:
            lines = Lines(INSTANCES, (Line(check_id(id), None),))
            configs = self._host.configs(self.name)
            (made,) = await configs.publish((lines,), deadline_s=deadline_s)
            return made.changed
        registrations = self._host.registrations()
        own = [one for one in registrations.all if one.service == self.name]
        await _deregister(registrations, own, self._within_s(deadline_s))
        return bool(own)

    def _within_s(self, deadline_s: float | None) -> float:
        return self._host.deadline_s if deadline_s is None else deadline_s

    # Instances of others.

    async def discover(self, *, stale: bool = False, deadline_s: float | None = None) -> Instances:
        """The list as it is now. `stale` allows one that may be behind."""
        return (await self._read(stale, deadline_s))[1]

    async def _read(self, stale: bool, deadline_s: float | None) -> tuple[int, Instances]:
        value = await self._host.configs(self.name).get(
            INSTANCES, stale=stale, deadline_s=deadline_s
        )
        if value is None or value.deleted:
            return 0, EMPTY
        return value.version, parse(await value.bytes())

    async def pick(self, *, deadline_s: float | None = None) -> Instance:
        """A healthy instance by chance, in proportion to the weights; of a protected list any. A
        container follows the list from the first time on, any other client asks each time."""
        if self._host.is_container:
            document = await self._host.containers().config(INSTANCES, self.name, deadline_s)
            data = document.bytes() if document is not None else b""
            self._known = following(self._known, data)[0]
        else:
            self._known = await self.discover(deadline_s=deadline_s)
        instance = self._known.pick(self._rng)
        if instance is None:
            count = len(self._known)
            raise UnavailableError(
                f"service {self.name} has no instance to send anything to: of {count} none is"
                " healthy with a weight"
                if count
                else f"service {self.name} has no instances: register one"
            )
        return instance

    async def watch(self) -> AsyncGenerator[Listed, None]:
        """The list as it is now, then after every change. For containers: they are told."""
        reader = self._host.containers().watch((INSTANCES,), self.name, manual=False)
        try:
            version, instances = await self._read(False, None)
            yield Listed(instances, *Change(added=tuple(instances)))
            async for update in reader:
                if update.version > version:
                    data = b"" if update.document.deleted else update.document.bytes()
                    instances, change = following(instances, data)
                    yield Listed(instances, *change)
        finally:
            await reader.aclose()

    async def options(
        self, *, protect: float | None = None, deadline_s: float | None = None
    ) -> Options:
        """Change what is given; the options now. `protect`: with a smaller share of healthy
        instances nothing is removed, and all may be picked."""
        return await self._host.configs(self.name).options(protect=protect, deadline_s=deadline_s)


async def leave(registrations: Registrations) -> None:
    """A client ends: its instances are removed, as far as nodes can be reached."""
    own = [one for one in registrations.all if one.has_session]
    with suppress(SwellError):
        await _deregister(registrations, own, LEAVE_S)
    registrations.stop()


async def _deregister(
    registrations: Registrations, own: list[Registration], deadline_s: float
) -> None:
    outcomes: list[Awaitable[Answer]] = []
    for registration in own:
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        registrations.deregister(registration, deadline_s, partial(_settle, outcome))
        outcomes.append(outcome)
    for error in await asyncio.gather(*outcomes, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


def _settle(outcome: asyncio.Future[T], result: T | SwellError) -> None:
    if outcome.done():  # cancelled by whoever waited for it
        return
    if isinstance(result, SwellError):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)
