"""The page of an audit: one file, everything escaped, with what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from swell.errors import ConfigurationError
from swell.pipeline import report
from swell.pipeline.audit import AuditResult, Counts, SummaryRow
from swell.pipeline.verdicts import EVIDENCE, LOST_ROWS

AT = datetime(2026, 11, 11, tzinfo=UTC)


def result_of(spark: SparkSession, violations: int) -> AuditResult:
    name = "<script>alert(1)</script>"
    found = [
        ("r", "missing", "shop", name, "c1", 3, 4, "n1", 1, index, AT, None, None)
        for index in range(violations)
    ]
    found.append(("r", "late", "shop", "x", "c1", 3, 4, "c1", 1, 9, AT, 4000.5, LOST_ROWS))
    summary = [SummaryRow("r", "late", 0, 1)]
    if violations:
        summary.append(SummaryRow("r", "missing", violations, 0))
    frame = spark.createDataFrame(found, EVIDENCE)
    return AuditResult(summary, Counts(1234, 1200, 7), frame)


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_the_page_has_all_and_nothing_runs(spark: SparkSession, tmp_path: Path) -> None:
    latency = spark.createDataFrame(
        [("r", "shop", AT, 10, 1.5, 2.5, 3.5, 4.5, 0)],
        "run string, application string, window timestamp, count long, p50_ms double, "
        "p90_ms double, p99_ms double, max_ms double, late long",
    )
    path = tmp_path / "audit.html"
    report.write(result_of(spark, 30), latency, str(path), notes=["1 file is <torn>"])
    text = path.read_text(encoding="utf-8")
    assert "30 violations" in text
    assert "1,234 deliveries were expected" in text
    assert "1 file is &lt;torn&gt;" in text
    assert text.count("data:image/png;base64,") == 2
    assert text.count("&lt;script&gt;") == report.SHOWN_PER_VERDICT
    assert "<script" not in text
    assert "http" not in text
    assert "4,000.5" in text
    assert text.count(str(AT)) == report.SHOWN_PER_VERDICT + 2


def test_a_clean_page_says_so(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    report.write(result_of(spark, 0), None, str(path))
    assert "No violations" in path.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        report.write(result_of(spark, 0), None, str(tmp_path / "no" / "audit.html"))
