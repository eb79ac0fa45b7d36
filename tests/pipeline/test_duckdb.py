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
from swell.pipeline.following import settings_set

pytestmark = pytest.mark.beside

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""As it is for users."""

SHAPE = LogShape(
    applications=4, names=5, versions=100, containers=20, store_every_us=175_000, silent=0.02
)
SETTINGS = AuditSettings()


def test_the_audit_finds_what_duckdb_finds(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, SHAPE)
    theirs = Counter(pipeline_duckdb.findings(pipeline_duckdb.connect(tmp_path), SETTINGS))
    with settings_set(spark, COMPILED):
        result = pipeline_spark.run_audit(spark, tmp_path, SETTINGS)
        ours = pipeline_spark.findings(result)
    assert ours == theirs
    kinds = Counter(row[1] for row in ours.elements())
    assert set(kinds) >= {"missing", "late", "duplicate", "out-of-order", "wrong-content"}
    assert min(kinds.values()) >= 5, kinds
    assert result.counts.expected == SHAPE.deliveries


def test_the_joins_and_percentiles_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, SHAPE)
    with settings_set(spark, COMPILED):
        unreceived = pipeline_spark.unreceived(spark, tmp_path, SETTINGS)
        in_time = pipeline_spark.in_time(spark, tmp_path, SETTINGS)
        table = pipeline_spark.percentiles(spark, tmp_path)
    connection = pipeline_duckdb.connect(tmp_path)
    assert unreceived == pipeline_duckdb.unreceived(connection, SETTINGS) > 0
    assert in_time == pipeline_duckdb.in_time(connection, SETTINGS) > SHAPE.deliveries // 2
    assert table == set(pipeline_duckdb.latency(connection, SETTINGS, pipeline_spark.BY))
    assert len(table) == SHAPE.applications * SHAPE.names * 4


def test_the_topics_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    topics = write_traffic(tmp_path, 3_000)
    connection = pipeline_duckdb.connect(tmp_path)
    pipeline_duckdb_monitor.find_topics(connection, DIMENSIONS)
    theirs = pipeline_duckdb_monitor.topics(connection)
    with settings_set(spark, COMPILED):
        found = pipeline_spark.find_topics(spark, tmp_path)
        ours = pipeline_spark.topics(found)
        found.forget()
    assert same_topics(ours, theirs)
    assert ours.num_rows == topics == 100
    assert not same_topics(ours, theirs.set_column(1, "home", [["node-0"] * topics]))
