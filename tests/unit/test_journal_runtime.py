"""The journal on a real disk: one system call per batch, kill and errors of the kernel."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swell.journal import Journal, Recovered
from swell.journal.journal import SEGMENT_BYTES_MAX
from swell.runtime.disk_writer import ROOM_BYTES
from swell.runtime.world import RuntimeWorld
from tests.unit.runtime_toys import EchoNode, run, until


@asynccontextmanager
async def opened(
    path: Path,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
    counters: Counter[str] | None = None,
) -> AsyncIterator[tuple[RuntimeWorld, Journal, Recovered]]:
    world = RuntimeWorld("n", path)
    world.start(EchoNode())
    journal = Journal(world, "log", segment_bytes_max, counters)
    found: list[Recovered] = []
    journal.open(found.append)
    await until(lambda: found)
    try:
        yield world, journal, found[0]
    finally:
        await world.stop()


async def synced(journal: Journal) -> None:
    future = asyncio.get_running_loop().create_future()
    journal.sync(lambda: future.set_result(None))
    await future


def test_records_survive_on_a_real_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, journal, found):
            assert found == (None, 0, [], True, "", False)
            for number in range(1, 1001):
                journal.append(b"%d" % number)
            await synced(journal)
            placed: list[bool] = []
            journal.snapshot(b"state", 900, lambda: placed.append(True))
            await until(lambda: placed)
            problems: list[list[str]] = []
            journal.scrub(problems.append)
            await until(lambda: problems)
            assert problems == [[]]
            on_disk = sum(file.stat().st_size for file in tmp_path.glob("files/log.*"))
            assert journal.bytes == on_disk
        async with opened(tmp_path) as (_, journal, found):
            assert found[:2] == (b"state", 900)
            assert found.records == [b"%d" % number for number in range(901, 1001)]
            assert found.clean

    run(main)


def test_a_batch_is_one_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    watched: set[int] = set()
    pwritev = os.pwritev

    def on_write(descriptor: int, data: list[bytes], place: int, flags: int) -> int:
        if descriptor in watched:
            assert flags == os.RWF_DSYNC
            calls.append(len(data[0]))
        return pwritev(descriptor, data, place, flags)

    def never(descriptor: int, *_: object) -> None:
        assert descriptor not in watched

    async def main() -> None:
        async with opened(tmp_path) as (world, journal, _):
            journal.append(b"the file is there")
            await synced(journal)
            watched.update(world.disk._writer._open.values())  # type: ignore[attr-defined]
            before = journal.bytes
            for batch in range(20):
                for number in range(64):
                    journal.append(b"%d/%d" % (batch, number))
                with monkeypatch.context() as patch:
                    patch.setattr(os, "pwritev", on_write)
                    patch.setattr(os, "fdatasync", never)
                    await synced(journal)
            assert len(calls) == 20
            assert sum(calls) == journal.bytes - before

    run(main)


def test_room_made_ahead_is_no_damage_after_a_kill(tmp_path: Path) -> None:
    """A copy of a running node's directory is what a killed one leaves."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    written = [b"%03d" % number * 30 for number in range(200)]

    def beyond(directory: Path, journal: Journal) -> int:
        return sum(file.stat().st_size for file in directory.glob("files/log.*")) - journal.bytes

    async def main() -> None:
        async with opened(live, 8192) as (_, journal, _):
            for record in written:
                journal.append(record)
                await synced(journal)
            shutil.copytree(live, killed)
            segments = sorted((killed / "files").glob("log.*.log"))
            assert len(segments) > 2
            assert 0 < beyond(killed, journal) <= ROOM_BYTES, "only the newest segment has room"
        assert beyond(live, journal) == 0
        counters: Counter[str] = Counter()
        async with opened(killed, 8192, counters) as (_, journal, found):
            assert found.clean, found.reason
            assert found.records == written
            assert not counters["journal-torn"]
            journal.append(b"next")
            await synced(journal)
        async with opened(killed) as (_, _, found):
            assert found.records == [*written, b"next"]

    run(main)


def test_a_failed_sync_halts_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int, data: list[bytes], place: int, _: int) -> None:
        os.pwrite(descriptor, data[0], place)
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        async with opened(tmp_path) as (world, journal, _):
            journal.append(b"durable")
            await synced(journal)
            acknowledged: list[bool] = []
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwritev", failing)
                journal.append(b"lost")
                journal.sync(lambda: acknowledged.append(True))
                assert "cannot be written" in await world.halted
            assert acknowledged == []
        async with opened(tmp_path) as (_, journal, found):
            # The kernel still shows what it may never write: no reason to vouch for it.
            assert found.records == [b"durable", b"lost"]
            assert (found.clean, found.rotten) == (False, False)
            repaired: list[bool] = []
            journal.repaired(lambda: repaired.append(True))
            await until(lambda: repaired)
        async with opened(tmp_path) as (_, _, found):
            assert found.clean

    run(main)
