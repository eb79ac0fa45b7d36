"""The store's storage on a real disk: many slots, files in pieces, a compaction under load."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swell.runtime.world import RuntimeWorld
from swell.store import slotfiles
from swell.store.storage import Restored, SlotImage, Storage
from tests.unit.runtime_toys import EchoNode, run, until
from tests.unit.storage_toys import Slot, slot_of


class Owner:
    """Slots in memory and on a real disk."""

    def __init__(self, world: RuntimeWorld, start: int) -> None:
        self.world = world
        self.slots: dict[int, Slot] = {}
        self.counters: Counter[str] = Counter()
        self.storage = Storage(world, start, self._dump, self.counters, 100_000)
        self.found: list[Restored] = []

    def _dump(self, slot: int) -> SlotImage:
        return self.slots[slot].image(self.slots[slot].commit)

    def append(self, number: int, payload: bytes) -> None:
        slot = self.slots.setdefault(number, Slot(1))
        self.storage.append(slot.extended(number, payload), slot.commit)

    async def sync(self) -> None:
        done: list[bool] = []
        self.storage.sync(lambda: done.append(True))
        await until(lambda: done)


@asynccontextmanager
async def opened(path: Path, start: int) -> AsyncIterator[tuple[Owner, Restored]]:
    world = RuntimeWorld("n", path)
    world.start(EchoNode())
    owner = Owner(world, start)
    owner.storage.open(owner.found.append)
    await until(lambda: owner.found)
    owner.slots = {number: slot_of(image) for number, image in owner.found[0].slots.items()}
    try:
        yield owner, owner.found[0]
    finally:
        await world.stop()


def test_slots_survive_on_a_real_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotfiles, "CHUNK_BYTES", 1000)

    async def main() -> None:
        async with opened(tmp_path, 1) as (owner, found):
            assert found == (1, True, "", {})
            for number in range(600):
                owner.append(number % 40, b"%d" % number * 100)
                owner.slots[number % 40].commit = number // 40
                if number % 50 == 49:
                    await owner.sync()
            await until(lambda: owner.counters["storage-compactions"] >= 1)
            installed: list[bool] = []
            copy = Slot(7)
            for number in range(50):
                copy.extended(99, b"%d" % number * 100)
            copy.commit = 40
            owner.storage.install(99, copy.image(30), lambda: installed.append(True))
            owner.slots[99] = copy
            owner.append(99, b"behind")
            owner.storage.drop(0)
            del owner.slots[0]
            await owner.sync()
            await until(lambda: installed)
            expected = {number: slot.value() for number, slot in owner.slots.items()}
        async with opened(tmp_path, 2) as (owner, found):
            assert (found.lineage, found.clean) == (1, True), found.reason
            assert {number: slot.value() for number, slot in owner.slots.items()} == expected
            on_disk = sum(file.stat().st_size for file in tmp_path.glob("files/s*"))
            assert owner.storage.bytes == on_disk

    run(main)


def test_a_slots_file_that_cannot_be_written_halts_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwritev

    def failing(descriptor: int, data: list[bytes], place: int, flags: int) -> int:
        if data[0].startswith(b"SwellSl1"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, place, flags)

    async def main() -> None:
        async with opened(tmp_path, 1) as (owner, _):
            owner.append(1, b"x")
            await owner.sync()
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwritev", failing)
                owner.storage.install(2, Slot(1).image(0), lambda: pytest.fail("acknowledged"))
                assert "slot 2 cannot be written" in await owner.world.halted
        async with opened(tmp_path, 2) as (_, found):
            assert (found.lineage, found.clean, found.slots) == (2, False, {})

    run(main)
