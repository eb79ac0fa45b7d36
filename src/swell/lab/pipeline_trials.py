"""One job on one log in both engines: made, timed, and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from swell.lab import pipeline_duckdb, pipeline_duckdb_monitor, pipeline_spark
from swell.lab.pipeline import SOURCE
from swell.lab.pipeline_rows import LogShape, write_log
from swell.lab.pipeline_traffic import DIMENSIONS, write_traffic
from swell.pipeline.audit_settings import AuditSettings

SETTINGS = AuditSettings()
CORES = 2

Row = dict[str, Any]
Answer = Callable[[], Any]
Advance = Callable[..., None]


class Logs(NamedTuple):
    """Of one size: deliveries, traffic, and DuckDB's view of both."""

    rows: int
    deliveries: Path
    traffic: Path
    duckdb_deliveries: duckdb.DuckDBPyConnection
    duckdb_traffic: duckdb.DuckDBPyConnection

    def close(self) -> None:
        self.duckdb_deliveries.close()
        self.duckdb_traffic.close()


def make_logs(folder: Path, rows: int, memory: str) -> Logs:
    """So many deliveries and traffic rows, in files below the folder."""
    deliveries, traffic = folder / f"deliveries-{rows}", folder / f"traffic-{rows}"
    whole = LogShape()
    write_log(deliveries, LogShape(containers=max(1, whole.containers * rows // whole.deliveries)))
    write_traffic(traffic, rows)

    def connect(log: Path) -> duckdb.DuckDBPyConnection:
        return pipeline_duckdb.connect(log, CORES, memory, folder / "duckdb")

    return Logs(rows, deliveries, traffic, connect(deliveries), connect(traffic))


class Trial(NamedTuple):
    """What is timed hands back how to get the answer, which is compared afterwards."""

    job: str
    spark: Callable[[], Answer]
    duckdb: Callable[[], Answer]
    same: Callable[[Any, Any], bool] = lambda ours, theirs: bool(ours == theirs)


def trials(spark: SparkSession, logs: Logs) -> list[Trial]:
    """Of every job; the joins that the audit is made of are jobs, too."""
    return [
        Trial("audit", lambda: _audit(spark, logs), lambda: _duckdb_audit(logs)),
        Trial(
            "latency",
            lambda: _now(pipeline_spark.percentiles(spark, logs.deliveries)),
            lambda: _now(
                set(pipeline_duckdb.latency(logs.duckdb_deliveries, SETTINGS, pipeline_spark.BY))
            ),
        ),
        Trial("monitor", lambda: _monitor(spark, logs), lambda: _duckdb_monitor(logs), same_topics),
        Trial(
            "anti-join",
            lambda: _now(pipeline_spark.unreceived(spark, logs.deliveries, SETTINGS)),
            lambda: _now(pipeline_duckdb.unreceived(logs.duckdb_deliveries, SETTINGS)),
        ),
        Trial(
            "range join",
            lambda: _now(pipeline_spark.in_time(spark, logs.deliveries, SETTINGS)),
            lambda: _now(pipeline_duckdb.in_time(logs.duckdb_deliveries, SETTINGS)),
        ),
    ]


def _now(answer: Any) -> Answer:
    return lambda: answer


def _audit(spark: SparkSession, logs: Logs) -> Answer:
    result = pipeline_spark.run_audit(spark, logs.deliveries, SETTINGS)
    return lambda: pipeline_spark.findings(result)


def _duckdb_audit(logs: Logs) -> Answer:
    pipeline_duckdb.find(logs.duckdb_deliveries, SETTINGS)
    return lambda: Counter(logs.duckdb_deliveries.execute("SELECT * FROM findings").fetchall())


def _monitor(spark: SparkSession, logs: Logs) -> Answer:
    found = pipeline_spark.find_topics(spark, logs.traffic)

    def answer() -> pa.Table:
        table = pipeline_spark.topics(found)
        found.forget()
        return table

    return answer


def _duckdb_monitor(logs: Logs) -> Answer:
    pipeline_duckdb_monitor.find_topics(logs.duckdb_traffic, DIMENSIONS)
    return lambda: pipeline_duckdb_monitor.topics(logs.duckdb_traffic)


def same_topics(ours: pa.Table, theirs: pa.Table) -> bool:
    """The same numbers; lengths may differ in their last digits, as engines add up."""
    if ours.num_rows != theirs.num_rows:
        return False
    ours, theirs = ours.sort_by("topic"), theirs.sort_by("topic")
    for name in pipeline_duckdb_monitor.COLUMNS:
        a, b = ours[name].to_numpy(), theirs[name].to_numpy()
        if a.dtype.kind == "f":
            if not np.allclose(a, b, rtol=1e-9, equal_nan=True):
                return False
        elif not np.array_equal(a, b):
            return False
    return True


def measured(spark: SparkSession, trial: Trial, rows: int, rounds: int, advance: Advance) -> Row:
    """The engines take turns; medians, and whether all answers were the same."""
    ours, theirs, same = [], [], True
    for _ in range(rounds):
        spark_s, our_answer = timed(trial.spark)
        duckdb_s, their_answer = timed(trial.duckdb)
        ours.append(spark_s)
        theirs.append(duckdb_s)
        same = same and trial.same(our_answer(), their_answer())
        del our_answer, their_answer
        collect_garbage(spark)
        advance()
    return {
        "part": "jobs",
        "job": trial.job,
        "rows": rows,
        "spark_s": median(ours),
        "rows_per_s": rows / median(ours),
        "duckdb_s": median(theirs),
        "ratio": median(ours) / median(theirs),
        "same": same,
    }


def measured_source(spark: SparkSession, logs: Logs, rounds: int, advance: Advance) -> Row:
    """`format("swell")`, which DuckDB does not have."""
    seconds = []
    rows = 0
    for _ in range(rounds):
        took_s, answer = timed(lambda: _now(pipeline_spark.read_source(spark, logs.deliveries)))
        seconds.append(took_s)
        rows = answer()
        advance()
    return {
        "part": "jobs",
        "job": SOURCE,
        "rows": logs.rows,
        "spark_s": median(seconds),
        "rows_per_s": rows / median(seconds),
    }


def timed(work: Callable[[], Answer]) -> tuple[float, Answer]:
    begun = perf_counter()
    answer = work()
    return perf_counter() - begun, answer


def collect_garbage(spark: SparkSession) -> None:
    """Spark removes the files of a shuffle, and what was kept, once Java forgets who used them."""
    spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]
