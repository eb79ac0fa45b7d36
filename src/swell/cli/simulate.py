"""`swell simulate`: run workloads in the simulation, replay a seed, prove that checkers bite."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from swell.errors import SwellError
from swell.events.rows import Collection
from swell.settings import EventSettings
from swell.simulation.recording import Recording, recorded
from swell.simulation.workloads.catalogue import (
    BUGS,
    CONFIG_BUGS,
    STORE_BUGS,
    WORKLOADS,
    bugs_of,
    run,
)
from swell.simulation.workloads.result import Result

JOBS = 2
BUG_SEEDS_MAX = 50
EVENTS_MAX = 65_536
"""Events of one kind that are kept before they become rows."""


def simulate(
    workload: Annotated[str, typer.Option(help="One of: " + ", ".join(WORKLOADS))] = "mixed",
    seed: Annotated[int, typer.Option(help="Replay this one seed and show its faults.")] = -1,
    seeds: Annotated[int, typer.Option(help="How many seeds, if no single one is given.")] = 20,
    first: Annotated[int, typer.Option(help="The first of the seeds.")] = 0,
    nodes: Annotated[int, typer.Option(help="Size: nodes (mixed) or links per node; 0: own.")] = 0,
    bug: Annotated[
        list[str] | None, typer.Option(help="Plant: " + ", ".join(BUGS + STORE_BUGS + CONFIG_BUGS))
    ] = None,
    bugs: Annotated[bool, typer.Option(help="After how many seeds is each bug caught?")] = False,
    jobs: Annotated[int, typer.Option(help="Processes to run seeds in.")] = JOBS,
    events: Annotated[
        str, typer.Option("--events", metavar="DIR", help="Write the API events of every run.")
    ] = "",
    json_file: Annotated[str, typer.Option("--json", help="Write results here; - is stdout.")] = "",
) -> None:
    """Run a workload under many seeds; every failing seed replays exactly with --seed."""
    if workload not in WORKLOADS:
        raise SwellError(f"no workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    planted = frozenset(bug or ())
    known = bugs_of(workload)
    unknown = sorted(planted - set(known))
    if unknown:
        raise SwellError(
            f"no planted bug {unknown[0]!r} for {workload}: choose from {', '.join(known)}"
        )
    console = Console(stderr=json_file == "-")
    if bugs:
        found = {name: _seeds_to_catch(workload, name, nodes, jobs, console) for name in known}
        _write(json_file, {"workload": workload, "seeds_to_catch": found})
        raise typer.Exit(0 if all(found.values()) else 1)
    chosen = [seed] if seed >= 0 else list(range(first, first + seeds))
    begun = perf_counter()
    results = list(_results(workload, chosen, nodes, planted, jobs, console, events))
    if seed >= 0 and json_file != "-":
        console.print(results[0].plan, highlight=False)
    if json_file != "-":
        _show(console, workload, results, perf_counter() - begun)
    _write(json_file, {"workload": workload, "results": [asdict(r) for r in results]})
    raise typer.Exit(0 if all(result.passed for result in results) else 1)


def _results(
    workload: str,
    seeds: list[int],
    nodes: int,
    bugs: frozenset[str],
    jobs: int,
    console: Console,
    events: str = "",
) -> Iterator[Result]:
    one = partial(run_recorded, workload, size=nodes, bugs=bugs, events=events)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"{workload} seeds", total=len(seeds))
        if len(seeds) == 1 or jobs == 1:
            for seed in seeds:
                yield one(seed)
                progress.advance(task)
            return
        with ProcessPoolExecutor(jobs) as pool:
            try:
                for result in pool.map(one, seeds):
                    yield result
                    progress.advance(task)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def run_recorded(workload: str, seed: int, size: int, bugs: frozenset[str], events: str) -> Result:
    """One run; its events are a run of their own, named after workload and seed."""
    if not events:
        return run(workload, seed, size, bugs)
    from swell.runtime.event_files import EventFiles

    name = f"{workload}-{seed}"
    remove_run(Path(events), name)
    files = EventFiles(EventSettings(directory=events, file_age_s=inf), name, seed)
    collection = Collection(EVENTS_MAX, files.write)
    with recorded(Recording(name, collection)):
        result = run(workload, seed, size, bugs)
    files.write(collection.taken())
    files.close()
    if files.lost:
        raise SwellError(f"{files.lost.total()} events could not be written to {events}")
    return result


def remove_run(directory: Path, name: str) -> None:
    """What an earlier run of the same seed has left."""
    ours = re.compile(rf"{re.escape(name)}-\d+-\d+\.parquet")
    for path in directory.glob(f"date=*/kind=*/{name}-*.parquet"):
        if ours.fullmatch(path.name):
            path.unlink()


def _show(console: Console, workload: str, results: list[Result], wall_s: float) -> None:
    failed = [result for result in results if not result.passed]
    kinds: Counter[str] = Counter()
    for result in results:
        kinds.update({k[6:]: 1 for k in result.faults if k.startswith("fault ")})
    if kinds:
        table = Table("fault", "seeds with it", "share", title=f"faults over {len(results)} seeds")
        for kind, count in sorted(kinds.items()):
            table.add_row(kind, str(count), f"{100 * count / len(results):.0f} %")
        console.print(table)
    totals: Counter[str] = Counter()
    for result in results:
        totals.update(result.counts)
    means = ", ".join(f"{what} {value / len(results):.4g}" for what, value in totals.items())
    console.print(f"per seed: {means}", highlight=False)
    if len(results) == 1:
        console.print(f"trace digest {results[0].digest}", highlight=False)
    for result in failed[:20]:
        console.print(f"[red]seed {result.seed}[/]: {'; '.join(result.problems[:3])}")
        console.print(f"  replay: swell simulate --workload {workload} --seed {result.seed}")
    colour = "red" if failed else "green"
    virtual_s = sum(result.virtual_s for result in results)
    console.print(
        f"[{colour}]{len(results) - len(failed)} passed, {len(failed)} failed[/]: "
        f"{virtual_s:,.0f} virtual seconds in {wall_s:.1f} s"
    )


def _seeds_to_catch(workload: str, bug: str, nodes: int, jobs: int, console: Console) -> int:
    """How many seeds it took until a checker complained; 0 if none did."""
    seeds = list(range(BUG_SEEDS_MAX))
    results = _results(workload, seeds, nodes, frozenset({bug}), jobs, console)
    for tried, result in enumerate(results, start=1):
        if not result.passed and not result.problems[0].startswith("vacuous"):
            console.print(f"[green]{bug}[/] caught after {tried} seeds: {result.problems[0]}")
            return tried
    console.print(f"[red]{bug}[/] was not caught by {len(seeds)} seeds")
    return 0


def _write(json_file: str, value: object) -> None:
    if json_file == "-":
        print(json.dumps(value))
    elif json_file:
        Path(json_file).write_text(json.dumps(value, indent=1) + "\n")
