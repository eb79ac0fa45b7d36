"""Figure 7 of Ripple: latency by the number of servers, 1 to 20."""

from __future__ import annotations

from swell.lab.experiment import Lab, Report
from swell.lab.ripple_sweep import Sweep, run_sweep

SUMMARY = "Ripple, Fig. 7: latency with 1 to 20 servers, beside flooding and a reverse-path tree"

SWEEP = Sweep(
    "ripple-servers",
    "Ripple, Fig. 7: number of servers",
    "servers",
    points=(1, 5, 10, 15, 20),
    quick_points=(1, 4),
    notes=(
        "the paper, figure only: Ripple's latency does not change with the servers, those of Nacos "
        "and Padres grow; here every server is one more process on the same processors",
        "with fewer than three servers swell has as many copies as there are servers",
    ),
)


def run(lab: Lab) -> Report:
    return run_sweep(lab, SWEEP)
