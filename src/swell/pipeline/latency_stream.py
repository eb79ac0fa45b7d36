"""The latency table of a stream: the same windows, once the watermark has passed them (PIP-4).

Spark keeps the histograms of the windows that are open, never a state per delivery. A window comes
out whole, in one batch; its percentiles are then those of `latency`.

Only a whole log says which clocks are off, so a stream goes by what it has seen. A delivery that
the clocks contradict (it came before it was sent, or took longer than clocks are trusted) is kept
by itself, with its pair of processes. When its window ends it is measured against the fastest
delivery of that pair so far; if that one was possible, the clocks are right and it was that slow.
What was the fastest is remembered here, on the driver: of each pair for a day after it was last
heard of, and not over a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from swell.pipeline.audit_deliveries import on_one_machine, taken
from swell.pipeline.audit_rows import timed
from swell.pipeline.audit_settings import US_PER_S, AuditSettings
from swell.pipeline.latency import PAIR, percentiles, rounded_up, since_sent
from swell.pipeline.streaming import stream_clock

_OF_ROWS = ("run", "kind", "at", "mono_us", "node", "site", "zone", "application", "name", "epoch")
NEEDED = (*_OF_ROWS, "first", "sequence", "sent_at", "sent_mono_us")
"""Columns of a log that the table is made from."""

AWAY = timedelta(days=1)
"""A pair that has no deliveries for so long is forgotten."""

_PAIR = PAIR[1:]
_STEPS = ("step_us", "n", "max_us", "over")
_COUNTED = ("run", "group", "window", *_STEPS)


def histograms(
    events: DataFrame, window_s: float, by: Sequence[str], settings: AuditSettings, delay_s: float
) -> DataFrame:
    """Of a stream of events, append mode: run, window, group, pair, step_us, n, least_us, max_us,
    over. Rows without a group are about a pair, those with both are deliveries that the clocks
    contradict: `step_us` is exact in them."""
    rows = since_sent(timed(events))
    begun, ended = f.col("begun"), f.struct("at_us", "mono_us")
    wall_us = f.col("at_us") - f.col("sent_us")
    took = f.greatest(taken(begun, ended, f.lit(0), settings), f.lit(1))
    impossible = (wall_us < 0) | (wall_us > settings.clock_bound_us)
    contradicted = impossible & ~on_one_machine(begun, ended, settings)
    pair, group = f.struct(*_PAIR), f.struct(f.lit(True).alias("whole"), *by)
    delivery = _kept(
        group,
        f.when(contradicted, pair),
        f.when(contradicted, wall_us).otherwise(rounded_up(took)),
        f.when(contradicted, wall_us).otherwise(took),
    )
    fastest = _kept(f.when(f.lit(False), group), pair, f.lit(None), wall_us)
    width = f"{round(window_s * US_PER_S)} microseconds"
    return (
        rows.withColumn("time", f.timestamp_micros(stream_clock(settings)))
        .withWatermark("time", f"{delay_s} seconds")
        .select("run", "time", f.explode(f.array(delivery, fastest)).alias("kept"))
        .select("run", "time", "kept.*")
        .groupBy("run", f.window("time", width).alias("window"), "group", "pair", "step_us")
        .agg(
            f.count(f.lit(1)).alias("n"),
            f.min("took_us").alias("least_us"),
            f.max("took_us").alias("max_us"),
            f.count_if(f.col("took_us") > settings.sla_us).alias("over"),
        )
    )


def _kept(group: Column, pair: Column, step_us: Column, took_us: Column) -> Column:
    return f.struct(
        group.alias("group"),
        pair.alias("pair"),
        step_us.cast("long").alias("step_us"),
        took_us.cast("long").alias("took_us"),
    )


class Pairs:
    """The fastest delivery of every pair of processes, of all windows since the query was started.
    A pair is its run and what `PAIR` says."""

    def __init__(self) -> None:
        self._fastest_us: dict[tuple[Any, ...], int] = {}
        self._heard: dict[tuple[Any, ...], datetime] = {}

    def hear(self, pair: tuple[Any, ...], took_us: int, at: datetime) -> None:
        self._fastest_us[pair] = min(took_us, self._fastest_us.get(pair, took_us))
        self._heard[pair] = max(at, self._heard.get(pair, at))

    def off(self, bound_us: int) -> list[tuple[Any, ...]]:
        """Those whose clocks must be off, with by how much."""
        return [(*key, us) for key, us in self._fastest_us.items() if not 0 <= us <= bound_us]

    def forget(self) -> None:
        """Those that have had no deliveries for long."""
        newest = max(self._heard.values(), default=None)
        for pair, at in list(self._heard.items()):
            if newest is not None and newest - at > AWAY:
                del self._heard[pair], self._fastest_us[pair]


class Tables:
    """Makes the tables of the windows that a batch has ended."""

    def __init__(self, spark: SparkSession, by: Sequence[str], settings: AuditSettings) -> None:
        self._spark = spark
        self._by = tuple(by)
        self._settings = settings
        self._pairs = Pairs()

    def table(self, ended: DataFrame) -> DataFrame:
        """As `latency.table`, from the histograms of whole windows. Looked at twice."""
        is_delivery, has_pair = f.col("group").isNotNull(), f.col("pair").isNotNull()
        begin = f.col("window.start").alias("begin")
        for row in ended.where(~is_delivery).select("run", "pair", "least_us", begin).collect():
            self._pairs.hear((row["run"], row["pair"]), row["least_us"], row["begin"])
        counted = ended.where(is_delivery & ~has_pair).select(*_COUNTED)
        judged = self._judged(ended.where(is_delivery & has_pair))
        self._pairs.forget()
        whole = counted.unionByName(judged.select(*_COUNTED))
        group = (f.col("group")[name].alias(name) for name in self._by)
        shown = whole.select("run", *group, f.col("window.start").alias("window"), *_STEPS)
        return percentiles(shown, ["run", *self._by, "window"])

    def _judged(self, alone: DataFrame) -> DataFrame:
        """Deliveries that the clocks contradict, by clocks that are set right."""
        off = self._pairs.off(self._settings.clock_bound_us)
        columns = [alone.schema["run"], alone.schema["pair"], StructField("offset_us", LongType())]
        offsets = self._spark.createDataFrame(off, StructType(columns))
        took = f.greatest(f.col("step_us") - f.coalesce("offset_us", f.lit(0)), f.lit(1))
        late = f.when(took > self._settings.sla_us, f.col("n")).otherwise(f.lit(0))
        return alone.join(f.broadcast(offsets), ["run", "pair"], "left").withColumns(
            {"step_us": rounded_up(took), "max_us": took, "over": late}
        )
