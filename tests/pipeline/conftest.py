"""One Spark session for all tests of the pipeline: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from swell.pipeline.session import SessionSettings, open_session
from tests.pipeline.audited_logs import Audited, make_audited
from tests.pipeline.simulated_runs import Run, simulate_all


class Simulated(NamedTuple):
    path: Path
    runs: Mapping[Run, Future[bool]]


@pytest.fixture(scope="session", autouse=True)
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Simulated:
    """Runs that are wanted later, begun at once: they take the time that others leave over."""
    path = tmp_path_factory.mktemp("simulated")
    wanted = any("written" in item.fixturenames for item in request.session.items)
    return Simulated(path, simulate_all(path) if wanted else {})


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SessionSettings(
        master="local[2]",
        shuffle_partitions=2,
        more={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    )
    with open_session(settings) as session:
        yield session


@pytest.fixture(scope="session")
def audited(spark: SparkSession) -> Audited:
    return make_audited(spark)
