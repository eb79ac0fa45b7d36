"""The journal on a real disk: two system calls per batch, kill and errors of the kernel."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swell.journal import Journal, Recovered
from swell.runtime.world import RuntimeWorld
from tests.unit.runtime_toys import EchoNode, run, until


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[RuntimeWorld, Journal, Recovered]]:
    world = RuntimeWorld("n", path)
    world.start(EchoNode())
    journal = Journal(world, "log")
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


def test_a_failed_sync_halts_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int, data: list[bytes], *_: object) -> None:
        os.write(descriptor, data[0])
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
