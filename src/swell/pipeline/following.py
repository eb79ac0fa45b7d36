"""Jobs that follow a log while it grows: audit, latency and monitor as streaming queries.

A query reads complete files only, so it is behind by what writers hold back (`file_age_s`). Its
checkpoint says how far it got: with the same one it goes on where it was. It ends with Ctrl-C, or
with `once` when it has seen all that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from swell.events.schema import Kind
from swell.pipeline import jobs, latency_stream, streaming
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.monitor import MESSAGES, reported
from swell.pipeline.outcome import Outcome, rows_of
from swell.pipeline.schema import EVENTS
from swell.pipeline.session import ROCKSDB
from swell.pipeline.source_files import LogError
from swell.pipeline.verdicts import EVIDENCE

HORIZON_S = 60.0
WINDOW_S = 60.0
LOOK_EVERY_S = 20.0
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

    def read(
        self, spark: SparkSession, kinds: Sequence[Kind] = (), columns: Sequence[str] = ()
    ) -> DataFrame:
        """Rows of these kinds in these columns; of none: all."""
        source = spark.readStream.format("swell").option("maxRows", self.rows_max)
        if kinds:
            source = source.option("kind", ",".join(kinds))
        if columns:
            source = source.schema(StructType([EVENTS[name] for name in columns]))
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
    found = {"violations": 0, "excused": 0}
    judged = Judged()

    def hear(rows: list[dict[str, Any]]) -> None:
        wrong = [row for row in rows if row["excuse"] is None]
        found["violations"] += len(wrong)
        found["excused"] += len(rows) - len(wrong)
        if wrong:
            tell(wrong)

    notes = wait(start_audit(spark, following, settings, hear, judged))
    notes += judged.notes(following, settings)
    facts = {"deliveries judged": judged.deliveries, **found}
    return Outcome("audit", facts=facts, notes=notes, exit_code=1 if found["violations"] else 0)


class Judged:
    """How much an audit has judged: without it, no violations would mean little."""

    def __init__(self) -> None:
        self.deliveries = 0
        self._left: dict[tuple[str, int], int] = {}
        """Run and bucket: versions that are still to be judged."""

    def count(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.deliveries += row["judged"]
            self._left[row["run"], row["bucket"]] = row["unjudged"]

    def notes(self, following: Following, settings: AuditSettings) -> list[str]:
        """What to say if nothing was judged, or not all."""
        left: dict[str, int] = {}
        for (run, _), versions in self._left.items():  # every bucket has all versions of its run
            left[run] = max(versions, left.get(run, 0))
        versions = sum(left.values())
        if not versions:
            return [] if self.deliveries else [jobs.nothing_due(settings)]
        wait_s = following.delay_s + (settings.horizon_s or 0)
        none = "" if self.deliveries else "no delivery was judged; "
        return [
            f"{none}versions not judged yet: {versions:,}. One is judged when the log goes on for "
            f"{wait_s:g} s after it (--delay and --horizon): wait longer, or set them lower"
        ]


def start_audit(
    spark: SparkSession,
    following: Following,
    settings: AuditSettings,
    hear: Tell,
    judged: Judged | None = None,
) -> StreamingQuery:
    """The query of the audit; `hear` is told all evidence, batch by batch."""
    events = following.read(spark, columns=streaming.NEEDED)
    found = streaming.counted_evidence(events, settings, following.delay_s)

    def each(batch: DataFrame, number: int) -> None:
        rows = rows_of(batch)
        if judged is not None:
            judged.count([row for row in rows if row["verdict"] is None])
        names = EVIDENCE.fieldNames()
        hear([{name: row[name] for name in names} for row in rows if row["verdict"] is not None])

    with settings_set(spark, ROCKSDB):
        return following.start(found, each)


@contextmanager
def settings_set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """For the queries that are started inside, which keep them."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, held in before.items():
            spark.conf.unset(key) if held is None else spark.conf.set(key, held)


def latency(
    spark: SparkSession,
    following: Following,
    window_s: float,
    by: Sequence[str],
    sla_s: float,
    tell: Tell,
) -> Outcome:
    """The table of every window that has ended, in the order of windows as they end."""
    settings = AuditSettings(sla_s=sla_s)
    tables = latency_stream.Tables(spark, by, settings)
    found = {"windows": 0, "deliveries": 0, f"later than {sla_s:g} s": 0}
    order = ("window", "run", *by)

    def each(batch: DataFrame, number: int) -> None:
        ended = batch.persist()
        rows = rows_of(tables.table(ended).orderBy(*order))
        ended.unpersist()
        found["windows"] += len({row["window"] for row in rows})
        found["deliveries"] += sum(row["count"] for row in rows)
        found[f"later than {sla_s:g} s"] += sum(row["late"] for row in rows)
        if rows:
            tell(rows)

    events = following.read(spark, [Kind.APPLY], latency_stream.NEEDED)
    counted = latency_stream.histograms(events, window_s, by, settings, following.delay_s)
    notes = wait(following.start(counted, each))
    return Outcome("latency", facts=dict(found), notes=notes)


def monitor(spark: SparkSession, following: Following, window_s: float, tell: Tell) -> Outcome:
    """The table of topics after every batch. After a restart it fills up again with the next
    reports."""
    known = Known(spark, window_s)
    outcome = Outcome("monitor")

    def each(batch: DataFrame, number: int) -> None:
        known.take(batch)
        with suppress(LogError):  # no coordinates yet
            topics = jobs.topics_of(known.rows, window_s)
            rows = rows_of(topics.table.orderBy("topic"))
            topics.forget()
            outcome.facts = {"topics": len(rows), "nodes with a coordinate": len(topics.nodes)}
            outcome.tables = {"topics": rows}
            if rows:
                tell(rows)

    stream = following.read(spark, [Kind.COORDINATE, Kind.TRAFFIC])
    outcome.notes = wait(following.start(stream, each))
    return outcome


class Known:
    """What `monitor` remembers: the last row of every process, and of every flow that goes on."""

    def __init__(self, spark: SparkSession, window_s: float) -> None:
        self._window_s = window_s
        self.rows = spark.createDataFrame([], EVENTS)

    def take(self, batch: DataFrame) -> None:
        last = latest(self.rows.unionByName(batch)).localCheckpoint()
        places = last.where(f.col("kind") == str(Kind.COORDINATE))
        self.rows = reported(last, self._window_s).unionByName(places)


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


def wait(query: StreamingQuery) -> list[str]:
    """Until it ends, or Ctrl-C ends it; what there is to say about it then.

    A thread waits for Java: this one can be interrupted at any time, and then asks Java to stop."""
    ended = Event()
    failures: list[Exception] = []

    def watch() -> None:
        try:
            query.awaitTermination()
        except Exception as error:
            failures.append(error)
        finally:
            ended.set()

    Thread(target=watch, name="waits for the query", daemon=True).start()
    dropped = False
    try:
        while not ended.wait(LOOK_EVERY_S):
            dropped = dropped or _dropped(query)
    except KeyboardInterrupt:
        query.stop()
        failures.clear()  # what was under way was cancelled
    if failures:
        raise failures[0]
    if not dropped and not _dropped(query):
        return []
    return ["some rows came too late to be counted: a longer --delay waits for them"]


def _dropped(query: StreamingQuery) -> bool:
    """Whether rows came behind the watermark in the last batches, of which Spark remembers some."""
    return any(
        state["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for state in progress["stateOperators"]
    )
