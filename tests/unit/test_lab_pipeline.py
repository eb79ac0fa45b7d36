"""The comparison with DuckDB: what is held against which bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.errors import ConfigurationError
from swell.lab import pipeline
from swell.lab.pipeline import GROWING, RATIO_MAX, SOURCE, bars, check_disk, headline

SIZES = (1_000_000, 10_000_000, 50_000_000)


def rows(**changes: Any) -> list[dict[str, Any]]:
    """A run that holds every bar, with changes to its audit of the largest log."""
    found: list[dict[str, Any]] = []
    for size in SIZES:
        for job in dict.fromkeys((*GROWING, *RATIO_MAX)):
            seconds = size / 1e6
            found.append(
                {"job": job, "rows": size, "spark_s": seconds, "rows_per_s": 1e6, "ratio": 3.0}
                | {"same": True}
            )
            if job == "audit" and size == SIZES[-1]:
                found[-1].update(changes)
        found.append({"job": SOURCE, "rows": size, "spark_s": 1.0, "rows_per_s": 2e6})
    found.append({"query": "without state", "median_s": 0.5})
    found.append({"query": "audit", "median_s": 1.5})
    return found


def failing(found: list[dict[str, Any]]) -> list[str]:
    return [bar.what for bar in bars(found, SIZES) if not bar.holds]


def test_every_bar_holds_on_a_good_run() -> None:
    assert not failing(rows())
    assert headline(rows())["audit, 50,000,000 rows: rows/s"] == 1e6


def test_growth_is_the_time_of_the_largest_over_the_next() -> None:
    assert failing(rows(spark_s=61.0)) == ["audit: time of 50,000,000 rows over that of 10,000,000"]
    assert not failing(rows(spark_s=59.0))


def test_engines_that_differ_fail() -> None:
    assert failing(rows(same=False)) == ["jobs and sizes where the engines differ in an answer"]


@pytest.mark.parametrize(
    ("job", "change"),
    [
        ("anti-join", {"ratio": 12.1}),
        ("latency", {"ratio": 12.1}),
        ("range join", {"ratio": 4.1}),
        (SOURCE, {"rows_per_s": 0.9e6}),
    ],
)
def test_a_job_that_is_too_slow_at_one_size_fails(job: str, change: dict[str, Any]) -> None:
    found = rows()
    next(row for row in found if row.get("job") == job).update(change)
    assert len(failing(found)) == 1


@pytest.mark.parametrize(("query", "seconds"), [("without state", 1.1), ("audit", 2.1)])
def test_a_micro_batch_that_is_too_slow_fails(query: str, seconds: float) -> None:
    found = rows()
    next(row for row in found if row.get("query") == query)["median_s"] = seconds
    assert len(failing(found)) == 1


def test_a_full_disk_is_found_before_anything_is_made(tmp_path: Path) -> None:
    check_disk(tmp_path, 0)
    with pytest.raises(ConfigurationError, match="free"):
        check_disk(tmp_path, 1 << 30)


def test_a_quick_run_has_one_size_and_no_growth() -> None:
    found = [row for row in rows() if row.get("rows", SIZES[0]) == SIZES[0]]
    assert not any("over that of" in bar.what for bar in bars(found, pipeline.SIZES_QUICK))
