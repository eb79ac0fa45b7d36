"""The real world: `world.World` on uvloop, TCP with TLS, and a real disk.

A `RuntimeWorld` hosts exactly one node; several worlds may share one loop. It is built inside a
running loop, in this order:

    world = RuntimeWorld("n1", data_dir, tls)     # locks the data directory, counts the start
    address = world.listen("127.0.0.1", 0)        # bound; connections wait in the backlog
    world.start(node)                             # events begin to flow
    await world.stop()                            # node.stop(), drain, close

Without a data directory (None) it is the world of a client, which has no disk.

Every callback goes through `guard`: none runs after `halt`, and a mistake of our own in a handler
is logged with its traceback and counted as `handler-error`, but stops nothing else.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import CLOCK_BOOTTIME, time_ns
from typing import Any

import msgspec

from swell.errors import UnavailableError
from swell.events import Event
from swell.events.records import LifeEnded, Record
from swell.ids import check_name
from swell.runtime.disk import RuntimeDisk
from swell.runtime.event_log import RuntimeRecorder
from swell.runtime.health import check_health
from swell.runtime.identity import LOCAL_CLUSTER, DataDirectory
from swell.runtime.link import RuntimeLink
from swell.runtime.listener import Listener
from swell.runtime.logs import events_logged, log_event, logger_of
from swell.runtime.resources import machine_resources
from swell.runtime.security import TlsMaterial
from swell.runtime.sockets import is_loopback
from swell.runtime.timers import RuntimeTimer
from swell.runtime.tls import TlsTransport
from swell.wire.limits import FIRST_FRAME_S_MAX, HANDSHAKE_S_MAX
from swell.world import WRONG_AUTHORITY, Address, Disk, Emitter, Node, Resources

OFFLOADS_MAX = 1024
STOPPED = "stopped"
"""What `halted` says after a clean stop."""
PROBES_MAX = 256


class Deadlines(msgspec.Struct, frozen=True):
    """How long a peer may take; tests shorten them."""

    connect_s: float = HANDSHAKE_S_MAX
    handshake_s: float = HANDSHAKE_S_MAX
    first_frame_s: float = FIRST_FRAME_S_MAX
    drain_s: float = 3.0
    """Longest wait for a peer to read what is queued for it, when a link or the node ends."""


class RuntimeWorld:
    """All that one node may touch, for real."""

    def __init__(
        self,
        name: str,
        data_dir: Path | None,
        tls: TlsMaterial | None = None,
        *,
        cluster: str = LOCAL_CLUSTER,
        sink: Callable[[float, Event], None] | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.name = check_name(name, "node name")
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.deadlines = deadlines or Deadlines()
        self.rng = Random(os.urandom(32))
        self.counters: Counter[str] = Counter()
        """Everything dropped, by reason."""
        self.log = logger_of(name)
        self._logged = events_logged(self.log)
        self.halted: asyncio.Future[str] = self.loop.create_future()
        """Done, with the reason, when the node halted or was stopped."""
        if tls is not None:
            tls.check_name(name)
        self._client_ssl = tls.client_context() if tls is not None else None
        self.cluster = tls.cluster if tls is not None else cluster
        self.epoch = 0
        """How often this data directory was started, this start included."""
        self.life = 0
        """The same number, as events have it."""
        self.uid = ""
        """Name of the data directory itself."""
        self.disk: Disk
        self._directory: DataDirectory | None = None
        self._files: RuntimeDisk | None = None
        if data_dir is not None:
            self._directory = DataDirectory(data_dir, self.cluster, name)
            self.epoch = self._directory.epoch
            self.life = self._directory.life
            self.uid = self._directory.uid
            self.disk = self._files = RuntimeDisk(self._directory.files, self.loop, self.guard)
        self._node: Node | None = None
        self._sink = sink
        self._recorder: RuntimeRecorder | None = None
        self.recording = False
        self._links: dict[RuntimeLink, None] = {}
        self._no_links = asyncio.Event()
        self._listeners: list[Listener] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._offload_thread: ThreadPoolExecutor | None = None
        self._offloads = 0
        self._silenced = False

    # Life.

    @property
    def node(self) -> Node:
        assert self._node is not None, "the world was not started"
        return self._node

    @property
    def open_links(self) -> int:
        """Connections that exist, those still opening or draining included."""
        return len(self._links)

    def listen(self, host: str, port: int) -> Address:
        """Bind; port 0 takes a free one. Without TLS only on loopback."""
        listener = Listener(self, host, port)
        self._listeners.append(listener)
        if self._node is not None:
            listener.begin()
        return listener.address

    def start(self, node: Node) -> None:
        """From here on `node` gets events."""
        assert self._node is None, "one world hosts one node"
        self._node = node
        for listener in self._listeners:
            listener.begin()

    async def stop(self) -> None:
        """Ask the node to stop, drain its links within the deadline, close everything."""
        for listener in self._listeners:
            listener.close()
        if self._silenced:
            await self.halted
            return
        if self._node is not None:
            self.guard(self._node.stop)
        self._silenced = True
        for link in list(self._links):
            link.close(drain=True, reason="node stops")
        if self._links:
            self._no_links.clear()
            await self._no_links.wait()  # each drain has its deadline
        await self._release(STOPPED)

    def halt(self, reason: str) -> None:
        """Stop this node now; no callback runs afterwards."""
        if self._silenced:
            return
        if self.recording:
            self.emit(LifeEnded(reason))
        self._silenced = True
        self.log.debug("halted", reason=reason)  # told by whoever waits for `halted`
        for listener in self._listeners:
            listener.close()
        for link in list(self._links):
            link.close()
        self._keep(self.loop.create_task(self._release(reason)))

    def condemn(self, reason: str) -> None:
        """The data directory is not what it seems: it is not to be started again."""
        if self._directory is not None:
            self._directory.condemn(reason)

    async def _release(self, reason: str) -> None:
        for link in list(self._links):
            link.close()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        if self._offload_thread is not None:
            self._offload_thread.shutdown(wait=False, cancel_futures=True)
        if self._files is not None:
            await self._files.close()
        if self._directory is not None:
            self._directory.close()
        if not self.halted.done():
            self.halted.set_result(reason)

    # What protocols use.

    def now(self) -> float:
        return time.clock_gettime(CLOCK_BOOTTIME)

    def wall_us(self) -> int:
        return time_ns() // 1000

    def entropy(self, n: int) -> bytes:
        return os.urandom(n)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> RuntimeTimer:
        return RuntimeTimer(self, delay_s, action)

    def dial(self, address: Address, identity: str = "") -> RuntimeLink:
        link = RuntimeLink(self, address, dialed=True, identity=identity)
        self.remember_link(link)
        link.open_with(self.loop.create_task(self._connect(link)))
        return link

    def probe(
        self, address: Address, kind: str, timeout_s: float, done: Callable[[bool], None]
    ) -> None:
        async def check() -> None:
            self.guard(done, await check_health(address, kind, timeout_s))

        if len(self._tasks) >= PROBES_MAX:
            self.count_drop("probes-exhausted", f"probe of {address}")
            self.loop.call_soon(self.guard, done, False)
        else:
            self._keep(self.loop.create_task(check()))

    def offload(
        self, function: Callable[[Any], Any], argument: Any, done: Callable[[Any], None]
    ) -> None:
        """One thread, so that results come in the order of submission."""
        if self._offloads >= OFFLOADS_MAX:
            self.count_drop("offloads-exhausted", repr(function))
            overloaded = UnavailableError(f"more than {OFFLOADS_MAX} computations are waiting")
            self.loop.call_soon(self.guard, done, overloaded)
            return
        self._offloads += 1
        if self._offload_thread is None:
            self._offload_thread = ThreadPoolExecutor(1, f"{self.name}-offload")

        def finish(result: Any) -> None:
            self._offloads -= 1
            self.guard(done, result)

        def work() -> None:
            try:
                result = function(argument)
            except Exception as error:
                result = error
            self.loop.call_soon_threadsafe(finish, result)

        self._offload_thread.submit(work)

    def resources(self) -> Resources:
        return machine_resources()

    def record(self, recorder: RuntimeRecorder) -> None:
        """Write API events down from now on; before the world is started."""
        assert self._node is None, "what has begun is not recorded from the beginning"
        self._recorder = recorder
        self.recording = True

    def emit(self, event: Event) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder.emit(event)
            if isinstance(event, Record):
                return  # for the files alone: there are too many for a log
        if self._sink is not None:
            self._sink(self.now(), event)
        if self._logged is None or type(event) in self._logged:
            log_event(self.log, event)

    @property
    def recorder(self) -> Emitter:
        return self._recorder or self

    # What the parts of this world use.

    def guard(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run one callback of the protocol, unless the node has halted."""
        if self._silenced:
            return
        try:
            action(*arguments)
        except Exception:
            self.report_bug(getattr(action, "__qualname__", repr(action)))

    def report_bug(self, where: str) -> None:
        """Log the exception being handled: a mistake of our own."""
        self.counters["handler-error"] += 1
        self.log.exception("handler-error", where=where)

    def count_drop(self, reason: str, detail: str) -> None:
        """A peer misbehaved or a limit was met: counted by reason, one line in the log."""
        self.counters[reason] += 1
        self.log.warning("dropped", reason=reason, detail=detail)

    def remember_link(self, link: RuntimeLink) -> None:
        self._links[link] = None

    def forget_link(self, link: RuntimeLink) -> None:
        self._links.pop(link, None)
        if not self._links:
            self._no_links.set()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def _connect(self, link: RuntimeLink) -> None:
        host, port = link.address
        try:
            if self._client_ssl is None:
                if not is_loopback(host):
                    raise OSError("plain TCP is allowed on loopback only")
                async with asyncio.timeout(self.deadlines.connect_s):
                    await self.loop.create_connection(lambda: link, host, port)
            else:
                async with asyncio.timeout(self.deadlines.connect_s + self.deadlines.handshake_s):
                    tls = TlsTransport(link, self._client_ssl, False, self.deadlines.handshake_s)
                    await self.loop.create_connection(lambda: tls, host, port)
                    await tls.wait_open()
        except TimeoutError:
            self.counters["dial-failed"] += 1
            link.fail("connect: no answer in time")
        except ssl.SSLCertVerificationError:
            self.counters["wrong-authority"] += 1
            link.fail(WRONG_AUTHORITY)
        except OSError as error:
            self.counters["dial-failed"] += 1
            link.fail(f"connect: {str(error) or type(error).__name__}")
