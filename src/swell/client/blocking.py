"""A client of a cluster for plain programs, without a loop of their own.

    with swell.connect_sync("127.0.0.1:7000") as client:
        client.dht().put("greeting", b"hello")

The client lives on a loop in a thread of its own; calls wait for it, from any number of threads.
The thread is a daemon: a program that ends, by Ctrl-C too, does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from swell.client.blocking_configs import SyncConfigs
from swell.client.blocking_containers import Callback, SyncContainers, SyncUpdate
from swell.client.blocking_services import SyncService
from swell.client.connection import DEADLINE_S, Connection, Listener, connect
from swell.client.dht import Reading
from swell.client.documents import Document
from swell.client.session_pending import Answer
from swell.config.operations import ApplicationRow
from swell.dht import operations
from swell.dht.operations import DHT_SERVICE, truth_of, value_of
from swell.errors import SwellError, UnavailableError
from swell.runtime.identity import LOCAL_CLUSTER
from swell.store.request import Request

Call = Callable[[int, int, int, bytes, float | None], Answer]

T = TypeVar("T")

CLOSE_S = 5.0


def connect_sync(
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
    events: str | Path | None = None,
) -> SyncConnection:
    """`swell.connect` for programs without a loop; the listener is called on another thread."""
    return SyncConnection(
        connect(
            nodes,
            cluster=cluster,
            certificates=certificates,
            deadline_s=deadline_s,
            listener=listener,
            token=token,
            app=app,
            site=site,
            container=container,
            interest=interest,
            snapshot=snapshot,
            relay=relay,
            listen=listen,
            events=events,
        )
    )


class SyncConnection:
    """Use it with `with`: it is connected inside."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event
        self._thread: Thread | None = None

    def __enter__(self) -> SyncConnection:
        ready: Future[None] = Future()
        self._thread = Thread(target=self._live, args=(ready,), name="swell-client", daemon=True)
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._ended.set)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _live(self, ready: Future[None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._stay(ready))

    async def _stay(self, ready: Future[None]) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            async with self._connection:
                ready.set_result(None)
                await self._ended.wait()
        except SwellError as error:
            self._loop = None
            ready.set_exception(error)

    def dht(self) -> SyncDht:
        """The distributed hash table."""
        return SyncDht(self.call)

    def configs(self, application: str) -> SyncConfigs:
        """The configurations of an application, to publish and to look at."""
        return SyncConfigs(self._connection.configs(application), self._run)

    def service(self, name: str) -> SyncService:
        """A service: to register its instances, and to find them."""
        return SyncService(self._connection.service(name), self._run)

    def services(self, *, deadline_s: float | None = None) -> tuple[ApplicationRow, ...]:
        """All applications that have instances, or had, by name; asks every slot."""
        return self._run(self._connection.services(deadline_s=deadline_s))

    def applications(self, *, deadline_s: float | None = None) -> tuple[ApplicationRow, ...]:
        """All applications of the cluster, by name; asks every slot."""
        return self._run(self._connection.applications(deadline_s=deadline_s))

    def config(
        self, name: str, *, application: str | None = None, deadline_s: float | None = None
    ) -> Document | None:
        """The newest version here, None if there is none."""
        work = self._connection.config(name, application=application, deadline_s=deadline_s)
        return self._run(work)

    def watch(
        self, *names: str, application: str | None = None, manual: bool = False
    ) -> Iterator[SyncUpdate]:
        """What is here, then every change; ends when the client is closed."""
        return self._containers().watch(names, application, manual)

    def on_update(
        self, names: str | Sequence[str], callback: Callback, *, application: str | None = None
    ) -> Callable[[], None]:
        """Call it with every update, on a thread of its own. What it raises is the reason why the
        update is rejected. Returns a function that ends it."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        return self._containers().on_update(wanted, callback, application)

    def _containers(self) -> SyncContainers:
        return SyncContainers(self._connection.containers(), self._run, self._soon)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the client's loop; waits for the result."""
        loop = self._loop
        if loop is None:
            work.close()
            raise UnavailableError("the client is not connected: use it inside `with`")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            raise UnavailableError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def _soon(self, action: Callable[[], None]) -> None:
        """On the client's loop, unless it has ended."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(action)

    def call(
        self, service: int, place: int, read: int, body: bytes, deadline_s: float | None = None
    ) -> Answer:
        """One operation on slot `place` modulo their number; waits for its result."""
        outcome: Future[Answer] = Future()

        def settle(answer: Answer | SwellError) -> None:
            if isinstance(answer, SwellError):
                outcome.set_exception(answer)
            else:
                outcome.set_result(answer)

        def begin() -> None:
            try:
                self._connection.submit(service, place, read, body, deadline_s, settle)
            except SwellError as error:
                outcome.set_exception(error)

        loop = self._loop
        if loop is None:
            raise UnavailableError("the client is not connected: use it inside `with`")
        loop.call_soon_threadsafe(begin)
        return outcome.result()


class SyncDht:
    """The operations of `swell.client.dht.Dht`, each waiting for its result."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def put(self, key: str, value: bytes, *, deadline_s: float | None = None) -> None:
        truth_of(self._run(operations.put(key, value), deadline_s).body)

    def put_and_retrieve(
        self, key: str, value: bytes, *, deadline_s: float | None = None
    ) -> bytes | None:
        return value_of(self._run(operations.put_and_retrieve(key, value), deadline_s).body)

    def get(
        self, key: str, *, stale: bool = False, deadline_s: float | None = None
    ) -> bytes | None:
        return value_of(self._run(operations.get(key, stale), deadline_s).body)

    def read(self, key: str, *, stale: bool = False, deadline_s: float | None = None) -> Reading:
        answer = self._run(operations.get(key, stale), deadline_s)
        return Reading(value_of(answer.body), answer.stale)

    def contains(self, key: str, *, deadline_s: float | None = None) -> bool:
        return truth_of(self._run(operations.contains(key), deadline_s).body)

    def remove(
        self, key: str, value: bytes | None = None, *, deadline_s: float | None = None
    ) -> bool:
        return truth_of(self._run(operations.remove(key, value), deadline_s).body)

    def put_if_absent(self, key: str, value: bytes, *, deadline_s: float | None = None) -> bool:
        return truth_of(self._run(operations.put_if_absent(key, value), deadline_s).body)

    def replace(self, key: str, value: bytes, *, deadline_s: float | None = None) -> bytes | None:
        return value_of(self._run(operations.replace(key, value), deadline_s).body)

    def replace_if(
        self, key: str, old: bytes, new: bytes, *, deadline_s: float | None = None
    ) -> bool:
        return truth_of(self._run(operations.replace_if(key, old, new), deadline_s).body)

    def _run(self, request: Request, deadline_s: float | None) -> Answer:
        place, read, body = request
        return self._call(DHT_SERVICE, place, read, body, deadline_s)
