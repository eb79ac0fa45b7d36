"""One Spark session for all tests of the pipeline: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from swell.pipeline.session import SessionSettings, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SessionSettings(
        master="local[2]",
        shuffle_partitions=2,
        more={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    )
    with open_session(settings) as session:
        yield session
