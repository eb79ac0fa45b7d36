"""What the broadcast rates show: the paper's trends beside ours, and its Figs 4 to 7."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swell.lab.experiment import Lab

Rows = Sequence[Mapping[str, Any]]

PANELS = (
    ("rate_per_source", "broadcast rate per source, msg/s", "Fig. 4: per source", True),
    ("receive_per_sink", "receive rate per sink, msg/s", "Fig. 5: per sink", False),
    ("receive_total", "receive rate of all sinks, msg/s", "Fig. 6: all sinks", False),
    ("MB_per_s", "MB/s, headers included", "Fig. 7: all sinks, bytes", False),
)
"""(figure of a row, axis, title, logarithmic)."""


def trends(rows: Rows) -> list[Mapping[str, Any]]:
    """One row per trend that THOR 5 states, and what was measured here."""
    rows = [row for row in rows if "receive_per_sink" in row]
    small, large = (pick(row["payload_bytes"] for row in rows) for pick in (min, max))
    found = [
        ("rate per source, largest overlay against smallest: one source", "falls exponentially",
         _growth(rows, "one", "rate_per_source")),
        ("the same: all sources", "falls", _growth(rows, "all", "rate_per_source")),
        ("rate per source, one against all", "much higher",
         _against(rows, "rate_per_source", invert=True)),
        (f"receive rate at {small} B, all sources against one", "no significant difference",
         _against(rows, "receive_per_sink", small)),
        (f"receive rate at {large} B, all sources against one", "clearly higher",
         _against(rows, "receive_per_sink", large)),
        (f"bytes per second, {large} B against {small} B", "higher", _bytes(rows, small, large)),
        ("variation over time, all sources against one", "smaller",
         _against(rows, "variation_time")),
        ("variation between nodes, all sources against one", "smaller",
         _against(rows, "variation_nodes")),
    ]  # fmt: skip
    return [
        {
            "part": "the paper's trends, as ratios",
            "trend": trend,
            "paper": says,
            "least": round(min(ratios), 3) if ratios else None,
            "median": round(statistics.median(ratios), 3) if ratios else None,
            "most": round(max(ratios), 3) if ratios else None,
        }
        for trend, says, ratios in found
    ]


def _values(rows: Rows, figure: str) -> dict[tuple[int, int, str], float]:
    return {(row["payload_bytes"], row["nodes"], row["sources"]): row[figure] for row in rows}


def _against(rows: Rows, figure: str, payload_bytes: int = 0, invert: bool = False) -> list[float]:
    """All sources against one, at each point; `invert` for one against all."""
    values = _values(rows, figure)
    pairs = [
        (all_sources, values[payload, nodes, "one"])
        for (payload, nodes, kind), all_sources in values.items()
        if kind == "all" and (payload, nodes, "one") in values
        if payload_bytes in (0, payload)
    ]
    if invert:
        pairs = [(one, all_sources) for all_sources, one in pairs]
    return [above / below for above, below in pairs if below]


def _growth(rows: Rows, kind: str, figure: str) -> list[float]:
    """The largest overlay against the smallest, for each payload."""
    values = _values([row for row in rows if row["sources"] == kind], figure)
    smallest, largest = (pick(row["nodes"] for row in rows) for pick in (min, max))
    return [
        value / values[payload, smallest, kind]
        for (payload, nodes, _), value in values.items()
        if nodes == largest and (payload, smallest, kind) in values
    ]


def _bytes(rows: Rows, small: int, large: int) -> list[float]:
    values = _values(rows, "MB_per_s")
    return [
        value / values[small, nodes, kind]
        for (payload, nodes, kind), value in values.items()
        if payload == large and (small, nodes, kind) in values
    ]


def plot(lab: Lab, rows: Rows) -> None:
    """Four panels as in the paper: solid lines for all sources, dashed for one."""
    canvas = Figure(figsize=(12, 8.5), dpi=110, layout="constrained")
    canvas.suptitle("Maximum sustainable broadcast rates (THOR, Figs 4-7)")
    panels = canvas.subplots(2, 2)
    for axes, (figure, label, title, logarithmic) in zip(panels.flat, PANELS, strict=True):
        _panel(axes, [row for row in rows if figure in row], figure)
        axes.set_title(title)
        axes.set_xlabel("nodes")
        axes.set_ylabel(label)
        axes.set_yscale("log" if logarithmic else "linear")
        if not logarithmic:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter("{x:,.0f}")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3)
    canvas.savefig(lab.plot("thor-broadcast"))


def _panel(axes: Axes, rows: Rows, figure: str) -> None:
    sizes = sorted({row["nodes"] for row in rows})
    payloads = sorted({row["payload_bytes"] for row in rows})
    for number, payload in enumerate(payloads):
        for kind, style in (("one", "--"), ("all", "-")):
            points = [
                (row["nodes"], row[figure])
                for row in rows
                if row["payload_bytes"] == payload and row["sources"] == kind
            ]
            label = f"{payload:,} B, {kind} source{'s' if kind == 'all' else ''}"
            axes.plot(
                *zip(*points, strict=True), style, marker=".", color=f"C{number}", label=label
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.grid(alpha=0.3)
