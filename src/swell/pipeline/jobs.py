"""The jobs behind `swell pipeline`: each reads a log, computes, and hands back an `Outcome`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from swell.errors import ConfigurationError
from swell.events.schema import Kind
from swell.pipeline import audit as audits
from swell.pipeline import generate, latency, logs, monitor, plan, replay, report, workload
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.outcome import Outcome, rows_of
from swell.pipeline.source_files import LogError
from swell.pipeline.verdicts import earliest
from swell.placement.monitoring import MILLI, NodeReport
from swell.placement.planning import Move, PlanSettings
from swell.placement.space import US_PER_MS, Place, whole_us

SAMPLES = 20
"""Rows of evidence that are shown."""

BROADCAST_MAX = 500_000
"""Coordinates that every worker can hold: about 100 bytes each."""


def audit(spark: SparkSession, events: str, settings: AuditSettings) -> Outcome:
    """Verdicts with their evidence; exit code 1 if anything is wrong."""
    log = logs.read(spark, events)
    result = audits.run(spark, log.events, settings)
    outcome = Outcome("audit", exit_code=result.exit_code, notes=list(log.notes))
    outcome.facts = {
        "deliveries expected": result.counts.expected,
        "delivered": result.counts.delivered,
        "delivered by a later version": result.counts.skipped,
        "violations": sum(row.violations for row in result.summary),
    }
    if not result.counts.expected:
        outcome.notes.append(nothing_due(settings))
    found = [row._asdict() for row in result.summary if row.violations or row.excused]
    if found:
        outcome.tables["verdicts"] = found
        worst = earliest(result.evidence.where("excuse is null"), SAMPLES)
        outcome.tables["evidence"] = [_filled(row) for row in rows_of(worst)]
    outcome.frames["evidence"] = result.evidence

    def page() -> str:
        times = latency.table(log.events, sla_s=settings.sla_s)
        return report.text(result, times, log.notes, settings.sla_s)

    outcome.files["audit.html"] = page
    return outcome


def nothing_due(settings: AuditSettings) -> str:
    """A clean audit of nothing proves nothing."""
    return (
        f"no delivery was due: nobody stayed subscribed for {settings.sla_s:g} s (--sla) after "
        "something was stored"
    )


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "excuse"}


def latencies(
    spark: SparkSession,
    events: str,
    by: Sequence[str] = ("application", "site"),
    window_s: float | None = None,
    sla_s: float = 3.0,
    since: latency.Since = latency.Since.STORED,
) -> Outcome:
    """Percentiles of delivery latency."""
    log = logs.read(spark, events)
    table = latency.table(log.events, window_s, by, sla_s, since).persist()
    order = [name for name in ("run", *by, "window") if name in table.columns]
    rows = rows_of(table.orderBy(*order))
    outcome = Outcome("latency", notes=list(log.notes), tables={"latency": rows})
    outcome.facts = {
        "deliveries": sum(row["count"] for row in rows),
        f"later than {sla_s:g} s": sum(row["late"] for row in rows),
    }
    outcome.frames["latency"] = table
    if not rows:
        outcome.notes.append("the log has no deliveries whose time is known")
    return outcome


@dataclass(frozen=True)
class Limits:
    """What topics allow."""

    limit_ms: float | None = None
    """For topics without a limit of their own."""
    file: str = ""
    """CSV with a header: topic, limit_ms."""
    window_s: float = monitor.WINDOW_S


@dataclass(frozen=True)
class Topics:
    """The table of topics, and the nodes that may host them."""

    table: DataFrame
    nodes: list[NodeReport]
    places: DataFrame

    def forget(self) -> None:
        """Free what Spark keeps of them."""
        self.table.unpersist()
        self.places.unpersist()


def topics_of(events: DataFrame, window_s: float) -> Topics:
    dimensions = _dimensions(events)
    places = monitor.places(events, dimensions).persist()
    # Every worker holds them, if they are few: then flows stay where they are.
    known = f.broadcast(places) if places.count() <= BROADCAST_MAX else places
    topics = monitor.topics(monitor.flows(events, window_s), known, dimensions).persist()
    hosts = places.where(f.col("role") == monitor.NODE).orderBy("node")
    return Topics(topics, [_node(row) for row in hosts.collect()], places)


def _node(row: Row) -> NodeReport:
    *vector, height = row["place"]
    return NodeReport(row["node"], Place(tuple(vector), height))


def _dimensions(events: DataFrame) -> int:
    """Of the last coordinate that any process has reported."""
    size = f.max_by(f.size("coordinate"), f.struct("at", "node", "row"))
    row = events.where(f.col("kind") == str(Kind.COORDINATE)).agg(size.alias("size")).first()
    if row is None or row["size"] is None or row["size"] < 2:
        raise LogError("the log has no coordinates of nodes: they come with every report interval")
    return int(row["size"]) - 1


def monitoring(spark: SparkSession, events: str, window_s: float = monitor.WINDOW_S) -> Outcome:
    """Who uses which topic from where, and what nodes carry."""
    log = logs.read(spark, events)
    found = topics_of(log.events, window_s)
    topics, nodes = found.table, found.nodes
    outcome = Outcome("monitor", notes=list(log.notes))
    busiest = topics.orderBy(f.desc("rate_out_milli"), "topic").limit(SAMPLES).select(*_shown())
    outcome.tables["busiest topics"] = rows_of(busiest)
    carried = monitor.nodes(topics).orderBy("home")
    outcome.tables["nodes"] = [_per_second(row) for row in rows_of(carried)]
    outcome.facts = {"topics": topics.count(), "nodes with a coordinate": len(nodes)}
    outcome.frames["topics"] = topics
    return outcome


def _shown() -> Iterable[Any]:
    yield from ("topic", "home", "producers", "consumers", "unplaced")
    yield (f.col("deviation_us") / US_PER_MS).alias("deviation_ms")
    yield (f.col("worst_us") / US_PER_MS).alias("worst_ms")
    yield (f.col("rate_out_milli") / MILLI).alias("out_per_s")


def _per_second(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": row["home"],
        "topics": row["topics"],
        "in_per_s": row["rate_in_milli"] / MILLI,
        "out_per_s": row["rate_out_milli"] / MILLI,
    }


def planning(spark: SparkSession, events: str, limits: Limits, settings: PlanSettings) -> Outcome:
    """The moves of Algorithm 1."""
    log = logs.read(spark, events)
    found = topics_of(log.events, limits.window_s)
    topics, nodes = found.table, found.nodes
    if not nodes:
        raise LogError("no node of the log has a coordinate: a plan needs at least one")
    common = None if limits.limit_ms is None else whole_us(limits.limit_ms)
    limited = plan.with_limits(topics, common, _own_limits(spark, limits.file))
    moves = plan.plan(limited, nodes, settings)
    outcome = Outcome("plan", notes=list(log.notes))
    outcome.tables["moves"] = [move._asdict() for move in moves]
    violated = limited.where("worst_us > limit_us").count()
    outcome.facts = {"topics": topics.count(), "over their limit": violated, "moves": len(moves)}
    if moves:
        columns = zip(Move._fields, map(list, zip(*moves, strict=True)), strict=True)
        outcome.frames["moves"] = spark.createDataFrame(pa.table(dict(columns)))
    if limits.limit_ms is None and not limits.file:
        outcome.notes.append("no latency limit was given: only overload moves topics")
    return outcome


def _own_limits(spark: SparkSession, file: str) -> DataFrame | None:
    if not file:
        return None
    if not Path(file).is_file():
        raise ConfigurationError(f"there is no file {file} with limits of topics")
    table = spark.read.csv(file, header=True, schema="topic string, limit_ms double")
    limit_us = monitor.whole(f.col("limit_ms"), US_PER_MS)
    return table.where("topic is not null").groupBy("topic").agg(f.min(limit_us).alias("limit_us"))


def characterization(spark: SparkSession, events: str) -> Outcome:
    """Popularity, duplication, stability, and the settings that follow."""
    log = logs.read(spark, events)
    popular = workload.popularity(log.events).persist()
    items, mean_log = workload.mean_log_rank(popular)
    found = workload.measures(log.events)
    outcome = Outcome("workload", notes=list(log.notes))
    outcome.tables["most popular"] = rows_of(popular.orderBy("rank").limit(SAMPLES))
    outcome.tables["part of values that travels"] = rows_of(
        workload.duplication(log.events)
        .orderBy(f.desc("value_bytes"), "application")
        .limit(SAMPLES)
    )
    outcome.tables["interest that stays"] = rows_of(workload.stability(log.events))
    outcome.tables["recommended"] = [
        {"setting": f"config.{name}", "value": value}
        for name, value in workload.recommended(found).items()
    ]
    outcome.facts = {
        "configurations": items,
        "Zipf exponent of popularity": round(workload.zipf_exponent(items, mean_log), 3),
        **found,
    }
    outcome.frames["popularity"] = popular
    return outcome


def replaying(spark: SparkSession, day: generate.Day, servers: replay.Servers) -> Outcome:
    """The Double 11 day through placement and delivery trees."""
    updates = generate.updates(spark, day)
    load = replay.load(spark, updates, day, servers).persist()
    outcome = Outcome("replay", tables={"ways": replay.summary(load, servers)})
    total = load.agg(f.sum("updates").alias("u"), f.sum("deliveries").alias("d")).first()
    assert total is not None
    outcome.facts = {
        "reading": day.reading.value,
        "hours": round(day.seconds / 3600, 2),
        "fraction": day.fraction,
        "updates replayed": total["u"],
        "deliveries replayed": total["d"],
        "deliveries of the whole day": day.deliveries,
        "servers": servers.count,
    }
    outcome.notes.append(
        "the stated total (1,801 M) and mean (139 K/s) contradict each other for 24 hours: "
        "reading 'total' lasts 3.6 hours, reading 'mean' has 12,010 M deliveries"
    )
    outcome.notes.append(
        f"assumed: {day.followers} followers, values of {day.value_bytes:,} bytes, "
        f"{day.incremental:.0%} of updates change {day.delta_bytes:,} bytes"
    )
    outcome.frames["load"] = load
    return outcome
