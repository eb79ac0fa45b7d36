"""What is free of this machine, from `/proc`: read at most once per second and process.

Processor time and network bytes are counted since the reading before; the first reading has
nothing to compare with and takes both as free. The network's capacity is not told by the kernel
for virtual devices: a gigabit per second in each direction is assumed.
"""

from __future__ import annotations

import time
from pathlib import Path

from swell.world import Resources

PERIOD_S = 1.0
NETWORK_BYTES_PER_S = 125_000_000.0

_PROC = Path("/proc")


class Machine:
    """Two readings of the kernel's counters, and what lies between them."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._read_at = float("-inf")
        self._busy: tuple[int, int] | None = None
        self._bytes: int | None = None
        self._resources = Resources(1.0, 1.0, 1.0)

    def resources(self, now: float) -> Resources:
        elapsed_s = now - self._read_at
        if elapsed_s >= PERIOD_S:
            self._read_at = now
            self._resources = Resources(
                _fraction(self._cpu_free()),
                _fraction(self._memory_free()),
                _fraction(self._network_free(elapsed_s)),
            )
        return self._resources

    def _cpu_free(self) -> float:
        """First line of `stat`: user nice system idle iowait irq softirq steal."""
        words = self._text("stat").partition("\n")[0].split()[1:9]
        if len(words) < 5:
            return 1.0
        ticks = [int(word) for word in words]
        idle, total = ticks[3] + ticks[4], sum(ticks)
        before, self._busy = self._busy, (idle, total)
        if before is None or total <= before[1]:
            return 1.0
        return (idle - before[0]) / (total - before[1])

    def _memory_free(self) -> float:
        found = {}
        for line in self._text("meminfo").splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0])
        total = found.get("MemTotal", 0)
        return found.get("MemAvailable", total) / total if total else 1.0

    def _network_free(self, elapsed_s: float) -> float:
        """The busier direction of all devices together, the loopback's not counted."""
        received = sent = 0
        for line in self._text("net/dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            words = rest.split()
            if name.strip() != "lo" and len(words) > 8:
                received += int(words[0])
                sent += int(words[8])
        before, self._bytes = self._bytes, max(received, sent)
        if before is None or self._bytes < before:
            return 1.0
        return 1.0 - (self._bytes - before) / elapsed_s / NETWORK_BYTES_PER_S

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:  # not Linux, or not ours to see
            return ""


def _fraction(value: float) -> float:
    return min(max(value, 0.0), 1.0)


_machine = Machine()


def machine_resources() -> Resources:
    """Of the machine that this process runs on; many worlds share one reading."""
    return _machine.resources(time.monotonic())
