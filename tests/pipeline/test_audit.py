"""The audit against an oracle in plain Python on 200 generated logs, all in one frame (PIP-3)."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.pipeline import audit
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.schema import EVENTS
from swell.pipeline.verdicts import EVIDENCE, Verdict, earliest
from tests.pipeline.audited_logs import FOUND_OF_CLOCKS, SETTINGS, SOUND, STREAMED, Audited
from tests.pipeline.generated_logs import GeneratedLog
from tests.pipeline.oracle import Finding, Oracle, Rules

Found = Counter[tuple[str, Finding]]


def found_by_oracle(generated: list[GeneratedLog], rules: Rules) -> Found:
    return Counter(
        (log.run, finding) for log in generated for finding in Oracle(log.rows, rules).judge()
    )


def findings(evidence: DataFrame) -> Found:
    return Counter(
        (
            row["run"],
            Finding(
                row["verdict"],
                row["application"],
                row["name"],
                row["who"],
                row["first"],
                row["last"],
                row["node"],
                row["start"],
                row["row"],
                row["excuse"] is not None,
            ),
        )
        for row in evidence.toLocalIterator()
    )


def difference(ours: Found, oracles: Found) -> str:
    lines = [f"only the audit: {one}" for one in sorted(map(str, ours - oracles))]
    lines += [f"only the oracle: {one}" for one in sorted(map(str, oracles - ours))]
    return "\n".join(lines[:20])


def test_verdicts_are_those_of_the_oracle(audited: Audited) -> None:
    result = audited.result
    everything = findings(result.evidence)
    ours = Counter({one: n for one, n in everything.items() if not one[0].startswith(STREAMED)})
    oracles = found_by_oracle(audited.generated, Rules(horizon_us=SETTINGS.horizon_us))
    assert not difference(ours, oracles), difference(ours, oracles)
    kinds = {finding.verdict for _, finding in ours if not finding.excused}
    assert kinds == set(map(str, Verdict)), "every kind of fault was planted and found"
    assert {f.verdict for _, f in ours if f.excused} >= {"missing", "unknown", "version-gap"}
    sound = {f"run-{seed}" for seed in range(SOUND)}
    assert not [one for one in ours if one[0] in sound], "sound runs are clean"
    late_logs = [finding for run, finding in ours if run.startswith("cut-")]
    assert all(finding.excused for finding in late_logs), "and what is left of them"
    assert {finding.verdict for finding in late_logs} >= {"version-gap", "step-gap"}
    violations = sum(count for (_, finding), count in everything.items() if not finding.excused)
    assert sum(row.violations for row in result.summary) == violations
    assert result.counts.expected > result.counts.delivered > 900
    assert result.counts.skipped > 0
    assert result.exit_code == 1


def test_what_is_missing_is_found_whosever_clock_is_off(audited: Audited) -> None:
    found: dict[str, set[tuple[str, str, bool]]] = {run: set() for run in FOUND_OF_CLOCKS}
    for row in audited.result.evidence.where(f.col("run").isin(*FOUND_OF_CLOCKS)).collect():
        assert row["verdict"] == "missing"
        found[row["run"]].add((row["name"], row["who"], row["excuse"] is not None))
    assert found == FOUND_OF_CLOCKS


@pytest.mark.skipif("SWELL_LARGE" not in os.environ, reason="a minute long: make simulate")
def test_other_settings_are_those_of_the_oracle(spark: SparkSession, audited: Audited) -> None:
    settings = AuditSettings(
        sla_s=0.5, horizon_s=5.0, settle_s=2.0, tail_s=8.0, clock_bound_s=0.2, complete=False
    )
    rules = Rules(
        sla_us=500_000,
        horizon_us=5_000_000,
        settle_us=2_000_000,
        tail_us=8_000_000,
        clock_bound_us=200_000,
        complete=False,
    )
    generated = audited.frame.where(~f.col("run").startswith(STREAMED))
    result = audit.run(spark, generated, settings)
    ours, oracles = findings(result.evidence), found_by_oracle(audited.generated, rules)
    assert not difference(ours, oracles), difference(ours, oracles)


def test_an_empty_log_is_clean_and_counts_nothing(spark: SparkSession) -> None:
    result = audit.run(spark, spark.createDataFrame([], EVENTS), AuditSettings())
    assert result.clean
    assert result.counts.expected == 0


@pytest.mark.beside
def test_the_evidence_that_is_shown_does_not_depend_on_how_it_is_spread(
    spark: SparkSession,
) -> None:
    found = [
        ("r", "late", "shop", "x", "c1", 1, 1, "n1", 1, number, datetime.fromtimestamp(5, UTC), 4.0)
        for number in range(40)
    ]
    frame = spark.createDataFrame([(*row, None) for row in reversed(found)], EVIDENCE)
    for parts in (1, 7):
        shown = earliest(frame.repartition(parts, "row"), 20).collect()
        assert [row["row"] for row in shown] == list(range(20))
