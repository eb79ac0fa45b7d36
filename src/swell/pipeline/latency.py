"""How long deliveries take: percentiles by application, site, name and time (PIP-4).

Percentiles come from a histogram whose steps are 2⁻⁷ of the power of two (0.8 %): a sum of counts,
which needs one pass, little memory, and gives the same figure whatever the engine and the number of
partitions. Values are rounded up, so that no percentile is flattered.

A delivery belongs to the window in which its container applied it; to that in which it was sent if
the clocks of the two contradict each other. `latency_stream` gives the same windows of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_deliveries import offsets, received, taken
from swell.pipeline.audit_rows import CONFIGURATION, of_configurations, stored, timed
from swell.pipeline.audit_settings import US_PER_S, AuditSettings
from swell.pipeline.streaming import stream_clock

PAIR = ("run", "application", "epoch", "node")
PERCENTS = (50, 90, 99)
STEP_BITS = 7


class Since(StrEnum):
    """What a delivery is measured from."""

    SENT = "sent"
    """The primary sealed the burst: what the apply row says itself."""
    STORED = "stored"
    """The version was stored. What a container applies first in a life is what it had missed, and
    is not counted."""


def table(
    events: DataFrame,
    window_s: float | None = 60.0,
    by: Sequence[str] = ("application", "site", "name"),
    sla_s: float = 3.0,
    since: Since = Since.SENT,
) -> DataFrame:
    """One row per run, group and window: count, p50_ms, p90_ms, p99_ms, max_ms, late."""
    settings = AuditSettings(sla_s=sla_s)
    measured = deliveries(events, settings, since)
    keys = ["run", *by]
    if window_s is not None:
        measured = measured.withColumn("window", _window(stream_clock(settings), window_s))
        keys.append("window")
    return percentiles(histogram(measured, keys, settings.sla_us), keys)


def deliveries(events: DataFrame, settings: AuditSettings, since: Since = Since.SENT) -> DataFrame:
    """Apply rows with their `latency_us`, never below 1."""
    rows = timed(events)
    measured = since_sent(rows) if since is Since.SENT else _since_stored(rows)
    pairs = offsets(rows, settings, *PAIR)
    ended = f.struct("at_us", "mono_us")
    took = taken(f.col("begun"), ended, f.col("offset_us"), settings)
    return measured.join(f.broadcast(pairs), list(PAIR), "left").withColumn(
        "latency_us", f.greatest(took, f.lit(1))
    )


def since_sent(rows: DataFrame) -> DataFrame:
    """Apply rows that say when what they apply was sent; `begun`: by which clocks."""
    begun = f.struct(f.col("sent_us").alias("at_us"), f.col("sent_mono_us").alias("mono_us"))
    applies = of_configurations(rows, Kind.APPLY).where(f.col("sent_us").isNotNull())
    return applies.withColumn("begun", begun)


def _since_stored(rows: DataFrame) -> DataFrame:
    """What only a new primary has repeated was stored before: nobody knows when."""
    begun = stored(rows.where(f.col("reason").isNull())).select(
        *CONFIGURATION,
        f.col("version").alias("sequence"),
        f.struct("at_us", "mono_us").alias("begun"),
    )
    is_update = (f.col("kind") == str(Kind.APPLY)) & f.col("applied_in_life").isNotNull()
    return received(rows).where(is_update).join(begun, [*CONFIGURATION, "sequence"], "inner")


def _window(at_us: Column, window_s: float) -> Column:
    width_us = round(window_s * US_PER_S)
    return f.timestamp_micros(at_us - f.pmod(at_us, f.lit(width_us)))


def rounded_up(value: Column) -> Column:
    """To the next step of the histogram."""
    exponent = f.floor(f.log2(value)).cast("int")
    step = f.call_function(
        "shiftleft", f.lit(1).cast("long"), f.greatest(exponent - STEP_BITS, f.lit(0))
    )
    return f.when(f.pmod(value, step) == 0, value).otherwise(value - f.pmod(value, step) + step)


def histogram(measured: DataFrame, keys: Sequence[str], sla_us: int) -> DataFrame:
    """Of `latency_us` in each group: `n` of them up to `step_us`, `max_us`, and how many `over`."""
    return measured.groupBy(*keys, rounded_up(f.col("latency_us")).alias("step_us")).agg(
        f.count(f.lit(1)).alias("n"),
        f.max("latency_us").alias("max_us"),
        f.count_if(f.col("latency_us") > sla_us).alias("over"),
    )


def percentiles(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of the histogram of each group."""
    group = Window.partitionBy(*keys)
    up_to_here = group.orderBy("step_us").rowsBetween(Window.unboundedPreceding, 0)
    ranked = counted.withColumns(
        {"total": f.sum("n").over(group), "so_far": f.sum("n").over(up_to_here)}
    )

    def percentile(percent: int) -> Column:
        reached = f.col("so_far") * 100 >= f.col("total") * percent
        smallest = f.min(f.when(reached, f.col("step_us")))
        return (f.least(smallest, f.max("max_us")) / 1000).alias(f"p{percent}_ms")

    return ranked.groupBy(*keys).agg(
        f.sum("n").alias("count"),
        *map(percentile, PERCENTS),
        (f.max("max_us") / 1000).alias("max_ms"),
        f.sum("over").alias("late"),
    )
