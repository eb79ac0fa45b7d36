"""Figure 14 of Ripple: 60 servers at 26, 83 and 139 thousand per second, by a model.

Sixty servers do not fit on one machine, so this is a model (`scale_model`), fed with what an update
costs here: two short runs of real nodes and containers at different rates, whose difference is the
processor time of the updates without that of idling. The model is shown beside the second run.

What the paper counts per second is not said: with 1,801 million messages delivered it may be
deliveries, in section 5.1 it is updates. Both are shown; as updates it is the harder load.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.ripple_run import Outcome, RippleSettings, Server, ripple_run
from swell.lab.scale_model import PERCENTILES, Costs, Latencies, Rates, latencies, spread

SUMMARY = "Ripple, Fig. 14: 60 servers at 26 to 139 K per second, by a model of measured costs"

SERVERS, PROCESSORS = 60, 8
"""Each with as many processors, and a node on every one: a node is one loop."""
RATES_PER_S = (26_000, 83_000, 139_000)
CONTAINERS = 25
"""Of one application, as in the default load."""
MEAN_MS_MAX = 300.0
"""What the paper says of all three rates; its percentiles are in the figure only."""
WITHIN_MS = 3000.0

MEASURED = RippleSettings(servers=3, containers=CONTAINERS, applications=1, seconds=15.0)
MEASURED_RATES_PER_S = (50.0, 250.0)
QUICK = MEASURED._replace(warm_up_s=2.0, seconds=5.0)
COST_S_MIN = 1e-6
SAMPLES = 200


def run(lab: Lab) -> Report:
    settings = QUICK if lab.quick else MEASURED
    outcomes = []
    with lab.progress("ripple-scale", len(MEASURED_RATES_PER_S) + 1) as advance:
        for rate_per_s in MEASURED_RATES_PER_S:
            outcomes.append(ripple_run(settings._replace(rate_per_s=rate_per_s)))
            advance()
        costs = costs_of(outcomes, MEASURED_RATES_PER_S, sync_s(), verify_s())
        rows = [*checked(outcomes[-1], costs), *modelled(costs)]
        advance()
    return Report(
        settings={
            "servers": SERVERS,
            "nodes": SERVERS * PROCESSORS,
            "containers_per_application": CONTAINERS,
            **{f"{name.removesuffix('_s')}_us": cost * 1e6 for name, cost in _named(costs)},
        },
        rows=rows,
        headline={f"{name.removesuffix('_s')} in µs": cost * 1e6 for name, cost in _named(costs)},
        bars=bars(rows),
        notes=NOTES,
    )


def _named(costs: Costs) -> list[tuple[str, float]]:
    return [(name, round(cost, 9)) for name, cost in costs._asdict().items()]


def sync_s() -> float:
    """A sync of a few hundred bytes on the disk that the nodes have used; the median."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="swell-scale-") as directory:
        file = os.open(Path(directory) / "syncs", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            for _ in range(SAMPLES):
                began_s = time.perf_counter()
                os.write(file, bytes(500))
                os.fdatasync(file)
                taken.append(time.perf_counter() - began_s)
        finally:
            os.close(file)
    return median(taken)


def verify_s() -> float:
    """One signature; containers of one process share what they have verified, real ones do not."""
    key, burst, taken = Ed25519PrivateKey.generate(), bytes(1000), []
    public, signature = key.public_key(), key.sign(burst)
    for _ in range(SAMPLES):
        began_s = time.perf_counter()
        public.verify(signature, burst)
        taken.append(time.perf_counter() - began_s)
    return median(taken)


def costs_of(
    outcomes: Sequence[Outcome], rates_per_s: Sequence[float], sync_s: float, verify_s: float
) -> Costs:
    """From the difference of two runs with one application: whoever sends most is its primary."""
    more_per_s = rates_per_s[1] - rates_per_s[0]
    ordered = [sorted(one.servers, key=_sent) for one in outcomes]
    backups = [[server.cpu for server in servers[:-1]] for servers in ordered]
    primary = [servers[-1].cpu for servers in ordered]
    containers = [outcome.containers_cpu / CONTAINERS for outcome in outcomes]

    def cost_s(cores: Sequence[float]) -> float:
        return max((cores[1] - cores[0]) / more_per_s, COST_S_MIN)

    return Costs(
        cost_s(primary),
        cost_s([sum(cores) / len(cores) for cores in backups]),
        cost_s(containers),
        verify_s,
        sync_s,
    )


def _sent(server: Server) -> tuple[int, float]:
    return server.sent_bytes or 0, server.cpu


def checked(outcome: Outcome, costs: Costs) -> list[dict[str, Any]]:
    """The model beside the run that it can be compared with."""
    rate_per_s = MEASURED_RATES_PER_S[-1]
    alone = Rates(np.array([rate_per_s, 0.0, 0.0]), np.array([0.0, rate_per_s, rate_per_s]))
    model = latencies(alone, costs, CONTAINERS)
    part = f"check: one application, {rate_per_s:g} updates per second, 3 nodes"
    measured = {
        "part": part,
        "what": "measured here",
        "mean_ms": round(outcome.mean_ms, 2),
        "p50_ms": round(outcome.p50_ms, 2),
        "p99_ms": round(outcome.p99_ms, 2),
    }
    return [measured, {"part": part, "what": "the model", **row_of(model)}]


def modelled(costs: Costs) -> list[dict[str, Any]]:
    rows = []
    for reading, per_update in (("updates", 1), ("deliveries", CONTAINERS)):
        for rate_per_s in RATES_PER_S:
            rng = np.random.default_rng(rate_per_s)
            rates = spread(SERVERS * PROCESSORS, rate_per_s / per_update, rng)
            row = {
                "part": f"model: {SERVERS} servers, {SERVERS * PROCESSORS} nodes",
                "counted": reading,
                "rate_per_s": rate_per_s,
                **row_of(latencies(rates, costs, CONTAINERS)),
                "paper_mean_ms": f"below {MEAN_MS_MAX:g}",
                "paper_percentiles": "figure only",
            }
            rows.append(row)
    return rows


def row_of(found: Latencies) -> dict[str, Any]:
    pairs = zip(PERCENTILES, found.percentiles_ms, strict=True)
    return {
        "busy": round(found.busy, 4),
        "busiest": round(found.busiest, 4),
        "mean_ms": round(found.mean_ms, 2),
        **{f"p{share}_ms": round(value, 2) for share, value in pairs},
    }


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    modelled = [row for row in rows if "counted" in row]
    most = max(row["mean_ms"] for row in modelled)
    return [
        Bar.at_most(
            "busiest node, share of its loop", 0.9, max(row["busiest"] for row in modelled)
        ),
        Bar.at_most("mean latency in ms, all rates (the paper)", MEAN_MS_MAX, most),
        Bar.at_most("p99 in ms, all rates", WITHIN_MS, max(row["p99_ms"] for row in modelled)),
    ]


NOTES = (
    "a MODEL: nothing of this size was run; queues of M/G/1 nodes with costs measured here, "
    "exponential service, 0.25 ms per hop, shares of nodes that vary by 20 %, no bursts, nothing "
    "for what nodes do without updates",
    "counted: what the rate is taken to count; as deliveries, there is one update for "
    f"{CONTAINERS} of them",
    "costs: processor time per update of its primary, of each backup, of a container per delivery; "
    "verifying a signature; a sync of this disk",
    "the check's measured row has everything on one machine, and the publisher's tick in it",
)
