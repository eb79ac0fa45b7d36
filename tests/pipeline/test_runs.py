"""The audit of what real processes and simulations wrote, in one go: it is clean, whatever was
killed, and finds the bugs that are planted (PIP-3)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from swell.pipeline import audit, latency
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.verdicts import Verdict
from swell.simulation.workloads.config import REACH_S_MAX
from tests.pipeline.audited_runs import REAL, SPOILED_REAL, AuditedRuns
from tests.pipeline.planted_bugs import BUGS
from tests.pipeline.real_run import MORE, PER_PROCESS
from tests.pipeline.simulated_runs import (
    HUNTED,
    HUNTED_SEEDS,
    LARGE,
    SOUND,
    SPOILED,
    Run,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if LARGE else 180)]


def violations(result: audit.AuditResult) -> dict[str, set[str]]:
    """Verdicts by run."""
    wrong: dict[str, set[str]] = {}
    for row in result.summary:
        if row.violations:
            wrong.setdefault(row.run, set()).add(row.verdict)
    return wrong


def test_a_real_run_with_kills_is_clean_and_bugs_are_found(
    audited_runs: AuditedRuns,
) -> None:
    result = audited_runs.result
    assert REAL not in violations(result)
    spoiled = (f.col("run") == SPOILED_REAL) & f.col("excuse").isNull()
    rows = result.evidence.where(spoiled).select("application", "verdict").distinct().collect()
    verdicts = {tuple(row) for row in rows}
    assert verdicts >= {(bug, verdict) for bug, (_, verdict) in BUGS.items()}
    assert {application for application, _ in verdicts} == set(BUGS), verdicts
    counted = audited_runs.real.where(f.col("run") == REAL).agg(
        f.count_distinct(f.when(f.col("role") == "container", f.struct("node", "start"))),
        f.count_if(f.col("kind") == "crash-found"),
        f.count_if(f.col("reason") == "taken over"),
    )
    (lives, crashes, repeated) = counted.collect()[0]
    assert lives == 3 * PER_PROCESS
    assert crashes
    assert repeated
    assert result.counts.expected > 5000


def test_simulated_runs_are_sound_and_bugs_are_found(
    audited_runs: AuditedRuns,
) -> None:
    """Faults stop containers or cut them off for longer than any user would allow: what they get
    then is late, and says so."""
    result = audited_runs.result
    wrong = violations(result)
    for run in SOUND:
        assert audited_runs.passed[run]
        assert wrong.get(run.name, set()) <= {str(Verdict.LATE)}, run
    found = result.evidence.where(f.col("excuse").isNull()).select("run", "application", "verdict")
    verdicts = {tuple(row) for row in found.distinct().collect()}
    for run, expected in SPOILED.items():
        assert not audited_runs.passed[run]
        assert wrong[run.name] >= expected, run
        for application, bug in run.planted:
            assert (run.name, application, BUGS[bug][1]) in verdicts
    for bug, verdict in HUNTED.items():
        runs = [Run(seed, bug) for seed in range(HUNTED_SEEDS)]
        assert any(verdict in wrong.get(run.name, ()) for run in runs), bug


@pytest.mark.skipif(not LARGE, reason="another minute: make simulate")
def test_simulated_runs_are_clean_by_what_is_promised_of_them(
    spark: SparkSession, audited_runs: AuditedRuns
) -> None:
    """Everybody has everything so soon after all is healed."""
    sound = audited_runs.simulated.where(f.col("run").isin(*(run.name for run in SOUND)))
    result = audit.run(spark, sound, AuditSettings(sla_s=REACH_S_MAX))
    assert result.clean, result.summary
    assert result.counts.expected > 200 * len(SOUND)


def test_latency_is_measured_from_when_a_burst_was_sent(audited_runs: AuditedRuns) -> None:
    """How many it is of depends on the machine: updates that wait are merged, and what was stored
    just before the primary was killed has no time."""
    real = audited_runs.real.where(f.col("run") == REAL)
    sent, stored = (
        latency.table(real, None, (), since=since).collect()[0]
        for since in (latency.Since.SENT, latency.Since.STORED)
    )
    assert sent["count"] >= stored["count"] > MORE
    assert 0 < sent["p50_ms"] <= stored["p50_ms"] < 3000
