"""An audit as one page that a person reads: what was judged, what was found, the rows that show it.

Self-contained HTML: no script, no other file, everything from the log escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from swell.errors import ConfigurationError
from swell.pipeline.audit import AuditResult
from swell.pipeline.outcome import rows_of
from swell.pipeline.verdicts import EVIDENCE, MEANINGS, Verdict

SHOWN_PER_VERDICT = 20
LATENCY_ROWS_MAX = 5_000
LATENCY_ROWS_SHOWN = 50

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px }
th, td { border: 1px solid #8886; padding: .2rem .5rem; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.clean, .bad { padding: .6rem 1rem; border-radius: .4rem; color: #fff; font-weight: 600 }
.clean { background: #1b6e3c } .bad { background: #b3261e }
img { max-width: 100%; background: #fff } .excused { opacity: .65 } .wide { overflow-x: auto }
"""


def write(
    result: AuditResult,
    latency: DataFrame | None,
    path: str,
    notes: Sequence[str] = (),
    sla_s: float = 3.0,
) -> None:
    """Write the page."""
    page = text(result, latency, notes, sla_s)
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written: {error}") from None


def text(
    result: AuditResult,
    latency: DataFrame | None,
    notes: Sequence[str] = (),
    sla_s: float = 3.0,
) -> str:
    """The page. `latency`: a table with windows, as `swell.pipeline.latency` gives it."""
    rows = [] if latency is None else _latency_rows(latency)
    return _page(result, _samples(result.evidence), rows, notes, sla_s)


def _page(
    result: AuditResult,
    samples: Sequence[Mapping[str, Any]],
    latency: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    sla_s: float,
) -> str:
    from swell.pipeline import report_plots  # a second, which most jobs can do without

    violations = sum(row.violations for row in result.summary)
    excused = sum(row.excused for row in result.summary)
    expected, delivered, skipped = result.counts
    verdict = "No violations" if result.clean else f"{violations:,} violations"
    parts = [
        f'<p class="{"clean" if result.clean else "bad"}">{verdict}</p>',
        f"<p>{expected:,} deliveries were expected, {delivered:,} came, {skipped:,} of them by a "
        f"later version; the SLA is {sla_s:g} s. {excused:,} findings are explained by rows that "
        "the log has lost.</p>",
        *(f"<p>Note: {escape(note)}.</p>" for note in notes),
    ]
    if result.summary:
        counts = _per_verdict(result)
        parts += [_image(report_plots.findings(counts), "findings"), _summary(result)]
    if latency:
        parts.append("<h2>Latency</h2>")
        parts.append(_image(report_plots.latencies(latency, sla_s * 1000), "latency"))
        slowest = sorted(latency, key=lambda row: row["p99_ms"], reverse=True)
        cut = " with the most deliveries" * (len(latency) == LATENCY_ROWS_MAX)
        parts.append(f"<p>Slowest of the {len(latency):,} groups{cut}, by the 99th percentile:</p>")
        parts.append(_table(slowest[:LATENCY_ROWS_SHOWN]))
    if samples:
        parts.append("<h2>Evidence</h2>")
        parts.append(f"<p>At most {SHOWN_PER_VERDICT} of each verdict.</p>{_table(samples)}")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Audit</title>'
        f"<style>{STYLE}</style></head><body><h1>Audit</h1>\n{body}\n</body></html>\n"
    )


def _per_verdict(result: AuditResult) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for row in result.summary:
        violations, excused = counts.get(row.verdict, (0, 0))
        counts[row.verdict] = (violations + row.violations, excused + row.excused)
    return dict(sorted(counts.items()))


def _summary(result: AuditResult) -> str:
    rows = [
        {
            "run": row.run,
            "verdict": row.verdict,
            "meaning": MEANINGS[Verdict(row.verdict)],
            "violations": row.violations,
            "excused": row.excused,
        }
        for row in result.summary
    ]
    return _table(rows)


def _samples(found: DataFrame) -> list[dict[str, Any]]:
    """The first few findings of each verdict, violations first."""
    order = Window.partitionBy("verdict").orderBy(
        f.col("excuse").isNotNull(), "at", "run", "node", "start", "row", "who", "first"
    )
    ranked = found.withColumn("rank", f.row_number().over(order))
    shown = ranked.where(f.col("rank") <= SHOWN_PER_VERDICT).orderBy("verdict", "rank")
    return rows_of(shown.select(*EVIDENCE.fieldNames()))


def _latency_rows(latency: DataFrame) -> list[dict[str, Any]]:
    largest = latency.orderBy(f.desc("count"), *latency.columns).limit(LATENCY_ROWS_MAX)
    return rows_of(largest)


def _image(address: str, what: str) -> str:
    return f'<img alt="{what}" src="{address}">'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(rows[0])
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(_row(row, columns) for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}\n</table></div>'


def _row(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    cells = "".join(_cell(row[column]) for column in columns)
    return f'<tr class="excused">{cells}</tr>' if row.get("excuse") else f"<tr>{cells}</tr>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, float):
        return f'<td class="n">{value:,.1f}</td>'
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
