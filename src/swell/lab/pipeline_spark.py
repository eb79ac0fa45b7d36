"""The jobs of the pipeline, and the two joins below them, as `swell lab pipeline` times them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.lab.pipeline_duckdb_monitor import COLUMNS
from swell.pipeline import audit, latency, logs
from swell.pipeline.audit import AuditResult, settled
from swell.pipeline.audit_interest import interested, subscriptions
from swell.pipeline.audit_keys import process_key
from swell.pipeline.audit_rows import log_ends, timed
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.following import settings_set
from swell.pipeline.jobs import Topics, topics_of
from swell.pipeline.monitor import WINDOW_S
from swell.pipeline.schema import EVENTS

FINDING = ("run", "verdict", "application", "name", "who", "first", "last", "node", "start", "row")
BY = ("application", "site", "name")
READ = ("run", "at", "node", "application", "name", "sequence", "kind")
"""Columns that are read through `format("swell")`."""


PARTITIONS = "spark.sql.shuffle.partitions"
PART_ROWS = 1_000_000
"""Of a side of a join: their table has to fit into memory for every core at once."""

VERSIONS = """
SELECT run, application, name, xxhash64(run, application, name, sequence) AS version,
       min(at_us) AS at_us
FROM (
    SELECT /*+ REPARTITION({parts}, run, application, name, sequence) */ * FROM {rows}
    WHERE kind = 'store' AND application IS NOT NULL
)
GROUP BY run, application, name, sequence
"""
JOIN = """
SELECT /*+ SHUFFLE_HASH(a) */ count(*)
FROM {expected} AS e {kind} JOIN (
    SELECT xxhash64(0, run, node) AS process, xxhash64(run, application, name, sequence) AS version,
           at_us
    FROM {rows} WHERE kind = 'apply' AND application IS NOT NULL
) AS a
ON a.process = e.process AND a.version = e.version AND {when}
"""
"""Names are numbers, as in the audit: two for a delivery, its container and its version."""


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
    return _joined(spark, log, settings, "LEFT ANTI", "true")


def in_time(spark: SparkSession, log: Path, settings: AuditSettings) -> int:
    """Expected deliveries with a row of that version within the SLA: a join by range."""
    soon = f"a.at_us - e.at_us BETWEEN 0 AND {settings.sla_us}"
    return _joined(spark, log, settings, "INNER", soon)


def _joined(spark: SparkSession, log: Path, settings: AuditSettings, kind: str, when: str) -> int:
    """How many rows a join of expected deliveries with apply rows has. As in DuckDB's query, clocks
    that are off, and names that might share a number, are not looked at."""
    read = logs.read(spark, str(log))
    parts = max(int(str(spark.conf.get(PARTITIONS))), read.rows // PART_ROWS)
    with settings_set(spark, {PARTITIONS: str(parts)}):
        return _count(spark, timed(read.events), settings, kind, when)


def _count(
    spark: SparkSession, rows: DataFrame, settings: AuditSettings, kind: str, when: str
) -> int:
    """Of a join, once Spark is set for it."""

    def followers() -> DataFrame:
        in_step = spark.sql("SELECT run, node, 0 AS own_offset_us FROM {rows} LIMIT 0", rows=rows)
        ends = log_ends(rows.withColumnRenamed("at_us", "last_us"), settings)
        subscribed = settled(subscriptions(rows, ends, in_step))
        return f.broadcast(subscribed.withColumn("process", process_key(0, "container")))

    with ThreadPoolExecutor(1) as pool:  # as in the audit, what is small is computed beside
        found = pool.submit(followers)
        parts = 4 * spark.sparkContext.defaultParallelism
        versions = spark.sql(VERSIONS.format(parts=parts, rows="{rows}"), rows=rows)
    # In this log no container has two patterns, so nothing is expected twice.
    expected = interested(versions, found.result(), settings.sla_us)
    query = JOIN.format(kind=kind, when=when, expected="{expected}", rows="{rows}")
    row = spark.sql(query, expected=expected, rows=rows).first()
    assert row is not None
    return int(row[0])


def read_source(spark: SparkSession, log: Path) -> int:
    """Read a log through `format("swell")`, with the columns of a usual query; how many rows."""
    schema = [field for field in EVENTS if field.name in READ]
    frame = spark.read.format("swell").schema(type(EVENTS)(schema)).load(str(log))
    counted = frame.groupBy("application", "name").agg(
        f.count(f.lit(1)).alias("rows"), f.max("at"), f.max("sequence"), f.count("node")
    )
    return sum(row["rows"] for row in counted.collect())
