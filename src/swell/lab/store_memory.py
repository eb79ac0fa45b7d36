"""Memory of nodes that keep many small keys: a million DHT keys of 100 bytes, three replicas.

Three nodes with three replicas: every node keeps every key. The keys are put by one load process;
then the resident memory of each node's process is read, as the system counts it. A quick run puts
fewer keys and says what a million would take if every further key took as much; no bar is held
against that.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.server_process import Memory, cpu_s, memory_mib
from swell.lab.store_client import SwellClient
from swell.lab.store_cluster import NODES, SwellCluster
from swell.lab.store_load import LoadProcess
from swell.lab.store_worker import ClientSpec, Fill

SUMMARY = "memory of three nodes that keep a million DHT keys of 100 bytes"

KEYS, KEYS_QUICK = 1_000_000, 50_000
VALUE_BYTES = 100
CLIENTS = 256
STEPS = 10
MEMORY_MIB_MAX = 600
STEP_S_MAX = 600.0

MIB = 2**20


def run(lab: Lab) -> Report:
    keys = KEYS_QUICK if lab.quick else KEYS
    with (
        tempfile.TemporaryDirectory(prefix="swell-memory-") as directory,
        SwellCluster(Path(directory)) as cluster,
        LoadProcess(ClientSpec(SwellClient, cluster.addresses(), cluster.cluster)) as load,
        lab.progress("store-memory", STEPS) as advance,
    ):
        before = [memory_mib(pid) for pid in cluster.pids]
        seconds = client_cpu_s = 0.0
        for step in range(STEPS):
            part = Fill(keys // STEPS, VALUE_BYTES, CLIENTS, first=step * keys // STEPS)
            filled = load.fill(part, STEP_S_MAX)
            seconds += filled.seconds
            client_cpu_s += filled.seconds * filled.client_cpu
            advance()
        after = [memory_mib(pid) for pid in cluster.pids]
        servers_cpu_s = sum(map(cpu_s, cluster.pids))
        rows = [
            row_of(number, keys, before[number], after[number])
            | {"disk_mib": round(disk_bytes(Path(directory) / f"n{number}") / MIB)}
            for number in range(NODES)
        ]
    largest = max(row["resident_mib"] for row in rows)
    return Report(
        settings={"keys": keys, "value_bytes": VALUE_BYTES, "nodes": NODES, "clients": CLIENTS},
        rows=rows,
        headline={
            "keys put per second": round(keys / seconds),
            "client processor time per put in µs": round(client_cpu_s / keys * 1e6, 1),
            "processor time of all nodes per put in µs": round(servers_cpu_s / keys * 1e6, 1),
        },
        bars=[]
        if lab.quick
        else [Bar.at_most("resident memory of the largest node in MiB", MEMORY_MIB_MAX, largest)],
        notes=NOTES,
    )


def row_of(number: int, keys: int, before: Memory, after: Memory) -> dict[str, Any]:
    grown = after.resident - before.resident
    row = {
        "node": f"n{number}",
        "keys": keys,
        "empty_mib": round(before.resident, 1),
        "resident_mib": round(after.resident, 1),
        "peak_mib": round(after.peak, 1),
        "bytes_per_key": round(grown * MIB / keys),
    }
    if keys < KEYS:
        row["extrapolated_mib"] = round(before.resident + grown * KEYS / keys)
    return row


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


NOTES = (
    "every node keeps all keys; resident and peak are the system's figures for the whole process; "
    "disk: all files of the node",
    "extrapolated (quick runs only): to a million keys, as if every further key took as much",
)
