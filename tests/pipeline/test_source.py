"""`format("swell")` in batch: what is read, what is not even opened, and what a bad log says."""

from __future__ import annotations

import datetime as dt
import pickle
import socket
from collections.abc import Iterable
from functools import reduce
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy, LocalFileSystem, S3FileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, IsNull, Not

from swell.events.arrow import SCHEMA
from swell.pipeline.logs import read_footers
from swell.pipeline.schema import EVENTS
from swell.pipeline.source import EventReader, Files, PushdownReader, grouped
from swell.pipeline.source_files import EventFile, LogError, find_log, list_files, read_footer
from swell.pipeline.source_filters import split
from tests.pipeline.toy_logs import at, row, write_file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "events"
    write_file(log, "apply", "n-1-1-1", [row(i, "n-1", application="a") for i in range(1, 6)])
    write_file(log, "apply", "n-1-1-2", [row(i, "n-1", application="b") for i in range(6, 9)])
    write_file(log, "apply", "n-2-7-1", [row(1, "n-2", 7, application="a")], date="2026-11-12")
    write_file(log, "store", "n-1-1-3", [row(9, "n-1", bytes=10, coordinate=[1.0, 2.0])])
    return log


def test_pip2_every_row_is_read_with_its_types_and_the_columns_of_its_path(
    spark: SparkSession, log: Path
) -> None:
    frame = spark.read.format("swell").load(str(log))
    assert frame.schema == EVENTS
    found = frame.orderBy("node", "row").collect()
    assert [(r.node, r.row, r.kind) for r in found] == [
        *(("n-1", i, "apply") for i in range(1, 9)),
        ("n-1", 9, "store"),
        ("n-2", 1, "apply"),
    ]
    assert found[8].bytes == 10
    assert found[8].coordinate == [1.0, 2.0]
    assert found[9].date == dt.date(2026, 11, 12)
    assert found[0].at.replace(tzinfo=dt.UTC) == at(1)


def test_pip2_the_source_and_the_files_themselves_have_the_same_rows(
    spark: SparkSession, log: Path
) -> None:
    columns = ["node", "row", "at", "application", "kind", "date"]
    ours = spark.read.format("swell").load(str(log)).select(columns)
    theirs = spark.read.parquet(str(log)).select(columns)
    assert ours.exceptAll(theirs).count() == 0
    assert theirs.exceptAll(ours).count() == 0


CONDITIONS = {
    "kind = 'apply' and application = 'a'": 6,
    "kind in ('store', 'stop')": 1,
    "date > '2026-11-11'": 1,
    "date is null": 0,
    "application <> 'a'": 3,
    "application is null": 1,
    "application in ('b', null)": 3,
    "not application in ('b', 'c')": 6,
    "application <=> 'b'": 3,
    "not (application <=> 'b')": 7,
    "node like 'n-1%' and row >= 8": 2,
    "at >= timestamp'2026-11-11 00:00:06' and row % 2 = 0": 2,
    "size(coordinate) = 2 or bytes = 10": 1,
}
"""Each with how many rows of the log fulfil it."""


def fulfilling(frames: Iterable[DataFrame]) -> dict[str, int]:
    """Of each condition how many rows a frame gives for it, all in one query."""
    counted = (
        frame.where(condition).agg(F.lit(condition), F.count("*"))
        for condition, frame in zip(CONDITIONS, frames, strict=False)
    )
    return {row[0]: row[1] for row in reduce(DataFrame.union, counted).collect()}


def test_pip2_filters_mean_what_sql_says(spark: SparkSession, log: Path) -> None:
    plain, pushing = (
        spark.read.format("swell").option("pushdown", pushdown) for pushdown in ("false", "true")
    )
    assert fulfilling(repeat(plain.load(str(log)))) == CONDITIONS
    assert fulfilling(pushing.load(str(log)) for _ in CONDITIONS) == CONDITIONS, "one frame each"
    assert fulfilling(repeat(spark.read.parquet(str(log)))) == CONDITIONS, "of the test"


def test_pip2_a_filter_on_kind_or_date_opens_no_other_file(spark: SparkSession, log: Path) -> None:
    for path in (log / "date=2026-11-12").rglob("*.parquet"):
        path.unlink()
        path.mkdir()  # opening it fails
    write_file(log, "stop", "n-1-1-9", [row(1)]).write_bytes(b"rubbish, 20 bytes...")
    source = spark.read.format("swell")
    pushing = source.option("pushdown", "true").load(str(log))
    assert pushing.where("date = '2026-11-11' and kind = 'store'").count() == 1
    chosen = spark.read.format("swell").options(kind="store", until="2026-11-11T23:00:00")
    assert chosen.load(str(log)).count() == 1
    reader = PushdownReader({"path": str(log)}, EVENTS)
    kind = EqualTo(("kind",), "store")
    other = EqualTo(("rate",), 1.0)
    assert list(reader.pushFilters([kind, other])) == [other], "NaN: Spark decides"
    (only,) = pickle.loads(pickle.dumps(reader)).partitions()
    assert [Path(file.path).name for file in only.files] == ["n-1-1-3.parquet"]


def test_pip2_row_groups_are_skipped_by_their_statistics(tmp_path: Path) -> None:
    path = write_file(tmp_path, "apply", "n-1-1", [])
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for first in (0, 1000):
            rows = [row(i, "n") for i in range(first, first + 10)]
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
    data = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[place : place + 8] = b"\xff" * 8  # whoever decodes the second group fails
    path.write_bytes(data)
    reader = PushdownReader({"path": str(tmp_path)}, EVENTS)
    assert not list(reader.pushFilters([Not(GreaterThan(("row",), 500))]))
    (files,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(files)) == 10
    with pytest.raises(LogError, match=r"n-1-1\.parquet cannot be read as events"):
        list(EventReader({"path": str(tmp_path)}, EVENTS).read(files))


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"application": "a"}, 6),
        ({"kind": "apply, store", "application": "b,c"}, 3),
        ({"since": "2026-11-11T00:00:06"}, 4),
        ({"since": "2026-11-11T02:00:06+02:00", "until": "2026-11-11T00:00:08"}, 2),
        ({"since": "2026-11-13"}, 0),
        ({"name": "x"}, 0),
    ],
)
def test_pip2_options_choose_rows(
    spark: SparkSession, log: Path, options: dict[str, str], rows: int
) -> None:
    assert spark.read.format("swell").options(**options).load(str(log)).count() == rows


def test_pip2_one_frame_may_be_used_twice_with_different_filters(
    spark: SparkSession, log: Path
) -> None:
    frame = spark.read.format("swell").load(str(log))
    both = (
        frame.where("kind = 'store'")
        .select("node")
        .union(frame.where("application = 'b'").select("node"))
    )
    assert both.count() == 4


def test_bad_option_no_time(log: Path) -> None:
    with pytest.raises(LogError, match="since=noon is no time"):
        EventReader({"path": str(log), "since": "noon"}, EVENTS)


def test_pip2_filters_that_arrow_reads_otherwise_are_left_to_spark() -> None:
    left = [Not(In(("name",), ("x", None))), GreaterThan(("rate",), 1.0), EqualTo(("a", "b"), 1)]
    taken = [IsNull(("rate",)), IsNotNull(("date",)), In(("name",), ("x", None))]
    pushed, rest = split([*left, *taken])
    assert rest == left
    assert pushed.paths == (taken[1],)
    assert pushed.rows == (taken[0], taken[2])


def test_pip2_chosen_columns_alone_are_decoded(spark: SparkSession, log: Path) -> None:
    frame = spark.read.format("swell").schema("row long not null, kind string not null")
    assert frame.load(str(log)).columns == ["row", "kind"]
    assert frame.load(str(log)).agg(F.sum("row")).first()[0] == sum(range(1, 10)) + 1


def test_pip2_partitions_keep_a_process_and_kind_together() -> None:
    def file(kind: str, node: str, number: int, size: int) -> EventFile:
        return EventFile(kind, node, 1, number, "d", f"{kind}{node}{number}", size)

    small = [file("apply", f"n{i}", 1, 10) for i in range(10)]
    assert [len(group) for group in grouped(small, 35)] == [3, 3, 3, 1]
    long = [file("apply", "n", number, 10) for number in range(5)]
    assert [len(group) for group in grouped([*long, *small[:1]], 35)] == [3, 3]
    assert grouped([], 35) == []
    large = [file("apply", "n", number, 4 << 20) for number in range(200)]
    assert [len(group) for group in grouped(large, 0)][:3] == [3, 3, 3], "about 64 in all"
    assert len(grouped(large[:3], 0)) == 3
    assert len(grouped(small, 0)) == 1, "what is small stays together"


def test_bad_log_no_such_directory(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no event log at .*/nowhere"):
        spark.read.format("swell").load(str(tmp_path / "nowhere")).count()
    with pytest.raises(LogError, match="no event log was named"):
        find_log("")
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="is a file"):
        find_log(str(tmp_path / "file"))


def test_bad_log_empty_torn_foreign_and_newer(spark: SparkSession, log: Path) -> None:
    def frame() -> DataFrame:
        return spark.read.format("swell").load(str(log))

    before = frame().count()
    torn = write_file(log, "apply", "n-3-1-1", [row(1, "n-3")])
    torn.write_bytes(torn.read_bytes()[:-20])
    (log / "date=2026-11-11" / "kind=apply" / ".n-3-1-2.parquet").write_bytes(b"being written")
    (log / "date=2026-11-11" / "kind=apply" / "n-3-1-2.parquet.part").write_bytes(b"this too")
    assert frame().count() == before
    write_file(log, "unheard", "n-4-1-2", [row(2, "n-4")])
    assert frame().where("kind = 'unheard'").count() == 1
    newer = pa.Table.from_pylist([row(1, "n-4", schema=2)], schema=SCHEMA)
    newer = newer.append_column("colour", pa.array(["green"])).drop_columns(["rate"])
    pq.write_table(newer, log / "date=2026-11-11" / "kind=apply" / "n-4-1-1.parquet")
    (found,) = frame().where("node = 'n-4' and kind = 'apply'").collect()
    assert (found.schema, found.rate) == (2, None)
    foreign = pa.table({"a": [1]})
    pq.write_table(foreign, log / "date=2026-11-11" / "kind=apply" / "n-5-1-1.parquet")
    with pytest.raises(Exception, match=r"n-5-1-1\.parquet is no file of events: it has no column"):
        frame().count()


def test_bad_log_torn_is_what_the_content_says(tmp_path: Path) -> None:
    system = LocalFileSystem()
    path = write_file(tmp_path, "apply", "n-1-1", [row(1)])
    whole = path.read_bytes()
    damaged = whole[:-8] + bytes(4) + whole[-4:]
    for data in (whole[:-1], whole[:9], b"PAR1", b"", b"?" * 99, bytes(len(whole)), damaged):
        path.write_bytes(data)
        assert read_footer(system, str(path)) is None
        assert read(tmp_path) == 0
        assert read_footers(system, list_files(system, str(tmp_path))).torn == [str(path)]


def test_bad_log_what_cannot_be_read_is_not_taken_for_torn(tmp_path: Path) -> None:
    system = LocalFileSystem()
    file = tmp_path / "file"
    file.write_bytes(b"")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refused = S3FileSystem(
        endpoint_override=f"127.0.0.1:{closed_port()}",
        scheme="http",
        access_key="a",
        secret_key="b",
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
    )
    for where, path, sentence in (
        (system, str(file / "n-1-1.parquet"), "Not a directory"),
        (system, str(loop), "symbolic links"),
        (system, str(tmp_path / ("n" * 300)), "File name too long"),
        (system, str(tmp_path), "is a directory"),
        (refused, "bucket/n-1-1.parquet", "NETWORK_CONNECTION"),
        (system, str(tmp_path / "gone"), "it was removed while the log was read"),
    ):
        listed = EventFile("apply", "n", 1, 1, "2026-11-11", path, 1)
        with pytest.raises(LogError, match=sentence):
            read_footer(where, path)
        with pytest.raises(LogError, match=sentence):
            read_footers(where, [listed])
        if where is system:
            with pytest.raises(LogError, match=sentence):
                list(
                    EventReader({"path": str(tmp_path)}, EVENTS).read(
                        Files(str(tmp_path), (listed,))
                    )
                )


def read(log: Path) -> int:
    """How many rows, without Spark."""
    reader = EventReader({"path": str(log)}, EVENTS)
    (files,) = reader.partitions()
    return sum(batch.num_rows for batch in reader.read(files))


def closed_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_empty_log_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.read.format("swell").load(str(tmp_path)).count() == 0
    assert list_files(*find_log(str(tmp_path))) == []
    (files,) = EventReader({"path": str(tmp_path)}, EVENTS).partitions()
    assert isinstance(files, Files)
