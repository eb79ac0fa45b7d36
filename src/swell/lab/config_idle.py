"""What an idle container costs the node that serves it: memory per connection, plain and with TLS.

One node, so that every container is connected to it and to nobody else. A few containers come
first, so that what is paid once is paid; then the resident memory of the node's process is read
before and after the others have come, each connected, subscribed and served. Every round has a
node of its own: memory that one round has given back would serve the next. A second reading is
taken when an update was delivered by a tree and everybody has said so; not with TLS, where one
process would have to shake hands with itself thousands of times for it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import swell
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Hosted, loopback
from swell.lab.server_process import memory_mib
from swell.lab.store_cluster import SwellCluster

SUMMARY = "memory of a node per idle container, plain and with TLS"

CONTAINERS, CONTAINERS_QUICK = 2000, 500
FIRST = 64
"""Containers that come before anything is measured."""
ROUNDS, ROUNDS_QUICK = 3, 1
KIB_MAX = {False: 8.0, True: 40.0}
"""Per container; by whether there is TLS."""

APPLICATION, SITE = "shop", "lab"
SETTLE_S = 1.0
"""After the last one came: what was under way is done."""


class Round(NamedTuple):
    """Memory per container in KiB, and how long they took to come."""

    idle_kib: float
    updated_kib: float | None
    start_s: float


def run(lab: Lab) -> Report:
    containers = CONTAINERS_QUICK if lab.quick else CONTAINERS
    rounds = ROUNDS_QUICK if lab.quick else ROUNDS
    rows, bars = [], []
    with lab.progress("config-idle", 2 * rounds) as advance:
        for tls in (False, True):
            done = []
            for _ in range(rounds):
                done.append(measure(containers, tls))
                advance()
            row = row_of(tls, containers, done)
            rows.append(row)
            what = f"memory per idle container connection, {row['connection']}, in KiB"
            bars.append(Bar.at_most(what, KIB_MAX[tls], row["idle_kib"]))
    return Report(
        settings={"containers": containers, "rounds": rounds, "first": FIRST},
        rows=rows,
        headline={f"KiB per container, {row['connection']}": row["idle_kib"] for row in rows},
        bars=bars,
        notes=NOTES,
    )


def measure(containers: int, tls: bool) -> Round:
    with (
        tempfile.TemporaryDirectory(prefix="swell-idle-") as directory,
        SwellCluster(Path(directory), nodes=1, tls=tls) as cluster,
        _fleet(cluster, "first", FIRST),
    ):
        time.sleep(SETTLE_S)
        (pid,) = cluster.pids
        before = memory_mib(pid).resident
        with _fleet(cluster, "idle", containers) as fleet:
            time.sleep(SETTLE_S)
            idle_kib = (memory_mib(pid).resident - before) * 1024 / containers
            updated_kib = None
            if not tls:
                _update(cluster)
                time.sleep(SETTLE_S)
                updated_kib = (memory_mib(pid).resident - before) * 1024 / containers
    return Round(idle_kib, updated_kib, fleet.start_s)


def _fleet(cluster: SwellCluster, prefix: str, count: int) -> Fleets:
    containers = [
        Hosted(f"{prefix}-{number:05d}", APPLICATION, SITE, (APPLICATION,), host=loopback(number))
        for number in range(count)
    ]
    return Fleets(
        cluster.cluster, cluster.addresses(), containers, certificates=cluster.certificates
    )


def _update(cluster: SwellCluster) -> None:
    """One update, applied by all."""
    with swell.connect_sync(
        [str(address) for address in cluster.addresses()],
        cluster=cluster.cluster,
        certificates=cluster.certificates,
    ) as client:
        configs = client.configs(APPLICATION)
        configs.wait(configs.put("db.json", b'{"size": 10}').step)


def row_of(tls: bool, containers: int, rounds: list[Round]) -> dict[str, Any]:
    idle = [one.idle_kib for one in rounds]
    updated = [one.updated_kib for one in rounds if one.updated_kib is not None]
    return {
        "connection": "TLS" if tls else "plain",
        "containers": containers,
        "idle_kib": round(median(idle), 2),
        "idle_min_kib": round(min(idle), 2),
        "idle_max_kib": round(max(idle), 2),
        "updated_kib": round(median(updated), 2) if updated else None,
        "start_s": round(median(one.start_s for one in rounds), 2),
    }


NOTES = (
    "idle: growth of the node's resident memory, divided by the containers that came; median, "
    "least and most over the rounds",
    "updated: the same when one update was delivered by a tree and its receipts have come back",
    "memory of sockets in the kernel is not part of it",
)
