"""What strikes a run of configurations: the usual mixture, and where a planted bug is hunted.

Four sources of faults act at once: a swarm on the nodes, a swarm on the containers and the paths
between them and the nodes, strikes at primaries, strikes at whoever relays. Workload, checkers
and sizes are the same for all profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swell.simulation.malice import ALTER, DEEDS, FORGE
from swell.simulation.workloads.store_profiles import PATHS, STALLS, STOPS

CONTAINER_STOPS = ("crash", "power-loss", "restart", "disk-torn", "crash-many")
CONTAINER_STALLS = ("pause", "suspend", "slow", "clock-skew", "disk-slow", "disk-eio", "disk-full")
CONTAINER_PATHS = (
    "link-loss", "partition", "one-way-partition", "clog", "latency-spike", "relay-cut",
    "relay-clog",
)  # fmt: skip

REQUIRED: Mapping[str, float] = {
    "faults": 5,
    "nodes": 6,
    "containers": 30,
    "publishes": 200,
    "deliveries": 1000,
    "relayed": 100,
    "failovers": 1,
    "restarts": 2,
    "mended": 1,
    "virtual_s": 60,
}
"""Less than this, and the run proves nothing."""


@dataclass(frozen=True)
class ConfigProfile:
    """Kinds of faults, how many, and what must have happened in the end."""

    node_kinds: tuple[str, ...] = STOPS + STALLS + PATHS
    node_faults: tuple[int, int] = (3, 7)
    container_kinds: tuple[str, ...] = CONTAINER_STOPS + CONTAINER_STALLS + CONTAINER_PATHS
    container_faults: tuple[int, int] = (8, 16)
    strikes: tuple[int, int] = (2, 4)
    """At primaries, fewest and most."""
    relay_strikes: tuple[int, int] = (3, 6)
    deeds: tuple[str, ...] = DEEDS
    malicious: tuple[int, int] = (0, 4)
    """Containers that relay in bad faith, fewest and most."""
    disk_delay_s: float = 0.0
    """The disks of all containers are that slow."""
    required: Mapping[str, float] = field(default_factory=lambda: REQUIRED)


USUAL = ConfigProfile()

_HONEST = replace(USUAL, malicious=(0, 0))
_ROUGH = replace(
    _HONEST,
    container_kinds=("pause", "slow", "clog", "relay-clog", "relay-cut", "link-loss", "crash"),
    container_faults=(16, 24),
    relay_strikes=(8, 12),
)

PROFILES: dict[str, ConfigProfile] = {
    "no-base-check": _ROUGH,
    "no-hold": _ROUGH,
    "ack-before-children": _HONEST,
    "stale-list": replace(_HONEST, container_kinds=("restart", "crash", "link-loss", "crash-many")),
    "no-signature-check": replace(USUAL, malicious=(6, 8), deeds=(ALTER, FORGE)),
    "stale-snapshot": replace(
        _HONEST,
        container_kinds=("crash", "power-loss", "disk-torn", "crash-many"),
        container_faults=(16, 24),
        disk_delay_s=0.2,
    ),
}
"""Planted bug → where it is hunted."""


def profile_of(bugs: frozenset[str]) -> ConfigProfile:
    return next((PROFILES[bug] for bug in sorted(bugs) if bug in PROFILES), USUAL)
