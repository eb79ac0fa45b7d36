"""What a job hands back: small tables to show, frames to write, and an exit code.

Only this module prints and writes: a job computes. With `--json` standard output carries one JSON
document and nothing else; with `--out` every frame becomes a directory of Parquet below it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swell.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_SHOWN = 20
FILE_COLUMNS = 140
"""Width of what goes to a file or a pipe."""

WHOLE = "_SUCCESS"
"""The file that Spark puts into a table last."""

Rows = Sequence[Mapping[str, Any]]


@dataclass
class Outcome:
    """The result of one job."""

    job: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Single figures, by name."""
    tables: dict[str, Rows] = field(default_factory=dict)
    """Shown in order; the longest are cut on a terminal, never in JSON."""
    frames: dict[str, DataFrame] = field(default_factory=dict)
    """Written below `--out`, and only then computed."""
    files: dict[str, Callable[[], str]] = field(default_factory=dict)
    """Texts written below `--out`, by file name, and only then made."""
    notes: list[str] = field(default_factory=list)
    exit_code: int = 0


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """A small frame on the driver. Spark hands out times as this machine's clock would show them,
    without saying so: here they are in UTC and say it."""
    return [
        {name: _in_utc(value) for name, value in row.asDict(recursive=True).items()}
        for row in frame.collect()
    ]


def _in_utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def check_out(out: Path | None) -> None:
    """Fail before a job has run, not after."""
    if out is None:
        return
    with _told(out):
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass


@contextmanager
def _told(out: Path) -> Iterator[None]:
    """What the disk refuses, in one sentence."""
    try:
        yield
    except FileExistsError:
        raise ConfigurationError(f"--out {out} is a file: name a directory") from None
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"nothing can be written to --out {out}: {why}") from None


def write(outcome: Outcome, out: Path) -> list[Path]:
    """Everything that is to be kept; the paths that were written."""
    with _told(out):
        return _write(outcome, out)


def _write(outcome: Outcome, out: Path) -> list[Path]:
    written: list[Path] = []
    for name, frame in outcome.frames.items():
        path = out / name
        if path.exists() and not (path / WHOLE).exists():
            raise ConfigurationError(f"{path} is there and no table of an earlier run: move it")
        frame.write.mode("overwrite").parquet(str(path))
        written.append(path)
    texts: dict[str, Callable[[], str]] = {
        **outcome.files,
        f"{outcome.job}.json": partial(to_json, outcome),
    }
    for name, text in texts.items():
        path = out / name
        path.write_text(text(), encoding="utf-8")
        written.append(path)
    return written


def to_json(outcome: Outcome) -> str:
    form = {
        "job": outcome.job,
        "facts": outcome.facts,
        "tables": outcome.tables,
        "notes": outcome.notes,
        "exit_code": outcome.exit_code,
    }
    return json.dumps(form, indent=1, ensure_ascii=False, default=_plain) + "\n"


def to_line(row: Mapping[str, Any]) -> str:
    """One row as one line of JSON."""
    return json.dumps(row, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if hasattr(value, "item"):
        return value.item()
    return str(value)


def show(outcome: Outcome, as_json: bool, written: Sequence[Path] = ()) -> None:
    if as_json:
        sys.stdout.write(to_json(outcome))
        return
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = FILE_COLUMNS
    for title, rows in outcome.tables.items():
        out.print(_table(title, rows))
    for name, value in outcome.facts.items():
        out.print(f"{escape(name)}: [bold]{_text(value)}[/bold]")
    for note in outcome.notes:
        out.print(f"· {note}", style="dim", markup=False, soft_wrap=True)
    for path in written:
        out.print(f"wrote {path}", markup=False, soft_wrap=True)


def _table(title: str, rows: Rows) -> Table:
    more = f" (the first {ROWS_SHOWN} of {len(rows):,})" if len(rows) > ROWS_SHOWN else ""
    table = Table(title=title + more, title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge = False
    for column in rows[0] if rows else ():
        number = all(isinstance(row[column], int | float | None) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if number else "left")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*map(_text, row.values()))
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, dt.datetime):
        return f"{value:%F %T}.{value.microsecond // 1000:03}Z"
    return escape(str(value))
