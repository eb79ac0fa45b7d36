"""Our own system in the comparison of fan-out: three nodes, durable and replicated; fleets of
containers that relay, verify, apply and give receipts; one publisher.

A delivery counts when a container has applied that version and its receipt, with its proof, has
reached the primary: containers write down when they applied what, and the publisher up to which
update everybody's receipts were there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count as counting
from pathlib import Path

import numpy as np

from swell.errors import SwellError
from swell.lab import socket_bytes
from swell.lab.fanout_publisher import Order, Published, Ready, main
from swell.lab.fanout_reading import Reading
from swell.lab.fanout_trial import (
    Numbers,
    Outcome,
    Trial,
    count,
    deliveries_of,
    published_by_sequence,
    runs_of,
)
from swell.lab.fanout_worker import DRAIN_S_MAX
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Collected, Hosted
from swell.lab.publisher_process import PublisherProcess
from swell.lab.store_cluster import NODES, SwellCluster
from swell.settings import Settings

FLEET_PROCESSES = 2
SITE = "lab"


class RunningSwell:
    """Three nodes, up."""

    def __init__(self, cluster: SwellCluster, events: str) -> None:
        self._cluster = cluster
        self._events = events
        self._numbers = counting(1)
        self.version = cluster.version

    def trial(self, trial: Trial) -> Outcome:
        """Every trial has an application of its own."""
        assert not trial.patch, "there is only one way here"
        cluster, application = self._cluster, f"fanout-{next(self._numbers)}"
        addresses, pids = cluster.addresses(), cluster.pids
        order = Order(cluster.cluster, addresses, application, trial.subscribers, trial.window)
        containers = [
            Hosted(f"c{number:05d}", application, SITE, (application,))
            for number in range(trial.subscribers)
        ]
        with ExitStack() as stack:
            publisher = PublisherProcess(main, order, Ready, Published)
            stack.callback(publisher.kill)
            fleets = stack.enter_context(
                Fleets(cluster.cluster, addresses, containers, FLEET_PROCESSES, events=self._events)
            )
            clients = (*fleets.pids, publisher.pid)
            fleets.collect()
            sent_before = socket_bytes.sent_by(pids) if socket_bytes.is_installed() else None
            publisher.go()
            publisher.wait(trial.warm_up_s)
            begin = Reading.now(pids, clients)
            publisher.wait(trial.seconds)
            end = Reading.now(pids, clients)
            published = publisher.stop(DRAIN_S_MAX)
            sent = None
            if sent_before is not None:
                sent = socket_bytes.between(sent_before, socket_bytes.sent_by(pids))
            collected = fleets.collect(contents=True)
        return outcome_of(trial, publisher.ready.step, published, collected, begin, end, sent)


def outcome_of(
    trial: Trial,
    step: int,
    published: Published,
    collected: Sequence[Collected],
    begin: Reading,
    end: Reading,
    sent: int | None,
) -> Outcome:
    """`step`: the one before the first update. Steps that not everybody has given receipts for are
    left out."""
    check(collected)
    runs = runs_of([rows for one in collected for rows in one.runs.values()])
    runs = up_to(runs - np.array([step, step, 0]), published.ended)
    counted = count(
        runs, published_by_sequence(published.published_ns, None), begin.instant_ns, end.instant_ns
    )
    used, everything = end.since(begin), deliveries_of(runs)
    return Outcome(
        seconds=used.instant_ns / 1e9,
        deliveries=counted.deliveries,
        p50_ms=counted.p50_ms,
        p99_ms=counted.p99_ms,
        servers_cpu_s=used.servers_s,
        clients_cpu_s=used.clients_s,
        others_cpu_s=used.others_s,
        server_bytes=sent,
        bytes_deliveries=everything,
        skipped=0,
        missing=len(published.published_ns) * trial.subscribers - everything,
        load_processes=len(collected),
    )


def up_to(runs: Numbers, last: int) -> Numbers:
    """The runs, or what of them is not behind an update."""
    cut = np.minimum(runs, np.array([last, last, np.iinfo(np.int64).max]))
    kept: Numbers = cut[cut[:, 0] < cut[:, 1]]
    return kept


def check(collected: Sequence[Collected]) -> None:
    """Nothing out of order, and everybody at the same step has the same documents."""
    disorder = sum(one.disorder for one in collected)
    if disorder:
        raise SwellError(f"containers applied {disorder} updates out of order")
    digests: dict[tuple[str, int], bytes] = {}
    for one in collected:
        for following in one.following:
            known = digests.setdefault((following.application, following.step), following.digest)
            if known != following.digest:
                raise SwellError(f"{following.container} has other documents than its siblings")


class Swell:
    """The system under test. `events`: a directory where nodes and containers write their events;
    empty: they do not."""

    by_hand = False

    def __init__(self, name: str = "swell", events: str = "") -> None:
        self.name = name
        self._events = events

    def absence(self) -> str:
        return ""

    @contextmanager
    def running(self, directory: Path) -> Iterator[RunningSwell]:
        settings = Settings().with_replicas(NODES).recorded_in(self._events)
        with SwellCluster(directory, settings=settings) as cluster:
            yield RunningSwell(cluster, self._events)
