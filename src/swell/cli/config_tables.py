"""Tables of configurations, of their versions and of the containers that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from swell.cli.config_arguments import Place
from swell.cli.config_words import (
    CLASSES,
    KINDS,
    STATES,
    has_newest,
    id_words,
    plural,
    reached,
    readable,
    size_words,
    span_words,
    time_words,
    unreached,
)
from swell.config.operations import ApplicationRow, Kept, Row
from swell.config.reports import Awaited, State, StatusReport, StatusRow
from swell.config.versions import Kind

CLASS_COLOURS = {
    "applied": "green",
    "delivered": "cyan",
    "rejected": "red",
    "silent": "yellow",
    "failed": "magenta",
    "offline": "bright_black",
}
STATE_COLOURS = {
    State.IN_STEP: "green",
    State.BEHIND: "yellow",
    State.FAILED: "magenta",
    State.OFFLINE: "bright_black",
}
DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan", "\\": "bright_black"}
BAR_CELLS = 30


class Cell(NamedTuple):
    """A text and its colour."""

    text: str
    style: str = ""


def table_of(title: str, *columns: str) -> Table:
    """A column that ends in `>` is aligned to the right; one that ends in `~` may be folded."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.pad_edge = False
    table.padding = (0, 1, 0, 0)
    for column in columns:
        table.add_column(
            column.rstrip(">~"),
            justify="right" if column.endswith(">") else "left",
            no_wrap=not column.endswith("~"),
            overflow="fold",
        )
    return table


def _add(table: Table, *cells: str | Cell) -> None:
    """Names and reasons are others' words: they are never read as markup."""
    table.add_row(
        *(
            Text(readable(cell.text), cell.style)
            if isinstance(cell, Cell)
            else Text(readable(cell))
            for cell in cells
        )
    )


def applications_table(rows: Sequence[ApplicationRow]) -> Table:
    table = table_of("Applications", "application~", "configurations>", "step>")
    for row in rows:
        _add(table, row.name, str(row.configurations), str(row.step))
    return table


def list_table(application: str, rows: Sequence[Row]) -> Table:
    title = f"Configurations of {readable(application)}"
    table = table_of(title, "name~", "version>", "id", "size>", "time", "author")
    for row in rows:
        size, time = size_words(row.length), time_words(row.wall_us)
        _add(table, row.name, str(row.version), id_words(row.id), size, time, row.author)
    return table


def history_table(place: str, versions: Sequence[Kept]) -> Table:
    """The newest on top."""
    title = f"Versions of {readable(place)}"
    table = table_of(title, "version>", "id", "time", "change>", "size>", "step>", "author~")
    for kept in reversed(versions):
        kind = KINDS[Kind(kept.kind)]
        change = size_words(kept.change_bytes) if kind == "delta" else kind
        _add(
            table,
            str(kept.version),
            id_words(kept.id),
            time_words(kept.wall_us),
            Cell(change, "red" if kind == "delete" else ""),
            size_words(kept.length),
            str(kept.step),
            kept.author,
        )
    return table


def status_table(place: Place, report: StatusReport) -> Table:
    """Columns that would say nothing are left out."""
    rows = report.rows
    columns = ["container", "application", "site", "state", "version>", "applied", "since>", "by",
               "remark~"]  # fmt: skip
    cells: list[list[str | Cell]] = [
        [
            row.container,
            row.owner,
            row.site,
            Cell(STATES[State(row.state)], STATE_COLOURS[State(row.state)]),
            str(row.version) if row.version else "?",
            Cell("yes", "green") if has_newest(row, report) else Cell("no", "red"),
            span_words(row.since_s) if row.since_s else "",
            row.relay or "primary",
            _remark(row),
        ]
        for row in rows
    ]
    needless = {
        "application": all(row.owner == place.application for row in rows),
        "remark~": not any(map(_remark, rows)),
    }
    shown = [k for k, column in enumerate(columns) if not needless.get(column, False)]
    title = f"{readable(str(place))}, version {report.version}, step {report.step}"
    table = table_of(title, *(columns[k] for k in shown))
    for line in cells:
        _add(table, *(line[k] for k in shown))
    return table


def _remark(row: StatusRow) -> str:
    avoided = "not used as a relay at the moment" if row.avoided else ""
    return "; ".join(filter(None, (row.reason, avoided)))


def status_sentence(report: StatusReport) -> str:
    rows = report.rows
    if not rows:
        return "no container follows it"
    having = sum(has_newest(row, report) for row in rows)
    return f"{plural(len(rows), 'container')}, {having} with version {report.version}"


# How waiting goes and ends.


def unreached_table(level: str, report: Awaited) -> Table:
    """Who has not reached the level or has rejected the step, by name."""
    title = "Not applied" if level == "applied" else "Not delivered, or rejected"
    table = table_of(title, "container", "state", "reason~")
    for name, named in unreached(level, report):
        reason = named.reason
        if name == "offline":
            reason = f"since {span_words(named.since_s)}"
        elif name == "delivered":
            reason = "has not said whether it is applied"
        _add(table, named.container, Cell(name, CLASS_COLOURS[name]), reason)
    unnamed = report.interested - reached(level, report) - table.row_count
    if unnamed > 0:
        _add(table, f"… and {unnamed} more")
    return table


def fleet_bar(report: Awaited, cells_max: int = BAR_CELLS) -> Text:
    """The fleet as a line: one colour for each class, in proportion."""
    counts = [getattr(report, name).count for name in CLASSES]
    bar, total, before = Text(), sum(counts), 0
    for name, count in zip(CLASSES, counts, strict=True):
        # Ends are rounded, not lengths: so the bar is always full.
        cells = round((before + count) * cells_max / total) if total else 0
        cells -= round(before * cells_max / total) if total else 0
        before += count
        bar.append(("━" if name != "silent" else "╌") * cells, CLASS_COLOURS[name])
    return bar if total else Text("╌" * cells_max, "bright_black")


def fleet_line(level: str, report: Awaited, elapsed_s: float) -> Text:
    """The bar, and the same in numbers."""
    line = fleet_bar(report)
    line.append(f" {reached(level, report)}/{report.interested} {level}", "bold")
    shown = CLASSES[2:] if level == "delivered" else CLASSES[1:]
    for name in shown:
        count = getattr(report, name).count
        if count:
            line.append(" · ").append(f"{count} {name}", CLASS_COLOURS[name])
    line.no_wrap, line.overflow = True, "ellipsis"  # one line, however narrow the terminal
    return line.append(f"  {elapsed_s:.1f} s", "bright_black")


def report_sentence(level: str, report: Awaited, elapsed_s: float) -> str:
    """How waiting ended, in one line."""
    end = "" if report.complete else ": the deadline is over"
    if not report.interested:
        return f"no container follows it{end}"
    count, fleet = reached(level, report), plural(report.interested, "container")
    way = "applied by" if level == "applied" else "delivered to"
    return f"{way} {count} of {fleet} in {span_words(elapsed_s)}{end}"


# Differences.


def diff_line(line: str) -> Text:
    bold = line.startswith(("---", "+++"))
    return Text(line, "bold" if bold else DIFF_COLOURS.get(line[:1], ""))
