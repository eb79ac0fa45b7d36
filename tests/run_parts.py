"""Run the parts of the tests one after another, each within its time budget.

    python tests/run_parts.py [part ...]

Prints the time of each part and fails if one fails or needs longer than its budget. A part that
does not end by itself is stopped some time after its budget. A part without tests is no failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parent

BUDGETS_S: Mapping[str, float] = {
    "unit": 240.0,
    "scenarios": 30.0,
    "simulation": 480.0,
    "processes": 900.0,
    "pipeline": 420.0,
}

STOP_FACTOR = 1.5
"""A part that runs for this many times its budget is stopped: it hangs, or might as well."""

NO_TESTS_COLLECTED = 5  # pytest's exit code


class Outcome(NamedTuple):
    """What became of one part."""

    part: str
    counts: dict[str, int]
    took_s: float
    trouble: str
    """Why the part failed; empty if it did not."""


def run_part(part: str, budget_s: float, tests: Path = TESTS) -> Outcome:
    """Run one part with pytest, which writes to our terminal, and judge it."""
    results = tests.parent / "out" / f"tests-{part}.xml"
    results.parent.mkdir(exist_ok=True)
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", str(tests / part), f"--junit-xml={results}"]
    begun = time.monotonic()
    code = run_with_limit(command, tests.parent, budget_s * STOP_FACTOR)
    took_s = time.monotonic() - begun
    if code == NO_TESTS_COLLECTED:
        return Outcome(part, {}, took_s, "")
    if code is None:
        return Outcome(part, {}, took_s, f"stopped: over {STOP_FACTOR} times its budget")
    trouble = f"failed (pytest exit code {code})" if code else ""
    if took_s > budget_s:
        over = f"over budget: took {took_s:.1f} s, may take {budget_s:.0f} s"
        trouble = f"{trouble}; {over}" if trouble else over
    return Outcome(part, read_counts(results), took_s, trouble)


def run_with_limit(command: list[str], directory: Path, limit_s: float) -> int | None:
    """Exit code, or None if it had to be stopped. A process group of its own, so that the nodes
    that a stopped test had started go with it; and it hears Ctrl-C, though we may have been started
    in the background, where a shell has it ignored."""

    def hear_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, cwd=directory, start_new_session=True, preexec_fn=hear_interrupts
    ) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def read_counts(results: Path) -> dict[str, int]:
    """Passed, failed, errors and skipped, from pytest's result file."""
    if not results.exists():
        return {}
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in ElementTree.parse(results).getroot().iter("testsuite"):
        for key in totals:
            totals[key] += int(suite.get(key, "0"))
    bad = totals["failures"] + totals["errors"] + totals["skipped"]
    return {
        "passed": totals["tests"] - bad,
        "failed": totals["failures"],
        "errors": totals["errors"],
        "skipped": totals["skipped"],
    }


def summary(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "no tests"


def report(outcomes: list[Outcome]) -> int:
    """One line per part and one for all; the exit code."""
    print()
    for outcome in outcomes:
        budget = f"{outcome.took_s:6.1f} s of {BUDGETS_S[outcome.part]:3.0f} s"
        verdict = f"  FAILED: {outcome.trouble}" if outcome.trouble else ""
        print(f"{outcome.part:<11}{budget}  {summary(outcome.counts)}{verdict}")
    total: dict[str, int] = {}
    for outcome in outcomes:
        for what, n in outcome.counts.items():
            total[what] = total.get(what, 0) + n
    print(f"total      {sum(outcome.took_s for outcome in outcomes):6.1f} s  {summary(total)}")
    return 1 if any(outcome.trouble for outcome in outcomes) else 0


def main(arguments: list[str]) -> int:
    unknown = [part for part in arguments if part not in BUDGETS_S]
    if unknown:
        print(f"error: no part {unknown[0]!r}; there are {', '.join(BUDGETS_S)}", file=sys.stderr)
        return 2
    outcomes = []
    for part in arguments or BUDGETS_S:
        if (TESTS / part).is_dir():
            print(f"--- {part}", flush=True)
            outcomes.append(run_part(part, BUDGETS_S[part]))
    return report(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
