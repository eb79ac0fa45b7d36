"""Every expected delivery meets the row that satisfies it, in one sort of both.

What satisfies a version is the earliest row, in the order of its container, that ends at that
version or above. Sorted downwards by version that is a running minimum: rows of either side are
looked at once, where a join by range would compare every version of a configuration with every row
of it. The same pass tells which containers took each version once and in order; only the rows of
the others have to be put in their own order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_deliveries import taken
from swell.pipeline.audit_keys import PAIR
from swell.pipeline.audit_rows import of_configurations
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.verdicts import Verdict

PART_ROWS = 2_000_000
"""Sorted at a time: about 200 MB."""


def matched(expected: DataFrame, rows: DataFrame, parts: int) -> DataFrame:
    """Expected deliveries (`is_wanted`), once each, and apply and reject rows. `by`, of the former:
    the row that satisfies it; of the latter: the earliest of those that end where it does, or
    above. `in_order`: a row is before that and ends below where that begins."""
    both = _wanted(expected).unionByName(_arrived(rows)).repartition(parts, *PAIR)
    is_wanted = f.col("is_wanted")
    down = Window.partitionBy(*PAIR).orderBy(
        f.desc("version"), "is_wanted", f.desc("start"), f.desc("row")
    )
    row = f.struct("start", "row", "at_us", "mono_us", f.col("first").alias("range_first"))
    earliest = f.min(f.when(~is_wanted, row)).over(down.rowsBetween(Window.unboundedPreceding, -1))
    repeats = f.lag("is_wanted").over(down) & (f.lag("version").over(down) == f.col("version"))
    by = f.col("by")
    before = (f.col("start") < by["start"]) | (
        (f.col("start") == by["start"]) & (f.col("row") < by["row"])
    )
    return (
        both.withColumns({"by": earliest, "repeats": f.coalesce(repeats, f.lit(False))})
        .where(~is_wanted | ~f.col("repeats"))
        .withColumn("in_order", by.isNull() | (before & (f.col("version") < by["range_first"])))
        .drop("repeats")
    )


def _wanted(expected: DataFrame) -> DataFrame:
    nothing = f.lit(None).cast("long")
    return expected.select(
        *PAIR,
        "version",
        f.lit(True).alias("is_wanted"),
        nothing.alias("start"),
        nothing.alias("row"),
        "at_us",
        "mono_us",
        nothing.alias("first"),
        "offset_us",
    )


def _arrived(rows: DataFrame) -> DataFrame:
    came = of_configurations(rows, Kind.APPLY, Kind.REJECT).where(f.col("sequence").isNotNull())
    return came.select(
        *PAIR,
        f.col("sequence").alias("version"),
        f.lit(False).alias("is_wanted"),
        "start",
        "row",
        "at_us",
        "mono_us",
        "first",
        f.lit(None).cast("long").alias("offset_us"),
    )


def judged(matches: DataFrame, counted: Observation, settings: AuditSettings) -> DataFrame:
    """Of matches: deliveries with a `verdict`, missing or late, and `latency_us`, and rows that are
    not in order. `counted` counts all deliveries as they pass."""
    by, is_wanted = f.col("by"), f.col("is_wanted")
    latency_us = taken(f.struct("at_us", "mono_us"), by, f.col("offset_us"), settings)
    return (
        matches.observe(
            counted,
            f.count_if(is_wanted).alias("expected"),
            f.count_if(is_wanted & by.isNotNull()).alias("delivered"),
            f.count_if(is_wanted & (f.col("version") < by["range_first"])).alias("skipped"),
        )
        .withColumn("latency_us", f.when(is_wanted, latency_us))
        .withColumn("verdict", f.when(is_wanted, _verdict(f.col("latency_us"), settings)))
        .where(f.col("verdict").isNotNull() | ~(is_wanted | f.col("in_order")))
        .select(*PAIR, "version", "is_wanted", "by", "latency_us", "verdict")
    )


def _verdict(latency_us: Column, settings: AuditSettings) -> Column:
    is_missing = latency_us.isNull() | (latency_us > settings.horizon_us)
    return f.when(is_missing, str(Verdict.MISSING)).when(
        latency_us > settings.sla_us, str(Verdict.LATE)
    )
