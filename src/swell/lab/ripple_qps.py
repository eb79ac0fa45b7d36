"""Figure 9 of Ripple: latency by the rate of updates, 100 to 2,500 per second."""

from __future__ import annotations

from swell.lab.experiment import Lab, Report
from swell.lab.ripple_sweep import Sweep, run_sweep

SUMMARY = "Ripple, Fig. 9: latency at 100 to 2,500 updates per second, beside the two baselines"

SWEEP = Sweep(
    "ripple-qps",
    "Ripple, Fig. 9: updates per second",
    "rate_per_s",
    points=(100, 500, 1000, 1500, 2000, 2500),
    quick_points=(40, 160),
    notes=(
        "the paper, figure only: latency grows with the rate for all systems, and Ripple's is the "
        "lowest at every rate; where busy says that two cores are full, what is offered waits and "
        "the point is not passed",
    ),
)


def run(lab: Lab) -> Report:
    return run_sweep(lab, SWEEP)
