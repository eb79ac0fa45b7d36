"""`swell lab`: list the experiments, or run one and hold its result against its bars.

Exit codes: 0 every bar holds, 1 some bar does not, 2 bad arguments or surroundings, 130 Ctrl-C.
With `--json -` standard output carries the JSON and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from swell.errors import ConfigurationError, SwellError
from swell.lab.experiment import NOT_MEASURED, Lab, Report, experiments, run_experiment

FILE_COLUMNS = 120
"""Width of what goes to a file or a pipe."""
TABLE_COLUMNS_MAX = 1000


def lab(
    name: Annotated[str, typer.Argument(help="Experiment to run; without one, list them.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure briefly: a minute or two at most.")
    ] = False,
    json: Annotated[
        str, typer.Option("--json", metavar="FILE", help="Write the result; - is stdout.")
    ] = "",
    peers: Annotated[
        str, typer.Option("--peers", metavar="NAMES", help="Compare with these, as `etcd`.")
    ] = "",
    events: Annotated[
        Path | None,
        typer.Option(
            "--events", metavar="DIR", help="Measure ours with events written there, too."
        ),
    ] = None,
    plots: Annotated[
        Path, typer.Option("--plots", metavar="DIR", help="Where PNG files go.")
    ] = Path("out/lab"),
) -> None:
    """Run an experiment: a table or figure of a paper, or a comparison with a peer."""
    out = Console()
    if not out.is_terminal:
        out.width = FILE_COLUMNS
    if not name:
        _print_names(out)
        return
    # However it ends, the servers under test end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        raise typer.Exit(_run(name, quick, json, peers, events, plots, out))
    except SwellError as error:
        print(f"swell lab: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        print("swell lab: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None


def _run(
    name: str,
    quick: bool,
    json: str,
    peers: str,
    events: Path | None,
    plots: Path,
    out: Console,
) -> int:
    _check_writable(json, plots)
    quiet = json == "-" or not sys.stderr.isatty()
    surroundings = Lab(quick, plots, quiet, [peer for peer in peers.split(",") if peer], events)
    begun = time.monotonic()
    report = run_experiment(name, surroundings)
    took_s = time.monotonic() - begun
    if json == "-":
        sys.stdout.write(report.to_json())
    else:
        if json:
            _write(Path(json), report.to_json())
        print_report(report, out)
        for path in surroundings.plotted:
            out.print(f"plot: {path}", highlight=False)
        out.print(f"took {took_s:.1f} s", highlight=False)
    return 0 if report.holds else 1


def print_report(report: Report, out: Console) -> None:
    """Rows, notes, headline and bars, for people."""
    for part in dict.fromkeys(row.get("part") for row in report.rows):
        rows = [row for row in report.rows if row.get("part") == part]
        title = f"{report.name}: {part}" if part else report.name
        table = _table(title, rows, report.columns)
        # Never cut a number: a terminal that is too narrow wraps the lines by itself.
        wide = out.options.update(width=TABLE_COLUMNS_MAX)
        out.width = max(out.width, Measurement.get(out, wide, table).maximum)
        out.print(table)
    for note in report.notes:
        out.print(f"· {note}", style="dim", markup=False, highlight=False, soft_wrap=True)
    for figure, number in report.headline.items():
        out.print(f"{escape(figure)}: [bold]{_text(number)}[/bold]", highlight=False)
    for bar in report.bars:
        mark = "[green]holds[/green]" if bar.holds else "[bold red]FAILS[/bold red]"
        if bar.measured == NOT_MEASURED:
            mark = "[yellow]open [/yellow]"
        out.print(
            f"{mark}  {escape(bar.what)}: {_text(bar.measured)} (bar {_text(bar.bar)})",
            highlight=False,
            soft_wrap=True,
        )


def _table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    present = dict.fromkeys(key for row in rows for key in row if key != "part")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.pad_edge = False
    shown = [column for column in columns or present if column in present]
    for column in shown:
        numbers = all(not isinstance(row.get(column), str) for row in rows)
        table.add_column(
            column.replace("_", "\n"),
            justify="right" if numbers else "left",
            vertical="bottom",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in shown))
    return table


def _text(value: Any) -> str:
    """A cell: four significant digits (six close below 1), thousands separated, yes and no."""
    if value is None:
        return ""
    if isinstance(value, str):
        return escape(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    if 0 < abs(value) < 1e-3:
        return f"{value:.2e}"
    return f"{value:.6g}" if 0.99 < value < 1 else f"{value:.4g}"


def _print_names(out: Console) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, summary in experiments().items():
        table.add_row(name, escape(summary))
    out.print(table)


def _check_writable(json: str, plots: Path) -> None:
    """Fail before the experiment has run, not after."""
    if plots.exists() and not plots.is_dir():
        raise ConfigurationError(f"--plots {plots} is not a directory: name another one")
    parent = Path(json).absolute().parent
    if json not in ("", "-") and (Path(json).is_dir() or not os.access(parent, os.W_OK)):
        raise ConfigurationError(
            f"--json {json} cannot be written: name a file in a directory "
            "that exists and is writable, or - for stdout"
        )


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a result."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
