"""Processor time of servers, of clients and of everything else on the machine, at one instant.

What is measured lies between two readings. Everything else is told beside the figures: on two
cores, a neighbour's work is a system's loss.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from swell.lab.server_process import cpu_s

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """Of a clock and of processor time used so far; the difference of two is a `Reading` too."""

    instant_ns: int
    """By the monotonic clock, which is the same in every process."""
    servers_s: float
    clients_s: float
    machine_s: float
    """All processes, the kernel, and what the machine below took away."""

    @classmethod
    def now(cls, servers: Sequence[int], clients: Sequence[int]) -> Reading:
        """`servers` and `clients` are process ids."""
        return cls(
            time.monotonic_ns(), sum(map(cpu_s, servers)), sum(map(cpu_s, clients)), _machine_s()
        )

    def since(self, begin: Reading) -> Reading:
        return Reading(
            self.instant_ns - begin.instant_ns,
            self.servers_s - begin.servers_s,
            self.clients_s - begin.clients_s,
            self.machine_s - begin.machine_s,
        )

    @property
    def others_s(self) -> float:
        """Neither servers nor clients."""
        return max(0.0, self.machine_s - self.servers_s - self.clients_s)


def _machine_s() -> float:
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen, *_ = map(
        int, line.split()[1:]
    )
    return (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS_PER_S
