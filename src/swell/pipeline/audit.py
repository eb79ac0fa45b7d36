"""The audit: every rule over one frame of events, to verdicts with their evidence (PIP-3).

`docs/protocols/audit.md` defines each verdict. Several runs may be in one frame; nothing of one
plays a part in another.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_deliveries import (
    altered,
    deliveries,
    offsets,
    received,
    suspects,
    undelivered,
)
from swell.pipeline.audit_interest import interested, subscriptions
from swell.pipeline.audit_losses import losses, of_nodes
from swell.pipeline.audit_order import acknowledgements, misplaced
from swell.pipeline.audit_rows import log_ends, stored, timed
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.boards import boards
from swell.pipeline.chains import chains
from swell.pipeline.verdicts import EVIDENCE, summary

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
    kinds = {row["kind"] for row in rows.select("kind").distinct().collect()}
    if not kinds:
        return AuditResult([], Counts(0, 0, 0), spark.createDataFrame([], EVIDENCE))
    versions = settled(stored(rows))
    lost = settled(losses(rows))
    suspected = settled(suspects(rows, versions, settings))
    node_losses = of_nodes(lost)
    ends = settled(log_ends(rows, settings))
    counted = Observation()
    got = received(rows)
    judged = observed(expected_deliveries(rows, versions, ends, got, settings), counted)
    parts = [
        undelivered(judged, lost, settings),
        altered(suspected, versions, node_losses),
        misplaced(got),
        acknowledgements(rows),
        *chains(rows, versions, suspected, node_losses, settings),
    ]
    if kinds & BOARD:
        parts += boards(rows, ends, lost, settings, settled)
    found = reduce(DataFrame.unionByName, map(settled, parts))
    rows_found = summary(found).orderBy("run", "verdict").collect()
    counts = counted.get
    return AuditResult(
        [SummaryRow(*row) for row in rows_found],
        Counts(counts["expected"], counts["delivered"], counts["skipped"]),
        found,
    )


def settled(frame: DataFrame) -> DataFrame:
    """Computed now, and without its past: Spark plans a query anew after every stage, so one query
    of all rules together would be planned for longer than it runs."""
    return frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)


def expected_deliveries(
    rows: DataFrame,
    versions: DataFrame,
    ends: DataFrame,
    got: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Every expected delivery with what satisfies it."""
    own = offsets(rows, settings, "run", "node").withColumnRenamed("offset_us", "own_offset_us")
    pairs = offsets(rows, settings, "run", "application", "epoch", "node").withColumnRenamed(
        "node", "container"
    )
    subscribed = subscriptions(rows, ends, own)
    return deliveries(interested(versions, subscribed, settings.sla_us), got, pairs, settings)


def observed(judged: DataFrame, counted: Observation) -> DataFrame:
    """Counts the deliveries as they pass."""
    return judged.observe(
        counted,
        f.count(f.lit(1)).alias("expected"),
        f.count("by").alias("delivered"),
        f.count_if(f.col("version") < f.col("by.range_first")).alias("skipped"),
    )
