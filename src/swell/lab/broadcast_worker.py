"""A process that hosts several nodes of an overlay, each with a sink and a source.

Sinks count what they receive in a matrix (sink × source) that all processes of an experiment map
into their memory: so the driver and the sources see, without a message, how far everybody is.

A source offers broadcasts by a schedule, or as fast as it may, and never has more than a window
of them that some sink has not received. What the schedule asks for beyond the window waits at the
source. Sources are served once per millisecond, all that are due in one go, so that frames
coalesce as they would in a busy application.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop
from numpy.typing import NDArray

from swell.directory.messages import Voter
from swell.node import Node, NodeConfig
from swell.overlay.matchers import BROADCAST
from swell.overlay.multicast import CONTROL_PORT_MAX
from swell.overlay.routed import Routed
from swell.runtime.logs import configure_logging
from swell.runtime.sockets import raise_descriptor_limit
from swell.runtime.world import RuntimeWorld
from swell.settings import Settings

PORT = CONTROL_PORT_MAX + 1
HOST = "127.0.0.1"
PUMP_S = 0.001
LOSSES = (
    "clique-link-full", "zone-link-full", "member-unreachable", "no-detour", "detour-exhausted",
    "detour-lost", "stray",
)  # fmt: skip
"""Counters of a node that each mean: a broadcast did not go where it should."""

Counts = NDArray[np.uint64]


def open_counts(path: Path, nodes: int, create: bool = False) -> Counts:
    """The shared matrix: row = sink, column = source, both by number."""
    return np.memmap(path, np.uint64, "w+" if create else "r+", shape=(nodes, nodes))


class Begin(NamedTuple):
    """Start these nodes; a voter of None means that the first node is the voter."""

    numbers: tuple[int, ...]
    settings: Settings
    voter: Voter | None


class Look(NamedTuple):
    """Ask for the place of every node."""


class Trial(NamedTuple):
    """Let these nodes broadcast until `Stop`."""

    ids: tuple[int, ...]
    """Id of each node, by number."""
    sources: tuple[int, ...]
    payload_bytes: int
    window: int
    """Broadcasts of one source that some sink may lack."""
    rate_per_s: float
    """Of one source; infinite: as fast as the window allows."""
    begins_s: float
    """When the schedule begins, by the monotonic clock."""


class Stop(NamedTuple):
    """End the trial: sources fall silent, sinks go on."""


class Tell(NamedTuple):
    """Ask for the process's tally since the trial began."""


class Place(NamedTuple):
    """Where one node is in the overlay, as it knows it itself."""

    number: int
    id: int
    zone: int
    clique: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    """(zone, peer) of its links between zones."""
    zones: tuple[int, ...]
    holders: tuple[tuple[int, tuple[int, ...]], ...]
    draining: int


class Tally(NamedTuple):
    """What one process has seen since its trial began."""

    sent: dict[int, int]
    """Source → broadcasts."""
    sent_sums: dict[int, int]
    """Source → sum of their sequence numbers."""
    received_sums: dict[int, list[int]]
    """Sink → the same sums, by source."""
    losses: Counter[str]
    duplicates: int
    cpu_s: float


Request = Begin | Look | Trial | Stop | Tell


class Host:
    """One node with its sink and its source."""

    def __init__(self, number: int, world: RuntimeWorld, node: Node, counts: Counts) -> None:
        self.number = number
        self.world = world
        self.node = node
        self.sent = 0
        self.sent_sum = 0
        self.sums = [0] * len(counts)
        self._row = memoryview(counts[number])
        self._numbers: dict[int, int] = {}
        node.on_joined = self._listen

    def _listen(self) -> None:
        assert self.node.overlay is not None
        self.node.overlay.multicast.listen(PORT, self.on_message)

    def begin(self, ids: tuple[int, ...]) -> None:
        self.sent = self.sent_sum = 0
        self.sums = [0] * len(ids)
        self._numbers = {node: number for number, node in enumerate(ids)}
        self.node.counters.clear()

    def on_message(self, message: Routed) -> None:
        source = self._numbers[message.source]
        self._row[source] += 1
        self.sums[source] += message.sequence

    def broadcast(self, count: int, payload: bytes) -> None:
        assert self.node.overlay is not None
        send = self.node.overlay.multicast.send
        for _ in range(count):
            self.sent_sum += send(BROADCAST, b"", PORT, payload).sequence
        self.sent += count

    def place(self) -> Place:
        overlay = self.node.overlay
        if overlay is None:
            return Place(self.number, 0, 0, (), (), (), (), 0)
        return Place(
            self.number,
            overlay.me.id,
            overlay.me.zone,
            tuple(sorted(overlay.clique.up)),
            tuple((link.zone, link.peer.id) for link in overlay.zonelinks.all()),
            tuple(sorted(overlay.other_zones())),
            tuple(sorted(overlay.zonelinks.holders.items())),
            len(overlay.zonelinks.drains),
        )


class Worker:
    """The nodes of this process, driven by requests on a pipe; it ends when the pipe does."""

    def __init__(self, driver: Connection, directory: Path, nodes: int) -> None:
        self._driver = driver
        self._directory = directory
        self._counts = open_counts(directory / "counts", nodes)
        self._hosts: list[Host] = []
        self._trial: Trial | None = None
        self._sources: list[Host] = []
        self._payload = b""
        self._cpu_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = self._loop.create_future()

        def on_readable() -> None:
            try:
                self._driver.send(self._answer(self._driver.recv()))
            except (EOFError, OSError):
                self._loop.remove_reader(self._driver.fileno())
                ended.set_result(None)
            except Exception as error:
                self._loop.remove_reader(self._driver.fileno())
                ended.set_exception(error)

        self._loop.add_reader(self._driver.fileno(), on_readable)
        self._driver.send(None)
        await ended

    def _answer(self, request: Request) -> object:
        match request:
            case Begin():
                return self._begin(request)
            case Look():
                return [host.place() for host in self._hosts]
            case Trial():
                self._begin_trial(request)
                return None
            case Stop():
                return self._stop()
            case Tell():
                return self._tally()

    def _begin(self, request: Begin) -> Voter:
        voter = request.voter
        for number in request.numbers:
            name = f"n{number}"
            world = RuntimeWorld(name, self._directory / name, cluster="broadcast")
            address = world.listen(HOST, 0)
            voter = voter or Voter(name, *address)
            config = NodeConfig(
                name=name,
                cluster=world.cluster,
                site="site",
                address=address,
                voters=(voter,),
                epoch=world.epoch,
                uid=world.uid,
                settings=request.settings,
            )
            node = Node(world, config)
            self._hosts.append(Host(number, world, node, self._counts))
            world.start(node)
            node.start()
        assert voter is not None
        return voter

    # A trial.

    def _begin_trial(self, trial: Trial) -> None:
        for host in self._hosts:
            host.begin(trial.ids)
        self._trial = trial
        self._sources = [host for host in self._hosts if host.number in trial.sources]
        self._payload = bytes(trial.payload_bytes)
        self._cpu_s = time.process_time()
        if self._sources:
            delay_s = max(0.0, trial.begins_s - time.monotonic())
            self._timer = self._loop.call_later(delay_s, self._pump)

    def _pump(self) -> None:
        """Broadcast what is due, as far as the windows allow."""
        trial = self._trial
        assert trial is not None
        self._timer = self._loop.call_later(PUMP_S, self._pump)
        elapsed_s = time.monotonic() - trial.begins_s
        reached = self._counts[:, [host.number for host in self._sources]].min(axis=0).tolist()
        for host, arrived in zip(self._sources, reached, strict=True):
            may = arrived + trial.window
            if trial.rate_per_s < math.inf:
                # Sources take turns within the time between two broadcasts.
                turn = host.number / len(self._counts)
                may = min(may, int(elapsed_s * trial.rate_per_s + turn))
            if may > host.sent:
                host.broadcast(may - host.sent, self._payload)

    def _stop(self) -> dict[int, int]:
        if self._timer is not None:
            self._timer.cancel()
        return {host.number: host.sent for host in self._sources}

    def _tally(self) -> Tally:
        losses: Counter[str] = Counter()
        duplicates = 0
        for host in self._hosts:
            counters = host.node.counters
            losses.update({reason: counters[reason] for reason in LOSSES if counters[reason]})
            duplicates += counters["duplicate"]
        return Tally(
            {host.number: host.sent for host in self._sources},
            {host.number: host.sent_sum for host in self._sources},
            {host.number: host.sums for host in self._hosts},
            losses,
            duplicates,
            time.process_time() - self._cpu_s,
        )


def main(driver: Connection, directory: Path, nodes: int) -> None:
    """The whole life of a worker process. Ctrl-C is the driver's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure_logging("error")
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Worker(driver, directory, nodes).run())
