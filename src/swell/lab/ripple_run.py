"""One run of Ripple's evaluation (paper, section 5.1, Table 2): servers, containers, a rate.

    outcome = ripple_run(RippleSettings(seconds=60.0))

Real nodes, durable and replicated, in processes of their own; containers in fleet processes; one
process that publishes. Every mechanism can be switched off by `config`, which nodes and containers
run with. Latency is that of a delivery: from the instant when an update was due until one container
has applied it. An update is lost if it was stored and a container has not applied it in the end.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from swell.lab import socket_bytes
from swell.lab.fanout_reading import Reading
from swell.lab.fanout_trial import Numbers, latencies_of, runs_of
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Collected, Hosted, loopback
from swell.lab.publisher_process import PublisherProcess
from swell.lab.ripple_publisher import APPLIED_S_MAX, Order, Phase, Published, Ready, main
from swell.lab.server_process import cpu_s, memory_mib
from swell.lab.store_cluster import SwellCluster
from swell.settings import ConfigSettings, Settings
from swell.world import Address

SITE = "lab"

Floats = npt.NDArray[np.float64]


class RippleSettings(NamedTuple):
    """Table 2 of the paper; the defaults are its defaults."""

    servers: int = 10
    containers: int = 500
    applications: int = 20
    rate_per_s: float = 1000.0
    payload_bytes: int = 10_000
    incremental: float = 0.8
    """Share of updates that change one key; the others replace the whole value."""
    warm_up_s: float = 5.0
    seconds: float = 60.0
    phases: tuple[Phase, ...] = ()
    """Rates that change while it is measured; empty: `rate_per_s`."""
    config: ConfigSettings = ConfigSettings()
    server_processes: int = os.cpu_count() or 1
    """Which host the servers, evenly: with more than there are processors they spend much of their
    time on each other's turns. 0: one for each server."""
    fleet_processes: int = 0
    """0: as few as can host the containers."""
    slow: int = 0
    """The first so many containers, by name, are busy for `slow_s` with every burst. Those are the
    ones that relay where nothing is known of any."""
    slow_s: float = 0.01
    seed: int = 1


class Server(NamedTuple):
    """One process of servers, while it was measured."""

    cpu: float
    """Cores."""
    sent_bytes: int | None
    """In the whole run, to containers and to other nodes; None: it could not be read."""
    resident_mib: float


class Outcome(NamedTuple):
    """What a run measured. Latencies are those of updates that were due after the warm-up."""

    seconds: float
    updates: int
    """Stored, in the whole run."""
    refused: Mapping[str, int]
    """Updates that were not stored, by the reason."""
    deliveries: int
    """Applied by one container each, in the whole run."""
    lost: int
    out_of_order: int
    differing: int
    """Containers whose documents are not those of their siblings in the end."""
    unreported: tuple[str, ...]
    """Applications whose primary did not get the receipts of all containers in the end."""
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    per_second_ms: tuple[float, ...]
    """Mean latency of the updates that were due in each second."""
    servers: tuple[Server, ...]
    containers_cpu: float
    """Cores, the publisher's included."""
    others_cpu: float
    container_kib: float
    """Memory of the fleet processes by container."""

    @property
    def servers_cpu(self) -> float:
        return sum(server.cpu for server in self.servers)

    @property
    def bytes_per_update(self) -> float | None:
        """Sent by all servers."""
        counts = [one.sent_bytes for one in self.servers if one.sent_bytes is not None]
        return sum(counts) / max(1, self.updates) if len(counts) == len(self.servers) else None


def ripple_run(settings: RippleSettings) -> Outcome:
    """Start everything, load it, and look at what became of it."""
    with tempfile.TemporaryDirectory(prefix="swell-ripple-") as directory, ExitStack() as stack:
        node = msgspec.structs.replace(Settings(), config=settings.config)
        node = node.with_replicas(min(node.store.replicas, settings.servers))
        cluster = stack.enter_context(
            SwellCluster(
                Path(directory), settings.servers, node, processes=settings.server_processes
            )
        )
        publisher = PublisherProcess(main, order_of(settings, cluster), Ready, Published)
        stack.callback(publisher.kill)
        containers = containers_of(settings)
        addresses = cluster.addresses()
        fleets = stack.enter_context(
            Fleets(
                cluster.cluster,
                addresses,
                containers,
                settings.fleet_processes,
                settings.config,
                heard=True,
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
        measured = meter.measured()
        return outcome_of(settings, published, fleets.collect(contents=True), measured)


def seconds_of(settings: RippleSettings) -> float:
    return sum(phase.seconds for phase in settings.phases) or settings.seconds


def application_of(number: int) -> str:
    return f"application-{number:03d}"


class Cluster(Protocol):
    """What is published to."""

    cluster: str

    def addresses(self) -> tuple[Address, ...]: ...


def order_of(settings: RippleSettings, cluster: Cluster) -> Order:
    phases = settings.phases or (Phase(settings.seconds, settings.rate_per_s),)
    first = phases[0]._replace(seconds=phases[0].seconds + settings.warm_up_s)
    return Order(
        cluster.cluster,
        cluster.addresses(),
        tuple(map(application_of, range(settings.applications))),
        (first, *phases[1:]),
        settings.payload_bytes,
        settings.incremental,
        settings.seed,
    )


def containers_of(settings: RippleSettings) -> list[Hosted]:
    """Dealt out to the applications evenly; each follows its own."""
    hosted = []
    for number in range(settings.containers):
        name = application_of(number % settings.applications)
        slow_s = settings.slow_s if number < settings.slow else 0.0
        hosted.append(
            Hosted(f"c{number:05d}", name, SITE, (name,), host=loopback(number), slow_s=slow_s)
        )
    return hosted


class Measured(NamedTuple):
    """Of all processes, between two instants."""

    begin: Reading
    end: Reading
    servers: tuple[Server, ...]

    @property
    def seconds(self) -> float:
        return (self.end.instant_ns - self.begin.instant_ns) / 1e9


class Meter:
    """Reads what the processes have used. Bytes are those of the whole run, from before the first
    update until the last has ended: to read them takes a while, and would disturb what is
    measured."""

    def __init__(self, servers: Sequence[int], clients: Sequence[int]) -> None:
        self._servers, self._clients = servers, clients
        self._sent = _sent(servers)
        self._readings: list[Reading] = []
        self._cpu_s: list[list[float]] = []

    def read(self) -> None:
        """At the beginning, and at the end."""
        self._readings.append(Reading.now(self._servers, self._clients))
        self._cpu_s.append([cpu_s(pid) for pid in self._servers])

    def measured(self) -> Measured:
        """When all has ended."""
        sent, before = _sent(self._servers), self._sent
        begin, end = self._readings
        seconds = (end.instant_ns - begin.instant_ns) / 1e9
        return Measured(
            begin,
            end,
            tuple(
                Server(
                    round((used_s - unused_s) / seconds, 4),
                    sent[pid] - before[pid] if sent is not None and before is not None else None,
                    round(memory_mib(pid).resident, 1),
                )
                for pid, unused_s, used_s in zip(self._servers, *self._cpu_s, strict=True)
            ),
        )


def _sent(pids: Sequence[int]) -> Mapping[int, int] | None:
    """Bytes that each process has sent so far."""
    if not socket_bytes.is_installed():
        return None
    total: Counter[int] = Counter()
    for name, count in socket_bytes.sent_by(pids).items():
        total[int(name.rpartition(" ")[2])] += count
    return total


def outcome_of(
    settings: RippleSettings,
    published: Published,
    collected: Sequence[Collected],
    measured: Measured,
) -> Outcome:
    latencies, due = deliveries_of(published, collected, measured.begin.instant_ns)
    latencies_ms, seconds = latencies / 1e6, measured.seconds
    used = measured.end.since(measured.begin)
    following = [one for process in collected for one in process.following]
    last = {
        name: last_step(np.frombuffer(log.steps, np.int64)) for name, log in published.logs.items()
    }
    return Outcome(
        seconds=seconds,
        updates=sum(step - 1 for step in last.values()),
        refused=published.failures,
        deliveries=sum(one.step - 1 for one in following),
        lost=sum(max(0, last[one.application] - one.step) for one in following),
        out_of_order=sum(process.disorder for process in collected),
        differing=differing(collected),
        unreported=published.incomplete,
        mean_ms=float(latencies_ms.mean()) if len(latencies_ms) else float("nan"),
        p50_ms=_percentile(latencies_ms, 50),
        p99_ms=_percentile(latencies_ms, 99),
        max_ms=_percentile(latencies_ms, 100),
        per_second_ms=means_by_second(latencies_ms, due, measured.begin.instant_ns),
        servers=measured.servers,
        containers_cpu=used.clients_s / seconds,
        others_cpu=used.others_s / seconds,
        container_kib=sum(process.resident_mib for process in collected)
        * 1024
        / max(1, settings.containers),
    )


def last_step(steps: Numbers) -> int:
    """The last step of an application; its first value was the first."""
    return int(steps.max(initial=1))


def deliveries_of(
    published: Published, collected: Sequence[Collected], from_ns: int
) -> tuple[Numbers, Numbers]:
    """Latency and due instant in ns of every delivery of an update that was due from an instant
    on."""
    latencies, dues = [], []
    for name, log in published.logs.items():
        steps, due_ns = np.frombuffer(log.steps, np.int64), np.frombuffer(log.due_ns, np.int64)
        by_step = np.zeros(last_step(steps) + 1, dtype=np.int64)
        by_step[steps] = due_ns
        by_step[:2] = 0
        runs = runs_of([process.runs.get(name, b"") for process in collected])
        runs = runs[runs[:, 1] > 1]
        runs = np.minimum(runs, [len(by_step) - 1, len(by_step) - 1, np.iinfo(np.int64).max])
        instants = latencies_of(runs, np.zeros_like(by_step))
        due = instants - latencies_of(runs, by_step)
        counted = due >= from_ns
        latencies.append((instants - due)[counted])
        dues.append(due[counted])
    return np.concatenate(latencies), np.concatenate(dues)


def means_by_second(latencies_ms: Floats, due_ns: Numbers, from_ns: int) -> tuple[float, ...]:
    if not len(due_ns):
        return ()
    second = (due_ns - from_ns) // 1_000_000_000
    counts = np.bincount(second)
    sums = np.bincount(second, weights=latencies_ms)
    return tuple(np.round(sums / np.maximum(counts, 1), 2).tolist())


def differing(collected: Sequence[Collected]) -> int:
    """Containers whose documents differ from those of most at the same step."""
    found: dict[tuple[str, int], Counter[bytes]] = {}
    for process in collected:
        for one in process.following:
            found.setdefault((one.application, one.step), Counter())[one.digest] += 1
    return sum(counts.total() - max(counts.values()) for counts in found.values())


def _percentile(values: Floats, share: float) -> float:
    return float(np.percentile(values, share)) if len(values) else float("nan")
