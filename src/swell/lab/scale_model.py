"""A queueing model of a large cluster under Ripple's load (paper, section 5.6). Pure functions.

A model, not a measurement. Every node is one loop with one queue: updates of which it is primary
and updates of which it is a backup wait for their turn in the order of arrival (M/G/1, Poisson
arrivals, exponential service times). A delivery takes

    hop to the primary, its wait and service,
    the slower of the backups: hop, wait, service, sync, hop back; at least the primary's own sync,
    hop to the relay, its service, the siblings that it serves before this one, hop, service.

Waits of different nodes are drawn independently of each other. Updates of one application are
taken one by one; in truth they go in bursts when they wait, which is cheaper. Nodes do not have
equal shares of the updates: those vary as partitions of a ring do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HOP_S = 0.00025
"""One way between two machines of a data centre."""
BACKUPS = 2
SHARE_DEVIATION = 0.2
"""Standard deviation of the nodes' shares by their mean: THOR's Table 3 with many points."""
JOBS = 2000
"""Simulated arrivals per node; the first quarter fills the queues."""
DRAWS = 100_000
PERCENTILES = (50, 70, 90, 99)


class Costs(NamedTuple):
    """Processor time of one update where it passes, and a sync."""

    primary_s: float
    backup_s: float
    delivery_s: float
    """By a container, for itself or for a sibling that it passes the update on to."""
    verify_s: float
    """Of a signature, by every container."""
    sync_s: float


class Rates(NamedTuple):
    """Updates per second that each node is primary, and backup, of."""

    primary: Floats
    backup: Floats

    def busy(self, costs: Costs) -> Floats:
        """Share of its loop that each node uses; from 1 on its queue has no end."""
        return self.primary * costs.primary_s + self.backup * costs.backup_s


class Latencies(NamedTuple):
    busy: float
    """Mean over the nodes."""
    busiest: float
    mean_ms: float
    percentiles_ms: tuple[float, ...]
    """Those of `PERCENTILES`."""


def spread(nodes: int, rate_per_s: float, rng: np.random.Generator) -> Rates:
    """Updates dealt out to nodes; backups lie with whoever follows, so they vary as little."""
    shape = 1 / SHARE_DEVIATION**2
    primary = rng.gamma(shape, 1 / shape, nodes)
    backup = rng.gamma(shape, 1 / shape, nodes)
    return Rates(
        primary * (rate_per_s / primary.sum()), backup * (BACKUPS * rate_per_s / backup.sum())
    )


def waits_of(rates: Rates, costs: Costs, rng: np.random.Generator) -> Floats:
    """Waiting times of arrivals in the steady state, a row for each node (Lindley's recursion)."""
    total = rates.primary + rates.backup
    shape = len(total), JOBS
    with np.errstate(divide="ignore", invalid="ignore"):
        primary_share = np.where(total > 0, rates.primary / total, 0.0)
        gap_s = np.where(total > 0, 1 / total, np.inf)
    between = rng.standard_exponential(shape) * np.minimum(gap_s, 1e6)[:, None]
    is_primary = rng.random(shape) < primary_share[:, None]
    service = rng.standard_exponential(shape)
    service *= np.where(is_primary, costs.primary_s, costs.backup_s)
    # W(n+1) = max(0, W(n) + S(n) - A(n)): a walk, less its lowest point so far.
    walk = np.cumsum(service[:, :-1] - between[:, 1:], axis=1)
    waits: Floats = walk - np.minimum(np.minimum.accumulate(walk, axis=1), 0.0)
    return waits[:, JOBS // 4 :]


def latencies(rates: Rates, costs: Costs, containers: int, seed: int = 1) -> Latencies:
    """Of deliveries to an application's containers, one relay with the others behind it."""
    rng = np.random.default_rng(seed)
    busy = rates.busy(costs)
    if busy.max() >= 1.0:
        endless = float("inf")
        return Latencies(
            float(busy.mean()), float(busy.max()), endless, (endless,) * len(PERCENTILES)
        )
    waits = waits_of(rates, costs, rng)
    total = _at(waits, rates.primary, rng) + _service(costs.primary_s, rng) + HOP_S
    stored = np.full(DRAWS, costs.sync_s)
    for _ in range(BACKUPS):
        backup = _at(waits, rates.backup, rng) + _service(costs.backup_s, rng)
        stored = np.maximum(stored, backup + costs.sync_s + 2 * HOP_S)
    total += stored + HOP_S + costs.verify_s + costs.delivery_s
    place = rng.integers(0, containers, DRAWS)  # 0: the relay itself
    behind = HOP_S + costs.verify_s + (place + 1) * costs.delivery_s
    total_ms = (total + np.where(place > 0, behind, 0.0)) * 1e3
    found = np.percentile(total_ms, PERCENTILES)
    return Latencies(
        float(busy.mean()), float(busy.max()), float(total_ms.mean()), tuple(found.tolist())
    )


def _at(waits: Floats, rates: Floats, rng: np.random.Generator) -> Floats:
    """Waits at nodes picked by how much they have to do."""
    nodes = rng.choice(len(rates), DRAWS, p=rates / rates.sum())
    found: Floats = waits[nodes, rng.integers(0, waits.shape[1], DRAWS)]
    return found


def _service(mean_s: float, rng: np.random.Generator) -> Floats:
    return rng.standard_exponential(DRAWS) * mean_s
