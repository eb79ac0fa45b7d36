"""What strikes a run of the store: the usual mixture, and those that bring a planted bug to light.

A bug that needs a rare coincidence is hunted where the coincidence is frequent. The workload, its
checkers and its sizes are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swell.simulation.workloads.store_losses import DEVASTATION, LOSSES
from swell.simulation.workloads.strikes import ALONE, ESTRANGED, STRIKES

STOPS = ("crash", "power-loss", "restart", "disk-torn", "crash-many", "crash-all")
STALLS = ("pause", "suspend", "slow", "clock-skew", "disk-slow")
PATHS = (
    "link-loss", "partition", "one-way-partition", "clog", "latency-spike",
    "replication-cut", "replication-clog",
)  # fmt: skip

REQUIRED: Mapping[str, float] = {
    "faults": 5,
    "nodes": 9,
    "zones": 3,
    "operations": 500,
    "acknowledged": 300,
    "failovers": 2,
    "activations": 5,
    "virtual_s": 60,
}
"""Less than this, and the run proves nothing."""


@dataclass(frozen=True)
class Profile:
    """Kinds of faults, how many, and what must have happened in the end."""

    kinds: tuple[str, ...] = STOPS + STALLS + PATHS
    minimum: int = 7
    maximum: int = 14
    losses: tuple[str, ...] = LOSSES
    losses_max: int = 3
    strikes: tuple[int, int] = (3, 5)
    """At primaries, fewest and most."""
    strike_kinds: tuple[str, ...] = STRIKES
    duel: bool = False
    """Two voters never hear each other, and the third crashes when it has chosen."""
    disk_delay_s: float = 0.0
    """All disks are that slow."""
    lease_s: float = 0.0
    voters: int = 0
    """0: three in most runs, one in some."""
    lively: bool = True
    """Everything must go on in the end."""
    required: Mapping[str, float] = field(default_factory=lambda: REQUIRED)


USUAL = Profile()

_STORM = replace(USUAL, minimum=12, maximum=20, strikes=(6, 10))

PROFILES: dict[str, Profile] = {
    "skip-sync": replace(
        USUAL, kinds=("crash-many", "crash-all"), losses=(), disk_delay_s=0.2, maximum=16
    ),
    "ignore-epoch": replace(_STORM, kinds=PATHS, strike_kinds=(ALONE, ESTRANGED)),
    "ack-early": replace(
        _STORM, kinds=("crash", "power-loss", "pause", "replication-clog", "replication-cut")
    ),
    "forget-vote": replace(USUAL, losses=(), strikes=(0, 0), voters=3, duel=True, lively=False),
    "shrink-early": replace(
        _STORM, kinds=("crash", "pause", "partition", "replication-cut", "one-way-partition")
    ),
    "promote-unclean": replace(
        USUAL, kinds=("slow", "pause"), losses=(DEVASTATION,), losses_max=6, lively=False
    ),
    "cut-committed": replace(
        _STORM, kinds=("crash", "pause", "crash-many", "replication-cut", "one-way-partition")
    ),
    "serve-early": replace(_STORM, kinds=("crash", "pause", "replication-clog", "partition")),
    "ignore-leases": replace(
        USUAL,
        kinds=("latency-spike", "slow"),
        losses=(),
        strikes=(12, 16),
        strike_kinds=(ESTRANGED,),
        lease_s=5.0,
    ),
}
"""Planted bug → where it is hunted."""


def profile_of(bugs: frozenset[str]) -> Profile:
    return next((PROFILES[bug] for bug in sorted(bugs) if bug in PROFILES), USUAL)
