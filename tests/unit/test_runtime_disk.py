"""The real disk: order, group commit, failures that stay failures."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from swell.runtime.disk import SHORT_S, SPILL_BYTES, RuntimeDisk
from swell.runtime.disk_writer import LOG_SYNCS, ROOM_BYTES, Operation, Writer
from swell.world import DiskError
from tests.unit.runtime_toys import run, until


def guard(action: Callable[..., None], *arguments: Any) -> None:
    action(*arguments)


@asynccontextmanager
async def disk_in(path: Path) -> AsyncIterator[RuntimeDisk]:
    disk = RuntimeDisk(path, asyncio.get_running_loop(), guard)
    try:
        yield disk
    finally:
        await disk.close()


def test_operations_take_effect_and_finish_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[tuple[str, Any]] = []

            def note(what: str) -> Callable[[Any], None]:
                return lambda result: done.append((what, result))

            disk.append("log", b"one")
            disk.append("log", b"two")
            disk.sync("log", note("sync"))
            disk.append("log", b"three")
            disk.read("log", 3, 100, note("read"))
            disk.truncate("log", 4, note("truncate"))
            disk.append("log", b"!")
            disk.replace("log", "snapshot", note("replace"))
            disk.read("snapshot", 0, 100, note("read"))
            disk.append("log", b"new")
            disk.sync("log", note("sync"))
            assert disk.list() == {"log": 3, "snapshot": 5}
            assert done == []
            await until(lambda: len(done) == 6)
            assert done == [
                ("sync", None),
                ("read", b"twothree"),
                ("truncate", None),
                ("replace", None),
                ("read", b"onet!"),
                ("sync", None),
            ]
        assert (tmp_path / "log").read_bytes() == b"new"
        assert (tmp_path / "snapshot").read_bytes() == b"onet!"
        async with disk_in(tmp_path) as again:
            assert again.list() == {"log": 3, "snapshot": 5}

    run(main)


def test_appends_reach_the_file_at_sync_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            disk.append("log", b"x")
            disk.sync("other", done.append)
            await until(lambda: done)
            assert not (tmp_path / "log").exists()
            disk.append("big", b"x" * (SPILL_BYTES + 1))
            await until(lambda: (tmp_path / "big").exists())

    run(main)


def test_syncs_that_wait_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    first_sync_may_end = asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        real_write = os.pwritev

        def write(descriptor: int, data: list[bytes], place: int, flags: int) -> int:
            assert flags == os.RWF_DSYNC
            calls.append(f"write {len(data[0])}")
            if len(calls) == 1:
                asyncio.run_coroutine_threadsafe(first_sync_may_end.wait(), loop).result(10)
            return real_write(descriptor, data, place, flags)

        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            disk.append("log", b"x")
            disk.sync("log", done.append)  # creates the file
            await until(lambda: done)
            monkeypatch.setattr("swell.runtime.disk.os.pwritev", write)
            for _ in range(10):
                disk.append("log", b"12345")
                disk.sync("log", done.append)
                await asyncio.sleep(0)
                if not calls:
                    await until(lambda: len(calls) == 1)
            first_sync_may_end.set()
            await until(lambda: len(done) == 11)
            monkeypatch.undo()
        assert calls == ["write 5", "write 45"]
        assert done == [None] * 11

    run(main)


def test_what_an_earlier_life_left_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that syncs covers only its own bytes; those before it may be in the cache alone."""
    (tmp_path / "log").write_bytes(b"not synced")
    calls: list[str] = []
    real_sync = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        calls.append("sync")
        real_sync(descriptor)

    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            monkeypatch.setattr("swell.runtime.disk.os.fdatasync", fdatasync)
            for _ in range(2):
                disk.append("log", b"x")
                disk.sync("log", done.append)
                await until(lambda: len(done) > len(calls) - 1 and done)
            await until(lambda: len(done) == 2)
            monkeypatch.undo()
        assert calls == ["sync"]
        assert (tmp_path / "log").read_bytes() == b"not syncedxx"

    run(main)


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_a_failed_sync_is_reported_and_never_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call == "fdatasync":
        (tmp_path / "log").write_bytes(b"from an earlier life")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            disk.append("log", b"x")
            monkeypatch.setattr(f"swell.runtime.disk.os.{call}", fail)
            disk.sync("log", done.append)
            await until(lambda: done)
            monkeypatch.undo()
            disk.append("log", b"y")
            disk.sync("log", done.append)
            disk.append("other", b"z")
            disk.sync("other", done.append)
            await until(lambda: len(done) == 3)
            assert [str(error) for error in done[:2]] == ["log: Input/output error"] * 2
            assert isinstance(done[0], DiskError)
            assert done[2] is None

    run(main)


def test_a_short_write_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            monkeypatch.setattr("swell.runtime.disk.os.pwritev", lambda fd, data, *_: 2)
            disk.append("log", b"abc")
            disk.sync("log", done.append)
            await until(lambda: done)
            monkeypatch.undo()
            assert "probably full" in str(done[0])

    run(main)


async def write_log(disk: RuntimeDisk, file: str, syncs: int) -> bytes:
    """Append and sync so many times; the content then."""
    parts = [b"part %d;" % number for number in range(syncs)]
    for part in parts:
        done: list[Any] = []
        disk.append(file, part)
        disk.sync(file, done.append)
        await until(lambda done=done: done)  # type: ignore[misc]
        assert done == [None]
    return b"".join(parts)


def test_a_log_has_room_that_nobody_sees_and_that_is_gone_at_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            short = await write_log(disk, "short", LOG_SYNCS)
            assert (tmp_path / "short").read_bytes() == short
            content = await write_log(disk, "log", 3 * LOG_SYNCS)
            assert (tmp_path / "log").stat().st_size > ROOM_BYTES
            assert (tmp_path / "log").read_bytes().rstrip(b"\0") == content
            assert disk.list() == {"log": len(content), "short": len(short)}
            done: list[Any] = []
            disk.read("log", 5, 1 << 20, done.append)
            disk.read("log", 1 << 19, 10, done.append)
            await until(lambda: len(done) == 2)
            assert done == [content[5:], b""]
        assert (tmp_path / "log").read_bytes() == content

    run(main)


def test_a_log_that_fills_its_room_gets_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            content = await write_log(disk, "log", LOG_SYNCS + 1)
            for piece in (b"a" * (ROOM_BYTES - 10), b"b" * 20, b"c" * (2 * ROOM_BYTES)):
                done: list[Any] = []
                disk.append("log", piece)
                disk.sync("log", done.append)
                await until(lambda done=done: done)  # type: ignore[misc]
                content += piece
                file = (tmp_path / "log").read_bytes()
                assert file[: len(content)] == content
                assert not file[len(content) :].strip(b"\0")
        assert (tmp_path / "log").read_bytes() == content

    run(main)


def test_room_goes_with_a_cut_and_moves_with_a_renaming(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            content = await write_log(disk, "log", 2 * LOG_SYNCS)
            done: list[Any] = []
            disk.replace("log", "old", done.append)
            disk.append("old", b"!")
            disk.sync("old", done.append)
            await until(lambda: len(done) == 2)
            file = (tmp_path / "old").read_bytes()
            assert len(file) > ROOM_BYTES
            assert file.rstrip(b"\0") == content + b"!"
            disk.truncate("old", len(content) + 1, done.append)
            await until(lambda: len(done) == 3)
            assert (tmp_path / "old").read_bytes() == content + b"!"

    run(main)


def test_a_disk_without_space_for_room_takes_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.pwritev

    def write(descriptor: int, data: list[bytes], place: int, flags: int) -> int:
        return real_write(descriptor, data[:1], place, flags)

    monkeypatch.setattr("swell.runtime.disk.os.pwritev", write)

    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            content = await write_log(disk, "log", 3 * LOG_SYNCS)
            assert (tmp_path / "log").read_bytes() == content

    run(main)


def test_missing_files_are_errors(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            done: list[Any] = []
            disk.read("none", 0, 1, done.append)
            disk.truncate("none", 0, done.append)
            disk.replace("none", "new", done.append)
            await until(lambda: len(done) == 3)
            assert all(isinstance(error, DiskError) for error in done)
            disk.append("none", b"now it is there")
            disk.sync("none", done.append)
            await until(lambda: len(done) == 4)
            assert done[3] is None

    run(main)


def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            for number in range(200):
                disk.append(f"f{number}", b"x" * number)
                disk.sync(f"f{number}", lambda error: None)

    run(main)
    assert [os.path.getsize(tmp_path / f"f{number}") for number in range(200)] == list(range(200))


@pytest.mark.parametrize("file", ["", "..", "a/b", ".hidden", "/etc/passwd", "x" * 300])
def test_names_stay_inside_the_directory(tmp_path: Path, file: str) -> None:
    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            with pytest.raises(AssertionError):
                disk.append(file, b"x")

    run(main)


def test_short_syncs_are_done_by_the_loop_and_long_ones_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = lasting_s = 0.0
    on_loop: list[bool] = []
    write = Writer.run

    def lasting(writer: Writer, group: Sequence[Operation]) -> Any:
        nonlocal now_s
        on_loop.append(threading.current_thread() is threading.main_thread())
        now_s += lasting_s
        return write(writer, group)

    async def syncs(disk: RuntimeDisk, count: int, each_s: float) -> list[bool]:
        nonlocal lasting_s
        lasting_s = each_s
        on_loop.clear()
        for _ in range(count):
            done: list[Any] = []
            disk.append("log", b"entry")
            disk.sync("log", done.append)
            await until(lambda done=done: bool(done))
        return list(on_loop)

    async def main() -> None:
        async with disk_in(tmp_path) as disk:
            first = await syncs(disk, 20, SHORT_S / 4)
            assert (first[0], first[-1]) == (False, True)
            assert await syncs(disk, 3, 20 * SHORT_S) == [True, False, False]
            assert (await syncs(disk, 40, SHORT_S / 4))[-1] is True
            assert await syncs(disk, 1, 4 * SHORT_S) == [True]
            assert await syncs(disk, 1, SHORT_S / 4) == [True], "one that is late changes nothing"

    monkeypatch.setattr(Writer, "run", lasting)
    monkeypatch.setattr("swell.runtime.disk.perf_counter", lambda: now_s)
    run(main)
