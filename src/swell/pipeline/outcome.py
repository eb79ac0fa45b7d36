"""What a job hands back: small tables to show, frames to write, and an exit code.

Only this module prints and writes: a job computes. With `--json` standard output carries one JSON
document and nothing else; with `--out` every frame becomes a directory of Parquet below it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
    files: dict[str, str] = field(default_factory=dict)
    """Texts written below `--out`, by file name."""
    notes: list[str] = field(default_factory=list)
    exit_code: int = 0


def check_out(out: Path | None) -> None:
    """Fail before a job has run, not after."""
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigurationError(f"--out {out} is a file: name a directory")


def write(outcome: Outcome, out: Path) -> list[Path]:
    """Everything that is to be kept; the paths that were written."""
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, frame in outcome.frames.items():
        path = out / name
        frame.write.mode("overwrite").parquet(str(path))
        written.append(path)
    texts = {**outcome.files, f"{outcome.job}.json": to_json(outcome)}
    for name, text in texts.items():
        path = out / name
        path.write_text(text, encoding="utf-8")
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
        return value.isoformat(sep=" ", timespec="milliseconds")
    return escape(str(value))
