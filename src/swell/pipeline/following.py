"""Jobs that follow a log while it grows: the audit and the monitor as streaming queries.

A query reads complete files only, so it is behind by what writers hold back (`file_age_s`). Its
checkpoint says how far it got: with the same one it goes on where it was. It ends with Ctrl-C, or
with `once` when it has seen all that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from swell.events.schema import Kind
from swell.pipeline import jobs, streaming
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.monitor import MESSAGES
from swell.pipeline.outcome import Outcome
from swell.pipeline.schema import EVENTS
from swell.pipeline.session import ROCKSDB
from swell.pipeline.source_files import LogError

HORIZON_S = 60.0
Tell = Callable[[list[dict[str, Any]]], None]
"""Hears of the rows of every batch that has any."""


@dataclass(frozen=True)
class Following:
    """How a log is followed."""

    events: str
    checkpoint: str = ""
    """Directory; empty: begin anew and remember nothing."""
    once: bool = False
    rows_max: int = 1_000_000
    delay_s: float = 90.0
    """How late rows may come: more than writers hold them back, plus how far clocks differ."""

    def read(self, spark: SparkSession, *kinds: Kind) -> DataFrame:
        source = spark.readStream.format("swell").option("maxRows", self.rows_max)
        if kinds:
            source = source.option("kind", ",".join(kinds))
        return source.load(self.events)

    def start(self, frame: DataFrame, each: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(each)
        if self.checkpoint:
            writer = writer.option("checkpointLocation", self.checkpoint)
        if self.once:
            writer = writer.trigger(availableNow=True)
        return writer.start()


def audit(
    spark: SparkSession, following: Following, settings: AuditSettings, tell: Tell
) -> Outcome:
    """Evidence as soon as the watermark allows it; exit code 1 if there was any."""
    for key, value in ROCKSDB.items():
        spark.conf.set(key, value)
    found = {"violations": 0, "excused": 0}

    def each(batch: DataFrame, number: int) -> None:
        rows = jobs.rows_of(batch)
        wrong = [row for row in rows if row["excuse"] is None]
        found["violations"] += len(wrong)
        found["excused"] += len(rows) - len(wrong)
        if wrong:
            tell(wrong)

    evidence = streaming.evidence(following.read(spark), settings, following.delay_s)
    _wait(following.start(evidence, each))
    return Outcome("audit", facts=dict(found), exit_code=1 if found["violations"] else 0)


def monitor(spark: SparkSession, following: Following, window_s: float, tell: Tell) -> Outcome:
    """The table of topics after every batch. What was known is the last row of every process and
    flow; after a restart it fills up again with the next reports."""
    known = spark.createDataFrame([], EVENTS)
    outcome = Outcome("monitor")

    def each(batch: DataFrame, number: int) -> None:
        nonlocal known
        before, known = known, latest(known.unionByName(batch)).localCheckpoint()
        before.unpersist()
        with suppress(LogError):  # no coordinates yet
            topics, nodes = jobs.topics_of(known, window_s)
            rows = jobs.rows_of(topics.orderBy("topic"))
            outcome.facts = {"topics": len(rows), "nodes with a coordinate": len(nodes)}
            outcome.tables = {"topics": rows}
            if rows:
                tell(rows)

    stream = following.read(spark, Kind.COORDINATE, Kind.TRAFFIC)
    _wait(following.start(stream, each))
    return outcome


def latest(events: DataFrame) -> DataFrame:
    """Coordinate and traffic rows that no later row of the same process or flow replaces."""
    whole = f.struct(*events.columns)
    order = f.struct("at", "node", "start", "row")
    flow = (f.col("kind") == str(Kind.TRAFFIC)) & (f.col("reason") == MESSAGES)
    place = f.col("kind") == str(Kind.COORDINATE)
    # A process has one place, whoever else it has flows with.
    who = f.when(place, f.col("node"))
    return (
        events.where(flow | place)
        .groupBy("kind", "name", "source", "peer", who.alias("who"))
        .agg(f.max_by(whole, order).alias("last"))
        .select("last.*")
    )


def _wait(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
