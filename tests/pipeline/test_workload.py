"""PIP-6: what the load is like, from logs whose load is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from swell.pipeline import workload
from swell.settings import ConfigSettings
from tests.pipeline.toy_logs import row, write_file

pytestmark = pytest.mark.beside


def frame(spark: SparkSession, log: Path, **kinds: list[dict[str, Any]]) -> DataFrame:
    for number, (kind, rows) in enumerate(kinds.items(), start=1):
        write_file(log, kind, f"n1-1-{number}", rows)
    return spark.read.format("swell").load(str(log))


def test_pip6_popularity_counts_versions_once_and_runs_in_full(
    spark: SparkSession, tmp_path: Path
) -> None:
    common = {"application": "a"}
    events = frame(
        spark,
        tmp_path,
        store=[
            row(1, **common, name="x", sequence=1, bytes=10),
            row(2, **common, name="x", sequence=1, bytes=10, reason="taken over"),
            row(3, **common, name="x", sequence=2, bytes=30),
            row(4, **common, name="y", sequence=1, bytes=5),
        ],
        apply=[
            row(5, "c1", **common, name="x", first=1, sequence=2),
            row(6, "c2", **common, name="x", sequence=2),
            row(7, "c1", **common, name="y", sequence=1),
        ],
    )
    found = workload.popularity(events).orderBy("rank").collect()
    assert [(r.name, r.updates, r.deliveries, r.bytes) for r in found] == [
        ("x", 2, 3, 30),
        ("y", 1, 1, 5),
    ]


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.2])
def test_pip6_the_fit_finds_the_exponent(exponent: float) -> None:
    items = 5000
    weights = np.arange(1, items + 1) ** -exponent
    mean_log = float((weights * np.log(np.arange(1, items + 1))).sum() / weights.sum())
    assert workload.zipf_exponent(items, mean_log) == pytest.approx(exponent, abs=1e-6)
    assert workload.zipf_exponent(1, 0.0) == 0.0


def test_pip6_duplication_is_what_was_sent_of_what_it_stands_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    common = {"application": "a"}
    events = frame(
        spark,
        tmp_path,
        store=[row(i, **common, name="x", sequence=i, step=i, bytes=1000) for i in (1, 2, 3)],
        deliver=[
            row(4, **common, peer="c1", first=1, sequence=1, bytes=1000),
            row(5, **common, peer="c1", first=2, sequence=3, bytes=200),
            row(6, **common, peer="c2", first=2, sequence=3, bytes=250),
        ],
    )
    (found,) = workload.duplication(events).collect()
    assert (found.bursts, found.value_bytes, found.sent_bytes) == (2, 3000, 1200)
    assert found.changed == pytest.approx(0.4)


def test_pip6_stability_of_interest(spark: SparkSession, tmp_path: Path) -> None:
    """Four windows of ten seconds; one container stays, one leaves in the second."""
    common = {"application": "a", "name": ""}
    events = frame(
        spark,
        tmp_path,
        start=[row(0), row(40)],
        subscribe=[row(1, **common, peer="c1"), row(2, **common, peer="c2")],
        unsubscribe=[row(15, **common, peer="c2")],
    )
    found = workload.stability(events, windows=4).collect()
    assert [(r.window, r.pairs, r.kept) for r in found] == [(0, 2, 1), (1, 1, 1), (2, 1, 1)]


def test_pip6_recommendations_are_settings_that_exist() -> None:
    found = {"containers_max": 10_000.0, "versions_at_once": 100.0, "value_bytes_p99": 50_000.0}
    advised = workload.recommended(found)
    assert advised == {
        "relay_fanout": 100,
        "server_fanout": 100,
        "relaying": True,
        "keep_versions": 200,
        "burst_bytes_max": 262_144,
    }
    assert set(advised) <= set(ConfigSettings.__struct_fields__)
    nothing = workload.recommended(dict.fromkeys(found, 0.0))
    assert nothing["relay_fanout"] == ConfigSettings().relay_fanout
    assert nothing["relaying"] is False


def test_empty_log_has_no_load(spark: SparkSession, tmp_path: Path) -> None:
    events = frame(spark, tmp_path, start=[row(0)])
    assert workload.popularity(events).count() == 0
    assert workload.mean_log_rank(workload.popularity(events)) == (0, 0.0)
    assert workload.stability(events).count() == 0
    assert set(workload.measures(events).values()) == {0.0}
