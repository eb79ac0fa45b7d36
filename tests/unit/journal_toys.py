"""One machine with a journal on its simulated disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from swell.journal import Journal, Recovered
from swell.simulation import Simulation
from swell.simulation.process import Process
from swell.world import World
from tests.unit.simulation_toys import Recorder

NAME = "log"
SEGMENT_1 = "log.00000001.log"


class Machine:
    """`found` is what the journal held at the last start; `acked` are the records that a sync of
    this life acknowledged."""

    def __init__(self, seed: int = 1, segment_bytes_max: int = 4096, start: bool = True) -> None:
        self.simulation = Simulation(seed)
        self.segment_bytes_max = segment_bytes_max
        self.counters: Counter[str] = Counter()
        self.journal: Journal
        self.found: Recovered | None = None
        self.acked: list[bytes] = []
        self.process: Process = self.simulation.add("n", "s", self._factory)
        if start:
            self.start()
            self.settle()

    def _factory(self, world: World) -> Recorder:
        self.journal = Journal(world, NAME, self.segment_bytes_max, self.counters)
        self.found = None
        self.acked = []
        self.journal.open(self._on_opened)
        return Recorder(world)

    def _on_opened(self, recovered: Recovered) -> None:
        self.found = recovered

    def start(self) -> None:
        self.process.start()
        self.simulation.run_until_true(
            lambda: self.found is not None or not self.process.alive, 10.0, every_s=0.001
        )

    def open(self) -> Recovered:
        """Start, and what was found."""
        self.start()
        assert self.found is not None, self.process.ended
        return self.found

    def reopen(self, power: bool = True) -> Recovered:
        self.process.crash(power)
        return self.open()

    def append(self, *records: bytes) -> None:
        """Append records in one batch, if nothing is under way; noted when acknowledged."""
        for record in records:
            self.journal.append(record)
        self.journal.sync(lambda: self.acked.extend(records))

    def write(self, *records: bytes) -> None:
        """Append records, in a batch of their own, to the end."""
        self.append(*records)
        self.settle()

    def settle(self) -> None:
        self.simulation.run_for(0.1)

    def wait(self, operation: Callable[..., None], *arguments: Any) -> Any:
        """Run an operation of the journal to its end; what its `done` got."""
        results: list[Any] = []
        operation(*arguments, lambda *result: results.append(result))
        assert results == []
        assert self.simulation.run_until_true(lambda: bool(results), 10.0, every_s=0.001)
        return results[0][0] if results[0] else None

    def files(self) -> dict[str, bytes]:
        """Everything on the disk; the machine is off afterwards."""
        self.process.crash()
        return self.process.disk.snapshot()

    def try_files(self, files: dict[str, bytes]) -> Recovered:
        """What a journal with these files is found to hold."""
        self.process.crash()
        self.process.disk.restore(files)
        return self.open()


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
