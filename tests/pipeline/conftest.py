"""One Spark session for all tests of the pipeline: starting one costs more than most tests.

What takes long and several tests want is begun at once, beside the other tests; the tests that want
it come last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from pyspark.sql import SparkSession

from swell.pipeline.session import SessionSettings, open_session
from tests.pipeline.audited_logs import Audited, make_audited
from tests.pipeline.audited_runs import AuditedRuns, Written, make_audited_runs
from tests.pipeline.real_run import Story
from tests.pipeline.simulated_runs import simulate_all

LATER = ("audited", "audited_runs", "alone")
"""Fixtures whose tests come last, in this order."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of queries on so few rows, compiling them would take the most time."""
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=400m "
    "-XX:+UseParallelGC"
)
"""Most code runs a few times: quickly compiled is better than well compiled. Java has room for 48
MB of such code by default; these tests have more, and would compile it again and again. Garbage is
collected in pauses, and not each time that more classes are loaded: collecting all the while takes
a tenth of the processor from the tests."""
GIVE_WAY = 5
"""How much nicer than the real run Spark is, since nothing of that run may be late."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: max(map(LATER.index, later(item)), default=-1))


def later(item: pytest.Item) -> set[str]:
    """What is begun early for a test."""
    return set(LATER).intersection(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.nice(GIVE_WAY)  # this thread and what it starts
    settings = SessionSettings(
        master="local[2]",
        shuffle_partitions=2,
        more={"spark.driver.extraJavaOptions": JAVA, **INTERPRETED},
    )
    with open_session(settings) as session:
        yield session


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Queries are compiled, as they are for users."""
    for key in INTERPRETED:
        spark.conf.unset(key)
    yield
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="session", autouse=True)
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[Any]]]:
    """By the name of the fixture. Spark starts first: everybody waits for it. Audits come one after
    the other; simulations take the time that all others leave over."""
    wanted = set[str]().union(*map(later, request.session.items))
    audits: dict[str, Future[Any]] = {}
    with ThreadPoolExecutor(1, "real run") as playing, ThreadPoolExecutor(1, "audits") as auditing:
        playing.submit(int).result()  # its thread is there before this one gives way
        if wanted:
            session = request.getfixturevalue("spark")
        if "audited_runs" in wanted:
            path = tmp_path_factory.mktemp("simulated")
            story = playing.submit(Story(tmp_path_factory.mktemp("runs")).run)
            written = Written(story, path, simulate_all(path))
        if "audited" in wanted:
            audits["audited"] = auditing.submit(
                make_audited, session, tmp_path_factory.mktemp("audited")
            )
        if "audited_runs" in wanted:
            audits["audited_runs"] = auditing.submit(make_audited_runs, session, written)
        yield audits


@pytest.fixture(scope="session")
def audited(begun: Mapping[str, Future[Any]]) -> Audited:
    result: Audited = begun["audited"].result()
    return result


@pytest.fixture(scope="session")
def audited_runs(begun: Mapping[str, Future[Any]]) -> AuditedRuns:
    result: AuditedRuns = begun["audited_runs"].result()
    return result


@pytest.fixture
def alone(begun: Mapping[str, Future[Any]]) -> None:
    """Nothing else is computed beside the test: an interrupt ends all jobs of the process."""
    wait(begun.values())
