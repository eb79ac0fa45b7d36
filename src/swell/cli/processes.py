"""Processes in the background: started, recognised later, waited for.

A process is known by its id *and* its start time, so that a number that the system has given to
somebody else since is never signalled.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import swell

POLL_S = 0.1


class Process(msgspec.Struct, frozen=True):
    """One process and the nodes it hosts; `started` is the system's count of ticks."""

    pid: int
    started: int
    nodes: tuple[str, ...]


def spawn(words: Sequence[str], out: Path, log: Path) -> int:
    """Start a command of this package that outlives us; its id. Output and log go to files."""
    source = str(Path(swell.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": f"{source}:{inherited}".rstrip(":")}
    with open(log, "ab") as errors, open(out, "wb") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    # It is left behind on purpose; without this the interpreter would warn about that.
    child.returncode = 0
    return child.pid


def start_ticks(pid: int) -> int:
    """When the process was started, in the system's ticks; 0 if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_running(process: Process) -> bool:
    return process.started != 0 and start_ticks(process.pid) == process.started


def await_condition(condition: Callable[[], bool], timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S / 4)
    return True
