"""Puts and linearizable gets of the replicated store, against etcd, in one run on one machine.

Three nodes each on loopback, both durable before they acknowledge. One load process per system
hosts all of its clients; the systems take turns, and figures are medians over the rounds, since
neighbours on the machine disturb single ones. Three parts:

- *closed loop*: 1, 16 and 64 clients with one operation under way each.
- *busy server*: puts by a schedule, at the same rate for every system, while requests that cost the
  server much and the client little keep the busiest server process at 90 % of a core: the status of
  the node for ours, a count of all keys for etcd. How many of them it takes is found by trying.
  A server of ours has one loop, so this is the loop at 90 %; etcd has a thread for each core.
- *recovery*: under 16 clients that put, the node that is primary of most slots, or etcd's leader,
  is killed with SIGKILL. Restored is when the last put that waited has ended.

Peers: `etcd` is spoken to through `grpc_channel`, which takes a fraction of the gRPC library's
processor time and leaves it to the servers; `etcd-grpcio` through that library. Bars are held
against whichever of the two does better.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from swell.lab import etcd_cluster
from swell.lab.etcd_client import EtcdClient, EtcdLibraryClient
from swell.lab.etcd_cluster import EtcdCluster
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.store_client import SwellClient
from swell.lab.store_cluster import SwellCluster
from swell.lab.store_load import LoadProcess
from swell.lab.store_trials import (
    BUSY_CPU,
    BUSY_TOLERANCE,
    CLIENTS,
    FULL,
    MOST,
    OPERATIONS,
    QUICK,
    Plan,
    Row,
    Servers,
    System,
    busy_servers,
    closed_loops,
    recovery,
)
from swell.lab.store_worker import KEYS, VALUE_BYTES, ClientSpec, Fill

SUMMARY = "puts and gets of the replicated store, beside etcd: rates, p99, recovery"
PEERS = ("etcd", "etcd-grpcio")

OURS = "swell"
ONCE = (OURS, "etcd")
"""What is measured once per cluster, by the client that turns to another server by itself."""
PUTS_RATIO_MIN = 1.3
GETS_RATIO_MIN = 2.0
P99_RATIO_MAX = 1.0
RECOVERY_S_MAX = 5.0
FILL_CLIENTS = 64
FILL_S_MAX = 60.0


def run(lab: Lab) -> Report:
    plan = QUICK if lab.quick else FULL
    notes = list(NOTES)
    peers = [peer for peer in PEERS if peer in lab.peers]
    if peers and not etcd_cluster.is_installed():
        peers = []
        notes.insert(0, etcd_cluster.ABSENT)
    settings: dict[str, Any] = {
        "value_bytes": VALUE_BYTES,
        "keys": KEYS,
        "nodes": 3,
        "rounds": plan.rounds,
        "seconds_per_round": plan.seconds,
    }
    with ExitStack() as stack:
        systems = _start(stack, peers)
        settings["versions"] = {system.name: system.servers.version for system in systems}
        rows = _measure(systems, plan, lab)
    return Report(
        settings=settings,
        rows=rows,
        headline=headline(rows),
        bars=bars(rows, lab.peers),
        columns=COLUMNS,
        notes=[*notes, *short_of_busy(rows)],
    )


def _measure(systems: Sequence[System], plan: Plan, lab: Lab) -> list[Row]:
    once = [system for system in systems if system.name in ONCE]
    points = len(CLIENTS) * len(OPERATIONS) * plan.rounds
    with lab.progress("store", points * len(systems) + 2 * len(once)) as advance:
        rows = closed_loops(systems, plan, advance)
        rows += busy_servers(once, plan, rows, advance)
        for system in once:  # last: the clusters are not repaired afterwards
            rows.append(recovery(system, plan))
            advance()
    return rows


def _start(stack: ExitStack, peers: Sequence[str]) -> list[System]:
    """Our cluster and etcd's, each with its load processes; all keys are there."""
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swell-store-")))
    (root / OURS).mkdir()
    ours = stack.enter_context(SwellCluster(root / OURS))
    specs: list[tuple[str, Servers, ClientSpec]] = [
        (OURS, ours, ClientSpec(SwellClient, ours.addresses(), ours.cluster))
    ]
    if peers:
        (root / "etcd").mkdir()
        etcd = stack.enter_context(EtcdCluster(root / "etcd"))
        for peer in peers:
            make = EtcdClient if peer == "etcd" else EtcdLibraryClient
            spec = ClientSpec(make, etcd.addresses(), uvloop=peer == "etcd")
            specs.append((peer, etcd, spec))
    systems = []
    for name, servers, spec in specs:
        load = stack.enter_context(LoadProcess(spec))
        load.fill(Fill(KEYS, VALUE_BYTES, FILL_CLIENTS), FILL_S_MAX)
        systems.append(System(name, servers, load))
    return systems


def short_of_busy(rows: Sequence[Row]) -> list[str]:
    """What to say where the busy part did not come to what its name promises."""
    return [
        f"busy server: {row['system']} came to {row['busiest_cpu']} of a core at most while its "
        "puts kept up: repeat this on a machine that does nothing else"
        for row in rows
        if row["part"] == "busy server" and row["busiest_cpu"] < BUSY_CPU - 2 * BUSY_TOLERANCE
    ]


def headline(rows: Sequence[Row]) -> dict[str, int | float]:
    figures: dict[str, int | float] = {}
    for row in rows:
        if row["part"] == "closed loop" and row["clients"] == MOST:
            figures[f"{row['operation']}s per second, {row['system']}, {MOST} clients"] = row[
                "per_s"
            ]
    return figures


def bars(rows: Sequence[Row], peers: Sequence[str]) -> list[Bar]:
    """What must be shown; against a peer that was asked for and is absent, nothing was."""
    found = []
    if peers:
        found += [
            _ratio_bar(rows, f"puts per second at {MOST} clients", "put", "per_s", PUTS_RATIO_MIN),
            _ratio_bar(rows, f"gets per second at {MOST} clients", "get", "per_s", GETS_RATIO_MIN),
            _ratio_bar(rows, f"p99 of puts at {MOST} clients", "put", "p99_ms", P99_RATIO_MAX),
            _ratio_bar(rows, f"p99 of gets at {MOST} clients", "get", "p99_ms", P99_RATIO_MAX),
        ]
    wrong = sum(row["failed"] for row in rows if row["part"] == "closed loop")
    restored = [row["restored_s"] for row in rows if "restored_s" in row and row["system"] == OURS]
    found.append(Bar.at_most("operations that failed or returned a wrong value", 0, wrong))
    found.append(
        Bar.at_most("seconds until every put is served again", RECOVERY_S_MAX, max(restored))
    )
    return found


def _ratio_bar(rows: Sequence[Row], what: str, operation: str, figure: str, limit: float) -> Bar:
    at_least = figure == "per_s"
    sentence = f"{what}, ours against etcd's"
    values = {
        row["system"]: row[figure]
        for row in rows
        if row["part"] == "closed loop" and (row["operation"], row["clients"]) == (operation, MOST)
    }
    ours, theirs = values.pop(OURS), list(values.values())
    if not theirs:
        return Bar.not_measured(sentence, limit)
    if at_least:
        return Bar.at_least(sentence, limit, round(ours / max(theirs), 3))
    return Bar.at_most(sentence, limit, round(ours / min(theirs), 3))


COLUMNS = (
    "system",
    "operation",
    "clients",
    "offered_per_s",
    "burden_per_s",
    "per_s",
    "p50_ms",
    "p99_ms",
    "p99_ms_max",
    "client_cpu",
    "servers_cpu",
    "busiest_cpu",
    "restored_s",
    "longest_put_s",
    "no_put_at_all_s",
    "puts_that_waited",
    "failed",
)

NOTES = (
    "closed loop: every client has one operation under way; medians over rounds in which the "
    "systems take turns; p99_ms_max is that of the worst round",
    "cpu in cores: client_cpu of the load process, servers_cpu of the three servers together, "
    "busiest_cpu of the busiest one",
    "all clients of a system are coroutines of one process; no client in Go or C was at hand for "
    "etcd, so the clients of both are Python",
    "busy server: puts by a schedule at the same rate for all, times counted from when a put was "
    "due; requests beside them (burden_per_s: the node's status, a count of all keys at etcd) keep "
    "the busiest server at 90 % of a core (busiest_cpu is what was reached)",
    "recovery: restored_s from the kill until the last put that waited had ended; a put that fails "
    "is tried again with the same key and its time runs on",
)
