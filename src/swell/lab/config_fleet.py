"""One update to 5,000 containers of one application at two sites, by trees of relays.

Three nodes; the containers are dealt out to several processes, each container with its own world,
listening socket and links. Some updates follow each other, every one when the one before was
applied by all: the first finds trees that nobody has used, whose relays dial their siblings for
it. Who brought what is noted by the containers, so that the depth is that of the ways taken.

File descriptors: a container takes one to listen, one or two to nodes and two per link between
siblings, one at each end; the limit of a process is checked before anything starts.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import swell
from swell.client.waiting import Report as Awaited
from swell.errors import ConfigurationError
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.fanout_swell import check
from swell.lab.fanout_trial import runs_of
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Collected, Hosted, loopback
from swell.lab.store_cluster import SwellCluster

SUMMARY = "one update to 5,000 containers: seconds, depth of the trees, failures by name"

CONTAINERS, CONTAINERS_QUICK = 5000, 1000
PROCESSES, PROCESSES_QUICK = 4, 2
UPDATES = 3
SITES = ("north", "south")
APPLICATION, NAME = "shop", "db.json"
VALUE = b'{"pool": {"size": %d}, "hosts": ["a.example", "b.example"]}\n'
DEPTH_MAX = 3
WAIT_S = 120.0

DESCRIPTORS_PER_CONTAINER = 6
DESCRIPTORS_FREE = 1000
"""Kept for everything else."""


def run(lab: Lab) -> Report:
    count = CONTAINERS_QUICK if lab.quick else CONTAINERS
    processes = PROCESSES_QUICK if lab.quick else PROCESSES
    descriptors = check_descriptors(count, processes)
    containers = [
        Hosted(
            f"c{number:05d}",
            APPLICATION,
            SITES[number % len(SITES)],
            (APPLICATION,),
            host=loopback(number),
        )
        for number in range(count)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="swell-fleet-") as directory,
        SwellCluster(Path(directory)) as cluster,
        Fleets(cluster.cluster, cluster.addresses(), containers, processes, traced=True) as fleets,
        swell.connect_sync(
            [str(address) for address in cluster.addresses()], cluster=cluster.cluster
        ) as client,
        lab.progress("config-fleet", UPDATES) as advance,
    ):
        configs = client.configs(APPLICATION)
        fleets.collect()
        rows = []
        for number in range(1, UPDATES + 1):
            began_ns = time.monotonic_ns()
            step = configs.put(NAME, VALUE % number).step
            stored_ns = time.monotonic_ns()
            report = configs.wait(step, deadline_s=WAIT_S)
            known_ns = time.monotonic_ns()
            collected = fleets.collect(contents=True)
            check(collected)
            times = stored_ns - began_ns, known_ns - began_ns
            rows.append(row_of(number, step, collected, began_ns, times, report))
            advance()
    return report_of(rows, count, processes, fleets.start_s, descriptors)


def check_descriptors(containers: int, processes: int) -> int:
    """How many a process may have; `ConfigurationError` if that is not enough."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS_PER_CONTAINER * -(-containers // processes) + DESCRIPTORS_FREE
    needed = max(needed, 2 * containers + DESCRIPTORS_FREE)  # a node has a link or two with each
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise ConfigurationError(
            f"{containers} containers take {needed} file descriptors in one process, allowed are "
            f"{allowed}: raise the hard limit (ulimit -Hn)"
        )
    return int(allowed)


def row_of(
    number: int,
    step: int,
    collected: Sequence[Collected],
    began_ns: int,
    times_ns: tuple[int, int],
    report: Awaited,
) -> dict[str, Any]:
    """`times_ns`: until it was stored, and until everybody's receipts were there."""
    runs = runs_of([rows for one in collected for rows in one.runs.values()])
    taken = runs[runs[:, 1] >= step][:, 2] - began_ns
    p50, p99, most = np.percentile(taken, (50, 99, 100)) / 1e9 if len(taken) else [np.nan] * 3
    brought = {row.container: row.by for one in collected for row in one.following}
    depths = depths_of(brought)
    stored_ns, known_ns = times_ns
    failed = (*report.failed.names, *report.silent.names, *report.offline.names)
    return {
        "update": number,
        "applied": report.applied.count,
        "failed": report.interested - report.applied.count,
        "named": ", ".join(one.container for one in failed[:3]),
        "stored_s": round(stored_ns / 1e9, 4),
        "p50_s": round(float(p50), 3),
        "p99_s": round(float(p99), 3),
        "max_s": round(float(most), 3),
        "known_s": round(known_ns / 1e9, 3),
        "depth": max(depths.values()),
        "by_node": sum(1 for depth in depths.values() if depth == 1),
        "relays": len(set(brought.values()) - {""}),
    }


def depths_of(brought: Mapping[str, str]) -> dict[str, int]:
    """Container → hops from the node, given who brought each its last burst."""
    depths: dict[str, int] = {}
    for name in brought:
        way = [name]
        while way[-1] not in depths and brought[way[-1]] and len(way) <= len(brought):
            way.append(brought[way[-1]])
        depth = depths.get(way[-1], 0)
        for passed in reversed(way):
            if passed not in depths:
                depth += 1
                depths[passed] = depth
    return depths


def report_of(
    rows: Sequence[dict[str, Any]], count: int, processes: int, start_s: float, descriptors: int
) -> Report:
    first = rows[0]
    return Report(
        settings={
            "containers": count,
            "processes": processes,
            "sites": len(SITES),
            "descriptors_max": descriptors,
        },
        rows=rows,
        headline={
            "seconds until all had applied the first update": first["max_s"],
            "seconds until the administrator knew": first["known_s"],
            "... of the last update": rows[-1]["known_s"],
            "seconds until all were subscribed": round(start_s, 2),
        },
        bars=[
            Bar.at_least(
                "containers that applied each update", count, min(_column(rows, "applied"))
            ),
            Bar.at_most("failures", 0, max(_column(rows, "failed"))),
            Bar.at_most("depth of the trees", DEPTH_MAX, max(_column(rows, "depth"))),
        ],
        notes=NOTES,
    )


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    return [row[name] for row in rows]


NOTES = (
    "stored: until the publisher heard that it is on all replicas; p50, p99, max: from publishing "
    "until a container had applied it; known: until the receipts of all were at the primary and "
    "the publisher was told",
    "depth: hops from the node to the furthest container, by who brought the update to whom; "
    "by_node: containers that the node itself served",
    "the first update finds no links between siblings",
)
