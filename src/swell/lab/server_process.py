"""A server under test: a process of its own, whose processor time and memory are read from outside.

Figures come from `/proc`, so they are the same for a server of any language. A process that we
started and that ends too early is told with the last line of its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from swell.errors import SwellError

STOP_S = 8.0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ServerError(SwellError):
    """A server did not start, or ended while it was needed."""


class ServerProcess:
    """One running server."""

    def __init__(
        self, name: str, words: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log = log
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Complain if it has ended."""
        if not self.running:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["no log"]
            raise ServerError(f"{self.name} has ended: {lines[-1][:300]}")

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Cleanly, if it lets us."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()


def cpu_s(pid: int) -> float:
    """Processor time that a process has used so far, all its threads; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Memory(NamedTuple):
    """Of one process, in MiB."""

    resident: float
    peak: float
    """The most that was ever resident."""


def memory_mib(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        name: value.split()[0]
        for name, _, value in (line.partition(":") for line in lines)
        if value.strip()
    }
    return Memory(int(kib["VmRSS"]) / 1024, int(kib["VmHWM"]) / 1024)
