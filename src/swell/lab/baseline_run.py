"""One run of a baseline system: the load, the latencies and the counts of `ripple_run`.

    outcome = flooding_run(RippleSettings(seconds=20.0))

Servers, containers and the publisher are processes as there. There are no receipts: what was lost
is known from the containers, once they have stopped to get more.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

import swell
from swell.lab import baseline_fleet, baseline_publisher
from swell.lab.baseline_protocol import Mode
from swell.lab.baseline_server import READY, Spec
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Collected
from swell.lab.publisher_process import PublisherProcess
from swell.lab.ripple_publisher import APPLIED_S_MAX, Published, Ready
from swell.lab.ripple_run import (
    Meter,
    Outcome,
    RippleSettings,
    containers_of,
    last_step,
    order_of,
    outcome_of,
    seconds_of,
)
from swell.lab.server_cluster import ServerCluster
from swell.lab.server_process import ServerProcess
from swell.runtime.ports import LOOPBACK, free_ports
from swell.world import Address

POLL_S = 0.2
QUIET_S = 3.0
"""Containers that get nothing for so long get nothing more."""


class BaselineCluster(ServerCluster):
    """Its servers' processes, as a context."""

    cluster = "lab"

    def __init__(self, directory: Path, servers: int, mode: Mode) -> None:
        super().__init__(servers)
        self._directory = directory
        self._mode = mode
        self._addresses = tuple(Address(LOOPBACK, port) for port in free_ports(servers))

    def addresses(self) -> tuple[Address, ...]:
        """By the servers' numbers."""
        return self._addresses

    def _start(self, place: int) -> ServerProcess:
        file = self._directory / f"s{place}.json"
        data = str(self._directory / f"s{place}")
        file.write_bytes(msgspec.json.encode(Spec(self._mode, place, self._addresses, data)))
        return ServerProcess(
            f"server s{place}",
            [sys.executable, "-m", "swell.lab.baseline_server", str(file)],
            self._log(place),
            {"PYTHONPATH": str(Path(swell.__file__).parent.parent)},
        )

    def _log(self, place: int) -> Path:
        return self._directory / f"s{place}.log"

    def _trouble(self) -> str:
        return "" if all(map(self._is_ready, range(self._count))) else "the servers are not ready"

    def _is_ready(self, place: int) -> bool:
        return READY in self._log(place).read_text(errors="replace").splitlines()


def baseline_run(mode: Mode, settings: RippleSettings) -> Outcome:
    """Start everything, load it, and look at what became of it."""
    with tempfile.TemporaryDirectory(prefix="swell-baseline-") as directory, ExitStack() as stack:
        cluster = stack.enter_context(BaselineCluster(Path(directory), settings.servers, mode))
        order = order_of(settings, cluster)
        publisher = PublisherProcess(baseline_publisher.main, order, Ready, Published)
        stack.callback(publisher.kill)
        fleets = stack.enter_context(
            Fleets(
                cluster.cluster,
                cluster.addresses(),
                containers_of(settings),
                settings.fleet_processes,
                main=baseline_fleet.main,
            )
        )
        fleets.collect()
        meter = Meter(cluster.pids, (*fleets.pids, publisher.pid))
        publisher.go()
        publisher.wait(settings.warm_up_s)
        meter.read()
        publisher.wait(seconds_of(settings))
        meter.read()
        published = publisher.stop(APPLIED_S_MAX)
        collected = settle(fleets, last_steps(published))
        return outcome_of(settings, published, collected, meter.measured())


flooding_run = partial(baseline_run, Mode.FLOODING)
reverse_path_run = partial(baseline_run, Mode.REVERSE_PATH)


def last_steps(published: Published) -> dict[str, int]:
    return {
        name: last_step(np.frombuffer(log.steps, np.int64)) for name, log in published.logs.items()
    }


def settle(fleets: Fleets, last: dict[str, int]) -> list[Collected]:
    """What the containers got, once they have all or nothing more comes."""
    found = fleets.collect(contents=True)
    earlier: list[Collected] = []
    until_s = time.monotonic() + APPLIED_S_MAX
    moved_s = time.monotonic()
    while missing(found, last) and time.monotonic() < min(until_s, moved_s + QUIET_S):
        time.sleep(POLL_S)
        earlier += map(runs_only, found)
        before = missing(found, last)
        found = fleets.collect(contents=True)
        if missing(found, last) < before:
            moved_s = time.monotonic()
    return [*earlier, *found]


def missing(collected: Sequence[Collected], last: dict[str, int]) -> int:
    """Deliveries that are due yet."""
    return sum(
        max(0, last[one.application] - one.step)
        for process in collected
        for one in process.following
    )


def runs_only(collected: Collected) -> Collected:
    """Of an earlier answer, what the next one does not repeat."""
    return Collected(collected.runs, (), 0, {}, 0.0, 0.0)
