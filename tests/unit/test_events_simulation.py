"""Recorded simulations: the same run, and rows that say what the checkers saw."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from swell.cli.simulate import run_recorded
from swell.config.versions import NO_VERSION
from swell.simulation.workloads.catalogue import run

SEED = 3


def rows_in(directory: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(directory.glob("date=*/kind=*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        found[path.parent.name.removeprefix("kind=")] += table.to_pylist()
    return found


def versions_of(row: dict[str, Any]) -> range:
    return range(row["first"], row["sequence"] + 1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("events")
    return run_recorded("config", SEED, 0, frozenset(), str(directory)), directory


@pytest.mark.slow
def test_a_recorded_run_is_the_same_run(recorded: tuple[Any, Path]) -> None:
    result, _ = recorded
    assert result.passed
    assert result.digest == run("config", SEED).digest


@pytest.mark.slow
def test_the_rows_of_a_run_are_numbered_without_gaps(recorded: tuple[Any, Path]) -> None:
    lives: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rows in rows_in(recorded[1]).values():
        for row in rows:
            assert row["run"] == f"config-{SEED}"
            lives[row["node"], row["start"]].append(row["row"])
    assert len(lives) > 30
    assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in lives.values())


@pytest.mark.slow
def test_everything_applied_was_stored_and_joins_on(recorded: tuple[Any, Path]) -> None:
    """Also across the changes of primaries that the run has."""
    rows = rows_in(recorded[1])
    stored: dict[tuple[str, str, int], bytes] = {}
    for row in rows["store"]:
        key = row["application"], row["name"], row["sequence"]
        assert stored.setdefault(key, row["digest"]) == row["digest"]
    for application, name, version in stored:
        if version > 1:
            assert (application, name, version - 1) in stored
    assert any(row["reason"] == "taken over" for row in rows["store"])
    applied = 0
    last: dict[tuple[str, int, str, str], dict[str, Any]] = {}
    for row in sorted(rows["apply"], key=lambda row: (row["node"], row["start"], row["row"])):
        name = row["application"], row["name"]
        assert stored[*name, row["sequence"]] == row["digest"]
        before = last.get((row["node"], row["start"], *name))
        if before is not None:
            assert row["first"] > before["sequence"]
            assert (row["first"] == before["sequence"] + 1) == (row["base"] == before["digest"])
        elif row["first"] == 1:
            assert row["base"] == NO_VERSION
        last[row["node"], row["start"], *name] = row
        applied += len(versions_of(row))
    assert applied == recorded[0].counts["deliveries"]


@pytest.mark.slow
def test_acknowledgements_only_grow(recorded: tuple[Any, Path]) -> None:
    rows = rows_in(recorded[1])
    told = [row | {"ack": True} for row in rows["ack"]] + rows["subscribe"]
    seen: dict[tuple[str, int, str, str], int] = {}
    acks = 0
    for row in sorted(told, key=lambda row: (row["node"], row["start"], row["row"])):
        key = row["node"], row["start"], row["peer"], row["application"]
        if "ack" not in row:
            seen.pop(key, None)
            continue
        assert row["sequence"] > seen.get(key, 0)
        seen[key] = row["sequence"]
        acks += 1
    assert acks > 1000


@pytest.mark.slow
def test_a_planted_bug_shows_in_the_rows(tmp_path: Path) -> None:
    """Containers that take deltas to whatever they have come to versions that nobody stored."""
    wrong = 0
    for seed in range(12):  # not every run has something for it
        directory = tmp_path / str(seed)
        run_recorded("config", seed, 0, frozenset({"no-base-check"}), str(directory))
        rows = rows_in(directory)
        stored = {(row["application"], row["digest"]) for row in rows["store"]}
        wrong += sum((row["application"], row["digest"]) not in stored for row in rows["apply"])
        if wrong:
            break
    assert wrong


@pytest.mark.slow
def test_a_run_again_replaces_the_run_before(recorded: tuple[Any, Path]) -> None:
    directory = recorded[1]
    before = {kind: len(rows) for kind, rows in rows_in(directory).items()}
    run_recorded("config", SEED, 0, frozenset(), str(directory))
    assert {kind: len(rows) for kind, rows in rows_in(directory).items()} == before
