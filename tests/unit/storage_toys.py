"""One machine with the store's storage on its simulated disk, and a model of what it must hold.

A slot's *value* is its fence and its whole log; the model remembers every value that a slot had,
and which of them was acknowledged last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from swell.simulation import Simulation
from swell.store import entry as entries
from swell.store.entry import NO_DIGEST, Entry
from swell.store.parts import Parts
from swell.store.storage import Restored, SlotImage, Storage
from swell.world import World
from tests.unit.simulation_toys import Recorder

Value = tuple[int, tuple[bytes, ...]] | None
"""Fence and the bytes of all entries; None: there is no such slot."""


class Slot:
    """A slot in memory, as the replication would have it."""

    def __init__(self, fence: int = 0, log: list[Entry] | None = None, commit: int = 0) -> None:
        self.fence = fence
        self.log = log or []
        self.commit = commit

    def extended(self, slot: int, payload: bytes) -> Entry:
        last = self.log[-1].digest if self.log else NO_DIGEST
        self.log.append(entries.make(slot, self.fence, len(self.log) + 1, last, payload))
        return self.log[-1]

    def value(self) -> Value:
        return self.fence, tuple(entry.data for entry in self.log)

    def image(self, base: int) -> SlotImage:
        """The state of a slot is the list of the entries that made it; every other one is in
        pieces, as long ones are."""
        state: bytes | Parts | None = None
        if base:
            state = msgspec.msgpack.encode([entry.data for entry in self.log[:base]])
            if base % 2:
                state = Parts([state[:5], state[5:]])
        tip = self.log[base - 1] if base else None
        epoch, digest = (tip.epoch, tip.digest) if tip else (0, NO_DIGEST)
        return SlotImage(self.fence, base, epoch, digest, state, self.log[base:], self.commit)


def slot_of(image: SlotImage) -> Slot:
    applied = msgspec.msgpack.decode(bytes(image.state or b"\x90"), type=list[bytes])
    assert len(applied) == image.base
    log = [entries.read(data) for data in applied] + image.entries
    tip = log[image.base - 1] if image.base else None
    assert (image.base_epoch, image.base_digest) == (
        (tip.epoch, tip.digest) if tip else (0, NO_DIGEST)
    )
    assert image.base <= image.commit <= len(log)
    return Slot(image.fence, log, image.commit)


class Machine:
    """`found` is what the storage held at the last start."""

    def __init__(
        self,
        seed: int = 1,
        journal_bytes_max: int = 2000,
        trust_unrotten: bool = False,
        bugs: frozenset[str] = frozenset(),
        start: bool = True,
    ) -> None:
        self.simulation = Simulation(seed)
        self.rng: Random = self.simulation.rng("test")
        self.options = (journal_bytes_max, trust_unrotten, bugs)
        self.counters: Counter[str] = Counter()
        self.starts = 0
        self.storage: Storage
        self.found: Restored | None = None
        self.slots: dict[int, Slot] = {}
        self.history: dict[int, list[tuple[Value, int]]] = {}
        """Slot → every value that it had in this life, with its commit point."""
        self.acked: dict[int, int] = {}
        """Slot → place in its history up to which it was acknowledged."""
        self.installing: dict[int, int] = {}
        """Slot → place of an install that nothing was called behind."""
        self._in_call = False
        self.process = self.simulation.add("n", "s", self._factory)
        if start:
            self.open()

    def _factory(self, world: World) -> Recorder:
        self.starts += 1
        limit, trust, bugs = self.options
        self.storage = Storage(world, self.starts, self._dump, self.counters, limit, trust, bugs)
        self.found = None
        self.storage.open(self._on_opened)
        return Recorder(world)

    def _on_opened(self, restored: Restored) -> None:
        self.found = restored
        assert list(restored.slots) == sorted(restored.slots)
        assert restored.lineage == self.storage.lineage
        assert restored.clean or (restored.slots, restored.lineage) == ({}, self.starts)

    def _dump(self, slot: int) -> SlotImage:
        assert not self._in_call, "dump was called from inside another call"
        return self.slots[slot].image(self.slots[slot].commit)

    # Driving.

    def start(self) -> None:
        self.process.start()
        self.simulation.run_until_true(
            lambda: self.found is not None or not self.process.alive, 10.0, every_s=0.001
        )

    def open(self) -> Restored:
        """Start, and go on from what is found."""
        self.start()
        assert self.found is not None, self.process.ended
        self.adopt(self.found)
        return self.found

    def adopt(self, restored: Restored) -> None:
        self.slots = {number: slot_of(image) for number, image in restored.slots.items()}
        self.history = {n: [(slot.value(), slot.commit)] for n, slot in self.slots.items()}
        self.acked = {}
        self.installing = {}

    def try_files(self, files: dict[str, bytes]) -> Restored:
        """What a storage with these files is found to hold."""
        self.process.crash()
        self.process.disk.restore(files)
        self.start()
        assert self.found is not None, self.process.ended
        return self.found

    def files(self) -> dict[str, bytes]:
        """Everything on the disk; the machine is off afterwards."""
        self.process.crash()
        return self.process.disk.snapshot()

    def settle(self, seconds: float = 0.3) -> None:
        self.simulation.run_for(seconds)

    # Operations: on the model and on the storage.

    def _note(self, number: int, is_install: bool = False) -> int:
        slot = self.slots.get(number)
        history = self.history.setdefault(number, [(None, 0)])
        history.append((slot.value(), slot.commit) if slot else (None, 0))
        self.installing.pop(number, None)
        if is_install:
            self.installing[number] = len(history) - 1
        return len(history) - 1

    def _call(self, operation: Callable[..., None], *arguments: object) -> None:
        self._in_call = True
        operation(*arguments)
        self._in_call = False

    def append(self, number: int, *payloads: bytes) -> None:
        for payload in payloads:
            slot = self.slots.setdefault(number, Slot())
            self._call(self.storage.append, slot.extended(number, payload), slot.commit)
            self._note(number)

    def fence(self, number: int, epoch: int) -> None:
        self.slots.setdefault(number, Slot()).fence = epoch
        self._call(self.storage.fence, number, epoch)
        self._note(number)

    def cut(self, number: int, sequence: int) -> None:
        del self.slots[number].log[sequence:]
        self._call(self.storage.cut, number, sequence)
        self._note(number)

    def commit(self, number: int, sequence: int) -> None:
        self.slots[number].commit = sequence
        self._call(self.storage.commit, number, sequence)
        self._note(number)

    def drop(self, number: int) -> None:
        del self.slots[number]
        self._call(self.storage.drop, number)
        self._note(number)

    def install(self, number: int, slot: Slot, base: int) -> None:
        self.slots[number] = Slot(slot.fence, list(slot.log), slot.commit)
        place = self._note(number, is_install=True)

        def done() -> None:
            self.acked[number] = max(place, self.acked.get(number, 0))
            if self.installing.get(number) == place:
                del self.installing[number]

        self._call(self.storage.install, number, slot.image(base), done)

    def sync(self) -> list[bool]:
        """The list is not empty once it is done."""
        places = {
            number: self.installing.get(number, len(history)) - 1
            for number, history in self.history.items()
        }
        result: list[bool] = []

        def done() -> None:
            result.append(True)
            for number, place in places.items():
                self.acked[number] = max(place, self.acked.get(number, 0))

        self._call(self.storage.sync, done)
        return result

    def write(self, number: int, *payloads: bytes) -> None:
        """Append, and wait until it is durable."""
        self.append(number, *payloads)
        result = self.sync()
        assert self.simulation.run_until_true(lambda: bool(result), 10.0, every_s=0.001)

    def act(self) -> None:
        """Something, by chance."""
        rng, number = self.rng, self.rng.randint(1, 4)
        slot = self.slots.get(number)
        choice = rng.random()
        if slot is None or choice < 0.45:
            for _ in range(rng.randint(1, 4)):
                self.append(number, rng.randbytes(rng.randint(4, 60)))
        elif choice < 0.55:
            self.fence(number, slot.fence + 1)
        elif choice < 0.65:
            self.cut(number, rng.randint(slot.commit, len(slot.log)))
        elif choice < 0.88:
            self.commit(number, rng.randint(slot.commit, len(slot.log)))
        elif choice < 0.92:
            self.drop(number)
        else:
            copy = Slot(rng.randint(1, 9))
            for _ in range(rng.randint(0, 9)):
                copy.extended(number, rng.randbytes(rng.randint(4, 60)))
            copy.commit = rng.randint(0, len(copy.log))
            self.install(number, copy, rng.randint(0, copy.commit))
        if rng.random() < 0.5:
            self.sync()

    # Checking.

    def check(self, restored: Restored, acknowledged: bool = True) -> int:
        """Is every slot as it was at some moment, not before what was acknowledged last? How
        many are not as they were last."""
        behind = 0
        for number, history in self.history.items():
            image = restored.slots.get(number)
            found = slot_of(image) if image else None
            value = found.value() if found else None
            places = [place for place, moment in enumerate(history) if moment[0] == value]
            assert places, f"slot {number} never was like this"
            acked = self.acked.get(number, 0) if acknowledged else 0
            assert places[-1] >= acked, f"slot {number} lost what was acknowledged"
            commits = [commit for _, commit in history[acked:]]
            commit = found.commit if found else 0
            assert min(commits) <= commit <= max(commits), f"slot {number} has another commit"
            behind += places[-1] < len(history) - 1
        unknown = [number for number in restored.slots if number not in self.history]
        assert not unknown, f"slots {unknown} never were"
        return behind


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
