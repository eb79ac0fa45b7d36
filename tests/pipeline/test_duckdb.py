"""A second engine on the same files gives the same answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from swell.lab import pipeline_duckdb, pipeline_duckdb_monitor, pipeline_spark
from swell.lab.pipeline_rows import LogShape, write_log
from swell.lab.pipeline_traffic import DIMENSIONS, write_traffic
from swell.lab.pipeline_trials import same_topics
from swell.pipeline.audit_settings import AuditSettings

pytestmark = pytest.mark.usefixtures("compiled")

SHAPE = LogShape(
    applications=4, names=5, versions=100, containers=20, store_every_us=175_000, silent=0.02
)
SETTINGS = AuditSettings()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("log")
    write_log(directory, SHAPE)
    return directory


def test_the_audit_finds_what_duckdb_finds(spark: SparkSession, log: Path) -> None:
    result = pipeline_spark.run_audit(spark, log, SETTINGS)
    ours = pipeline_spark.findings(result)
    theirs = Counter(pipeline_duckdb.findings(pipeline_duckdb.connect(log), SETTINGS))
    assert ours == theirs
    kinds = Counter(row[1] for row in ours.elements())
    assert set(kinds) >= {"missing", "late", "duplicate", "out-of-order", "wrong-content"}
    assert min(kinds.values()) >= 5, kinds
    assert result.counts.expected == SHAPE.deliveries


def test_the_joins_and_percentiles_are_those_of_duckdb(spark: SparkSession, log: Path) -> None:
    connection = pipeline_duckdb.connect(log)
    unreceived = pipeline_spark.unreceived(spark, log, SETTINGS)
    assert unreceived == pipeline_duckdb.unreceived(connection, SETTINGS) > 0
    in_time = pipeline_spark.in_time(spark, log, SETTINGS)
    assert in_time == pipeline_duckdb.in_time(connection, SETTINGS) > SHAPE.deliveries // 2
    table = pipeline_spark.percentiles(spark, log)
    assert table == set(pipeline_duckdb.latency(connection, SETTINGS, pipeline_spark.BY))
    assert len(table) == SHAPE.applications * SHAPE.names * 4


def test_the_topics_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    topics = write_traffic(tmp_path, 3_000)
    connection = pipeline_duckdb.connect(tmp_path)
    pipeline_duckdb_monitor.find_topics(connection, DIMENSIONS)
    theirs = pipeline_duckdb_monitor.topics(connection)
    found = pipeline_spark.find_topics(spark, tmp_path)
    ours = pipeline_spark.topics(found)
    found.forget()
    assert same_topics(ours, theirs)
    assert ours.num_rows == topics == 100
    assert not same_topics(ours, theirs.set_column(1, "home", [["node-0"] * topics]))
