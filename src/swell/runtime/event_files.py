"""Files of events: Parquet, zstd, one directory per day and kind, whole files only.

    DIR/date=2026-11-16/kind=apply/NODE-START-N.parquet

A file is written under a hidden name and gets its own when it is complete and synced: a reader
never meets half a file, and a kill costs what was not complete. It is complete by size, by age, or
when the process stops. What cannot be written is dropped and counted by reason, and after a failure
the disk is left alone for a moment. Runs on any one thread; `swell.runtime.event_log` gives it one.

A writer holds a lock on its name (`DIR/.NODE.lock`) while it lives. Who finds the name taken writes
as NODE.2, NODE.3 and so on. So whatever is hidden under one's own name was left by the dead, and
START, which is above that of every file of the name, makes each file a new one.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from swell.errors import ConfigurationError
from swell.events import arrow
from swell.events.rows import Piles, row_count
from swell.events.schema import Kind
from swell.settings import EventSettings

ROW_GROUP_ROWS = 131_072
FAILED = "write-failed"
WAITING = "disk-failing"

_DAY_US = 86_400_000_000


class EventFile:
    """One file that is being written."""

    def __init__(self, path: Path, opened_s: float) -> None:
        self.rows = 0
        self.opened_s = opened_s
        self._path = path
        self._hidden = path.with_name(f".{path.name}.part")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._hidden, "wb")  # noqa: SIM115 - closed by finish or abandon
        options = arrow.parquet_options() | {"store_schema": False}
        self._writer = pq.ParquetWriter(self._file, arrow.BATCH_SCHEMA, **options)

    @property
    def size(self) -> int:
        """Of what was written so far; what waits for its row group has none yet."""
        return self._file.tell()

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, arrow.BATCH_SCHEMA)
            together = table.unify_dictionaries(arrow.POOL)
            self._writer.write_table(together, row_group_size=ROW_GROUP_ROWS)
            self._waiting.clear()
            self._waiting_rows = 0

    def finish(self) -> None:
        """From here on readers see it."""
        self._flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._hidden.replace(self._path)

    def abandon(self) -> None:
        """Nothing of it is kept."""
        self._waiting.clear()
        for end in (self._writer.close, self._file.close, self._hidden.unlink):
            with suppress(OSError, ValueError, pa.ArrowException):
                end()


class EventFiles:
    """All files that one process writes. `name`, `start`: the first parts of their names, unless
    others have taken them."""

    def __init__(
        self,
        settings: EventSettings,
        name: str,
        start: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = Path(settings.directory)
        self.lost: Counter[str] = Counter()
        """Rows that are in no file, by reason."""
        self._settings = settings
        self._now_s = now_s
        self._count = 0
        self._files: dict[tuple[int, Kind], EventFile] = {}
        self._retry_at_s = 0.0
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write events to {self.directory}: {error.strerror}"
            ) from None
        self._name, self._lock = _claim(self.directory, name)
        if self._lock is not None:
            self._sweep()
        self.start = max(start, self._newest_start() + 1)

    def _sweep(self) -> None:
        """Remove what earlier lives of this name left unfinished."""
        ours = re.compile(rf"\.{re.escape(self._name)}-\d+-\d+\.parquet\.part")
        for path in self.directory.glob(f"date=*/kind=*/.{self._name}-*.parquet.part"):
            if ours.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def _newest_start(self) -> int:
        """The highest of the files that this name has."""
        ours = re.compile(rf"{re.escape(self._name)}-(\d+)-\d+\.parquet")
        paths = self.directory.glob(f"date=*/kind=*/{self._name}-*.parquet")
        return max((int(m[1]) for path in paths if (m := ours.fullmatch(path.name))), default=0)

    def write(self, piles: Piles) -> None:
        """Take the rows of these events, and complete what is due."""
        if self._now_s() < self._retry_at_s:
            self.lost[WAITING] += row_count(piles)
            return
        for kind, batch in arrow.batches(piles):
            for day, rows in _by_day(batch):
                self._add(day, kind, rows)
        self.rotate()

    def _add(self, day: int, kind: Kind, rows: pa.RecordBatch) -> None:
        place = day, kind
        file = self._files.get(place)
        try:
            if file is None:
                file = self._files[place] = EventFile(self._path(day, kind), self._now_s())
            file.add(rows)
            if file.size >= self._settings.file_bytes_max:
                self._finish(place)
        except (OSError, pa.ArrowException):
            self._fail(place, 0 if file is not None else rows.num_rows)

    def _path(self, day: int, kind: Kind) -> Path:
        self._count += 1
        date = datetime.fromtimestamp(day * _DAY_US / 1e6, UTC).date().isoformat()
        name = f"{self._name}-{self.start}-{self._count}.parquet"
        return self.directory / f"date={date}" / f"kind={kind}" / name

    def rotate(self) -> None:
        """Complete the files that are old enough."""
        before_s = self._now_s() - self._settings.file_age_s
        for place in [place for place, one in self._files.items() if one.opened_s <= before_s]:
            self._finish(place)

    def close(self) -> None:
        """Complete all, and leave the name to others."""
        for place in list(self._files):
            self._finish(place)
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                _lock_path(self.directory, self._name).unlink()
            os.close(lock)

    def _finish(self, place: tuple[int, Kind]) -> None:
        try:
            self._files[place].finish()
            del self._files[place]
        except (OSError, pa.ArrowException):
            self._fail(place, 0)

    def _fail(self, place: tuple[int, Kind], rows: int) -> None:
        file = self._files.pop(place, None)
        if file is not None:
            rows += file.rows
            file.abandon()
        self.lost[FAILED] += rows
        self._retry_at_s = self._now_s() + self._settings.retry_s


def _claim(directory: Path, name: str) -> tuple[str, int | None]:
    """A name that no living writer has, and the lock that keeps it; None: locks cannot be had."""
    for number in count(1):
        one = name if number == 1 else f"{name}.{number}"
        try:
            return one, _locked(_lock_path(directory, one))
        except BlockingIOError:
            continue
        except OSError:
            break
    return name, None


def _lock_path(directory: Path, name: str) -> Path:
    return directory / f".{name}.lock"


def _locked(path: Path) -> int:
    """An open file that is locked; `BlockingIOError` if somebody else has it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # whoever had it has removed it meanwhile


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows of one day each; nearly always there is one."""
    if not batch.num_rows:
        return
    days = batch.column("at").cast(pa.int64()).to_numpy() // _DAY_US
    if days.min() == days.max():
        yield int(days[0]), batch
        return
    for day in np.unique(days).tolist():
        yield day, batch.filter(pa.array(days == day))
