"""The operations of `swell.client.services.Service` for programs without a loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress

from swell.client.blocking_configs import Run
from swell.client.services import Listed, Service
from swell.config.operations import Options
from swell.container.registrations import Lost
from swell.errors import UnavailableError
from swell.services.instances import SESSION, TTL_S, Instance, Instances


class SyncService:
    """Each waits for its result. `on_lost` is called on another thread."""

    def __init__(self, service: Service, run: Run) -> None:
        self._service = service
        self._run = run
        self.name = service.name

    def register(
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
        return self._run(
            self._service.register(
                host,
                port,
                id=id,
                weight=weight,
                metadata=metadata,
                check=check,
                ttl_s=ttl_s,
                on_lost=on_lost,
                deadline_s=deadline_s,
            )
        )

    def deregister(self, id: str | None = None, *, deadline_s: float | None = None) -> bool:
        return self._run(self._service.deregister(id, deadline_s=deadline_s))

    def discover(self, *, stale: bool = False, deadline_s: float | None = None) -> Instances:
        return self._run(self._service.discover(stale=stale, deadline_s=deadline_s))

    def pick(self, *, deadline_s: float | None = None) -> Instance:
        return self._run(self._service.pick(deadline_s=deadline_s))

    def watch(self) -> Iterator[Listed]:
        """The list as it is now, then after every change; ends when the client is closed."""
        reader = self._service.watch()
        try:
            while (listed := self._run(_next(reader))) is not None:
                yield listed
        except UnavailableError:
            return
        finally:
            with suppress(UnavailableError):  # a client that was closed has no readers
                self._run(reader.aclose())

    def options(self, *, protect: float | None = None, deadline_s: float | None = None) -> Options:
        return self._run(self._service.options(protect=protect, deadline_s=deadline_s))


async def _next(reader: AsyncGenerator[Listed, None]) -> Listed | None:
    return await anext(reader, None)
