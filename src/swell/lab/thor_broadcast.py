"""THOR, Figs 4 to 7: the highest broadcast rate that an overlay of real nodes sustains.

Nodes are evenly divided among worker processes on this machine and talk over TCP on loopback.
Every node has a sink; either one node or all of them have a source. The paper raises the rate
until the nodes cannot keep up and messages accumulate. Here that rate is found from the other
side, which is faster and does not depend on queues overflowing:

1. Closed loop: every source sends as fast as its window allows. The receive rate is then what
   the nodes can do at most.
2. Open loop: the sources follow a schedule at a share of that rate; then at the same share of
   what arrived in the run before, until a run is *sustained*: no frame was refused by a link,
   every sink received every message exactly once, and the backlog (offered by the schedule, not
   yet received by the slowest sink) did not grow: its median in the second half of the run is
   above that of the first half by at most 5 % of what was offered in half the run.

The maximum sustainable rate is the highest one that was confirmed in this way. Rates and
variations are those of the confirming run; the processor time per delivery is that of the closed
loop, where all nodes are busy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from swell.ids import MessageId
from swell.lab.broadcast_cluster import SAMPLE_S, Cluster, Load, Measurement
from swell.lab.broadcast_figures import plot, trends
from swell.lab.broadcast_worker import PORT
from swell.lab.experiment import Bar, Lab, Report
from swell.overlay.matchers import BROADCAST
from swell.overlay.routed import encode_routed

SUMMARY = "THOR Figs 4-7: maximum broadcast rate of real nodes, one source against all sources"

CONNECTIONS = {4: 4, 8: 4, 16: 4, 32: 10, 64: 10}
"""Nodes → c: one, two and four zones of four nodes, four and eight zones of eight."""
WORKERS = 2
WINDOWS = {100: 2_000, 1_000: 500, 10_000: 100}
"""Payload → broadcasts under way at a time in the whole overlay: enough to keep all nodes busy."""
WINDOW_MIN = 8
"""... but at least so many of each source: with fewer, frames of many sources hardly coalesce."""
CLOSED_LOOPS = 2
"""The faster one counts."""
GROWTH_MAX = 0.05
VARIANCE_WINDOW_S = 0.1
HEADLINE_NODES = 16


class Plan(NamedTuple):
    """How thoroughly to measure."""

    sizes: tuple[int, ...]
    rounds: int
    """The highest rate of so many searches counts: other work on the machine only lowers it."""
    warm_up_s: float
    closed_s: float
    open_s: float
    share: float
    """Of what arrived in one run, the next one offers so much."""
    tries: int
    """Open loops, until one is sustained."""


FULL = Plan((4, 8, 16, 32, 64), 2, 0.2, 0.8, 1.0, 0.9, 8)
QUICK = Plan((4, 8, 16), 1, 0.1, 0.25, 0.4, 0.8, 5)


class Search(NamedTuple):
    """The outcome of one search for the highest rate."""

    closed: Measurement
    confirmed: Measurement | None
    """The open loop that was sustained."""

    @property
    def closed_rate_per_s(self) -> float:
        """Receive rate per sink in the closed loop."""
        return float(self.closed.sink_rates_per_s.mean())

    @property
    def rate_per_s(self) -> float:
        return float(self.confirmed.sink_rates_per_s.mean()) if self.confirmed else 0.0


def run(lab: Lab) -> Report:
    plan = QUICK if lab.quick else FULL
    rows: list[Mapping[str, Any]] = []
    steps = len(plan.sizes) * len(WINDOWS) * 2 * plan.rounds
    with lab.progress("broadcast", steps) as advance:
        for nodes in plan.sizes:
            with Cluster(nodes, CONNECTIONS[nodes], WORKERS) as cluster:
                rows += measure_overlay(cluster, plan, advance)
    plot(lab, rows)
    return Report(
        settings={
            "workers": WORKERS,
            "connections": {str(nodes): CONNECTIONS[nodes] for nodes in plan.sizes},
            "rounds": plan.rounds,
            "closed_s": plan.closed_s,
            "open_s": plan.open_s,
            "windows": WINDOWS,
            "growth_max": GROWTH_MAX,
            "tls": False,
        },
        rows=[*rows, *trends(rows)],
        headline=_headline(rows),
        bars=_bars(rows),
        notes=NOTES,
    )


def measure_overlay(
    cluster: Cluster, plan: Plan, advance: Callable[[], None]
) -> list[Mapping[str, Any]]:
    """The rows of one overlay. One source and all sources take turns, so that both meet the same
    disturbances."""
    rows = []
    for payload_bytes in WINDOWS:
        best: dict[str, Search] = {}
        for _ in range(plan.rounds):
            for kind, sources in (("one", (0,)), ("all", tuple(range(cluster.nodes)))):
                found = search(cluster, plan, sources, payload_bytes)
                if kind not in best or found.rate_per_s > best[kind].rate_per_s:
                    best[kind] = found
                advance()
        rows += [_row(cluster, kind, payload_bytes, found) for kind, found in best.items()]
    return rows


def search(cluster: Cluster, plan: Plan, sources: tuple[int, ...], payload_bytes: int) -> Search:
    """The highest rate that this overlay sustains."""
    load = Load(sources, payload_bytes, max(WINDOW_MIN, WINDOWS[payload_bytes] // len(sources)))
    loops = [cluster.measure(load, plan.warm_up_s, plan.closed_s) for _ in range(CLOSED_LOOPS)]
    closed = max(loops, key=lambda measured: float(measured.sink_rates_per_s.mean()))
    arrived_per_s = float(closed.sink_rates_per_s.mean())
    for _ in range(plan.tries):
        offered_per_s = plan.share * arrived_per_s
        paced = load._replace(rate_per_s=offered_per_s / len(sources))
        measured = cluster.measure(paced, plan.warm_up_s, plan.open_s)
        if measured.sent and measured.clean and keeps_up(measured):
            return Search(closed, measured)
        # A run that the machine had no time for says little about the next one.
        arrived_per_s = max(float(measured.sink_rates_per_s.mean()), offered_per_s / 2)
    return Search(closed, None)


def keeps_up(measured: Measurement) -> bool:
    """The backlog does not grow."""
    backlog, half = measured.backlog, len(measured.backlog) // 2
    seconds = (measured.times_s[-1] - measured.times_s[0]) / 2
    offered = seconds * measured.load.rate_per_s * len(measured.load.sources)
    growth = float(np.median(backlog[half:]) - np.median(backlog[:half]))
    return growth <= GROWTH_MAX * float(offered) + len(measured.load.sources)


def frame_bytes(payload_bytes: int) -> int:
    """Bytes of one broadcast on the wire, headers included."""
    message = MessageId(0, 0, 0)
    return len(encode_routed(message, 0, BROADCAST, PORT, b"", bytes(payload_bytes)))


def variation_over_time(measured: Measurement) -> float:
    """Coefficient of variation of a sink's receive rate over windows of 100 ms; mean of sinks."""
    step = round(VARIANCE_WINDOW_S / SAMPLE_S)
    counts = np.diff(measured.received[::step], axis=0)
    rates = counts / np.diff(measured.times_s[::step])[:, None]
    return float((rates.std(axis=0) / rates.mean(axis=0)).mean())


def variation_over_nodes(measured: Measurement) -> float:
    rates = measured.sink_rates_per_s
    return float(rates.std() / rates.mean())


def _row(cluster: Cluster, kind: str, payload_bytes: int, found: Search) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "part": "maximum sustainable rates",
        "payload_bytes": payload_bytes,
        "nodes": cluster.nodes,
        "zones": cluster.zones,
        "sources": kind,
        "closed_loop_per_sink": round(found.closed_rate_per_s, 1),
        "closed_loop_cpu_us": round(found.closed.cpu_s_per_delivery * 1e6, 2),
    }
    measured = found.confirmed
    if measured is None:
        return row
    rate, total = found.rate_per_s, found.rate_per_s * cluster.nodes
    return row | {
        "share": round(rate / found.closed_rate_per_s, 2),
        "rate_per_source": round(rate / len(measured.load.sources), 1),
        "receive_per_sink": round(rate, 1),
        "receive_total": round(total),
        "MB_per_s": round(total * frame_bytes(payload_bytes) / 1e6, 1),
        "variation_time": round(variation_over_time(measured), 4),
        "variation_nodes": round(variation_over_nodes(measured), 5),
        "broadcasts": measured.sent,
        "lost": measured.lost + measured.mixed_up,
    }


def _headline(rows: Sequence[Mapping[str, Any]]) -> dict[str, int | float]:
    figures: dict[str, int | float] = {}
    for row in rows:
        if row["nodes"] == HEADLINE_NODES and "receive_total" in row:
            case = f"{HEADLINE_NODES} nodes, {row['payload_bytes']} B, sources: {row['sources']}"
            figures[f"deliveries per second, {case}"] = row["receive_total"]
            figures[f"processor time per delivery in µs, {case}"] = row["closed_loop_cpu_us"]
    return figures


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    rates = {
        (row["payload_bytes"], row["sources"], row["nodes"]): row["rate_per_source"]
        for row in rows
        if "rate_per_source" in row
    }
    sizes = [row["nodes"] for row in rows]
    falls = [
        rates.get((payload, kind, max(sizes)), math.inf)
        / rates.get((payload, kind, min(sizes)), math.inf)
        for payload in WINDOWS
        for kind in ("one", "all")
    ]
    shared = [
        rate / rates.get((payload, "all", nodes), math.inf)
        for (payload, kind, nodes), rate in rates.items()
        if kind == "one"
    ]
    return [
        Bar.at_most("points without a confirmed rate", 0, len(rows) - len(rates)),
        Bar.at_most(
            "messages lost, doubled or mixed up at the confirmed rates",
            0,
            sum(row.get("lost", 0) for row in rows),
        ),
        Bar.at_most(
            f"rate per source, {max(sizes)} nodes against {min(sizes)}: median ratio",
            0.9,
            round(statistics.median(falls), 3),
        ),
        Bar.at_least(
            "rate per source, one source against all: median ratio",
            1.5,
            round(statistics.median(shared or [0.0]), 2),
        ),
    ]


NOTES = (
    "rates in messages per second; MB_per_s includes headers; a source's own node has a sink too",
    "share: the confirmed rate against the closed loop's; variation: coefficient of variation of "
    "the receive rate, over windows of 100 ms and over sinks",
    "closed_loop_cpu_us: processor time of all workers per delivery in the closed loop; unlike the "
    "rates it depends little on what else the machine does",
    "the paper's curves have no numbers in its text; it used 22 machines, here all nodes share the "
    "processors of one: spreading the load over sources cannot add processors",
)
