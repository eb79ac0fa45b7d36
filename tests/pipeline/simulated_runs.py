"""Simulated runs of configurations under faults, which write events; with planted bugs or not."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from swell.cli.simulate import run_recorded
from tests.pipeline.planted_bugs import planted

LARGE = "SWELL_LARGE" in os.environ
JOBS = 2
GIVE_WAY = 15


class Run(NamedTuple):
    """`bug`: of those that every simulation knows. `planted`: application → bug of its feeds."""

    seed: int
    bug: str = ""
    planted: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return "-".join([str(self.seed), self.bug, *(bug for _, bug in self.planted)])


SOUND = [Run(seed) for seed in (range(16) if LARGE else (0, 10))]
SPOILED = {
    Run(2, "no-signature-check"): {"wrong-content"},
    Run(2, "stale-snapshot"): {"ack-lost"},
    Run(0, planted=(("shop", "lose"), ("bank", "repeat"), ("mail", "swap"))): {
        "missing",
        "duplicate",
        "out-of-order",
    },
}
HUNTED = {"no-base-check": "wrong-content", "stale-list": "ack-twice"} if LARGE else {}
"""Bugs that not every run has something for, each with what it shows as."""
HUNTED_SEEDS = 8


def simulate(run: Run, events: str) -> bool:
    """One run; whether the simulation's own checkers were content."""
    with planted(dict(run.planted)):
        bugs = frozenset({run.bug} if run.bug else ())
        return run_recorded("config", run.seed, 0, bugs, events).passed


def simulate_all(path: Path) -> Mapping[Run, Future[bool]]:
    """Begin all runs, for when nobody else needs the processor; each has a log below the path."""
    hunted = [Run(seed, bug) for bug in HUNTED for seed in range(HUNTED_SEEDS)]
    runs = [*SOUND, *SPOILED, *hunted]
    pool = ProcessPoolExecutor(JOBS, multiprocessing.get_context("spawn"))

    def begin() -> Mapping[Run, Future[bool]]:
        os.nice(GIVE_WAY)  # this thread, and the processes that it starts
        return {run: pool.submit(simulate, run, str(path / run.name)) for run in runs}

    with ThreadPoolExecutor(1) as beginning:
        begun = beginning.submit(begin).result()
    pool.shutdown(wait=False)
    return begun
