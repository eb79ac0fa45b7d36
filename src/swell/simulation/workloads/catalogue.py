"""The workloads by name, and the planted bugs that their checkers must catch."""

from __future__ import annotations

import gc
from collections.abc import Callable

from swell.overlay.members import NO_REFUTATION
from swell.overlay.multicast import BOTH_WAYS, NO_SUPPRESSION
from swell.overlay.rebalancing import NO_LEASE
from swell.simulation.simulation import SimulationFailure
from swell.simulation.workloads.config import ConfigRun
from swell.simulation.workloads.config_profiles import PROFILES as CONFIG_PROFILES
from swell.simulation.workloads.formation import Formation
from swell.simulation.workloads.growth import Growth
from swell.simulation.workloads.mixed import Mixed
from swell.simulation.workloads.outage import Outage, PowerOutage, Split
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store import StoreRun
from swell.simulation.workloads.store_profiles import PROFILES
from swell.simulation.workloads.zone_loss import ZoneLoss

Workload = Callable[[int, int, frozenset[str]], Result]
"""workload(seed, size, bugs); size 0 is the workload's own choice."""

CONNECTIONS = 10
STORE_WORKLOADS = ("store", "zone-loss", "growth")

WORKLOADS: dict[str, tuple[str, Workload]] = {
    "mixed": (
        "traffic under a mixture of faults, then healed (size: number of nodes)",
        lambda seed, size, bugs: Mixed(seed, size, bugs).run(),
    ),
    "formation": (
        "grow by batches and single arrivals (size: links per node)",
        lambda seed, size, bugs: Formation(seed, size or CONNECTIONS, bugs).run(),
    ),
    "outage": (
        "30 % of the nodes killed at one instant (size: links per node)",
        lambda seed, size, bugs: Outage(seed, size or CONNECTIONS, bugs).run(),
    ),
    "power-outage": (
        "30 % of the machines lose power at one instant (size: links per node)",
        lambda seed, size, bugs: PowerOutage(seed, size or CONNECTIONS, bugs).run(),
    ),
    "split": (
        "one zone cut off, then healed (size: links per node)",
        lambda seed, size, bugs: Split(seed, size or CONNECTIONS, bugs).run(),
    ),
    "store": (
        "clients of the replicated store under faults, then healed (size: number of nodes)",
        lambda seed, size, bugs: StoreRun(seed, size, bugs).run(),
    ),
    "zone-loss": (
        "a whole zone is lost for good (size: number of keys)",
        lambda seed, size, bugs: ZoneLoss(seed, size, bugs).run(),
    ),
    "growth": (
        "from three nodes to nine and back under load (size: instead of nine)",
        lambda seed, size, bugs: Growth(seed, size, bugs).run(),
    ),
    "config": (
        "containers that follow configurations under faults, then healed (size: number of nodes)",
        lambda seed, size, bugs: ConfigRun(seed, size, bugs).run(),
    ),
}

BUGS = (NO_LEASE, NO_REFUTATION, BOTH_WAYS, NO_SUPPRESSION)
STORE_BUGS = tuple(PROFILES)
CONFIG_BUGS = tuple(CONFIG_PROFILES)


def bugs_of(workload: str) -> tuple[str, ...]:
    """The planted bugs that a workload must catch."""
    if workload == "config":
        return CONFIG_BUGS
    return STORE_BUGS if workload in STORE_WORKLOADS else BUGS


def run(workload: str, seed: int, size: int = 0, bugs: frozenset[str] = frozenset()) -> Result:
    """One run; an exception in protocol code is a problem of that seed like any other."""
    # A large fleet is one large, living graph of objects: looking through it for garbage again
    # and again takes a third of the time and finds nothing.
    threshold = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1000)
    try:
        return WORKLOADS[workload][1](seed, size, bugs)
    except SimulationFailure as failure:
        return Result(workload, seed, problems=[str(failure)], virtual_s=failure.time_s)
    finally:
        gc.set_threshold(*threshold)
