"""The audit of a stream in Spark: the verdicts of the batch, also after a restart in the middle."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.errors import ConfigurationError
from swell.pipeline import streaming
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.following import settings_set
from swell.pipeline.schema import EVENTS
from swell.pipeline.session import ROCKSDB
from tests.pipeline.audited_logs import SETTINGS, STREAMED, Audited
from tests.pipeline.generated_logs import parts_of
from tests.pipeline.oracle import Finding
from tests.pipeline.test_streaming_auditor import JUDGED, comparable

PARTS = 4


def findings(evidence: DataFrame) -> dict[str, Counter[Finding]]:
    by_run: dict[str, list[Finding]] = {}
    for row in evidence.collect():
        place = (row["node"], row["start"], row["row"], row["excuse"] is not None)
        about = tuple(row[name] for name in ("application", "name", "who", "first", "last"))
        by_run.setdefault(row["run"], []).append(Finding(row["verdict"], *about, *place))
    compared = {run: comparable(found) for run, found in by_run.items()}
    return {run: found for run, found in compared.items() if found}


def run_available(spark: SparkSession, source: Path, work: Path) -> None:
    """One life of the query: it takes what there is and ends."""
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 2).parquet(str(source))
    with settings_set(spark, ROCKSDB):
        query = (
            streaming.evidence(events, SETTINGS, delay_s=20.0, buckets=2)
            .writeStream.option("checkpointLocation", str(work / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(work / "found"), format="parquet")
        )
    query.awaitTermination()


@pytest.mark.beside
def test_a_stream_that_restarts_gives_the_verdicts_of_the_batch(
    spark: SparkSession, audited: Audited, tmp_path: Path
) -> None:
    expected = findings(audited.result.evidence.where(f.col("run").startswith(STREAMED)))
    source = tmp_path / "events"
    source.mkdir()
    rows = sorted(audited.streamed.rows, key=lambda row: row["at"])
    for number, part in enumerate(parts_of(rows, PARTS)):
        pq.write_table(part, source / f"{number}.parquet")
        if number == PARTS // 2:  # the first life ends here, with all it knows in the checkpoint
            run_available(spark, source, tmp_path)
    run_available(spark, source, tmp_path)
    ours = findings(spark.read.parquet(str(tmp_path / "found")))
    assert ours == expected
    kinds = {one.verdict for found in ours.values() for one in found}
    assert len(kinds & JUDGED) >= 6, kinds
    lives = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(lives) > 3, "it went on in the same checkpoint"


def test_a_stream_without_protobuf_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.split(".")[0] == "google"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match="needs protobuf"):
        streaming.evidence(spark.range(1), SETTINGS)


def test_a_stream_needs_a_horizon(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="needs a horizon"):
        streaming.evidence(spark.range(1), AuditSettings())
