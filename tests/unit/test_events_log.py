"""The event log of a process: nothing lost by a clean stop, never in the way of the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from swell.events import MemberAlive
from swell.events.records import CrashFound, LifeBegan, LifeEnded, Sent
from swell.events.rows import Life, Piles, row_count
from swell.runtime import event_log
from swell.runtime.event_log import EventLog
from swell.runtime.world import RuntimeWorld
from swell.settings import EventSettings
from tests.unit.runtime_toys import EchoNode, run, until

SETTINGS = EventSettings(directory="unused")


def rows_in(directory: Path) -> list[dict[str, Any]]:
    paths = sorted(directory.rglob("*.parquet"))
    tables = [pq.read_table(path, partitioning=None) for path in paths]
    found: list[dict[str, Any]] = [row for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row["node"], row["start"], row["row"]))


class SlowDisk:
    """Writes nothing before it is let go."""

    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.start = 1
        self.rows = 0
        self.closed = False
        self.let_go = threading.Event()

    def write(self, piles: Piles) -> None:
        self.let_go.wait(10.0)
        self.rows += row_count(piles)

    def rotate(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class BrokenDisk(SlowDisk):
    def write(self, piles: Piles) -> None:
        raise RuntimeError("a mistake of our own")


def test_a_world_is_recorded_from_its_start_to_its_stop(tmp_path: Path) -> None:
    async def main() -> None:
        log = EventLog(EventSettings(directory=str(tmp_path / "events")), "n1", 1)
        world = RuntimeWorld("n1", tmp_path / "data")
        assert not world.recording
        world.record(log.recorder(Life("run", "n1", world.epoch, "s1")))
        assert world.recording
        world.start(EchoNode())
        for _ in range(10_000):
            world.emit(LifeBegan("container"))
        world.emit(MemberAlive(1, 1))  # not an API event
        world.halt("tired")
        await world.halted
        await log.stop()
        assert log.counters == {}

    run(main)
    found = rows_in(tmp_path / "events")
    assert [row["row"] for row in found] == list(range(1, 10_002))
    assert found[-1]["reason"] == "tired"
    assert {(row["run"], row["site"], row["start"]) for row in found} == {("run", "s1", 1)}
    assert found[0]["at"] <= found[-1]["at"]
    assert found[0]["mono_us"] <= found[-1]["mono_us"]


def test_rows_are_handed_over_without_a_full_batch(tmp_path: Path) -> None:
    settings = EventSettings(directory=str(tmp_path), file_age_s=0.0)

    async def main() -> None:
        log = EventLog(settings, "n1", 1)
        recorder = log.recorder(Life("run", "n1", 1))
        recorder.take(1, 1, LifeEnded())
        await until(lambda: list(tmp_path.rglob("*.parquet")))
        await log.stop()

    run(main)
    assert len(rows_in(tmp_path)) == 1


def test_rows_are_numbered_in_the_order_of_their_events(tmp_path: Path) -> None:
    count = event_log.FRESH_MAX * 2 + 1

    async def main() -> None:
        log = EventLog(EventSettings(directory=str(tmp_path)), "n1", 1)
        one, other = (log.recorder(Life("run", name, 1)) for name in ("n1", "n2"))
        for number in range(count):
            one.emit(CrashFound(f"x{number}", number))
            one.emit(Sent("a", ["x", "y"], 1, number, 1, 1))
            other.emit(LifeEnded(f"{number}"))
            other.emit(MemberAlive(1, 1))  # makes no row
        await log.stop()

    run(main)
    found = rows_in(tmp_path)
    ours = [row for row in found if row["node"] == "n1"]
    theirs = [row for row in found if row["node"] == "n2"]
    assert [row["row"] for row in ours] == list(range(1, 3 * count + 1))
    assert [row["peer"] for row in ours[:4]] == ["x0", "x", "y", "x1"]
    assert [row["mono_us"] for row in ours] == sorted(row["mono_us"] for row in ours)
    assert [row["reason"] for row in theirs] == [f"{number}" for number in range(count)]


def test_a_slow_disk_costs_events_that_are_counted_and_no_time() -> None:
    disk = SlowDisk()
    settings = EventSettings(directory="unused", queue_events_max=3 * event_log.BATCH_EVENTS)
    count = 10 * event_log.BATCH_EVENTS

    async def main() -> None:
        log = EventLog(settings, "n1", 1, disk)
        recorder = log.recorder(Life("run", "n1", 1))
        for _ in range(count):  # with a disk that does not move
            recorder.take(1, 1, LifeEnded())
        lost = log.counters["events-lost-queue-full"]
        assert lost == 7 * event_log.BATCH_EVENTS
        disk.let_go.set()
        await until(lambda: disk.rows == count - lost)
        recorder.take(1, 1, LifeEnded())  # it has caught up
        await log.stop()
        assert log.counters == {"events-lost-queue-full": lost}
        assert disk.rows == count - lost + 1
        assert disk.closed

    run(main)


def test_a_mistake_of_our_own_costs_its_events_only() -> None:
    disk = BrokenDisk()

    async def main() -> None:
        log = EventLog(SETTINGS, "n1", 1, disk)
        recorder = log.recorder(Life("run", "n1", 1))
        recorder.take(1, 1, LifeEnded())
        await until(lambda: disk.lost)
        recorder.take(1, 1, LifeEnded())
        await log.stop()
        assert log.counters == {"events-lost-handler-error": 2}
        assert disk.closed

    run(main)


def test_a_log_ends_without_its_loop(tmp_path: Path) -> None:
    async def begin() -> EventLog:
        log = EventLog(EventSettings(directory=str(tmp_path)), "n1", 1)
        log.recorder(Life("run", "n1", 1)).take(1, 1, LifeEnded())
        return log

    log = asyncio.run(begin())
    log.close()
    assert len(rows_in(tmp_path)) == 1
