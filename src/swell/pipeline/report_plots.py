"""The plots of a report, as PNG in a data address: a report is one file without any other."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

VIOLATION, EXCUSED = "#b3261e", "#b0a36a"


def drawn(title: str, x: str, y: str, draw: Callable[[Axes], None]) -> str:
    """The address of a picture with one set of axes."""
    canvas = Figure(figsize=(9, 3.8), dpi=110, layout="constrained")
    axes = canvas.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    draw(axes)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small")
    data = BytesIO()
    canvas.savefig(data, format="png")
    return f"data:image/png;base64,{b64encode(data.getvalue()).decode()}"


def findings(counts: Mapping[str, tuple[int, int]]) -> str:
    """Violations and excused findings of each verdict."""
    names = list(counts)

    def draw(axes: Axes) -> None:
        violations = [counts[name][0] for name in names]
        axes.barh(names, violations, color=VIOLATION, label="violations")
        excused = [counts[name][1] for name in names]
        axes.barh(names, excused, left=violations, color=EXCUSED, label="excused")
        axes.invert_yaxis()

    return drawn("Findings", "rows of evidence", "", draw)


def latencies(rows: Sequence[Mapping[str, Any]], sla_ms: float) -> str:
    """Percentiles over time, the worst of all groups in each window."""
    windows = sorted({row["window"] for row in rows})

    def draw(axes: Axes) -> None:
        for column in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
            worst = [max(row[column] for row in rows if row["window"] == w) for w in windows]
            axes.plot(windows, worst, marker=".", label=column.removesuffix("_ms"))
        axes.axhline(sla_ms, color=VIOLATION, linestyle="--", label="SLA")
        axes.set_yscale("log")
        axes.tick_params(axis="x", labelrotation=20)

    return drawn("Latency of deliveries, worst group", "time (UTC)", "ms", draw)
