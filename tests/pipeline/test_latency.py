"""Latency: percentiles that plain Python gives too, per group and window (PIP-4)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from swell.pipeline import latency
from swell.pipeline.latency import Since
from tests.pipeline.generated_logs import BEGIN_US, GeneratedLog, S, digest_of, frame_of

pytestmark = pytest.mark.beside

WINDOW_US = 60 * S


def applied(seed: int, skew_us: int = 0, sent: bool = True) -> GeneratedLog:
    """Containers on other machines than their primary, a store every second. As in real logs, no
    row has the monotonic clock of who sent it."""
    rng = np.random.default_rng(seed)
    log = GeneratedLog(f"run-{seed}", seed)
    log.begin("n0", "node", BEGIN_US)
    for number in range(3):
        log.begin(f"c{number}", "container", BEGIN_US, skew_us, machine=number + 1)
    for version in range(1, 200):
        t = BEGIN_US + version * S
        common = {"application": f"app{version % 2}", "name": "x", "epoch": 1}
        common |= {"sequence": version, "digest": digest_of(version)}
        log.emit("store", "n0", t, **common)
        for number in range(3):
            took_us = 1 if version < 4 else int(rng.lognormal(11, 1.5))
            fields = {"sent_at": t} if sent else {}
            place = {"site": f"site{number % 2}"}
            log.emit("apply", f"c{number}", t + took_us, **common, **fields, **place)
    log.number()
    return log


def rounded_up_us(value: int) -> int:
    step = 2 ** max(math.floor(math.log2(value)) - 7, 0)
    return -(-value // step) * step


def percentiles(values: Iterable[int]) -> tuple[float, ...]:
    order = sorted(values)
    ranks = [math.ceil(len(order) * percent / 100) - 1 for percent in (50, 90, 99)]
    steps = [min(rounded_up_us(order[rank]), order[-1]) for rank in ranks]
    late = sum(value > 3 * S for value in order)
    return (len(order), *(step / 1000 for step in steps), order[-1] / 1000, late)


def test_groups_and_windows_are_those_of_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    log = applied(1)
    expected: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row in log.of("apply"):
        key = (row["application"], row["site"], row["name"], row["at"] // WINDOW_US)
        expected[key].append(row["at"] - row["sent_at"])
    table = latency.table(frame_of(spark, [log], tmp_path), window_s=60).collect()
    ours = {
        (*row[1:4], round(row["window"].timestamp() * S) // WINDOW_US): tuple(row[5:])
        for row in table
    }
    assert ours == {key: percentiles(values) for key, values in expected.items()}
    assert len(ours) > 10
    assert sum(row["late"] for row in table) > 0


def test_clocks_that_are_off_by_minutes_do_not_show(spark: SparkSession, tmp_path: Path) -> None:
    skews_us = (0, -400 * S, 400 * S)
    logs = [applied(1, skew_us) for skew_us in skews_us]
    for log, skew_us in zip(logs, skews_us, strict=True):
        log.rows = [{**row, "run": str(skew_us)} for row in log.rows]
    table = latency.table(frame_of(spark, logs, tmp_path), None, by=("application",)).collect()
    right, *moved = (
        sorted(row[1:] for row in table if row["run"] == str(skew_us)) for skew_us in skews_us
    )
    assert len(right) == 2
    for other in moved:
        assert [row[:2] for row in other] == [row[:2] for row in right]
        for row, expected in zip(other, right, strict=True):
            # The fastest delivery, of 1 µs, counts as instantaneous.
            assert list(row[2:]) == pytest.approx(list(expected[2:]), abs=0.002, rel=0.01)


def test_since_the_store_counts_updates_only(spark: SparkSession, tmp_path: Path) -> None:
    """The first row of a name in a life is what the container had missed."""
    log = applied(2, sent=False)
    assert latency.table(frame_of(spark, [log], tmp_path)).count() == 0
    table = latency.table(
        frame_of(spark, [log], tmp_path), None, by=("application",), since=Since.STORED
    )
    counts = {row["application"]: row["count"] for row in table.collect()}
    assert counts == {"app0": (99 - 1) * 3, "app1": (100 - 1) * 3}
