"""The rules of versions and steps: one digest each, each based on the one before, none left out.

An id is a digest chained over the id before it (`swell.config.versions`), so that these rules hold
for the whole history of a configuration if they hold between neighbours.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.config.versions import NO_VERSION
from swell.events.schema import Kind
from swell.pipeline.audit_losses import touched
from swell.pipeline.audit_rows import ACROSS, CONFIGURATION, of_configurations
from swell.pipeline.audit_settings import NEVER_US, AuditSettings
from swell.pipeline.verdicts import Verdict, evidence


def chains(
    rows: DataFrame,
    stored: DataFrame,
    suspected: DataFrame,
    node_losses: DataFrame,
    settings: AuditSettings,
) -> list[DataFrame]:
    """Evidence of every rule about store rows."""
    up = Window.partitionBy(*CONFIGURATION).orderBy("version")
    linked = stored.withColumns(
        {
            "sequence": f.col("version"),
            "before": f.lag("version").over(up),
            "digests_before": f.lag("digests").over(up),
            "step_before": f.lag("step").over(up),
            "before_us": f.lag("at_us").over(up),
        }
    )
    return [
        conflicts(of_configurations(rows, Kind.STORE), f.lit(None)),
        conflicts(suspected.where(f.col("stored_digests").isNull()), f.col("node")),
        broken_bases(linked),
        gaps(linked, Verdict.VERSION_GAP, node_losses, settings),
        gaps(steps(stored), Verdict.STEP_GAP, node_losses, settings),
        evidence(linked.where(f.col("step") <= f.col("step_before")), Verdict.STEP_ORDER),
    ]


def conflicts(rows: DataFrame, who: Column) -> DataFrame:
    """Rows with another digest than the first row of the same version that has one."""
    same = Window.partitionBy(*CONFIGURATION, "sequence").orderBy(*ACROSS)
    differing = (
        rows.where(f.col("digest").isNotNull())
        .withColumn("digest_first", f.first("digest").over(same))
        .where(f.col("digest") != f.col("digest_first"))
    )
    return evidence(differing, Verdict.DIGEST_CONFLICT, who=who)


def broken_bases(linked: DataFrame) -> DataFrame:
    base = f.col("base")
    follows = f.col("before") == f.col("version") - 1
    broken = f.when(f.col("version") == 1, base != f.lit(NO_VERSION)).when(
        follows, ~f.array_contains("digests_before", base)
    )
    return evidence(linked.where(base.isNotNull() & broken), Verdict.BASE_BROKEN)


def steps(stored: DataFrame) -> DataFrame:
    """One row per step of an application, with the step before it."""
    up = Window.partitionBy("run", "application").orderBy("sequence")
    return (
        stored.where(f.col("step").isNotNull())
        .groupBy("run", "application", "step")
        .agg(f.min(f.struct(*ACROSS)).alias("one"))
        .select(
            "run",
            "application",
            f.lit(None).cast("string").alias("name"),
            f.col("step").alias("sequence"),
            "one.*",
        )
        .withColumns({"before": f.lag("sequence").over(up), "before_us": f.lag("at_us").over(up)})
    )


def gaps(
    linked: DataFrame, verdict: Verdict, node_losses: DataFrame, settings: AuditSettings
) -> DataFrame:
    """Numbers that are left out between a row and the one before it."""
    before = f.coalesce("before", f.lit(0)) if settings.complete else f.col("before")
    missing = linked.where(f.col("sequence") > before + 1).join(
        f.broadcast(node_losses), "run", "left"
    )
    from_us = f.least(f.coalesce("before_us", f.lit(-NEVER_US)), f.col("at_us"))
    to_us = f.greatest(f.coalesce("before_us", f.col("at_us")), f.col("at_us"))
    return evidence(
        missing,
        verdict,
        first=f.coalesce("before", f.lit(0)) + 1,
        last=f.col("sequence") - 1,
        excused=touched(from_us, to_us),
    )
