"""Servers under test that belong together: started, awaited until they serve, ended."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from swell.lab.server_process import ServerError, ServerProcess


class ServerCluster(ABC):
    """The processes of one system, as a context."""

    READY_S_MAX = 30.0
    POLL_S = 0.2

    def __init__(self, count: int) -> None:
        self._count = count
        self._servers: list[ServerProcess] = []

    @abstractmethod
    def _start(self, place: int) -> ServerProcess: ...

    @abstractmethod
    def _trouble(self) -> str:
        """Why nobody can be served yet; empty: they can."""

    def __enter__(self) -> Self:
        try:
            self._servers = [self._start(place) for place in range(self._count)]
            until_s = time.monotonic() + self.READY_S_MAX
            while trouble := self._trouble():
                for server in self._servers:
                    server.check()
                if time.monotonic() > until_s:
                    raise ServerError(f"{trouble} after {self.READY_S_MAX:.0f} s")
                time.sleep(self.POLL_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for server in self._servers:
            server.kill()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(server.pid for server in self._servers)

    def kill(self, place: int) -> None:
        self._servers[place].kill()
