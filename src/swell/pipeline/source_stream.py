"""The event log as a stream: every complete file once, in the order of each process and kind.

An offset says for every stream of files (a day, a kind and a process) which file was the last:
`{"2026-11-11/apply/n1": "3-17"}` is file 17 of the third life of n1. Offsets are plain data, and
the same offsets give the same rows at any later time, as long as the files are kept. Days whose
files were removed drop out, so an offset is never larger than the log. Files of a past day that
are added later are read when they are there.

A batch takes the files with the earliest rows first, whichever process they come from, so that
rows arrive about in the order of time. They are late by at most the age at which writers rotate
their files, ten seconds more and how far clocks differ: a watermark must allow for that.

Options: `maxRows` or `maxFiles` of one batch (at least one file is taken, whatever its rows);
`from`: `earliest` (all that is there) or `latest` (what comes from now on), for a query without a
checkpoint; and those that choose rows (`source_filters`). A file's footer is read when it is first
seen and remembered until it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from swell.pipeline.source import Files, grouped, read_files, whole_number
from swell.pipeline.source_files import (
    EventFile,
    Footer,
    LogError,
    find_log,
    list_files,
    read_footer,
)
from swell.pipeline.source_filters import of_options

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, str]
STARTS = ("earliest", "latest")


def position(text: str) -> tuple[int, int]:
    """The place in a stream that an offset names."""
    start, number = text.split("-")
    return int(start), int(number)


def after(files: list[EventFile], offset: Mapping[str, str]) -> list[EventFile]:
    """The files behind an offset."""
    reached = {stream: position(text) for stream, text in offset.items()}
    return [file for file in files if file.position > reached.get(file.stream, (-1, -1))]


def moved(offset: Mapping[str, str], files: list[EventFile]) -> Offset:
    """The offset behind these files, its keys in order: equal offsets are equal as text."""
    reached = {stream: position(text) for stream, text in offset.items()}
    for file in files:
        reached[file.stream] = max(file.position, reached.get(file.stream, (-1, -1)))
    return {stream: "{}-{}".format(*reached[stream]) for stream in sorted(reached)}


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log that grows."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.path = options.get("path", "")
        self.begin = options.get("from", STARTS[0])
        if self.begin not in STARTS:
            raise LogError(f"option from={self.begin} is neither of {' and '.join(STARTS)}")
        self.rows_max = whole_number(options, "maxRows", 0)
        self.files_max = whole_number(options, "maxFiles", 0)
        self.partition_bytes = whole_number(options, "partitionBytes", 0)
        self.wanted = schema
        self.pushed = of_options(options)
        self.target: Offset | None = None
        self._footers: dict[str, Footer] = {}
        self._present: set[str] = set()
        """Streams of which any file was there when last looked."""

    def initialOffset(self) -> Offset:
        return {} if self.begin == STARTS[0] else moved({}, self._complete({}))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.rows_max:
            return ReadMaxRows(self.rows_max)
        return ReadMaxFiles(self.files_max) if self.files_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = moved({}, self._complete({}))

    def reportLatestOffset(self) -> Offset:
        return moved({}, self._listed())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        files = self._complete(start)
        if self.target is not None:
            beyond = {(file.stream, file.position) for file in after(files, self.target)}
            files = [file for file in files if (file.stream, file.position) not in beyond]
        taken = self._admitted(files, limit)
        end = moved({s: text for s, text in start.items() if s in self._present}, taken)
        self._footers = {
            file.path: self._footers[file.path]
            for file in after(files, end)
            if file.path in self._footers
        }
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        files = self._listed()
        last = {(file.stream, file.position) for file in files}
        for stream, text in end.items():
            if text != start.get(stream) and (stream, position(text)) not in last:
                raise LogError(
                    f"the log no longer has file {text} of {stream}, which this query's checkpoint "
                    "asks for: begin anew with another checkpoint"
                )
        beyond = {(file.stream, file.position) for file in after(files, end)}
        between = [f for f in after(files, start) if (f.stream, f.position) not in beyond]
        return [Files(self.path, group) for group in grouped(between, self.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        return read_files(partition, self.wanted, self.pushed)

    def commit(self, end: Offset) -> None:
        """Nothing is kept for what was read."""

    def stop(self) -> None:
        """Nothing is open between calls."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_footers": {}, "_present": set()}

    def _listed(self) -> list[EventFile]:
        listed = list_files(*find_log(self.path))
        return [file for file in listed if self.pushed.takes(file.date, file.kind)]

    def _complete(self, start: Mapping[str, str]) -> list[EventFile]:
        """Files behind `start` that can be read: up to a torn one that is the last of its stream,
        and without torn ones that are not."""
        system, _ = find_log(self.path)
        files: list[EventFile] = []
        listed = self._listed()
        self._present = {file.stream for file in listed}
        for file in after(listed, start):
            if file.path not in self._footers:
                footer = read_footer(system, file.path)
                if footer is None:
                    continue
                self._footers[file.path] = footer
            files.append(file)
        return files

    def _admitted(self, files: list[EventFile], limit: ReadLimit) -> list[EventFile]:
        """As many as the limit allows: those with the earliest rows, each stream in its order."""
        if isinstance(limit, ReadMaxRows):
            rows_left, files_left = limit.max_rows, len(files)
        elif isinstance(limit, ReadMaxFiles):
            rows_left, files_left = None, limit.max_files
        else:
            return files
        latest: dict[str, int] = {}
        keyed: list[tuple[int, EventFile]] = []
        for file in files:  # by stream and place: no file may overtake one before it
            at_us = max(self._footers[file.path].first_at_us, latest.get(file.stream, 0))
            latest[file.stream] = at_us
            keyed.append((at_us, file))
        keyed.sort()
        taken: list[EventFile] = []
        for _, file in keyed[:files_left]:
            if rows_left is not None:
                rows = self._footers[file.path].rows
                if taken and rows > rows_left:
                    break
                rows_left -= rows
            taken.append(file)
        return taken
