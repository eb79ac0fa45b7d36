"""Many seeds of a workload on all processors."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from swell.simulation.workloads.catalogue import run

BUG_SEEDS_MAX = 40


def failures(workload: str, seeds: int) -> list[str]:
    """What went wrong in seeds 0, 1, …, each with the command that repeats it."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(partial(run, workload), range(seeds))
        return [
            f"swell simulate --workload {workload} --seed {result.seed}: {result.problems[:2]}"
            for result in results
            if result.problems
        ]


def digests(workload: str, seed: int) -> set[str]:
    """Of the trace of one seed, in processes whose hashes differ: one, if it replays exactly."""
    code = (
        "from swell.simulation.workloads.catalogue import run;"
        f"print(run({workload!r}, {seed}).digest)"
    )
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }


def seeds_to_catch(workload: str, bugs: tuple[str, ...]) -> dict[str, int]:
    """Planted bug → how many seeds it took until a checker complained; 0: none did."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(bugs, pool.map(partial(_seeds_to_catch, workload), bugs), strict=True))


def _seeds_to_catch(workload: str, bug: str) -> int:
    for seed in range(BUG_SEEDS_MAX):
        problems = run(workload, seed, bugs=frozenset({bug})).problems
        if problems and not problems[0].startswith("vacuous"):
            return seed + 1
    return 0
