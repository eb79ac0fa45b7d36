"""How long a plan takes: a log of traffic is made, and the moves of Algorithm 1 come out of it.

The hard case: clients are anywhere, so most topics are over their limit and have to be ranked and
placed. What is measured is all that `swell pipeline plan` does with a log: reading it, the table of
topics with their centroids, the ranking of the nodes, and the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.generate import uniform
from swell.pipeline.jobs import topics_of
from swell.pipeline.monitor import MESSAGES, WINDOW_S
from swell.pipeline.plan import plan, with_limits
from swell.pipeline.schema import EVENTS
from swell.placement.planning import PlanSettings

DIMENSIONS = 8
SPAN_MS = 100.0
"""Nodes and clients are spread evenly in a cube of this size."""
HEIGHT_MS = 0.5
LIMIT_US = 200_000
FLOWS = 3
"""Of a topic: one producer and two consumers."""
TOPICS_PER_CLIENT = 10
BEGIN_US = 1_794_355_200_000_000


class PlanTimes(NamedTuple):
    """One run."""

    topics: int
    nodes: int
    flows: int
    monitor_s: float
    """From the files to the table of topics."""
    plan_s: float
    """From there to the moves."""
    moves: int


def plan_times(
    spark: SparkSession, topics: int, nodes: int, settings: PlanSettings | None = None
) -> PlanTimes:
    """Make a log of so many topics on so many nodes, and plan."""
    with TemporaryDirectory(prefix="swell-plan-") as directory:
        write_log(spark, directory, topics, nodes)
        events = spark.read.schema(EVENTS).parquet(directory)
        begun = perf_counter()
        found = topics_of(events, WINDOW_S)
        rows = found.table.count()
        monitored = perf_counter()
        moves = plan(with_limits(found.table, LIMIT_US), found.nodes, settings)
        planned = perf_counter()
        found.forget()
    assert (rows, len(found.nodes)) == (topics, nodes)
    times = monitored - begun, planned - monitored
    return PlanTimes(topics, nodes, topics * FLOWS, *times, len(moves))


def write_log(spark: SparkSession, directory: str, topics: int, nodes: int) -> None:
    clients = max(FLOWS, topics // TOPICS_PER_CLIENT)
    number = f.col("id")
    coordinate = f.array(
        *(f.round(uniform(f.col("node"), f"axis{i}") * SPAN_MS, 3) for i in range(DIMENSIONS)),
        f.lit(HEIGHT_MS),
    )
    names = _nodes(spark, "node", nodes).union(_nodes(spark, "client", clients))
    places = names.withColumn("coordinate", coordinate)
    topic = f.floor(number / FLOWS)
    client = _name("client", _anyone(number, "client", clients))
    is_producer = number % FLOWS == 0
    flows = spark.range(topics * FLOWS).select(
        "id",
        f.lit("node").alias("role"),
        _name("node", _anyone(topic, "home", nodes)).alias("node"),
        _name("topic", topic).alias("name"),
        f.when(is_producer, client).alias("source"),
        f.when(~is_producer, client).alias("peer"),
        f.round(1 + 9 * uniform(number, "rate"), 3).alias("rate"),
        f.lit(MESSAGES).alias("reason"),
    )
    rows = _rows(places, Kind.COORDINATE).union(_rows(flows, Kind.TRAFFIC))
    rows.write.mode("overwrite").partitionBy("date", "kind").parquet(directory)


def _nodes(spark: SparkSession, role: str, count: int) -> DataFrame:
    return spark.range(count).select(
        "id", f.lit(role).alias("role"), _name(role, f.col("id")).alias("node")
    )


def _name(prefix: str, number: Column) -> Column:
    return f.concat(f.lit(f"{prefix}-"), number.cast("string"))


def _anyone(number: Column, salt: str, count: int) -> Column:
    return f.floor(uniform(number, salt) * count)


def _rows(frame: DataFrame, kind: Kind) -> DataFrame:
    """With the columns that every row has, and nulls for those that this kind does not use."""
    at_us = f.lit(BEGIN_US) + f.col("id") % 1_000_000
    common: Mapping[str, Column] = {
        "schema": f.lit(1),
        "run": f.lit("plan"),
        "at": f.timestamp_micros(at_us),
        "mono_us": at_us,
        "start": f.lit(1),
        "row": f.col("id") + 1,
        "date": f.to_date(f.timestamp_micros(at_us)),
        "kind": f.lit(str(kind)),
    }
    own = set(frame.columns)
    return frame.select(
        *(
            (f.col(field.name) if field.name in own else common.get(field.name, f.lit(None)))
            .cast(field.dataType)
            .alias(field.name)
            for field in EVENTS
        )
    )
