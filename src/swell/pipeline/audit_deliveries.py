"""Deliveries: what was expected against what came. Missing and late; wrong and unknown content.

An apply row stands for a range of versions. Rows of a container that take a configuration further
make disjoint ranges (reached before, reached with it], so each expected version has at most one of
them, and no row is taken apart. `audit_matching` finds it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_losses import touched
from swell.pipeline.audit_rows import CONFIGURATION, IN_PROCESS, of_configurations
from swell.pipeline.audit_settings import NEVER_US, AuditSettings
from swell.pipeline.verdicts import Verdict, evidence

RECEIVED = (*CONFIGURATION, "node")


def received(rows: DataFrame) -> DataFrame:
    """Apply and reject rows with what was before: `reached` (in all lives, by either kind),
    `applied_in_life` and `applied_in_lives_before` (by apply rows); null: nothing."""
    everything = Window.partitionBy(*RECEIVED).orderBy(*IN_PROCESS)
    life = Window.partitionBy(*RECEIVED, "start").orderBy("row")
    before = (Window.unboundedPreceding, -1)
    lives_before = Window.partitionBy(*RECEIVED).orderBy("start").rangeBetween(*before)
    applied = f.when(f.col("kind") == str(Kind.APPLY), f.col("sequence"))
    return of_configurations(rows, Kind.APPLY, Kind.REJECT).withColumns(
        {
            "reached": f.max("sequence").over(everything.rowsBetween(*before)),
            "applied_in_life": f.max(applied).over(life.rowsBetween(*before)),
            "applied_in_lives_before": f.max(applied).over(lives_before),
        }
    )


def offset(difference_us: Column, settings: AuditSettings) -> Column:
    """By how much the receiver's clock must be ahead, given its fastest delivery."""
    off = (difference_us < 0) | (difference_us > settings.clock_bound_us)
    return f.when(off, difference_us)


def offsets(rows: DataFrame, settings: AuditSettings, *pair: str) -> DataFrame:
    """(*pair, offset_us), of those pairs whose clocks are off; from rows, or from their tally. The
    primary of an application in an epoch is one process, and need not be named to be one side."""
    return (
        of_configurations(rows, Kind.APPLY)
        .groupBy(*pair)
        .agg(offset(f.min("took_us"), settings).alias("offset_us"))
        .where(f.col("offset_us").isNotNull())
    )


def on_one_machine(before: Column, after: Column, settings: AuditSettings) -> Column:
    """Whether two rows (structs of at_us and mono_us) come from machines started together; not, if
    a monotonic clock is not known."""
    boot = (before["at_us"] - before["mono_us"]) - (after["at_us"] - after["mono_us"])
    return f.coalesce(f.abs(boot) <= settings.same_machine_us, f.lit(False))


def taken(before: Column, after: Column, off_us: Column, settings: AuditSettings) -> Column:
    """Time between two rows (structs of at_us and mono_us) of two processes."""
    wall = after["at_us"] - before["at_us"] - f.coalesce(off_us, f.lit(0))
    same_machine = on_one_machine(before, after, settings)
    return f.when(same_machine, after["mono_us"] - before["mono_us"]).otherwise(wall)


def undelivered(
    judged: DataFrame,
    stored: DataFrame,
    processes: DataFrame,
    lost: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Evidence of missing and late deliveries: one row per container and configuration, or per row
    that came late. `stored` and `processes` give the numbers their names back."""
    store = f.struct("version", "at_us", "node", "start", "row")
    container_losses = lost.select("run", f.col("node").alias("container"), "losses")
    bad = (
        judged.where(f.col("is_wanted"))
        .join(stored.drop("mono_us", "digests"), ["configuration", "version"], "inner")
        .join(processes.select("process", f.col("node").alias("container")), "process", "inner")
        .withColumn("by", f.when(f.col("verdict") == str(Verdict.LATE), f.col("by")))
        .join(f.broadcast(container_losses), ["run", "container"], "left")
        .withColumn("excused", touched(f.col("at_us"), f.col("at_us") + settings.sla_us))
        .groupBy(*CONFIGURATION, "container", "verdict", "excused", "by")
        .agg(
            f.min(store).alias("store"),
            f.max("version").alias("last"),
            f.max("latency_us").alias("latency_us"),
        )
    )
    late = f.col("by").isNotNull()
    shown = bad.withColumns(
        {
            "node": f.when(late, f.col("container")).otherwise(f.col("store.node")),
            **{
                name: f.when(late, f.col(f"by.{name}")).otherwise(f.col(f"store.{name}"))
                for name in ("start", "row", "at_us")
            },
        }
    )
    return evidence(
        shown,
        f.col("verdict"),
        who=f.col("container"),
        first=f.col("store.version"),
        last=f.col("last"),
        value_ms=f.when(late, f.col("latency_us") / 1000),
        excused=f.col("excused"),
    )


def suspects(rows: DataFrame, stored: DataFrame, settings: AuditSettings) -> DataFrame:
    """Apply rows whose last version was stored otherwise, or never: few, in any sound log.
    `stored_digests` is null for those never stored."""
    applies = of_configurations(rows, Kind.APPLY).select(
        *RECEIVED, "start", "row", "at_us", "sent_us", "first", "sequence", "digest"
    )
    known = stored.select(
        *CONFIGURATION,
        f.col("version").alias("sequence"),
        f.col("digests").alias("stored_digests"),
    )
    joined = applies.join(known, [*CONFIGURATION, "sequence"], "left")
    wrong = f.col("digest").isNotNull() & ~f.array_contains("stored_digests", f.col("digest"))
    bad = joined.where(f.col("stored_digests").isNull() | wrong)
    if settings.complete:
        return bad
    lowest = stored.groupBy(*CONFIGURATION).agg(f.min("version").alias("lowest"))
    judged = f.col("stored_digests").isNotNull() | (f.col("sequence") > f.col("lowest"))
    return bad.join(lowest, list(CONFIGURATION), "left").where(judged).drop("lowest")


def altered(suspected: DataFrame, stored: DataFrame, node_losses: DataFrame) -> DataFrame:
    """Evidence of wrong and of unknown content."""
    who = f.col("node")
    wrong = evidence(
        suspected.where(f.col("stored_digests").isNotNull()),
        Verdict.WRONG_CONTENT,
        who=who,
        first=f.col("first"),
    )
    up = Window.partitionBy(*CONFIGURATION).orderBy("version")
    between = stored.select(
        *CONFIGURATION,
        "version",
        f.col("at_us").alias("from_us"),
        f.lead("version", 1, NEVER_US).over(up).alias("next_version"),
        f.lead("at_us", 1, NEVER_US).over(up).alias("to_us"),
    )
    a, b = suspected.where(f.col("stored_digests").isNull()).alias("a"), between.alias("b")
    same = [f.col(f"a.{name}") == f.col(f"b.{name}") for name in CONFIGURATION]
    inside = (f.col("b.version") < f.col("a.sequence")) & (
        f.col("b.next_version") > f.col("a.sequence")
    )
    unknown = (
        a.join(b, [*same, inside], "left")
        .select("a.*", "b.from_us", "b.to_us")
        .join(f.broadcast(node_losses), "run", "left")
    )
    sent = f.coalesce("sent_us", "at_us")
    excused = touched(f.coalesce("from_us", f.lit(-NEVER_US)), f.least("to_us", sent))
    return wrong.unionByName(
        evidence(unknown, Verdict.UNKNOWN, who=who, first=f.col("first"), excused=excused)
    )
