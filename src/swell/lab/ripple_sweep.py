"""Sweeps of Ripple's evaluation (paper, section 5.2): one setting changes, everything else stays.

    report = run_sweep(lab, Sweep("ripple-servers", "Fig. 7", "servers", (1, 5, 10), (1, 3)))

`axis` is the field of `RippleSettings` that changes. Every point is a run of its own, from empty
disks, for every system. A point is passed if nothing was lost, mixed up, refused or left without a
receipt and 99 of 100 deliveries took at most three seconds, which is what the paper asks of such a
system (section 1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from swell.errors import SwellError
from swell.lab.baseline_run import flooding_run, reverse_path_run
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.plots import figure
from swell.lab.ripple_run import Outcome, RippleSettings, ripple_run

RATE_PER_S = 250.0
"""A quarter of the paper's. Its ten servers had twenty processors and the containers had others;
here everything shares one machine, and at the paper's rate two cores are full."""
SECONDS = 20.0
BASE = RippleSettings(rate_per_s=RATE_PER_S, seconds=SECONDS)
QUICK = RippleSettings(
    servers=3,
    containers=60,
    applications=3,
    rate_per_s=60.0,
    warm_up_s=2.0,
    seconds=3.0,
)

WITHIN_MS = 3000.0
FULL = 0.95
"""Share of the machine's processors that counts as all of it."""
FIGURE_ONLY = "figure only"
"""What the paper says of a point whose number is in none of its texts and tables."""

Row = Mapping[str, Any]


class System(NamedTuple):
    name: str
    run: Callable[[RippleSettings], Outcome]


SWELL = System("swell", ripple_run)
FLOODING = System("flooding", flooding_run)
REVERSE_PATH = System("reverse-path", reverse_path_run)
ALL = (SWELL, FLOODING, REVERSE_PATH)


class Sweep(NamedTuple):
    name: str
    title: str
    axis: str
    points: tuple[float, ...]
    """Those of Table 2."""
    quick_points: tuple[float, ...]
    base: RippleSettings = BASE
    quick: RippleSettings = QUICK
    systems: tuple[System, ...] = ALL
    paper_ms: Mapping[float, float] = {}
    """Means of Ripple, as far as the paper's text tells them."""
    notes: tuple[str, ...] = ()


def run_sweep(lab: Lab, sweep: Sweep) -> Report:
    rows = measure(lab, sweep)
    plot(lab, sweep, rows)
    base = sweep.quick if lab.quick else sweep.base
    return Report(
        settings={name: value for name, value in settings_of(base).items() if name != sweep.axis},
        rows=rows,
        headline=headline(rows, sweep),
        bars=bars(rows),
        columns=(sweep.axis, *COLUMNS),
        notes=[*sweep.notes, *NOTES],
    )


def measure(lab: Lab, sweep: Sweep) -> list[dict[str, Any]]:
    points = sweep.quick_points if lab.quick else sweep.points
    base = sweep.quick if lab.quick else sweep.base
    rows = []
    with lab.progress(sweep.name, len(points) * len(sweep.systems)) as advance:
        for point in points:
            changed: dict[str, Any] = {sweep.axis: point}
            settings = base._replace(**changed)
            for system in sweep.systems:
                row = {sweep.axis: point, **run_row(system, settings)}
                if sweep.paper_ms and system.name == SWELL.name:
                    row["paper_mean_ms"] = sweep.paper_ms.get(point, FIGURE_ONLY)
                rows.append(row)
                advance()
    return rows


def run_row(system: System, settings: RippleSettings) -> dict[str, Any]:
    """One run; a system that breaks down under the load has a row that says so."""
    try:
        outcome = system.run(settings)
    except SwellError as error:
        return {"system": system.name, "passed": False, "failure": str(error)}
    return {"system": system.name, **row_of(outcome)}


def row_of(outcome: Outcome) -> dict[str, Any]:
    sent = outcome.bytes_per_update
    return {
        "passed": is_passed(outcome),
        "mean_ms": round(outcome.mean_ms, 2),
        "p50_ms": round(outcome.p50_ms, 2),
        "p99_ms": round(outcome.p99_ms, 2),
        "server_cores": round(outcome.servers_cpu, 3),
        "server_KiB_per_update": None if sent is None else round(sent / 1024, 2),
        "container_cores": round(outcome.containers_cpu, 3),
        "other_cores": round(outcome.others_cpu, 3),
        "busy": round(busy(outcome), 2),
        "updates": outcome.updates,
        "deliveries": outcome.deliveries,
        "lost": outcome.lost,
        "out_of_order": outcome.out_of_order + outcome.differing,
        "refused": sum(outcome.refused.values()),
    }


def is_passed(outcome: Outcome) -> bool:
    wrong = outcome.lost + outcome.out_of_order + outcome.differing
    refused = sum(outcome.refused.values()) + len(outcome.unreported)
    return wrong + refused == 0 and outcome.p99_ms <= WITHIN_MS


def busy(outcome: Outcome) -> float:
    """Share of the machine's processors that was in use, by whomever."""
    used = outcome.servers_cpu + outcome.containers_cpu + outcome.others_cpu
    return used / len(os.sched_getaffinity(0))


def settings_of(base: RippleSettings) -> dict[str, Any]:
    names = (
        "servers", "containers", "applications", "rate_per_s", "payload_bytes", "incremental",
        "warm_up_s", "seconds",
    )  # fmt: skip
    return {name: getattr(base, name) for name in names}


def headline(rows: Sequence[Row], sweep: Sweep) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for system in sweep.systems:
        passed = [row for row in rows if row["system"] == system.name and row["passed"]]
        found[f"points passed, {system.name}"] = len(passed)
        if passed:
            last = passed[-1]
            found[f"mean in ms at {last[sweep.axis]:g} {sweep.axis}, {system.name}"] = last[
                "mean_ms"
            ]
    return found


def bars(rows: Sequence[Row]) -> list[Bar]:
    """At every point that the machine had room for."""
    ours = [row for row in rows if row["system"] == SWELL.name]
    fitting = [row for row in ours if row.get("busy", FULL) < FULL]
    found = [
        *sound(ours),
        Bar.at_most(
            "swell: points not passed although the machine was not full",
            0,
            sum(not row["passed"] for row in fitting),
        ),
    ]
    ratios = byte_ratios(rows)
    if ratios:
        found.append(
            Bar.at_most(
                "server bytes per update, swell against the better of the others: worst point",
                1.0,
                round(max(ratios), 3),
            )
        )
    return found


def sound(rows: Sequence[Row]) -> list[Bar]:
    """What must hold of all our runs, however full the machine is."""
    wrong = sum(row["lost"] + row["out_of_order"] for row in rows if "failure" not in row)
    return [
        Bar.at_most("swell: runs that broke down", 0, sum("failure" in row for row in rows)),
        Bar.at_most("swell: updates lost or out of order, all runs", 0, wrong),
    ]


def byte_ratios(rows: Sequence[Row]) -> list[float]:
    """Ours by the least of the others, at every point where there are both."""
    ratios = []
    ours: float | None = None
    others: list[float] = []
    for row in (*rows, {"system": SWELL.name}):
        sent = row.get("server_KiB_per_update")
        if row["system"] == SWELL.name:
            if ours is not None and others:
                ratios.append(ours / min(others))
            ours, others = sent, []
        elif sent is not None and row["passed"]:
            others.append(sent)
    return ratios


def plot(lab: Lab, sweep: Sweep, rows: Sequence[Row]) -> None:
    with figure(lab, sweep.name, sweep.title, sweep.axis, "mean latency in ms") as axes:
        for system in sweep.systems:
            points = [
                (row[sweep.axis], row["mean_ms"])
                for row in rows
                if row["system"] == system.name and "mean_ms" in row
            ]
            axes.plot(*zip(*points, strict=True) if points else ((), ()), "o-", label=system.name)
        if sweep.paper_ms:
            axes.plot(*zip(*sweep.paper_ms.items(), strict=True), "x", label="the paper's Ripple")
        axes.set_ylim(bottom=0)


COLUMNS = (
    "system", "passed", "mean_ms", "p50_ms", "p99_ms", "paper_mean_ms", "server_cores",
    "server_KiB_per_update", "container_cores", "other_cores", "busy", "updates", "deliveries",
    "lost", "out_of_order", "refused", "failure",
)  # fmt: skip

NOTES = (
    "flooding: every update goes whole to all servers, which deliver it to their containers "
    "(Nacos); reverse-path: a tree of servers, updates go whole to those with subscribers behind "
    "them (Padres); both our own code, one durable copy, no receipts and no signatures, where "
    "swell has three copies",
    "passed: nothing lost, out of order, refused or without receipts, and p99 within 3 s",
    "latency from the instant when an update was due until one container has applied it; "
    "server_KiB_per_update: sent by all servers, replication included",
    f"busy: share of the machine's processors in use; from {FULL} on it is full, and latencies are "
    "those of waiting for a turn; if other_cores is not near 0, run this again",
)
