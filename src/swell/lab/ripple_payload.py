"""Figure 10 of Ripple: latency by the size of values, 1 to 100 KB."""

from __future__ import annotations

from swell.lab.experiment import Lab, Report
from swell.lab.ripple_sweep import Sweep, run_sweep

SUMMARY = "Ripple, Fig. 10: latency with values of 1 to 100 KB, beside the two baselines"

SWEEP = Sweep(
    "ripple-payload",
    "Ripple, Fig. 10: size of values",
    "payload_bytes",
    points=(1_000, 5_000, 10_000, 50_000, 100_000),
    quick_points=(1_000, 50_000),
    notes=(
        "the paper, figure only: latency grows with the size, Ripple's least; swell sends a whole "
        "value for one update in five, the others for every one",
    ),
)


def run(lab: Lab) -> Report:
    return run_sweep(lab, SWEEP)
