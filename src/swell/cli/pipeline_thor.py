"""`swell pipeline thor-resilience` and `thor-hashing`: THOR's experiments at full size on Spark.

The mathematics is that of `swell lab thor-resilience` and `thor-hashing`; here every run is a task
of its own, on as many machines as there are. Run number n is the same run everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swell.errors import ConfigurationError
from swell.pipeline.outcome import Outcome
from swell.pipeline.running import Run, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from swell.lab.graphs import Thor

CONNECTIONS_MIN = 3
CONNECTIONS_MAX = 200
"""A zone graph of c = 200 has 8,979² links: 320 MB in each worker."""

ConnectionsOption = Annotated[int, typer.Option("--connections", help="c, of a node.")]
RunsOption = Annotated[int, typer.Option("--runs", help="Each with chance of its own.")]

OneRun = Callable[[int], Sequence[dict[str, float]]]


@job("thor-resilience")
def resilience(run: Run, connections: ConnectionsOption = 130, runs: RunsOption = 50) -> None:
    """Fig. 2 of THOR: how much stays in one piece while nodes fail."""
    from swell.lab.graphs import links_between_zones, overlay_size
    from swell.lab.thor_resilience import FAILED

    _check(connections, runs)
    facts = {
        "connections": connections,
        "nodes": overlay_size(connections, links_between_zones(connections)),
    }
    one = partial(resilience_run, connections, FAILED)
    title = "largest component, of the living"
    _spread(run, runs, one, ["failed_percent", "share"], title, facts)


@job("thor-hashing")
def hashing(
    run: Run,
    connections: ConnectionsOption = 120,
    points: Annotated[int, typer.Option("--points", help="p, of a node and of a zone.")] = 158,
    runs: RunsOption = 4,
) -> None:
    """Table 3 of THOR: how evenly the two-level ring spreads keys, every point hashed: 41 million
    digests in each run."""
    from swell.lab.thor_hashing import STATISTICS

    _check(connections, runs)
    facts = {"connections": connections, "points": points}
    one = partial(hashing_run, connections, points)
    _spread(run, runs, one, ["levels", *STATISTICS], "partition sizes", facts)


def _check(connections: int, runs: int) -> None:
    if not CONNECTIONS_MIN <= connections <= CONNECTIONS_MAX or runs < 1:
        raise ConfigurationError(
            f"--connections is from {CONNECTIONS_MIN} to {CONNECTIONS_MAX}, --runs at least 1"
        )


def _spread(
    run: Run, runs: int, one: OneRun, columns: list[str], title: str, facts: dict[str, Any]
) -> None:
    """All runs, and a table of their means by the first of the columns."""

    def compute(spark: SparkSession) -> Outcome:
        from swell.pipeline.outcome import rows_of
        from swell.pipeline.replay_thor import means, spread

        table = spread(spark, runs, one, columns).persist()
        outcome = Outcome(run.job, facts | {"runs": runs}, frames={"runs": table})
        outcome.tables[title] = rows_of(means(table, columns[:1]))
        return outcome

    run(compute)


@lru_cache(maxsize=1)
def _overlay(connections: int) -> Thor:
    """Built once in every worker: all runs look at the same overlay."""
    import numpy as np

    from swell.lab.graphs import thor
    from swell.lab.thor_resilience import SEED

    return thor(connections, np.random.default_rng(SEED))


def resilience_run(
    connections: int, failed: tuple[int, ...], number: int
) -> list[dict[str, float]]:
    """One drawing of who fails when."""
    import numpy as np

    from swell.lab.thor_resilience import SEED, largest_share_of_thor

    overlay = _overlay(connections)
    fate = np.random.default_rng([SEED, connections, number]).random(overlay.nodes)
    return [
        {
            "failed_percent": float(rate),
            "share": largest_share_of_thor(overlay, fate >= rate / 100),
        }
        for rate in failed
    ]


def hashing_run(connections: int, points: int, number: int) -> list[dict[str, float]]:
    """One salt: the standard ring, and the two-level ring with all its digests."""
    import numpy as np

    from swell.lab.thor_hashing import STATISTICS, Scheme, standard, two_level

    rows: list[dict[str, float]] = []
    for levels in (1, 2):
        scheme = Scheme(connections, 1 if levels == 1 else points, levels, (0, 0, 0), 0, 0)
        shares = standard(scheme, number) if levels == 1 else two_level(scheme, number, True)
        figures = shares.mean(), shares.std(), np.percentile(shares, 90)
        named = {name: float(value) for name, value in zip(STATISTICS, figures, strict=True)}
        rows.append({"levels": float(levels), **named})
    return rows
