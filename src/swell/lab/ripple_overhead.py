"""Table 3 of Ripple: processor, memory and network of a server under the same load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from swell.errors import SwellError
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.ripple_run import Outcome, RippleSettings
from swell.lab.ripple_sweep import (
    ALL,
    BASE,
    FLOODING,
    QUICK,
    REVERSE_PATH,
    SWELL,
    System,
    is_passed,
    settings_of,
)

SUMMARY = "Ripple, Table 3: processor, memory and network per server, beside the two baselines"


class Overhead(NamedTuple):
    """Of one server, on the average."""

    cpu_percent: float
    memory_mib: float
    network_kib_s: float | None


PAPER = {
    FLOODING.name: Overhead(41.42, 1255.02, 423.69),
    REVERSE_PATH.name: Overhead(56.37, 1607.61, 1837.21),
    SWELL.name: Overhead(28.57, 894.59, 123.82),
}
"""Nacos, Padres and Ripple on Java, two processors per server."""
FIGURES = ("cpu_percent", "memory_MiB", "network_KiB_per_s")


def run(lab: Lab) -> Report:
    settings = QUICK if lab.quick else BASE
    rows = []
    with lab.progress("ripple-overhead", len(ALL)) as advance:
        for system in ALL:
            rows.append(measure(system, settings))
            advance()
    return Report(
        settings=settings_of(settings),
        rows=rows,
        headline=ratios(rows),
        bars=bars(rows),
        notes=NOTES,
    )


def measure(system: System, settings: RippleSettings) -> dict[str, Any]:
    paper = PAPER[system.name]
    told = {f"paper_{name}": value for name, value in zip(FIGURES, paper, strict=True)}
    try:
        outcome = system.run(settings)
    except SwellError as error:
        return {"system": system.name, "passed": False, **told, "failure": str(error)}
    found = overhead_of(outcome, settings)
    measured = dict(zip(FIGURES, found, strict=True))
    passed = is_passed(outcome)
    return {"system": system.name, "passed": passed, **measured, **told}


def overhead_of(outcome: Outcome, settings: RippleSettings) -> Overhead:
    """Network: bytes sent per update of the whole run, at the rate."""
    servers, sent = len(outcome.servers), outcome.bytes_per_update
    return Overhead(
        round(outcome.servers_cpu / servers * 100, 2),
        round(sum(server.resident_mib for server in outcome.servers) / servers, 1),
        None if sent is None else round(sent / 1024 * settings.rate_per_s / servers, 2),
    )


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, int | float]:
    """Ours against each of the others, and the paper's beside it."""
    ours, *others = rows
    found: dict[str, int | float] = {}
    for other in others:
        for figure in FIGURES:
            what = f"{figure.replace('_', ' ')}, swell against {other['system']}"
            if ours.get(figure) and other.get(figure):
                found[what] = round(ours[figure] / other[figure], 4)
            paper = ours[f"paper_{figure}"] / other[f"paper_{figure}"]
            found[f"{what} (the paper)"] = round(paper, 4)
    return found


def bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Network is the figure that does not depend on how much of a system was built."""
    ours, *others = rows
    column = FIGURES[-1]
    found = [Bar.at_most("swell: not passed", 0, int(not ours["passed"]))]
    for other in others:
        what = f"network per server, swell against {other['system']} (the paper's ratio)"
        most = round(ours[f"paper_{column}"] / other[f"paper_{column}"], 3)
        if ours.get(column) and other.get(column):
            found.append(Bar.at_most(what, most, round(ours[column] / other[column], 4)))
        else:
            found.append(Bar.not_measured(what, most))
    return found


NOTES = (
    "cpu_percent: of one processor, mean of the servers; memory: resident; network: sent, to "
    "containers and to other servers",
    "the baselines here are bare: one copy where swell has three, no receipts, no signatures, no "
    "history, no membership, so their processor time and memory are the least that such a system "
    "can have, not those of Nacos and Padres",
    "the paper's figures are for 1,000 updates per second on servers of two processors and 4 GB",
)
