"""The test runner itself: budgets bite, failures count, missing tests do not."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.run_parts import Outcome, main, report, run_part, run_with_limit


def write_part(root: Path, body: str) -> Path:
    tests = root / "tests"
    (tests / "unit").mkdir(parents=True)
    if body:
        (tests / "unit" / "test_it.py").write_text(body)
    return tests


def test_passing_part(tmp_path: Path) -> None:
    outcome = run_part("unit", 60.0, write_part(tmp_path, "def test_a(): pass\n"))
    assert outcome.trouble == ""
    assert outcome.counts["passed"] == 1


def test_failing_part(tmp_path: Path) -> None:
    outcome = run_part("unit", 60.0, write_part(tmp_path, "def test_a(): assert 0\n"))
    assert "exit code 1" in outcome.trouble
    assert outcome.counts["failed"] == 1


def test_part_without_tests(tmp_path: Path) -> None:
    outcome = run_part("unit", 60.0, write_part(tmp_path, ""))
    assert (outcome.trouble, outcome.counts) == ("", {})


def test_part_over_its_budget_fails_although_its_tests_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.run_parts.STOP_FACTOR", 1e6)
    outcome = run_part("unit", 0.001, write_part(tmp_path, "def test_a(): pass\n"))
    assert outcome.counts["passed"] == 1
    assert "over budget" in outcome.trouble


def test_a_part_hears_interrupts_also_in_the_background(tmp_path: Path) -> None:
    asked = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_with_limit([sys.executable, "-c", asked], tmp_path, 60.0) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_hanging_command_is_stopped(tmp_path: Path) -> None:
    assert run_with_limit(["sleep", "60"], tmp_path, 0.05) is None


def test_report_says_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    good = Outcome("unit", {"passed": 3}, 1.0, "")
    bad = Outcome("scenarios", {"passed": 2, "failed": 1}, 2.0, "failed (pytest exit code 1)")
    assert report([good]) == 0
    assert report([good, bad]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED: failed" in lines[-2]
    assert lines[-1].split() == ["total", "3.0", "s", "5", "passed,", "1", "failed"]


def test_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["untit"]) == 2
    assert "no part 'untit'" in capsys.readouterr().err
