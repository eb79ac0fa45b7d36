"""The jobs of `swell pipeline` on two cores, beside DuckDB on the same files.

Logs of 1, 10 and 50 million deliveries, and of as many traffic rows, are made in a temporary
folder. What is wrong with them is known, and both engines have to find the same. Spark (`local[2]`)
and DuckDB (two threads) take turns; figures are medians. Spark is warm: every job has run before,
on a log of the smallest size, since a session that starts and compiles its code says little about
the work. Files are read anew every time, by both, out of the page cache.

- *audit*: all verdicts of our audit; of DuckDB's the six about deliveries.
- *latency*: percentiles by application, site and name. *monitor*: the table of topics.
- *anti-join*: expected deliveries without a row of that version. *range join*: those with one
  within 3 s. Both sides have as many rows as the log has deliveries.

Then a plan is made for a million topics on fifty nodes (`swell.lab.pipeline_plan`), and a log grows
while streaming queries follow it: one without state, and the audit.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from swell.errors import ConfigurationError
from swell.lab.experiment import Bar, Lab, Number, Report
from swell.pipeline.session import SessionSettings, check_packages, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = "the jobs of the pipeline on Spark, beside DuckDB on the same files; micro-batches"

MILLION = 1_000_000
SIZES, SIZES_QUICK = (MILLION, 10 * MILLION, 50 * MILLION), (MILLION,)
ROUNDS, ROUNDS_QUICK = 3, 1
BATCHES, BATCHES_QUICK = 10, 3
WARM_UP_ROWS, WARM_UP_ROWS_QUICK = MILLION, 100_000
WARM_UPS, WARM_UPS_QUICK = 6, 1
MEMORY_GB, MEMORY_GB_QUICK = 8, 3
"""Of each engine."""
FREE_GB, FREE_GB_QUICK = 25, 2
"""Files, and what both engines put on the disk while they sort."""

RATIO_MAX = {"anti-join": 12.0, "latency": 12.0, "range join": 4.0}
GROWING = ("audit", "latency", "monitor")
GROWTH_MAX = 6.0
SOURCE_ROWS_PER_S_MIN = 1e6
PLAN_TOPICS, PLAN_TOPICS_QUICK, PLAN_NODES = MILLION, 50_000, 50
PLAN_S_MAX = 60.0
BATCH_S_MAX = {"without state": 1.0, "audit": 2.0}

SOURCE = 'read through format("swell")'

Row = dict[str, Any]

WARM = "Spark is warm: every job ran before; both engines read the files anew each time"
QUICK = (
    "Every job ran once before, on few rows: Java still compiles while it is measured. Times, and "
    "the bars on them, count in the whole experiment"
)
NOTES = (
    "audit: all 20 verdicts by Spark, the six about deliveries by DuckDB",
    "DuckDB is one process that shuffles nothing; Spark's case is streams, checkpoints and more "
    "machines than one",
)


def run(lab: Lab) -> Report:
    check_installed()
    from swell.pipeline.failures import plain_errors

    sizes = SIZES_QUICK if lab.quick else SIZES
    rounds = ROUNDS_QUICK if lab.quick else ROUNDS
    memory_gb = MEMORY_GB_QUICK if lab.quick else MEMORY_GB
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="swell-pipeline-")))
        check_disk(folder, FREE_GB_QUICK if lab.quick else FREE_GB)
        stack.enter_context(plain_errors())
        settings = SessionSettings(
            master="local[2]",
            memory=f"{memory_gb}g",
            name="swell lab",
            more={"spark.local.dir": str(folder / "spark")},
        )
        spark = stack.enter_context(open_session(settings))
        warm_up(spark, folder, lab)
        rows = [
            row
            for size in sizes
            for row in measure(spark, folder, lab, size, rounds, f"{memory_gb}GB")
        ]
        rows.append(plan(spark, lab))
        rows += stream(spark, folder, lab)
    return Report(
        settings={"sizes": list(sizes), "rounds": rounds, "memory_gb": memory_gb},
        rows=rows,
        headline=headline(rows),
        bars=bars(rows, sizes),
        notes=(QUICK if lab.quick else WARM, *NOTES),
    )


def check_installed() -> None:
    check_packages()
    try:
        import duckdb  # noqa: F401
    except ImportError:
        raise ConfigurationError("the experiment needs duckdb: run `pip install duckdb`") from None


def check_disk(folder: Path, wanted_gb: int) -> None:
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < wanted_gb:
        raise ConfigurationError(
            f"{folder.parent} has {free_gb:.0f} GB free and {wanted_gb} are needed: free some, "
            "name another folder by TMPDIR, or take --quick"
        )


def warm_up(spark: SparkSession, folder: Path, lab: Lab) -> None:
    from swell.lab.pipeline_trials import make_logs, measured_source, trials

    times = WARM_UPS_QUICK if lab.quick else WARM_UPS
    rows = WARM_UP_ROWS_QUICK if lab.quick else WARM_UP_ROWS
    logs = make_logs(folder / "warm-up", rows, "1GB")
    jobs = trials(spark, logs)
    with lab.progress("pipeline: warming up", times * (len(jobs) + 1)) as advance:
        for _ in range(times):
            for job in jobs:
                job.spark()()
                advance()
            measured_source(spark, logs, 1, advance)
    logs.close()


def measure(
    spark: SparkSession, folder: Path, lab: Lab, size: int, rounds: int, memory: str
) -> list[Row]:
    """All jobs on logs of one size, which are removed again."""
    from swell.lab.pipeline_trials import make_logs, measured, measured_source, trials

    with (
        TemporaryDirectory(dir=folder) as directory,
        lab.progress(f"pipeline: {size:,} rows", 1 + 6 * rounds) as advance,
    ):
        logs = make_logs(Path(directory), size, memory)
        advance()
        rows = [measured(spark, job, size, rounds, advance) for job in trials(spark, logs)]
        rows.append(measured_source(spark, logs, rounds, advance))
        logs.close()
    return rows


def plan(spark: SparkSession, lab: Lab) -> Row:
    """From a log of traffic to the moves."""
    from swell.lab.pipeline_plan import plan_times

    with lab.progress("pipeline: plan", 1):
        times = plan_times(spark, PLAN_TOPICS_QUICK if lab.quick else PLAN_TOPICS, PLAN_NODES)
    return {
        "part": "plan",
        "topics": times.topics,
        "nodes": times.nodes,
        "monitor_s": times.monitor_s,
        "plan_s": times.plan_s,
        "moves": times.moves,
    }


def stream(spark: SparkSession, folder: Path, lab: Lab) -> list[Row]:
    """Warm micro-batches."""
    from swell.lab.pipeline_stream import micro_batches

    batches = BATCHES_QUICK if lab.quick else BATCHES
    with lab.progress("pipeline: micro-batches", 1):
        found = micro_batches(spark, folder / "stream", batches)
    kinds = zip(BATCH_S_MAX, (found.plain_s, found.audit_s), strict=True)
    return [
        {
            "part": "micro-batches",
            "query": kind,
            "batches": len(seconds),
            "median_s": median(seconds),
            "max_s": max(seconds),
        }
        for kind, seconds in kinds
    ]


def _of(rows: Sequence[Row], job: str) -> dict[int, Row]:
    """By size."""
    return {row["rows"]: row for row in rows if row.get("job") == job}


def headline(rows: Sequence[Row]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for job in GROWING:
        size, row = max(_of(rows, job).items())
        found[f"{job}, {size:,} rows: rows/s"] = row["rows_per_s"]
    return found


def bars(rows: Sequence[Row], sizes: Sequence[int]) -> list[Bar]:
    found = []
    for job, ratio_max in RATIO_MAX.items():
        for size, row in _of(rows, job).items():
            what = f"{job}, {size:,} rows: Spark's time over DuckDB's"
            found.append(Bar.at_most(what, ratio_max, row["ratio"]))
    wrong = sum(not row["same"] for row in rows if "same" in row)
    found.append(Bar.at_most("jobs and sizes where the engines differ in an answer", 0, wrong))
    if len(sizes) > 1:
        below, above = sizes[-2:]
        for job in GROWING:
            times = _of(rows, job)
            growth = times[above]["spark_s"] / times[below]["spark_s"]
            what = f"{job}: time of {above:,} rows over that of {below:,}"
            found.append(Bar.at_most(what, GROWTH_MAX, growth))
    for size, row in _of(rows, SOURCE).items():
        what = f'format("swell"), {size:,} rows: rows/s'
        found.append(Bar.at_least(what, SOURCE_ROWS_PER_S_MIN, row["rows_per_s"]))
    for row in rows:
        if "topics" in row:
            what = f"a plan for {row['topics']:,} topics on {row['nodes']} nodes: seconds"
            found.append(Bar.at_most(what, PLAN_S_MAX, row["monitor_s"] + row["plan_s"]))
        if "query" in row:
            what = f"a warm micro-batch, {row['query']}: seconds, median"
            found.append(Bar.at_most(what, BATCH_S_MAX[row["query"]], row["median_s"]))
    return found
