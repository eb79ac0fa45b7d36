"""Figure 11 of Ripple: latency by the share of incremental updates, 0 to 100 %.

The paper measures Ripple alone: to the baselines every update is a whole value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.ripple_sweep import SWELL, Sweep, run_sweep

SUMMARY = "Ripple, Fig. 11: latency and server bytes with 0 to 100 % incremental updates"

SWEEP = Sweep(
    "ripple-incremental",
    "Ripple, Fig. 11: share of incremental updates",
    "incremental",
    points=tuple(number / 10 for number in range(11)),
    quick_points=(0.0, 0.5, 1.0),
    systems=(SWELL,),
    paper_ms={0.0: 103.0, 1.0: 70.0},
)
BYTES_RATIO_MAX = 0.5
LATENCY_RATIO_MAX = 1.0
"""The paper's: 70 ms against 103 ms, on a network that is slower than memory."""


def run(lab: Lab) -> Report:
    report = run_sweep(lab, SWEEP)
    return replace(report, bars=[*report.bars, *bars(report.rows)])


def bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """All incremental against none."""
    return [
        _bar("mean latency", "mean_ms", LATENCY_RATIO_MAX, rows),
        _bar("server bytes per update", "server_KiB_per_update", BYTES_RATIO_MAX, rows),
    ]


def _bar(figure: str, column: str, most: float, rows: Sequence[Mapping[str, Any]]) -> Bar:
    what = f"{figure}, all incremental against none"
    none, all_ = rows[0].get(column), rows[-1].get(column)
    if not none or all_ is None:
        return Bar.not_measured(what, most)
    return Bar.at_most(what, most, round(all_ / none, 3))
