"""Generated logs that several tests want audited: in one frame, since to plan an audit takes longer
than to run it on so few rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from swell.pipeline import audit
from swell.pipeline.audit_settings import AuditSettings
from tests.pipeline.generated_logs import GeneratedLog, S, cut, frame_of, make, moved, off_clock

LOGS = 200
SOUND = 20
"""Of these logs no faults are planted into so many."""
CUT = 10
"""Sound logs that begin in the middle, beside them."""
STREAMED = "stream-"
"""How the names of runs begin that are one after the other on one clock."""
SETTINGS = AuditSettings(horizon_s=30.0)
_OFF = {
    ("early", "c0", False),
    ("early", "c1", False),
    ("lost", "c0", True),
    ("lost", "c1", True),
    ("late", "c0", False),
}
FOUND_OF_CLOCKS: dict[str, set[tuple[str, str, bool]]] = {
    "moved": set(),
    "moved-lost": {("ui", "c0", False)},
    "ahead": _OFF,
    "behind": _OFF,
}
"""By run: the configuration that is missing, of whom, and whether that is excused."""


class Audited(NamedTuple):
    generated: list[GeneratedLog]
    streamed: GeneratedLog
    frame: DataFrame
    result: audit.AuditResult


def make_audited(spark: SparkSession, path: Path) -> Audited:
    made = [make(f"run-{seed}", seed, 0 if seed < SOUND else 1 + seed % 6) for seed in range(LOGS)]
    cuts = [cut(f"cut-{seed}", seed, 0.1 + 0.8 * seed / CUT) for seed in range(CUT)]
    streamed = log_of_many()
    generated = [*made, *cuts, *logs_of_clocks()]
    frame = frame_of(spark, [*generated, streamed], path).persist()
    return Audited(generated, streamed, frame, audit.run(spark, frame, SETTINGS))


def logs_of_clocks() -> list[GeneratedLog]:
    """In which much depends on whose clock is off; `FOUND_OF_CLOCKS` is what there is to find."""
    moves = [moved("moved", arrives=True), moved("moved-lost", arrives=False)]
    return [*moves, off_clock("ahead", 600 * S), off_clock("behind", -600 * S)]


def log_of_many() -> GeneratedLog:
    """Several runs, one after the other on one clock, and a last row that lets all be judged."""
    whole = make(f"{STREAMED}0", 0, 0, skews=False)
    for seed in range(1, 12):
        whole.rows += make(f"{STREAMED}{seed}", seed, 6, skews=False).rows
    end_us = max(row["at"] for row in whole.rows) + 1000 * S
    for run in sorted({row["run"] for row in whole.rows}):
        last = next(row for row in whole.rows if row["run"] == run and row["role"] == "node")
        node = {"node": "last", "row": 1, "kind": "stop", "peer": "nobody"}
        whole.rows.append({**last, **node, "at": end_us, "mono_us": 0})
    return whole
