"""What every experiment gets and gives back, and how experiments are found.

`Lab` is what `run` may use: whether to be quick, which peers to compare with (an experiment with
peers names them in `PEERS`), progress bars, where plots go. `Report` is the
result; as JSON it has exactly the form

    {"name", "settings", "machine", "rows": [...], "headline": {figure: number},
     "bars": [{"what", "bar", "measured", "holds"}]}

Experiments are found by reading their sources, not by importing them: a list of names must not
cost an import of numpy.
"""

from __future__ import annotations

import ast
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import swell.lab
from swell.errors import ConfigurationError, SwellError

Number = int | float
NOT_MEASURED = "not measured"


class UnknownExperimentError(SwellError):
    """A name that is no experiment; the sentence lists those that are."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no experiment {name!r}; known are: {', '.join(known)}")


@dataclass(frozen=True)
class Bar:
    """One thing the experiment must show: what, the limit, what was measured, and the verdict."""

    what: str
    bar: Number | str
    measured: Number | str
    holds: bool

    @classmethod
    def at_least(cls, what: str, bar: Number, measured: Number) -> Bar:
        return cls(what, bar, measured, bool(measured >= bar))

    @classmethod
    def at_most(cls, what: str, bar: Number, measured: Number) -> Bar:
        return cls(what, bar, measured, bool(measured <= bar))

    @classmethod
    def not_measured(cls, what: str, bar: Number) -> Bar:
        """What it is measured against was absent: nothing is shown, so it does not hold."""
        return cls(what, bar, NOT_MEASURED, False)


@dataclass(frozen=True)
class Report:
    """The result of one experiment. `run_experiment` fills in `name` and `machine`, and adds
    `quick` to the settings."""

    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    headline: Mapping[str, Number]
    bars: Sequence[Bar]
    columns: Sequence[str] = ()
    """Order of the printed columns; empty: as in the first row. Rows with a `part` are printed as
    one table per part, each with those of the columns that its rows have."""
    notes: Sequence[str] = ()
    """Lines printed under the table: definitions, and where the paper is wrong."""
    name: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(bar.holds for bar in self.bars)

    def to_json(self) -> str:
        """The one form that every experiment's JSON has."""
        form = {
            "name": self.name,
            "settings": _plain(self.settings),
            "machine": _plain(self.machine),
            "rows": _plain(self.rows),
            "headline": _plain(self.headline),
            "bars": [
                {
                    "what": bar.what,
                    "bar": _plain(bar.bar),
                    "measured": _plain(bar.measured),
                    "holds": bar.holds,
                }
                for bar in self.bars
            ],
        }
        return json.dumps(form, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


class Lab:
    """The surroundings of one run."""

    def __init__(
        self,
        quick: bool = False,
        plots: Path | None = None,
        quiet: bool = True,
        peers: Sequence[str] = (),
        events: Path | None = None,
    ) -> None:
        self.quick = quick
        self.peers = tuple(peers)
        """Other systems to measure beside ours."""
        self.events = events
        """Where our system is to write its API events, to measure what that costs."""
        self.plotted: list[Path] = []
        """Every path that `plot` gave out."""
        self._plots = plots if plots is not None else Path("out") / "lab"
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet,
        )
        self._open = 0

    @contextmanager
    def progress(self, description: str, total: int) -> Iterator[Callable[..., None]]:
        """A progress bar on stderr; yields `advance(steps=1)`. Bars may be nested."""
        if self._open == 0:
            self._progress.start()
        self._open += 1
        task = self._progress.add_task(description, total=total)

        def advance(steps: float = 1) -> None:
            self._progress.advance(task, steps)

        try:
            yield advance
        finally:
            self._progress.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self._progress.stop()

    def plot(self, name: str) -> Path:
        """Where the PNG called `name` is to be written; its directory exists."""
        self._plots.mkdir(parents=True, exist_ok=True)
        path = self._plots / f"{name}.png"
        self.plotted.append(path)
        return path


def experiments() -> dict[str, str]:
    """Name → summary of every experiment, sorted by name."""
    found = {}
    paths = [path for folder in swell.lab.__path__ for path in Path(folder).glob("*.py")]
    for path in sorted(paths, key=lambda path: path.stem):
        summary = _summary(path.read_text(encoding="utf-8"))
        if summary is not None:
            found[path.stem.replace("_", "-")] = summary
    return found


def run_experiment(name: str, lab: Lab) -> Report:
    """Run one experiment by name."""
    known = experiments()
    if name not in known:
        raise UnknownExperimentError(name, list(known))
    module = import_module(f"swell.lab.{name.replace('-', '_')}")
    _check_peers(name, lab.peers, getattr(module, "PEERS", ()))
    if lab.events is not None and not getattr(module, "RECORDED", ""):
        raise ConfigurationError(f"{name} does not measure events: leave out --events")
    report: Report = module.run(lab)
    settings = {"quick": lab.quick, **report.settings}
    return replace(report, name=name, settings=settings, machine=machine())


def _check_peers(name: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for peer in asked:
        if peer not in known:
            offer = f"known are: {', '.join(known)}" if known else "it compares with none"
            raise ConfigurationError(f"{name} has no peer {peer!r}; {offer}")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "model": _cpu_model(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _summary(source: str) -> str | None:
    for statement in ast.parse(source).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="SUMMARY")], value=value)
                | ast.AnnAssign(target=ast.Name(id="SUMMARY"), value=ast.expr() as value)
            ):
                return str(ast.literal_eval(value))
    return None


def _plain(value: Any) -> Any:
    """As plain JSON values: numpy values unwrapped, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return _plain(value.tolist())
