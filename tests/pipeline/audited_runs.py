"""What real processes and simulations wrote, audited in one go."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.pipeline import audit, logs
from swell.pipeline.audit_settings import AuditSettings
from tests.pipeline.planted_bugs import BUGS
from tests.pipeline.simulated_runs import Run

REAL, SPOILED_REAL = "real", "real with bugs"


class Written(NamedTuple):
    """Logs, some of them still being written."""

    real: Future[Path]
    simulated: Path
    """Below it a log for each run."""
    passed: Mapping[Run, Future[bool]]
    """What the simulation's own checkers say."""


class AuditedRuns(NamedTuple):
    """`real`: of the real run, twice: without the containers that have bugs, and with them."""

    real: DataFrame
    simulated: DataFrame
    passed: Mapping[Run, bool]
    result: audit.AuditResult


def make_audited_runs(spark: SparkSession, written: Written) -> AuditedRuns:
    """When all logs are complete."""
    read = logs.read(spark, str(written.real.result())).events.persist()
    named = f.coalesce("application", "peer", "node")
    sound = read.where(~named.isin(*BUGS, *(f"b-{bug}" for bug in BUGS)))
    real = _called(sound, REAL).unionByName(_called(read, SPOILED_REAL))
    passed = {run: future.result() for run, future in written.passed.items()}
    path = written.simulated
    frames = [_called(logs.read(spark, str(path / run.name)).events, run.name) for run in passed]
    simulated = reduce(DataFrame.unionByName, frames)
    result = audit.run(spark, real.unionByName(simulated), AuditSettings())
    return AuditedRuns(real, simulated, passed, result)


def _called(events: DataFrame, run: str) -> DataFrame:
    return events.withColumn("run", f.lit(run))
