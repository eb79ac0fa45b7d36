"""A second engine on the same files gives the same answers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from swell.lab import pipeline_duckdb
from swell.lab.pipeline_rows import LogShape, write_log
from swell.pipeline import audit, latency, logs
from swell.pipeline.audit_settings import AuditSettings

SHAPE = LogShape(
    applications=4, names=5, versions=100, containers=100, store_every_us=175_000, silent=0.02
)
KEY = ("run", "verdict", "application", "name", "who", "first", "last", "node", "start", "row")


@pytest.mark.skipif("SWELL_LARGE" not in os.environ, reason="a minute long: make simulate")
def test_duckdb_and_spark_agree_on_200_thousand_deliveries(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_log(tmp_path, SHAPE)
    log = logs.read(spark, str(tmp_path))
    settings = AuditSettings()
    result = audit.run(spark, log.events, settings)
    ours = Counter(tuple(row) for row in result.evidence.select(*KEY).collect())
    connection = pipeline_duckdb.connect(tmp_path)
    theirs = Counter(pipeline_duckdb.findings(connection, settings))
    assert ours == theirs
    kinds = Counter(row[1] for row in ours.elements())
    assert set(kinds) >= {"missing", "late", "duplicate", "out-of-order", "wrong-content"}
    assert min(kinds.values()) >= 10, kinds
    assert result.counts.expected == SHAPE.deliveries

    by = ("application", "site", "name")
    table = latency.table(log.events, None, by).collect()
    assert {tuple(row) for row in table} == set(pipeline_duckdb.latency(connection, settings, by))
    assert len(table) == SHAPE.applications * SHAPE.names * 4
