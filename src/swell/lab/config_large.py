"""A value of 100 MiB that 50 containers follow: what a one-line edit of it costs, and whom.

Three nodes with three replicas. The value is published in pieces; then the containers come and
fetch it by ranges, all at once. The edits change one line each: some of them as `set` of a path,
which the primary looks for in the whole document, the others as splices that the client has made.
The next one follows when everybody has applied the one before; the first two are not measured.

Bytes are those of all sockets of nodes and containers: delivery, receipts, replication, requests,
and whatever else they had to say meanwhile.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import swell
from swell.client.blocking_configs import SyncConfigs
from swell.config.edits import Splices
from swell.config.splices import Splice, encode
from swell.errors import ConfigurationError, SwellError
from swell.lab import socket_bytes
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.fanout_swell import check
from swell.lab.fanout_trial import runs_of
from swell.lab.fleet import Fleets
from swell.lab.fleet_messages import Hosted, loopback
from swell.lab.loop_pings import Pings
from swell.lab.server_process import memory_mib
from swell.lab.store_cluster import NODES, SwellCluster

SUMMARY = "a value of 100 MiB, 50 containers: what a one-line edit costs on the wire and elsewhere"

MIB = 2**20
VALUE_BYTES, VALUE_BYTES_QUICK = 100 * MIB, 16 * MIB
CONTAINERS, CONTAINERS_QUICK = 50, 20
EDITS, EDITS_QUICK = 20, 8
EDITS_FIRST = 2
"""Ahead of what is measured: one of each kind."""
BY_PATH_EVERY = 4
FLEET_PROCESSES = 2
APPLICATION, NAME, SITE = "maps", "routes.json", "lab"
DEADLINE_S = 110.0

CONTAINER_BYTES_MAX = 4096
FEWER_MIN = 1000
JOURNAL_BYTES_MAX = 16 * 1024
MEMORY_MIB_MAX = 1.0
APPLY_MS_MAX = 50.0


class Usage(NamedTuple):
    """Of nodes and fleets, at one instant."""

    sent: socket_bytes.Sent
    journals: tuple[int, ...]
    nodes_mib: tuple[float, ...]
    fleets_mib: tuple[float, ...]


def run(lab: Lab) -> Report:
    if not socket_bytes.is_installed():
        raise ConfigurationError("`ss` is not installed: get it with the package iproute2")
    size = VALUE_BYTES_QUICK if lab.quick else VALUE_BYTES
    count = CONTAINERS_QUICK if lab.quick else CONTAINERS
    edits = EDITS_QUICK if lab.quick else EDITS
    value = value_of(size)
    containers = [
        Hosted(f"c{number:03d}", APPLICATION, SITE, (APPLICATION,), host=loopback(number))
        for number in range(count)
    ]
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="swell-large-") as directory,
        SwellCluster(Path(directory)) as cluster,
        swell.connect_sync(
            [str(address) for address in cluster.addresses()], cluster=cluster.cluster
        ) as client,
        Pings(cluster.cluster, cluster.addresses()) as pings,
        lab.progress("config-large", edits + 2) as advance,
    ):
        configs = client.configs(APPLICATION)
        began = time.monotonic()
        published = configs.put(NAME, value, deadline_s=DEADLINE_S)
        rows.append(_first("publish", began, cluster, pings))
        advance()
        began = time.monotonic()
        with Fleets(
            cluster.cluster, cluster.addresses(), containers, FLEET_PROCESSES, traced=True
        ) as fleets:
            rows.append(_first("fetch", began, cluster, pings))
            advance()
            check(fleets.collect(contents=True))
            id_, applied = published.id, []
            for number in range(EDITS_FIRST):
                _, id_, _ = _edit(number, id_, value, configs, fleets, pings)
            before = _usage(cluster, fleets, Path(directory))
            for number in range(EDITS_FIRST, EDITS_FIRST + edits):
                row, id_, taken = _edit(number, id_, value, configs, fleets, pings)
                rows.append(row)
                applied.append(taken)
                advance()
            after = _usage(cluster, fleets, Path(directory))
    return report_of(rows, size, count, edits, before, after, np.concatenate(applied))


def value_of(size: int) -> bytes:
    """A JSON document of about this size, a line per route, no two alike."""
    line = '  "route-%07d": {"host": "%08x.example", "weight": %d, "note": "%016x%016x"}'
    rows, length, number = [], 4, 0
    while length < size:
        mixed = number * 0x9E3779B97F4A7C15 % 2**64
        row = line % (number, mixed >> 32, mixed % 100, mixed, mixed * mixed % 2**64)
        rows.append(row)
        length += len(row) + 2
        number += 1
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def _first(what: str, began: float, cluster: SwellCluster, pings: Pings) -> dict[str, Any]:
    """What publishing or fetching the whole value has cost."""
    return {
        "part": "whole value",
        "what": what,
        "seconds": round(time.monotonic() - began, 2),
        "longest_ping_ms": round(pings.longest_ms(), 1),
        "node_mib": round(max(memory_mib(pid).resident for pid in cluster.pids)),
        "node_peak_mib": round(max(memory_mib(pid).peak for pid in cluster.pids)),
    }


def _usage(cluster: SwellCluster, fleets: Fleets, directory: Path) -> Usage:
    return Usage(
        socket_bytes.sent_by((*cluster.pids, *fleets.pids)),
        tuple(journal_bytes(directory / f"n{number}") for number in range(NODES)),
        tuple(memory_mib(pid).resident for pid in cluster.pids),
        tuple(memory_mib(pid).resident for pid in fleets.pids),
    )


def journal_bytes(directory: Path) -> int:
    """Written so far, without the room that is made ahead of the writing."""
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in directory.rglob("store.*.log"))


def _edit(
    number: int,
    id_: bytes,
    value: bytes,
    configs: SyncConfigs,
    fleets: Fleets,
    pings: Pings,
) -> tuple[dict[str, Any], bytes, np.ndarray[Any, np.dtype[np.int64]]]:
    """One edit, applied by all; its row, the version it made, and how long containers took."""
    route = (number * 7919 + 1) * 104_729 % value.count(b"\n") - 2
    host = f"edit{number:04d}.example"
    by_path = number % BY_PATH_EVERY == 0
    began_ns = time.monotonic_ns()
    if by_path:
        made = configs.set(NAME, f"route-{route:07d}.host", host, deadline_s=DEADLINE_S)
    else:
        at = value.index(b"example", value.index(b'"route-%07d"' % route)) - len("00000000.")
        delta = encode((Splice(at, len(host), host.encode()),))
        (made,) = configs.publish([Splices(NAME, delta, id_)], deadline_s=DEADLINE_S)
    stored_ns = time.monotonic_ns()
    report = configs.wait(made.step, deadline_s=DEADLINE_S)
    known_ns = time.monotonic_ns()
    if not report.complete or report.applied.count < report.interested:
        raise SwellError(f"not every container has applied edit {number}")
    collected = fleets.collect()
    runs = runs_of([rows for one in collected for rows in one.runs.values()])
    last_ns = int(runs[:, 2].max()) - stored_ns
    taken = np.frombuffer(b"".join(one.taken_ns for one in collected), dtype=np.int64)
    row = {
        "part": "edits",
        "edit": number,
        "by": "path" if by_path else "splices",
        "stored_s": round((stored_ns - began_ns) / 1e9, 3),
        "last_applied_ms": round(max(0, last_ns) / 1e6, 1),
        "known_s": round((known_ns - began_ns) / 1e9, 3),
        "apply_max_ms": round(float(taken.max()) / 1e6, 2),
        "longest_ping_ms": round(pings.longest_ms(), 1),
    }
    return row, made.id, taken


def report_of(
    rows: Sequence[dict[str, Any]],
    size: int,
    containers: int,
    edits: int,
    before: Usage,
    after: Usage,
    taken_ns: np.ndarray[Any, np.dtype[np.int64]],
) -> Report:
    sent = socket_bytes.between(before.sent, after.sent) / edits
    journal = max(y - x for x, y in zip(before.journals, after.journals, strict=True)) / edits
    nodes = max(y - x for x, y in zip(before.nodes_mib, after.nodes_mib, strict=True)) / edits
    grown = sum(after.fleets_mib) - sum(before.fleets_mib)
    p50, p99 = np.percentile(taken_ns, (50, 99)) / 1e6
    edited = [row for row in rows if row["part"] == "edits"]
    return Report(
        settings={"value_bytes": size, "containers": containers, "edits": edits, "nodes": NODES},
        rows=rows,
        headline={
            "bytes per container and edit": round(sent / containers),
            "median seconds until an edit by path is stored": _median(edited, "path"),
            "median seconds until an edit by splices is stored": _median(edited, "splices"),
            "longest answer of a node during edits in ms": max(
                row["longest_ping_ms"] for row in edited
            ),
            "apply p50 in ms": round(float(p50), 2),
        },
        bars=[
            Bar.at_most(
                "bytes on the wire per container and edit",
                CONTAINER_BYTES_MAX,
                round(sent / containers),
            ),
            Bar.at_least(
                "times fewer bytes than delivering the value",
                FEWER_MIN,
                round(size * containers / sent),
            ),
            Bar.at_most("journal growth per edit in bytes", JOURNAL_BYTES_MAX, round(journal)),
            Bar.at_most("memory growth of a node per edit in MiB", MEMORY_MIB_MAX, round(nodes, 3)),
            Bar.at_most(
                "memory growth per container and edit in MiB",
                MEMORY_MIB_MAX,
                round(grown / containers / edits, 3),
            ),
            Bar.at_most("apply p99 in ms", APPLY_MS_MAX, round(float(p99), 2)),
        ],
        notes=NOTES,
    )


def _median(rows: Sequence[dict[str, Any]], by: str) -> float:
    return float(np.median([row["stored_s"] for row in rows if row["by"] == by]))


NOTES = (
    "stored: until the administrator heard that the edit is on all replicas, which takes looking "
    "at the whole document, off the loop; last_applied: from then until the last container had it; "
    "known: until the administrator heard that all have applied it",
    "apply: what a container has to do with a burst: verify, pass on, apply",
    "longest_ping: how long a node took to answer a small question meanwhile, at most",
)
