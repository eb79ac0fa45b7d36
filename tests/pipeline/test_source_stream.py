"""The event log as a stream: every file once, limits obeyed, offsets that can be read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

from swell.pipeline.schema import EVENTS
from swell.pipeline.source import Files
from swell.pipeline.source_files import LogError
from swell.pipeline.source_stream import EventStreamReader
from tests.pipeline.toy_logs import row, write_file


def reader(log: Path, **options: str) -> EventStreamReader:
    return EventStreamReader({"path": str(log), **options}, EVENTS)


def numbers(stream: EventStreamReader, start: dict[str, str], end: dict[str, str]) -> list[int]:
    found: list[int] = []
    for partition in stream.partitions(start, end):
        for batch in stream.read(partition):
            found += batch.column("row").to_pylist()
    return sorted(found)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two processes side by side, one of which starts again; times are row numbers."""
    log = tmp_path / "events"
    write_file(log, "apply", "a-1-9", [row(1), row(2)])
    write_file(log, "apply", "a-1-10", [row(5), row(6)])
    write_file(log, "apply", "a-2-1", [row(9)])
    write_file(log, "apply", "b-1-1", [row(3), row(4)])
    write_file(log, "store", "b-1-2", [row(7), row(8)])
    return log


def test_pip2_limits_are_obeyed_and_the_earliest_rows_come_first(log: Path) -> None:
    stream = reader(log, maxRows="4")
    assert stream.getDefaultReadLimit() == ReadMaxRows(4)
    offset, batches = stream.initialOffset(), []
    for _ in range(4):
        end = stream.latestOffset(offset, ReadMaxRows(4))
        batches.append(numbers(stream, offset, end))
        offset = end
    assert batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9], []]
    assert offset == {
        "2026-11-11/apply/a": "2-1",
        "2026-11-11/apply/b": "1-1",
        "2026-11-11/store/b": "1-2",
    }
    assert reader(log).latestOffset({}, ReadMaxFiles(1)) == {"2026-11-11/apply/a": "1-9"}
    assert reader(log).latestOffset({}, ReadMaxRows(1)) == {"2026-11-11/apply/a": "1-9"}, (
        "never none"
    )
    assert reader(log).latestOffset({}, ReadAllAvailable()) == offset


def test_pip2_offsets_are_plain_data_and_give_the_same_rows_again(log: Path) -> None:
    first = reader(log)
    middle = first.latestOffset({}, ReadMaxFiles(2))
    end = first.latestOffset(middle, ReadMaxFiles(2))
    rows = numbers(first, middle, end)
    write_file(log, "apply", "a-2-2", [row(10)])
    again = json.loads(json.dumps([middle, end]))
    assert numbers(reader(log), *again) == rows == [5, 6, 7, 8]


def test_pip2_available_now_ends_although_files_keep_coming(log: Path) -> None:
    stream = reader(log)
    stream.prepareForTriggerAvailableNow()
    write_file(log, "apply", "a-2-2", [row(10)])
    write_file(log, "apply", "c-1-1", [row(11)])
    end = stream.latestOffset({}, ReadAllAvailable())
    assert numbers(stream, {}, end) == list(range(1, 10))
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert numbers(stream, end, reader(log).latestOffset(end, ReadAllAvailable())) == [10, 11]


def test_pip2_from_latest_sees_only_what_comes(log: Path) -> None:
    stream = reader(log, **{"from": "latest"})
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    write_file(log, "apply", "b-1-3", [row(12)])
    end = stream.latestOffset(start, ReadAllAvailable())
    assert numbers(stream, start, end) == [12]


def test_bad_log_a_torn_file_is_waited_for_while_it_is_the_last(log: Path) -> None:
    stream = reader(log)
    whole = write_file(log, "apply", "a-2-2", [row(10)])
    data = whole.read_bytes()
    whole.write_bytes(data[:-9])
    end = stream.latestOffset({}, ReadAllAvailable())
    assert end["2026-11-11/apply/a"] == "2-1"
    whole.write_bytes(data)
    later = stream.latestOffset(end, ReadAllAvailable())
    assert numbers(stream, end, later) == [10]
    torn = write_file(log, "apply", "a-2-3", [row(11)])
    torn.write_bytes(b"")
    write_file(log, "apply", "a-2-4", [row(12)])
    last = stream.latestOffset(later, ReadAllAvailable())
    assert last["2026-11-11/apply/a"] == "2-4"
    assert numbers(stream, later, last) == [12]


def test_pip2_around_midnight_and_after_a_day_was_removed(log: Path) -> None:
    stream = reader(log)
    write_file(log, "apply", "a-2-9", [row(90)], date="2026-11-12")
    end = stream.latestOffset({}, ReadAllAvailable())
    write_file(log, "apply", "a-2-8", [row(80)])  # of the day before, and complete only now
    later = stream.latestOffset(end, ReadAllAvailable())
    assert numbers(stream, end, later) == [80]
    shutil.rmtree(log / "date=2026-11-11")
    write_file(log, "apply", "a-2-10", [row(100)], date="2026-11-12")
    last = stream.latestOffset(later, ReadAllAvailable())
    assert numbers(stream, later, last) == [100]
    assert last == {"2026-11-12/apply/a": "2-10"}


def test_bad_input_files_that_are_gone_and_options_that_are_none(log: Path) -> None:
    stream = reader(log)
    end = stream.latestOffset({}, ReadAllAvailable())
    next(log.rglob("a-2-1.parquet")).unlink()
    with pytest.raises(LogError, match="no longer has file 2-1 of 2026-11-11/apply/a"):
        stream.partitions({}, end)
    for option in ({"maxRows": "0"}, {"maxFiles": "many"}, {"from": "yesterday"}):
        with pytest.raises(LogError):
            reader(log, **option)


def counts(frame: DataFrame, checkpoint: Path, out: Path) -> list[int]:
    """Run a query over all that is there, in batches; the rows of each batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(out))
    )
    assert query.awaitTermination(60), "it ends by itself"
    assert query.exception() is None
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


def test_pip2_a_query_reads_on_from_its_checkpoint(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    frame = spark.readStream.format("swell").option("maxRows", 4).load(str(log))
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    assert counts(frame, checkpoint, out) == [4, 4, 1]
    write_file(log, "apply", "b-1-3", [row(10), row(11)])
    assert counts(frame, checkpoint, out) == [2]
    assert counts(frame, checkpoint, out) == []
    found = [r.row for r in spark.read.parquet(str(out)).select("row").collect()]
    assert sorted(found) == list(range(1, 12))


def test_pip2_a_query_that_follows_stops_when_told(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    frame = spark.readStream.format("swell").load(str(log)).select("row")
    query = frame.writeStream.format("memory").queryName("following").start()
    try:
        query.processAllAvailable()
        write_file(log, "apply", "b-1-3", [row(10), row(11)])
        query.processAllAvailable()
        assert spark.table("following").count() == 11
    finally:
        query.stop()
    assert not query.isActive


def test_pip2_partitions_hold_files(log: Path) -> None:
    stream = reader(log, partitionBytes="1")
    parts = stream.partitions({}, stream.latestOffset({}, ReadAllAvailable()))
    assert all(isinstance(part, Files) and len(part.files) == 1 for part in parts)
    assert len(parts) == 5
