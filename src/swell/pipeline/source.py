"""`format("swell")`: an event log as a Spark table and as a stream; a cluster as a sink.

    spark.dataSource.register(SwellDataSource)
    spark.read.format("swell").load("/var/lib/swell/events")
    spark.readStream.format("swell").option("maxRows", 1_000_000).load("/var/lib/swell/events")

Rows travel as Arrow batches, never as tuples. A schema given with `.schema(…)` chooses columns:
what is left out is not decoded. Partitions keep the files of one process and kind together.

Options: `path` (what `load` was given); those of `source_filters`, which choose rows;
`partitionBytes` (files of about so many bytes make a partition; by default as many as cut the log
into some dozens); of a stream also `maxRows`, `maxFiles` and `from` (see `source_stream`); of the
sink those of `sink`.

With `pushdown=true` the filters of a query choose rows too, without being repeated as options. Use
it only for a frame that occurs once in a query: Spark keeps one plan of reading per loaded frame,
so a frame that is used twice with different filters loses rows, silently (seen with Spark 4.3). A
frame sees the files that were there when it was first used: load it again to see more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from swell.events.schema import COLUMNS
from swell.pipeline.schema import EVENTS
from swell.pipeline.source_files import EventFile, LogError, check_torn, find_log, list_files
from swell.pipeline.source_filters import Pushed, of_options, split
from swell.pipeline.workers import begin_task

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from pyarrow.fs import FileSystem

PARTITIONS = 64
"""That a log is cut into, if their sizes allow it: enough for the cores of many machines."""
PARTITION_BYTES_MIN = 4 << 20
"""A smaller one costs more to begin than to read."""
PARTITION_BYTES_MAX = 32 << 20
BATCH_ROWS = 1 << 14
_REQUIRED = tuple(column.name for column in COLUMNS if column.required)


class SwellDataSource(DataSource):
    """What Spark asks for a reader or a writer."""

    @classmethod
    def name(cls) -> str:
        return "swell"

    def schema(self) -> StructType:
        return EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        if self.options.get("pushdown", "false").lower() == "true":
            return PushdownReader(self.options, schema)
        return EventReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from swell.pipeline.source_stream import EventStreamReader

        return EventStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from swell.pipeline.sink import ConfigWriter, SinkSettings

        return ConfigWriter(SinkSettings.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from swell.pipeline.sink import ConfigStreamWriter, SinkSettings

        return ConfigStreamWriter(SinkSettings.of(self.options, schema))


class Files(InputPartition):
    """Files that one task reads, with what it needs besides them."""

    def __init__(self, log: str, files: tuple[EventFile, ...]) -> None:
        super().__init__(None)
        self.log = log
        self.files = files


class EventReader(DataSourceReader):
    """Reads the whole log, or what the options leave of it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.path = options.get("path", "")
        self.partition_bytes = whole_number(options, "partitionBytes", 0)
        self.wanted = schema
        self.pushed = of_options(options)

    def partitions(self) -> list[InputPartition]:
        system, root = find_log(self.path)
        listed = [f for f in list_files(system, root) if self.pushed.takes(f.date, f.kind)]
        groups = grouped(listed, self.partition_bytes)
        return [Files(self.path, group) for group in groups] or [Files(self.path, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        return read_files(partition, self.wanted, self.pushed)


class PushdownReader(EventReader):
    """... and what the filters of the query leave of that."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        taken, left = split(filters)
        self.pushed &= taken
        return left


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, "")
    if not text:
        return default
    if not text.isdigit() or int(text) == 0:
        raise LogError(f"option {name}={text} is not a positive whole number")
    return int(text)


def grouped(files: Sequence[EventFile], bytes_max: int) -> list[tuple[EventFile, ...]]:
    """Files in order, cut where a group has enough; a stream is only cut if it is itself long.
    `bytes_max` 0: as the files are."""
    if not bytes_max:
        even = sum(file.bytes for file in files) // PARTITIONS
        bytes_max = min(max(even, PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)
    streams: dict[str, list[EventFile]] = {}
    for file in files:
        streams.setdefault(file.stream, []).append(file)
    groups: list[tuple[EventFile, ...]] = []
    held: list[EventFile] = []
    held_bytes = 0
    for stream in streams.values():
        if held and held_bytes + sum(file.bytes for file in stream) > bytes_max:
            groups.append(tuple(held))
            held, held_bytes = [], 0
        for file in stream:
            if held and held_bytes + file.bytes > bytes_max:
                groups.append(tuple(held))
                held, held_bytes = [], 0
            held.append(file)
            held_bytes += file.bytes
    if held:
        groups.append(tuple(held))
    return groups


def read_files(files: Files, wanted: StructType, pushed: Pushed) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, in the columns and exactly the types that were asked for."""
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema

    begin_task()
    layout = ds.ParquetFileFormat()
    schema = to_arrow_schema(wanted, timezone="UTC")
    full = to_arrow_schema(EVENTS, timezone="UTC")
    system, _ = find_log(files.log)
    chosen = pushed.expression(full)
    for file in files.files:
        fragment = _opened(system, file, full, layout)
        if fragment is not None:
            yield from _rows(fragment, schema, full, chosen)


def _opened(
    system: FileSystem, file: EventFile, full: pa.Schema, layout: ds.ParquetFileFormat
) -> ds.ParquetFileFragment | None:
    """A file with what its footer says, which is read once; None: it is torn, and what it had is
    lost, but the log's other files are not."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    path = ds.partitioning(pa.schema([full.field("date"), full.field("kind")]), flavor="hive")
    root = file.path.rsplit("/date=", 1)[0]
    fragment = layout.make_fragment(file.path, system, path.parse(file.path.removeprefix(root)))
    try:
        present = fragment.physical_schema.names
    except (pa.ArrowException, OSError) as error:
        check_torn(file.path, error)
        return None
    missing = [name for name in _REQUIRED if name not in present]
    if missing:
        raise LogError(f"{file.path} is no file of events: it has no column {missing[0]!r}")
    return fragment


def _rows(
    fragment: ds.ParquetFileFragment,
    schema: pa.Schema,
    full: pa.Schema,
    chosen: pc.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """Read by the thread that sends them on: there are as many tasks as Spark has cores, and
    threads of their own would only take the processor from each other."""
    import pyarrow as pa

    try:
        scanner = fragment.scanner(
            schema=full,
            columns=schema.names,
            filter=chosen,
            batch_size=BATCH_ROWS,
            use_threads=False,
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (pa.ArrowException, OSError) as error:
        said = (str(error).splitlines() or ["no reason given"])[0]
        raise LogError(f"{fragment.path} cannot be read as events: {said}") from None
