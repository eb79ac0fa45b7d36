"""The sink: rows become versions of configurations on a real cluster, each exactly once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import swell
from swell.errors import ConfigurationError
from swell.pipeline import publishing
from swell.pipeline.outcome import Outcome
from swell.pipeline.sink import Publisher, Row, SinkSettings, turns, write_batches
from tests.processes.commands import LocalCluster, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from running(tmp_path_factory.mktemp("sink") / "cluster", "--sites", "1", "--nodes", "1")


def options(cluster: LocalCluster) -> dict[str, str]:
    addresses = ",".join(cluster.facts["addresses"].values())
    return {"nodes": addresses, "cluster": cluster.facts["cluster"]}


def values(cluster: LocalCluster, application: str) -> dict[str, tuple[int, bytes]]:
    """Version and value of every configuration."""
    with swell.connect_sync(**options(cluster)) as client:
        configs = client.configs(application)
        found = {}
        for item in configs.list():
            value = configs.get(item.name)
            assert value is not None
            found[item.name] = (value.version, value.bytes())
        return found


def test_pip2_a_batch_is_published(spark: SparkSession, cluster: LocalCluster) -> None:
    rows = [("a.json", "1"), ("b.json", "2"), ("a.json", "3")]
    frame = spark.createDataFrame(rows, "name string, value string").coalesce(1)
    sink = frame.write.format("swell").mode("append").options(**options(cluster))
    sink.option("application", "batch").save()
    assert values(cluster, "batch") == {"a.json": (2, b"3"), "b.json": (1, b"2")}
    gone = spark.createDataFrame(
        [("batch", "b.json", None)], "application string, name string, value binary"
    )
    gone.write.format("swell").mode("append").options(**options(cluster)).save()
    assert values(cluster, "batch") == {"a.json": (2, b"3")}


def test_pip2_a_stream_publishes_each_row_once_also_when_a_batch_is_repeated(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"

    def add(value: str) -> None:
        frame = spark.createDataFrame([("s.json", value)], "name string, value string")
        frame.coalesce(1).write.mode("append").parquet(str(source))

    def process() -> None:
        stream = spark.readStream.schema("name string, value string").parquet(str(source))
        sink = stream.writeStream.format("swell").options(**options(cluster))
        sink = sink.option("application", "stream").option("checkpointLocation", str(checkpoint))
        assert sink.trigger(availableNow=True).start().awaitTermination(60)

    add("1")
    process()
    (checkpoint / "commits" / "0").unlink()  # as if Spark had died before it knew
    for crc in (checkpoint / "commits").glob(".0.crc"):
        crc.unlink()
    process()
    assert values(cluster, "stream") == {"s.json": (1, b"1")}
    add("2")
    process()
    assert values(cluster, "stream") == {"s.json": (2, b"2")}


def test_pip2_equal_rows_are_told_apart_by_how_many_came_before() -> None:
    rows = {"a": [b"1", b"2", b"1"], "b": [b"1"], "c": [None, None]}
    assert list(turns(rows)) == [
        [Row("a", b"1"), Row("b", b"1"), Row("c", None)],
        [Row("a", b"2"), Row("c", None, 1)],
        [Row("a", b"1", 1)],
    ]


LONG = "long" * 200_000


@pytest.mark.parametrize(
    ("attempts", "published"),
    [
        ((["1"], ["2", "1"]), ["1", "2"]),
        ((["1"], ["3", "2", "1"], ["2", "1", "3"]), ["1", "3", "2"]),
        ((["1", "2", "1"], ["1", "1", "2"], ["2"]), ["1", "2", "1"]),
        ((["1", "2"], ["1", "1", "2"]), ["1", "2", "1"]),
        ((["1", None], [None, "1"], ["1", None, "2"]), ["1", None, "2"]),
        ((["1", LONG], [LONG, "1"]), ["1", LONG]),
    ],
)
def test_pip2_rows_of_a_name_make_one_version_each_in_whichever_order_they_come_again(
    cluster: LocalCluster,
    attempts: tuple[list[str | None], ...],
    published: list[str | None],
) -> None:
    where, origin = options(cluster), uuid.uuid4().hex
    settings = SinkSettings(where["nodes"], where["cluster"], None, None, "again", origin)
    made = [
        write_batches(
            settings, origin, iter([pa.record_batch({"value": pa.array(rows, pa.utf8())})])
        )
        for rows in attempts
    ]
    assert [one.rows for one in made] == [len(rows) for rows in attempts]
    assert history(cluster, "again", origin) == published
    assert sum(one.versions for one in made) == len(published)
    write_batches(settings, f"{origin} next", iter([pa.record_batch({"value": ["1"]})]))
    assert history(cluster, "again", origin)[-1] == "1"


def history(cluster: LocalCluster, application: str, name: str) -> list[str | None]:
    """The values of all versions; None: a deletion."""
    with swell.connect_sync(**options(cluster)) as client:
        configs = client.configs(application)
        values = [configs.get(name, version.version) for version in configs.history(name)]
        assert None not in values
        return [None if value.deleted else value.bytes().decode() for value in values]


def test_pip2_of_two_attempts_at_once_one_succeeds(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with swell.connect(**options(cluster)) as client:
            configs = client.configs("race")
            rows = [Row(f"{i}.txt", b"x") for i in range(5)]
            made = await asyncio.gather(
                *(Publisher(configs, "q/0").publish(rows) for _ in range(4))
            )
            assert sum(made) == 5
            await configs.put("0.txt", b"somebody else")
            assert await Publisher(configs, "q/0").publish(rows) == 0
            assert await Publisher(configs, "q/1").publish(rows[:1]) == 1
            value = await configs.get("0.txt")
            assert value is not None
            assert (value.version, await value.bytes()) == (3, b"x")

    asyncio.run(scenario())


def test_pip6_thresholds_are_a_configuration(cluster: LocalCluster) -> None:
    where = options(cluster)
    target = publishing.Target(where["nodes"], where["cluster"], None)
    rows = [{"setting": "config.relay_fanout", "value": 7}]
    outcome = Outcome("workload", {"configurations": 1}, {"recommended": rows})
    assert "published as version 1" in publishing.publish(outcome, target)
    assert "as before: version 1" in publishing.publish(outcome, target)
    assert b'"config.relay_fanout": 7' in values(cluster, "swell")["thresholds.json"][1]


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({}, "value string", "needs option nodes"),
        ({"nodes": "h:1"}, "value string", "needs option application"),
        ({"nodes": "h:1", "application": "a"}, "value string", "needs option name"),
        ({"nodes": "h:1", "application": "a", "name": "n"}, "value int", "a column value"),
    ],
)
def test_bad_options(
    spark: SparkSession, options: dict[str, str], schema: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        SinkSettings.of(options, StructType.fromDDL(schema))


def test_the_token_is_not_shown() -> None:
    settings: Any = SinkSettings("h:1", "c", None, "secret", "a", "n")
    assert "secret" not in repr(settings)
