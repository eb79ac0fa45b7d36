"""Files of events: whole or hidden, complete in time, and a failing disk costs rows only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from swell.errors import ConfigurationError
from swell.events import Event, arrow
from swell.events.records import Applied, LifeEnded, Sent, Span
from swell.events.rows import Collection, Life, Piles, Recorder
from swell.events.schema import VERSION
from swell.runtime import event_files
from swell.runtime.event_files import FAILED, WAITING, EventFiles
from swell.settings import EventSettings

NOON_NS = 1_700_000_000_000_000_000 // 86_400_000_000_000 * 86_400_000_000_000 + 43_200 * 10**9
DAY_NS = 86_400 * 10**9
DATE = "date=2023-11-14"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Source:
    """Makes piles of events of one life."""

    def __init__(self) -> None:
        self._into = Collection(1_000_000, lambda piles: None)
        self._recorder = Recorder(self._into, Life("run", "n1", 1))

    def __call__(self, *events: Event, wall_ns: int = NOON_NS) -> Piles:
        for event in events:
            self._recorder.take(wall_ns, 5_000, event)
        return self._into.taken()


def applied(name: str = "limits") -> Applied:
    return Applied(Span("shop", name, 1, 2, 2, os.urandom(20), b"b", 1, 10, 0), "n1")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Callable[..., EventFiles]:
    def made(start: int = 7, **settings: float) -> EventFiles:
        return EventFiles(EventSettings(directory=str(tmp_path), **settings), "n1", start, clock)  # type: ignore[arg-type]

    return made


def complete(root: Path) -> list[str]:
    """Files as readers find them."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))


def hidden(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob(".*.part"))


def row_numbers(root: Path) -> list[int]:
    found = [pq.read_table(root / path, partitioning=None) for path in complete(root)]
    return sorted(number for table in found for number in table.column("row").to_pylist())


Make = Callable[..., EventFiles]


def test_a_file_is_hidden_until_it_is_complete(make: Make, source: Source, tmp_path: Path) -> None:
    files = make()
    files.write(source(applied(), applied()))
    assert complete(tmp_path) == []
    assert hidden(tmp_path) == [".n1-7-1.parquet.part"]
    files.close()
    assert hidden(tmp_path) == []
    (path,) = complete(tmp_path)
    assert path == f"{DATE}/kind=apply/n1-7-1.parquet"
    table = pq.read_table(tmp_path / path, partitioning=None)
    assert table.schema.equals(arrow.SCHEMA)
    assert table.num_rows == 2
    version = pq.ParquetFile(tmp_path / path).metadata.row_group(0).column(0)
    assert version.compression == "ZSTD"
    assert (version.path_in_schema, version.statistics.max) == ("schema", VERSION)


def test_a_file_is_complete_by_age(
    make: Make, source: Source, clock: Clock, tmp_path: Path
) -> None:
    files = make(file_age_s=60.0)
    files.write(source(applied()))
    clock.now_s += 59.0
    files.write(source(applied()))
    assert complete(tmp_path) == []
    clock.now_s += 1.0
    files.rotate()
    assert row_numbers(tmp_path) == [1, 2]
    files.write(source(applied()))
    files.close()
    assert row_numbers(tmp_path) == [1, 2, 3]
    assert [Path(path).name for path in complete(tmp_path)] == [
        "n1-7-1.parquet", "n1-7-2.parquet",
    ]  # fmt: skip


def test_a_file_is_complete_by_size(
    make: Make, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "ROW_GROUP_ROWS", 100)
    files = make(file_bytes_max=4000)
    for _ in range(4):
        files.write(source(*(applied() for _ in range(100))))
    assert len(complete(tmp_path)) >= 2
    files.close()
    assert row_numbers(tmp_path) == list(range(1, 401))


def test_rows_of_two_days_and_two_kinds_are_apart(
    make: Make, source: Source, tmp_path: Path
) -> None:
    files = make()
    piles = source(applied(), applied(), LifeEnded())
    tomorrow = source(applied(), wall_ns=NOON_NS + DAY_NS)
    for event, pile in tomorrow.items():
        piles[event].numbers += pile.numbers
        piles[event].events += pile.events
    files.write(piles)
    files.close()
    assert complete(tmp_path) == [
        f"{DATE}/kind=apply/n1-7-2.parquet",
        f"{DATE}/kind=stop/n1-7-1.parquet",
        "date=2023-11-15/kind=apply/n1-7-3.parquet",
    ]
    assert pq.read_table(tmp_path / complete(tmp_path)[2], partitioning=None).num_rows == 1


def test_a_record_that_lists_nobody_makes_no_file(
    make: Make, source: Source, tmp_path: Path
) -> None:
    files = make()
    files.write(source(Sent("shop", [], 1, 1, 1, 1)))
    files.write({})
    files.close()
    assert (complete(tmp_path), files.lost) == ([], {})


def test_what_a_killed_life_left_is_removed_by_the_next(make: Make, tmp_path: Path) -> None:
    place = tmp_path / DATE / "kind=apply"
    place.mkdir(parents=True)
    (place / ".n1-6-3.parquet.part").touch()
    others = place / ".n1-x-7-1.parquet.part"
    others.touch()
    make()
    assert hidden(tmp_path) == [others.name]


def test_files_of_earlier_lives_stay_whatever_their_numbers(
    make: Make, source: Source, tmp_path: Path
) -> None:
    """A process that counts anew, or whose clock was set back, writes beside what is there."""
    for start in (7, 7, 3, 20):
        files = make(start)
        files.write(source(applied()))
        files.close()
    names = [Path(path).name for path in complete(tmp_path)]
    assert sorted(names) == [f"n1-{n}-1.parquet" for n in (20, 7, 8, 9)]
    assert row_numbers(tmp_path) == [1, 2, 3, 4]


def test_living_writers_of_one_name_keep_out_of_each_others_way(
    make: Make, source: Source, tmp_path: Path
) -> None:
    first = make()
    first.write(source(applied()))
    second = make()
    second.write(source(applied()))
    assert hidden(tmp_path) == [".n1-7-1.parquet.part", ".n1.2-7-1.parquet.part"]
    first.close()
    third = make()  # takes the name that is free again, and nothing of the second's
    third.write(source(applied()))
    for files in (second, third):
        files.close()
        assert files.lost == {}
    names = [Path(path).name for path in complete(tmp_path)]
    assert names == ["n1-7-1.parquet", "n1-8-1.parquet", "n1.2-7-1.parquet"]
    assert row_numbers(tmp_path) == [1, 2, 3]
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_without_locks_nothing_is_removed_and_rows_are_written(
    make: Make, source: Source, tmp_path: Path
) -> None:
    place = tmp_path / DATE / "kind=apply"
    place.mkdir(parents=True)
    perhaps_alive = place / ".n1-6-3.parquet.part"
    perhaps_alive.touch()
    (tmp_path / ".n1.lock").mkdir()  # where the lock should be
    files = make()
    files.write(source(applied()))
    files.close()
    assert hidden(tmp_path) == [perhaps_alive.name]
    assert row_numbers(tmp_path) == [1]


def test_a_full_disk_costs_the_rows_of_its_file_and_no_more(
    make: Make, source: Source, clock: Clock, tmp_path: Path
) -> None:
    files = make(retry_s=5.0)
    place = tmp_path / DATE / "kind=apply"
    place.mkdir(parents=True)
    (place / ".n1-7-1.parquet.part").symlink_to("/dev/full")
    files.write(source(applied(), applied(), applied()))
    files.close()
    assert files.lost == {FAILED: 3}
    assert (complete(tmp_path), hidden(tmp_path)) == ([], [])
    clock.now_s += 4.9
    files.write(source(applied(), applied()))
    assert files.lost == {FAILED: 3, WAITING: 2}
    clock.now_s += 0.2
    files.write(source(applied()))
    files.close()
    assert files.lost == {FAILED: 3, WAITING: 2}
    assert row_numbers(tmp_path) == [6]


def test_a_place_that_cannot_be_written_costs_rows_and_is_tried_again(
    make: Make, source: Source, clock: Clock, tmp_path: Path
) -> None:
    files = make(retry_s=5.0)
    blocked = tmp_path / DATE
    blocked.touch()  # where a directory should be
    files.write(source(applied(), LifeEnded()))
    assert files.lost.total() == 2
    blocked.unlink()
    clock.now_s += 6.0
    files.write(source(applied()))
    files.close()
    assert files.lost.total() == 2
    assert row_numbers(tmp_path) == [3]


def test_a_directory_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot write events to"):
        EventFiles(EventSettings(directory=str(tmp_path / "file" / "events")), "n1", 1)
