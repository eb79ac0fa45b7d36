"""A directory of event files as one frame, and clear words about what is wrong with it.

Looks at the files' footers, not at their rows, so that trouble is found before a job begins: a path
that does not exist, an empty log, columns that are missing. Torn files are left out, columns of
newer versions ignored, rows of kinds that are not known counted alone; all of it is said. The
layout is that of `swell.pipeline.source_files`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from swell.events.schema import COLUMNS, NAMES, VERSION, Kind
from swell.pipeline.schema import EVENTS
from swell.pipeline.source_files import (
    EventFile,
    LogError,
    check_torn,
    find_log,
    hadoop_path,
    list_files,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyarrow.parquet import FileMetaData

__all__ = ["Log", "LogError", "read"]

REQUIRED = tuple(column.name for column in COLUMNS if column.required)
KINDS = frozenset(kind.value for kind in Kind)

SHOWN_MAX = 3
"""Files named in a sentence."""


class Log(NamedTuple):
    """An event log: its rows, and what there is to say about its files."""

    events: DataFrame
    notes: tuple[str, ...]
    rows: int


class Footers(NamedTuple):
    """What the files of a log say about themselves."""

    whole: list[str]
    torn: list[str]
    rows: int
    newest_version: int
    extra: set[str]
    """Columns that are not known here."""
    unknown: Counter[str]
    """Rows of kinds that are not known here."""


def read(spark: SparkSession, path: str) -> Log:
    """The log below a directory, a local one or a URI. LogError says what is wrong with it."""
    system, root = find_log(path)
    footers = read_footers(system, list_files(system, root))
    if not footers.whole:
        torn = f": its {len(footers.torn)} files are torn" if footers.torn else ""
        raise LogError(f"there are no events in {path}{torn}; do its nodes write events?")
    if not footers.rows:
        raise LogError(f"the files in {path} have no rows; do its nodes write events?")
    base = hadoop_path(path, root)
    reader = spark.read.schema(EVENTS).option("basePath", base)
    events = reader.parquet(*(base + file.removeprefix(root) for file in footers.whole))
    return Log(events, tuple(notes(footers)), footers.rows)


def read_footers(system: FileSystem, files: Iterable[EventFile]) -> Footers:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    whole: list[str] = []
    torn: list[str] = []
    extra: set[str] = set()
    unknown: Counter[str] = Counter()
    rows, newest = 0, 0
    for file in files:
        try:
            with ParquetFile(file.path, filesystem=system) as opened:
                metadata, columns = opened.metadata, set(opened.schema_arrow.names)
        except (ArrowException, OSError) as error:
            check_torn(file.path, error)
            torn.append(file.path)
            continue
        check_columns(file.path, columns)
        whole.append(file.path)
        extra |= columns - set(NAMES)
        rows += metadata.num_rows
        newest = max(newest, newest_version(metadata))
        if file.kind not in KINDS:
            unknown[file.kind] += metadata.num_rows
    return Footers(whole, torn, rows, newest, extra, unknown)


def check_columns(path: str, columns: set[str]) -> None:
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise LogError(
            f"{path} has no column {', '.join(missing)}: it is not a file of events; "
            "move it out of the log"
        )


def newest_version(metadata: FileMetaData) -> int:
    """The highest version of the table that a row of the file has; 0 if the footer is silent."""
    found = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == "schema":
                statistics = column.statistics
                if statistics is not None and statistics.has_min_max:
                    found = max(found, int(statistics.max))
                break
    return found


def notes(footers: Footers) -> Iterable[str]:
    """Sentences for the user about what was left out."""
    if footers.torn:
        yield f"{_files(footers.torn)} torn, as after a crash, and left out: {_named(footers.torn)}"
    if footers.newest_version > VERSION:
        yield (
            f"some rows are of version {footers.newest_version} of the table, known here is "
            f"{VERSION}: a newer Swell wrote them; update this one"
        )
    if footers.extra:
        yield f"columns that are not known here are ignored: {', '.join(sorted(footers.extra))}"
    if footers.unknown:
        yield (
            f"{footers.unknown.total():,} rows are of kinds that are not known here "
            f"({', '.join(sorted(footers.unknown))}) and not judged: a newer Swell wrote them; "
            "update this one"
        )


def _files(paths: Sequence[str]) -> str:
    return "1 file is" if len(paths) == 1 else f"{len(paths)} files are"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN_MAX} more" if len(paths) > SHOWN_MAX else ""
    return ", ".join(path.rsplit("/", 1)[-1] for path in paths[:SHOWN_MAX]) + more
