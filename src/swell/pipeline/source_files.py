"""The files of an event log: which there are, in which order, and whether they are complete.

A log is `DIR/date=YYYY-MM-DD/kind=KIND/NODE-START-N.parquet`: N counts the files of one life of a
process. Those of one day, kind and process are a *stream*, completed in the order of (start, N): a
process that starts again counts from the beginning, under a higher start. Writers give a file its
name when it is complete; names that begin with `.` or `_`, or do not end with `.parquet`, are none.

A file without a footer is torn, by a crash or by a copy under way. Reading waits for it as long as
it is the last of its stream; behind it nothing more will come, so then it is left out. A file that
cannot be read for any other reason ends the reading: what it has would be lost without a word.

Kinds that are not known here are files like any other: a newer Swell wrote them, and their rows are
among those that a process has numbered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from swell.errors import SwellError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_NAME = re.compile(r"(?P<node>.+)-(?P<start>\d+)-(?P<number>\d+)\.parquet")
_DAMAGED_FOOTER = "deserialize thrift"
"""In what Arrow says of one; by its type, such an error could be any failure of a disk."""

_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}
_OF_BUCKETS = ("s3a", "gs")
"""What stands before their `@` is a key."""


class LogError(SwellError):
    """There is no event log at a path, or it cannot be read."""


class EventFile(NamedTuple):
    """One complete-looking file of a log."""

    kind: str
    node: str
    start: int
    number: int
    date: str
    path: str
    bytes: int

    @property
    def stream(self) -> str:
        return f"{self.date}/{self.kind}/{self.node}"

    @property
    def position(self) -> tuple[int, int]:
        """Its place in the stream."""
        return self.start, self.number


class Footer(NamedTuple):
    """What the end of a file says about it."""

    rows: int
    first_at_us: int
    """Earliest wall clock among the rows; 0 if the file does not say."""


def find_log(path: str) -> tuple[FileSystem, str]:
    """The file system and the directory of a log: a local path, or a URI as `s3://…`."""
    from pyarrow.fs import FileSystem, FileType, LocalFileSystem

    if not path:
        raise LogError("no event log was named: give the directory that nodes write events to")
    try:
        if "://" in path:
            system, root = FileSystem.from_uri(path)
        else:
            system, root = LocalFileSystem(), str(Path(path).absolute())
        kind = system.get_file_info(root).type
    except (OSError, ValueError) as error:
        raise LogError(f"the event log {path} cannot be reached: {_first_line(error)}") from None
    if kind == FileType.NotFound:
        raise LogError(f"there is no event log at {path}: name the directory that nodes write to")
    if kind != FileType.Directory:
        raise LogError(f"{path} is a file: name the directory that contains date=… directories")
    return system, root


def hadoop_path(path: str, root: str) -> str:
    """The directory of a log as Spark names it, whose file systems are Hadoop's. They know other
    schemes, decode nothing, and have keys and addresses of stores from settings of their own."""
    if "://" not in path or path.startswith("file:"):
        return f"file://{root}"
    parts = urlsplit(path)
    scheme = _HADOOP_SCHEMES.get(parts.scheme, parts.scheme)
    place = parts.netloc.rpartition("@")[2] if scheme in _OF_BUCKETS else parts.netloc
    return f"{scheme}://{place}{unquote(parts.path).rstrip('/')}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def list_files(system: FileSystem, root: str) -> list[EventFile]:
    """All files, by stream and place in it."""
    found: list[EventFile] = []
    try:
        for date, date_path in _directories(system, root, "date"):
            for kind, kind_path in _directories(system, date_path, "kind"):
                found += _files(system, kind_path, date, kind)
    except OSError as error:
        raise LogError(f"the files of {root} cannot be listed: {_first_line(error)}") from None
    found.sort()
    return found


def _directories(system: FileSystem, path: str, key: str) -> list[tuple[str, str]]:
    from pyarrow.fs import FileSelector, FileType

    prefix = f"{key}="
    return [
        (info.base_name.removeprefix(prefix), info.path)
        for info in system.get_file_info(FileSelector(path, allow_not_found=True))
        if info.type == FileType.Directory and info.base_name.startswith(prefix)
    ]


def _files(system: FileSystem, path: str, date: str, kind: str) -> Iterable[EventFile]:
    from pyarrow.fs import FileSelector

    for info in system.get_file_info(FileSelector(path, allow_not_found=True)):
        match = _NAME.fullmatch(info.base_name)
        if match and info.is_file and not info.base_name.startswith((".", "_")):
            node, start, number = match.group("node", "start", "number")
            yield EventFile(kind, node, int(start), int(number), date, info.path, info.size or 0)


def read_footer(system: FileSystem, path: str) -> Footer | None:
    """None: the file has none, it is torn."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, filesystem=system) as file:
            metadata = file.metadata
            return Footer(metadata.num_rows, _first_at_us(metadata))
    except (ArrowException, OSError) as error:
        check_torn(path, error)
        return None


def check_torn(path: str, error: Exception) -> None:
    """LogError, unless a file could not be opened because of its content: then it is torn."""
    from pyarrow import ArrowInvalid

    if isinstance(error, ArrowInvalid) or _DAMAGED_FOOTER in str(error):
        return
    if isinstance(error, FileNotFoundError):
        raise LogError(f"{path} is gone: it was removed while the log was read") from None
    raise LogError(f"{path} cannot be read: {_first_line(error)}") from None


def _first_at_us(metadata: object) -> int:
    groups, columns = metadata.num_row_groups, metadata.num_columns  # type: ignore[attr-defined]
    first_us = []
    for group in range(groups):
        row_group = metadata.row_group(group)  # type: ignore[attr-defined]
        for index in range(columns):
            column = row_group.column(index)
            if column.path_in_schema == "at":
                statistics = column.statistics
                if statistics is not None and statistics.has_min_max:
                    first_us.append(int(statistics.min_raw))
                break
    return min(first_us, default=0)
