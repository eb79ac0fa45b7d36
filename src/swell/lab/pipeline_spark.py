"""The jobs of the pipeline, and the two joins below them, as `swell lab pipeline` times them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.lab.pipeline_duckdb_monitor import COLUMNS
from swell.pipeline import audit, latency, logs
from swell.pipeline.audit import AuditResult, settled
from swell.pipeline.audit_interest import interested, subscriptions
from swell.pipeline.audit_keys import PAIR, configuration_key, process_key
from swell.pipeline.audit_rows import log_ends, of_configurations, stored, timed
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.jobs import Topics, topics_of
from swell.pipeline.monitor import WINDOW_S
from swell.pipeline.schema import EVENTS

FINDING = ("run", "verdict", "application", "name", "who", "first", "last", "node", "start", "row")
BY = ("application", "site", "name")
READ = ("run", "at", "node", "application", "name", "sequence", "kind")
"""Columns that are read through `format("swell")`."""


def run_audit(spark: SparkSession, log: Path, settings: AuditSettings) -> AuditResult:
    return audit.run(spark, logs.read(spark, str(log)).events, settings)


def findings(result: AuditResult) -> Counter[tuple[Any, ...]]:
    """In the form that DuckDB gives them."""
    columns = result.evidence.select(*FINDING).toArrow().to_pydict()
    return Counter(zip(*columns.values(), strict=True))


def percentiles(spark: SparkSession, log: Path) -> set[tuple[Any, ...]]:
    table = latency.table(logs.read(spark, str(log)).events, None, BY)
    return {tuple(row) for row in table.collect()}


def find_topics(spark: SparkSession, log: Path) -> Topics:
    """All of the table is computed."""
    found = topics_of(logs.read(spark, str(log)).events, WINDOW_S)
    found.table.count()
    return found


def topics(found: Topics) -> pa.Table:
    """In the form that DuckDB gives them."""
    return found.table.select(*COLUMNS).toArrow()


def unreceived(spark: SparkSession, log: Path, settings: AuditSettings) -> int:
    """Expected deliveries without a row of that version: an anti-join."""
    expected, came = _sides(spark, log, settings)
    return expected.join(came.hint("shuffle_hash"), _same(expected, came), "left_anti").count()


def in_time(spark: SparkSession, log: Path, settings: AuditSettings) -> int:
    """Expected deliveries with a row of that version within the SLA: a join by range."""
    expected, came = _sides(spark, log, settings)
    after_us = came["at_us"] - expected["at_us"]
    soon = (after_us >= 0) & (after_us <= settings.sla_us)
    return expected.join(came.hint("shuffle_hash"), _same(expected, came) & soon, "inner").count()


def _same(expected: DataFrame, came: DataFrame) -> Column:
    same = came["sequence"] == expected["version"]
    for name in PAIR:
        same = same & (came[name] == expected[name])
    return same


def _sides(spark: SparkSession, log: Path, settings: AuditSettings) -> tuple[DataFrame, DataFrame]:
    """Expected deliveries and apply rows, with the transforms of the audit. As in DuckDB's query,
    clocks that are off, and names that might share a number, are not looked at."""
    rows = timed(logs.read(spark, str(log)).events)

    def followers() -> DataFrame:
        in_step = rows.select("run", "node", f.lit(0).alias("own_offset_us")).where(f.lit(False))
        ends = log_ends(rows.withColumnRenamed("at_us", "last_us"), settings)
        subscribed = settled(subscriptions(rows, ends, in_step))
        return f.broadcast(subscribed).withColumn("process", process_key(0, "container"))

    with ThreadPoolExecutor(1) as pool:  # as in the audit, what is small is computed beside
        found = pool.submit(followers)
        versions = stored(rows).withColumn("configuration", configuration_key(0))
        spread = versions.repartition(4 * spark.sparkContext.defaultParallelism)
        keys = {"process": process_key(0), "configuration": configuration_key(0)}
        came = of_configurations(rows, Kind.APPLY).withColumns(keys)
        came = came.select(*PAIR, "sequence", "at_us")
    wanted = interested(spread, found.result(), settings.sla_us)
    # In this log no container has two patterns, so nothing is expected twice.
    return wanted.select(*PAIR, "version", "at_us"), came


def read_source(spark: SparkSession, log: Path) -> int:
    """Read a log through `format("swell")`, with the columns of a usual query; how many rows."""
    schema = [field for field in EVENTS if field.name in READ]
    frame = spark.read.format("swell").schema(type(EVENTS)(schema)).load(str(log))
    counted = frame.groupBy("application", "name").agg(
        f.count(f.lit(1)).alias("rows"), f.max("at"), f.max("sequence"), f.count("node")
    )
    return sum(row["rows"] for row in counted.collect())
