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

from swell.pipeline.session import SessionSettings, open_session, prepare
from tests.pipeline.audited_logs import Audited, make_audited
from tests.pipeline.audited_runs import AuditedRuns, Written, make_audited_runs
from tests.pipeline.real_run import Story
from tests.pipeline.simulated_runs import simulate_all

LATER = ("beside", "audited", "audited_runs", "alone")
"""Marks and fixtures whose tests come last, in this order."""
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
BEGUN = pytest.StashKey["Begun"]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: max(map(LATER.index, later(item)), default=-1))


def later(item: pytest.Item) -> set[str]:
    """What is begun early for a test, or that it is begun early itself."""
    marks = {mark.name for mark in item.iter_markers()}
    return set(LATER) & (marks | set(getattr(item, "fixturenames", ())))


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


Begun = Mapping[str, Future[Any]]


@pytest.fixture(scope="session", autouse=True)
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Begun]:
    """By the name of the fixture, or of the test. Simulations take the time that all others leave
    over; the real run begins when Spark is there, for which everybody waits. Queries beside the
    other tests come one after the other."""
    wanted = set[str]().union(*map(later, request.session.items))
    begun: dict[str, Future[Any]] = {}
    path = tmp_path_factory.mktemp
    with ThreadPoolExecutor(1, "real run") as playing, ThreadPoolExecutor(1, "queries") as asking:
        playing.submit(int).result()  # its thread is there before this one gives way
        if "audited_runs" in wanted:
            simulated = path("simulated")
            passed = simulate_all(simulated)
        if wanted:
            spark = asking.submit(beside, request.getfixturevalue("spark")).result()
        if "audited_runs" in wanted:
            written = Written(playing.submit(Story(path("runs")).run), simulated, passed)
        if "audited" in wanted:
            begun["audited"] = asking.submit(make_audited, spark, path("audited"))
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.get_closest_marker("beside"):
                known = {"spark": spark, "tmp_path": path("beside"), **params_of(item)}
                begun[item.nodeid] = asking.submit(call, item, known, begun)
        if "audited_runs" in wanted:
            begun["audited_runs"] = asking.submit(make_audited_runs, spark, written)
        request.session.stash[BEGUN] = begun
        yield begun


def beside(spark: SparkSession) -> SparkSession:
    """In the same Java, with settings of its own: queries at the same time may want others."""
    session = spark.newSession()
    prepare(session)
    return session


def params_of(item: pytest.Function) -> Mapping[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def call(item: pytest.Function, known: Mapping[str, Any], begun: Begun) -> None:
    """A test that needs nothing but what is known, and what was begun before it."""
    names = item._fixtureinfo.argnames
    item.obj(**{name: known[name] if name in known else begun[name].result() for name in names})


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Of a test that has been called beside the others: what came of it."""
    future = pyfuncitem.session.stash[BEGUN].get(pyfuncitem.nodeid)
    return None if future is None else future.result() is None


@pytest.fixture(scope="session")
def audited(begun: Begun) -> Audited:
    result: Audited = begun["audited"].result()
    return result


@pytest.fixture(scope="session")
def audited_runs(begun: Begun) -> AuditedRuns:
    result: AuditedRuns = begun["audited_runs"].result()
    return result


@pytest.fixture
def alone(begun: Begun) -> None:
    """Nothing else is computed beside the test: an interrupt ends all jobs of the process."""
    wait(begun.values())
