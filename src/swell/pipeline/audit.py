"""The audit: every rule over one frame of events, to verdicts with their evidence (PIP-3).

`docs/protocols/audit.md` defines each verdict. Several runs may be in one frame; nothing of one
plays a part in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_deliveries import altered, offsets, received, suspects, undelivered
from swell.pipeline.audit_interest import interested, subscriptions
from swell.pipeline.audit_keys import PAIR, find_keys
from swell.pipeline.audit_losses import lives_of, losses, of_nodes
from swell.pipeline.audit_matching import PART_ROWS, judged, matched
from swell.pipeline.audit_order import (
    acknowledgements,
    applied,
    lost_acknowledgements,
    misplaced,
    resumed,
)
from swell.pipeline.audit_rows import log_ends, stored, tally, timed
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.boards import boards
from swell.pipeline.chains import chains
from swell.pipeline.verdicts import EVIDENCE, summary

SMALL_ROWS = 500_000
"""At most so many rows are sent to every task, rather than have another frame shuffled."""

PLANNERS = 4

BOARD = frozenset(map(str, (Kind.WRITE, Kind.NOTIFY)))
"""Without rows of these kinds there is nothing to be said about a board."""


class SummaryRow(NamedTuple):
    """How often a verdict was given in a run."""

    run: str
    verdict: str
    violations: int
    excused: int


class Counts(NamedTuple):
    """What was judged, over all runs: without it, no violations would mean little."""

    expected: int
    delivered: int
    skipped: int
    """Delivered by a later version."""


class AuditResult(NamedTuple):
    """What an audit found; `evidence` is computed, and costs nothing more to read."""

    summary: list[SummaryRow]
    counts: Counts
    evidence: DataFrame

    @property
    def clean(self) -> bool:
        return not any(row.violations for row in self.summary)

    @property
    def exit_code(self) -> int:
        return 0 if self.clean else 1


def run(spark: SparkSession, events: DataFrame, settings: AuditSettings) -> AuditResult:
    """Judge all runs of a frame."""
    rows = timed(events)
    tallied = settled(tally(rows))
    kinds = {row["kind"] for row in tallied.select("kind").distinct().collect()}
    if not kinds:
        return AuditResult([], Counts(0, 0, 0), spark.createDataFrame([], EVIDENCE))
    own = settled(
        offsets(tallied, settings, "run", "node").withColumnRenamed("offset_us", "own_offset_us")
    )
    lost = settled(losses(rows, settled(lives_of(tallied, own))))
    node_losses = of_nodes(lost)
    ends = settled(log_ends(tallied, settings))
    subscribed = settled(subscriptions(rows, ends, own))
    keys = find_keys(rows, tallied, subscribed)
    versions = settled(keys.of_configurations(stored(rows)))
    suspected = settled(suspects(rows, small(versions), settings))
    counted = Observation()
    rows = keys.of_processes(keys.of_configurations(rows))
    subscribed = keys.of_processes(subscribed, "container")
    matches = matched_deliveries(rows, tallied, versions, subscribed, settings)
    found = settled(judged(matches, counted, settings))
    parts = [
        undelivered(found, versions, keys.processes, lost, settings),
        altered(suspected, versions, node_losses),
        misplaced(settled(applied(received(of_disordered(rows, found)))), resumed(rows)),
        acknowledgements(rows),
        lost_acknowledgements(rows),
        *chains(rows, versions, suspected, node_losses, settings),
    ]
    if kinds & BOARD:
        parts += boards(rows, ends, lost, settings, settled)
    evidence = reduce(DataFrame.unionByName, settled_together(parts))
    summed = summary(evidence).orderBy("run", "verdict").collect()
    counts = counted.get
    return AuditResult(
        [SummaryRow(*row) for row in summed],
        Counts(counts["expected"], counts["delivered"], counts["skipped"]),
        evidence,
    )


def settled(frame: DataFrame) -> DataFrame:
    """Computed now, and without its past: Spark plans a query anew after every stage, so one query
    of all rules together would be planned for longer than it runs."""
    return frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)


def settled_together(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Several at a time: what most of them cost is to be planned, and that leaves cores idle."""
    with ThreadPoolExecutor(PLANNERS) as pool:
        return list(pool.map(settled, frames))


def small(frame: DataFrame) -> DataFrame:
    """A settled frame that goes to every task if it is small enough, so that what it is joined with
    stays where it is."""
    return f.broadcast(frame) if frame.count() <= SMALL_ROWS else frame


def matched_deliveries(
    rows: DataFrame,
    tallied: DataFrame,
    versions: DataFrame,
    subscribed: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Every expected delivery with what satisfies it, and all that was received."""
    clocks = offsets(tallied, settings, "run", "application", "epoch", "node")
    clocks = settled(clocks.withColumnRenamed("node", "container"))
    cores = rows.sparkSession.sparkContext.defaultParallelism
    # Versions are few and deliveries many: what multiplies them is spread over all cores.
    spread = versions.drop("digests").repartition(4 * cores)
    expected = interested(spread, small(subscribed), settings.sla_us).join(
        small(clocks), ["run", "application", "epoch", "container"], "left"
    )
    total = tallied.agg(f.sum("rows").alias("rows")).first()
    assert total is not None
    return matched(expected, rows, max(2 * cores, 2 * total["rows"] // PART_ROWS))


def of_disordered(rows: DataFrame, found: DataFrame) -> DataFrame:
    """All rows of the containers and configurations that were not taken once and in order."""
    pairs = settled(found.where(~f.col("is_wanted")).select(*PAIR).distinct())
    return rows.join(small(pairs), list(PAIR), "left_semi")
