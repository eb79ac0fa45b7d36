"""Reading a log: what is wrong with it is said in a sentence, and what is good is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from swell.events.arrow import SCHEMA
from swell.events.schema import VERSION
from swell.pipeline import logs
from swell.pipeline.logs import LogError
from swell.pipeline.schema import EVENTS
from tests.pipeline.toy_logs import row, write_file


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
    pq.write_table(table.append_column("colour", pa.array(["red"])), path)
    write_file(tmp_path, "store", "n1-1-2", [row(2)])
    log = logs.read(spark, str(tmp_path))
    assert sorted(one["schema"] for one in log.events.collect()) == [VERSION, VERSION + 1]
    assert len(log.notes) == 1
    assert f"version {VERSION + 1}" in log.notes[0]
    assert "colour" in log.notes[0]


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
