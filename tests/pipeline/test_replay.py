"""RIP-24, PIP-7: the day is the stated one, placement is the cluster's, and runs are repeatable."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from swell.cli.pipeline_thor import resilience_run
from swell.config.names import place
from swell.directory.placement import slot_key
from swell.errors import ConfigurationError
from swell.pipeline import replay
from swell.pipeline.generate import (
    DELIVERIES,
    MEAN_PER_S,
    PARTS,
    PEAK_PER_S,
    Day,
    Reading,
    counts,
    swing,
    updates,
    zipf,
)
from swell.pipeline.replay_thor import means, spread
from swell.rings import Ring


@pytest.mark.parametrize("reading", list(Reading))
def test_rip24_both_readings_have_the_stated_mean_and_peak(reading: Reading) -> None:
    day = Day(reading, 1.0)
    rate = swing(day)
    assert rate.mean() == pytest.approx(1)
    assert rate.max() * MEAN_PER_S == pytest.approx(PEAK_PER_S, rel=1e-6)
    assert day.deliveries / day.seconds == pytest.approx(MEAN_PER_S)
    made = counts(day)
    assert (len(made), sum(made)) == (PARTS, day.updates)
    assert sum(made) * day.followers == pytest.approx(day.deliveries, rel=1e-6)


def test_rip24_the_readings_contradict_each_other() -> None:
    total, mean = Day(Reading.TOTAL), Day(Reading.MEAN)
    assert total.deliveries == DELIVERIES
    assert total.seconds / 3600 == pytest.approx(3.6, abs=0.01)
    assert mean.deliveries == 12_009_600_000


def test_rip24_updates_are_the_same_on_any_number_of_cores(spark: SparkSession) -> None:
    day = Day(fraction=1e-4, configurations=1000, applications=100)
    one = updates(spark, day).coalesce(1)
    many = updates(spark, day).repartition(7)
    assert one.count() == day.updates == 1801
    assert one.exceptAll(many).count() == 0
    row = one.agg(
        f.max("configuration").alias("top"),
        f.avg((f.col("delta_bytes") < f.col("value_bytes")).cast("int")).alias("incremental"),
        f.max("second").alias("last"),
    ).first()
    assert row is not None
    assert row["top"] < 1000
    assert row["incremental"] == pytest.approx(0.8, abs=0.03)
    assert row["last"] < day.seconds


def test_rip24_popularity_follows_the_law(spark: SparkSession) -> None:
    items, exponent, rows = 1000, 0.8, 200_000
    quantile = (f.col("id") + 0.5) / rows
    drawn = spark.range(rows).select(zipf(quantile, items, exponent).alias("rank"))
    counted = {r["rank"]: r["count"] for r in drawn.groupBy("rank").count().collect()}
    weights = np.arange(1, items + 1) ** -exponent
    expected = rows * weights / weights.sum()
    assert sum(counted.values()) == rows
    for first, last in ((10, 30), (30, 100), (100, 1000)):
        found = sum(counted.get(rank, 0) for rank in range(first, last))
        assert found == pytest.approx(expected[first:last].sum(), rel=0.05)


def test_rip24_slots_and_primaries_are_those_of_a_cluster(spark: SparkSession) -> None:
    servers = replay.Servers(count=7, slots=64)
    found = spark.range(50).select("id", replay.slot_of(f.col("id"), 64).alias("slot")).collect()
    assert [r["slot"] for r in found] == [place(f"app-{r['id']}") % 64 for r in found]
    ring: Ring[int] = Ring(range(7))
    assert replay.owners(servers) == [(s, ring.owner(slot_key(s))) for s in range(64)]


def test_rip24_load_adds_up_and_every_mechanism_saves(spark: SparkSession) -> None:
    day = Day(fraction=1e-4, configurations=10_000, applications=1_000)
    servers = replay.Servers(count=5, slots=128)
    load = replay.load(spark, updates(spark, day), day, servers).persist()
    total = load.agg(f.sum("updates"), f.sum("deliveries"), f.sum("messages_direct_whole")).first()
    assert total is not None
    assert total[0] == day.updates
    assert total[1] == day.updates * day.followers
    assert total[2] / PARTS == pytest.approx(MEAN_PER_S, rel=0.001), "scaled up to the whole"
    rows = {row["way"]: row for row in replay.summary(load, servers)}
    peak = rows["direct, whole"]["peak_messages_per_s"]
    assert peak == pytest.approx(PEAK_PER_S, rel=0.25)
    sent = [row["busiest_bytes_per_s"] for row in rows.values()]
    assert sent[0] < sent[1] < sent[3]
    assert sent[0] < sent[2] < sent[3]
    assert replay.servers_needed(servers, [250_000, 1e6]) == 13, "2.5 times too much for five"
    assert replay.servers_needed(servers, [1, 2.5e8]) == 10
    assert replay.servers_needed(servers, [1, 1]) == 3


def test_rip24_copies_that_a_primary_sends() -> None:
    assert replay.roots(1, 4) == 1
    assert replay.roots(8, 4) == 8, "groups of two are served directly"
    assert replay.roots(100, 4) == 4, "one relay each"
    assert replay.roots(100_000, 4) >= 64


@pytest.mark.parametrize("bad", [{"fraction": 0.0}, {"fraction": 2.0}, {"exponent": 1.0}])
def test_bad_day(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Day(**bad)  # type: ignore[arg-type]


def test_thr12_runs_on_spark_are_the_runs_of_one_process(spark: SparkSession) -> None:
    run = partial(resilience_run, 10, (0, 50, 90))
    table = spread(spark, 4, run, ["failed_percent", "share"])
    found = {(r["run"], r["failed_percent"]): r["share"] for r in table.collect()}
    expected = {
        (number, row["failed_percent"]): row["share"] for number in range(4) for row in run(number)
    }
    assert found == expected
    averaged = means(table, ["failed_percent"]).collect()
    assert [r["runs"] for r in averaged] == [4, 4, 4]
    assert averaged[0]["mean_share"] == 1.0
    assert averaged[2]["mean_share"] < averaged[1]["mean_share"]
