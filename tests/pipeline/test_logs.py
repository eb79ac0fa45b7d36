"""Reading a log: what is wrong with it is said in a sentence, and what is good is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession

from swell.events.arrow import SCHEMA
from swell.events.schema import VERSION
from swell.pipeline import logs
from swell.pipeline.audit_losses import lives_of
from swell.pipeline.audit_rows import tally, timed
from swell.pipeline.logs import LogError
from swell.pipeline.schema import EVENTS
from swell.pipeline.source_files import EventFile, find_log, hadoop_path, list_files
from tests.pipeline.toy_logs import row, write_file, write_table


def listed(log: Path) -> tuple[FileSystem, list[EventFile]]:
    system, root = find_log(str(log))
    return system, list_files(system, root)


def test_rows_and_the_columns_of_the_path_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path, "apply", "c1-1-1", [row(1, "c1"), row(2, "c1")])
    write_file(tmp_path, "store", "n1-1-1", [row(3)])
    log = logs.read(spark, str(tmp_path))
    assert log.notes == ()
    assert log.events.schema.fieldNames() == EVENTS.fieldNames()
    found = {(one["kind"], one["node"], one["row"]) for one in log.events.collect()}
    assert found == {("apply", "c1", 1), ("apply", "c1", 2), ("store", "n1", 3)}


def test_a_torn_file_is_left_out_and_said(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path, "store", "n1-1-1", [row(1)])
    torn = write_file(tmp_path, "store", "n1-1-2", [row(number) for number in range(2, 50)])
    torn.write_bytes(torn.read_bytes()[:-20])
    log = logs.read(spark, str(tmp_path))
    assert log.events.count() == 1
    assert log.notes == ("1 file is torn, as after a crash, and left out: n1-1-2.parquet",)


def test_rows_of_a_newer_version_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path, "store", "n1-1-1", [row(1, schema=VERSION + 1)])
    table = pq.read_table(path, partitioning=None)
    write_table(table.append_column("colour", pa.array(["red"])), path)
    write_file(tmp_path, "store", "n1-1-2", [row(2)])
    log = logs.read(spark, str(tmp_path))
    assert sorted(one["schema"] for one in log.events.collect()) == [VERSION, VERSION + 1]
    assert log.notes == (
        f"some rows are of version {VERSION + 1} of the table, known here is {VERSION}: "
        "a newer Swell wrote them; update this one",
        "columns that are not known here are ignored: colour",
    )


def test_a_file_that_does_not_tell_its_version_is_not_said_to_have_one(tmp_path: Path) -> None:
    path = write_file(tmp_path, "store", "n1-1-1", [row(1)])
    table = pq.read_table(path, partitioning=None).append_column("colour", pa.array(["red"]))
    pq.write_table(table, path, write_statistics=False)
    footers = logs.read_footers(*listed(tmp_path))
    assert list(logs.notes(footers)) == ["columns that are not known here are ignored: colour"]


def test_rows_of_a_kind_that_is_not_known_are_no_gap(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path, "start", "n1-1-1", [row(1)])
    write_file(tmp_path, "unheard", "n1-1-2", [row(2), row(3)])
    write_file(tmp_path, "stop", "n1-1-3", [row(4)])
    log = logs.read(spark, str(tmp_path))
    in_step = spark.createDataFrame([], "run string, node string, own_offset_us long")
    (life,) = lives_of(tally(timed(log.events)), in_step).collect()
    assert (life["rows"], life["top"], life["stopped"]) == (4, 4, True)
    assert log.notes == (
        "2 rows are of kinds that are not known here (unheard) and not judged: "
        "a newer Swell wrote them; update this one",
    )


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_path_with_signs_that_uris_encode(
    spark: SparkSession, tmp_path: Path, as_uri: bool
) -> None:
    log = tmp_path / "my log, 100% ü"
    write_file(log, "store", "n1-1-1", [row(1)])
    found = logs.read(spark, log.as_uri() if as_uri else str(log))
    assert [(one["kind"], str(one["date"])) for one in found.events.collect()] == [
        ("store", "2026-11-11")
    ]


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/a b/%41", "/a b/%41", "file:///a b/%41"),
        ("file:///a%20b/", "/a b", "file:///a b"),
        ("s3://shop/my%20log?region=eu-west-1", "shop/my log", "s3a://shop/my log"),
        ("s3://key:secret@shop", "shop", "s3a://shop"),
        ("gs://anonymous@shop/log/", "shop/log", "gs://shop/log"),
        ("hdfs://name:8020/log", "/log", "hdfs://name:8020/log"),
        ("abfss://c@a.dfs.core.windows.net/log", "c/log", "abfss://c@a.dfs.core.windows.net/log"),
    ],
)
def test_spark_is_told_where_a_log_is_in_its_own_words(path: str, root: str, expected: str) -> None:
    assert hadoop_path(path, root) == expected


def test_a_column_that_may_be_absent_is_null(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path, "store", "n1-1-1", [row(1, hops=2)])
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["hops"]), path)
    assert logs.read(spark, str(tmp_path)).events.select("hops").collect()[0][0] is None


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda log: None, r"there is no event log at .*nothing"),
        (lambda log: log.mkdir(), r"there are no events in"),
        (lambda log: log.write_text("x"), r"is a file"),
        (
            lambda log: pq.write_table(
                SCHEMA.empty_table(), write_file(log, "store", "n1-1-1", [])
            ),
            r"have no rows",
        ),
        (
            lambda log: write_file(log, "store", "n1-1-1", [row(1)]).write_bytes(b"PAR1"),
            r"its 1 files are torn",
        ),
        (
            lambda log: pq.write_table(
                pa.table({"run": ["x"], "at": [1]}), write_file(log, "store", "n1-1-1", [row(1)])
            ),
            r"has no column schema, mono_us, node, role, start, row",
        ),
    ],
)
def test_bad_logs_are_refused_with_a_sentence(
    spark: SparkSession, tmp_path: Path, prepare: object, complaint: str
) -> None:
    log = tmp_path / "nothing"
    prepare(log)  # type: ignore[operator]
    with pytest.raises(LogError, match=complaint):
        logs.read(spark, str(log))
