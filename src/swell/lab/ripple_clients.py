"""Figure 8 of Ripple: latency by the number of containers, 50 to 5,000."""

from __future__ import annotations

from swell.lab.experiment import Lab, Report
from swell.lab.ripple_sweep import Sweep, run_sweep

SUMMARY = "Ripple, Fig. 8: latency with 50 to 5,000 containers, beside the two baselines"

SWEEP = Sweep(
    "ripple-clients",
    "Ripple, Fig. 8: number of containers",
    "containers",
    points=(50, 250, 500, 2500, 5000),
    quick_points=(30, 240),
    notes=(
        "the paper, figure only: Nacos does not pass with 2,500 containers; Ripple's latency does "
        "not change up to 500 and has grown visibly at 2,500",
        "containers of all systems live on this machine's processors: with 5,000, more than sixty "
        "thousand deliveries per second are theirs to take",
    ),
)


def run(lab: Lab) -> Report:
    return run_sweep(lab, SWEEP)
