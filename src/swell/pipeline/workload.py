"""What the load is like, and which settings would suit it (PIP-6; Ripple 3.2).

Popularity: how unevenly updates and deliveries spread over configurations, with the exponent of
the Zipf law that fits best. Duplication: how little of a value changes, measured by what the
primary sends against the values it stands for. Stability: how much of the interest is the same one
window later. From these follow the thresholds that a cluster could be run with; they are names and
values of `swell.settings.ConfigSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.settings import FOLLOWED, ConfigSettings

WINDOWS_MAX = 24
EXPONENT_MAX = 4.0
EXPONENT_STEPS = 40
"""Of the bisection: 4 / 2^40 is left."""


def of_kind(events: DataFrame, kind: Kind) -> DataFrame:
    """Rows about configurations."""
    return events.where((f.col("kind") == str(kind)) & f.col("application").isNotNull())


def popularity(events: DataFrame) -> DataFrame:
    """application, name, updates, deliveries, bytes, rank: the most delivered first."""
    versions = of_kind(events, Kind.STORE).dropDuplicates(
        ["run", "application", "name", "sequence"]
    )
    updates = versions.groupBy("application", "name").agg(
        f.count("*").alias("updates"), f.max("bytes").alias("bytes")
    )
    run = f.col("sequence") - f.coalesce("first", "sequence") + 1
    delivered = (
        of_kind(events, Kind.APPLY).groupBy("application", "name").agg(f.sum(run).alias("n"))
    )
    order = Window.orderBy(f.desc("deliveries"), f.desc("updates"), "application", "name")
    return (
        updates.join(delivered, ["application", "name"], "left")
        .withColumn("deliveries", f.coalesce("n", f.lit(0)))
        .drop("n")
        .withColumn("rank", f.row_number().over(order))
    )


def mean_log_rank(popular: DataFrame, count: str = "deliveries") -> tuple[int, float]:
    """How many configurations there are, and the mean logarithm of the rank of a delivery: all
    that the fit needs."""
    row = popular.agg(
        f.count("*").alias("items"),
        f.try_divide(f.sum(f.col(count) * f.log("rank")), f.sum(count)).alias("mean"),
    ).first()
    assert row is not None
    return int(row["items"]), float(row["mean"] or 0.0)


def zipf_exponent(items: int, mean_log: float) -> float:
    """The exponent under which `mean_log` is what to expect: the likeliest one."""
    if items < 2:
        return 0.0
    logs = np.log(np.arange(1, items + 1, dtype=np.float64))
    low, high = 0.0, EXPONENT_MAX
    for _ in range(EXPONENT_STEPS):
        middle = (low + high) / 2
        weights = np.exp(-middle * logs)
        if float((weights * logs).sum() / weights.sum()) > mean_log:
            low = middle  # still too even
        else:
            high = middle
    return (low + high) / 2


def duplication(events: DataFrame) -> DataFrame:
    """application, bursts, value_bytes, sent_bytes, changed: the part of values that travelled."""
    steps = (
        of_kind(events, Kind.STORE)
        .where(f.col("step").isNotNull())
        .groupBy("run", "application", "name", "sequence", "step")
        .agg(f.max("bytes").alias("bytes"))
        .groupBy("run", "application", "step")
        .agg(f.sum("bytes").alias("value_bytes"))
    )
    bursts = (
        of_kind(events, Kind.DELIVER)
        .groupBy("run", "application", "first", "sequence")
        .agg(f.min("bytes").alias("sent_bytes"))
    )
    covered = (f.col("step") >= f.col("first")) & (f.col("step") <= f.col("sequence"))
    whole = (
        bursts.join(steps, ["run", "application"])
        .where(covered)
        .groupBy("run", "application", "first", "sequence", "sent_bytes")
        .agg(f.sum("value_bytes").alias("value_bytes"))
    )
    return whole.groupBy("application").agg(
        f.count("*").alias("bursts"),
        f.sum("value_bytes").alias("value_bytes"),
        f.sum("sent_bytes").alias("sent_bytes"),
        f.least(f.lit(1.0), f.sum("sent_bytes") / f.greatest(f.lit(1), f.sum("value_bytes"))).alias(
            "changed"
        ),
    )


def stability(events: DataFrame, windows: int = WINDOWS_MAX) -> DataFrame:
    """window, pairs, kept, share: of the interest at the end of each part of the log, how much is
    there one part later. A pair is a container and a name."""
    pair = ("run", "application", "peer", "name")
    marks = events.where(f.col("kind").isin(str(Kind.SUBSCRIBE), str(Kind.UNSUBSCRIBE))).select(
        *pair, "kind", f.unix_micros("at").alias("at_us"), "node", "start", "row"
    )
    bounds = events.agg(
        f.unix_micros(f.min("at")).alias("begin_us"), f.unix_micros(f.max("at")).alias("end_us")
    )
    following = Window.partitionBy(*pair).orderBy("at_us", "node", "start", "row")
    width = f.greatest(f.lit(1), f.expr(f"(end_us - begin_us) div {windows}"))
    held = (
        marks.withColumn("until_us", f.lead("at_us").over(following))
        .where(f.col("kind") == str(Kind.SUBSCRIBE))
        .join(f.broadcast(bounds.withColumn("width_us", width)))
        .select(*pair, *(_window(column) for column in ("at_us", "until_us")))
    )
    last = f.least(f.coalesce("until_us_window", f.lit(windows)) - 1, f.lit(windows - 1))
    alive = (
        held.withColumn("last", last)
        .where(f.col("at_us_window") <= f.col("last"))
        .select(*pair, f.explode(f.sequence("at_us_window", "last")).alias("window"))
        .distinct()
    )
    later = alive.withColumn("window", f.col("window") - 1).withColumn("again", f.lit(1))
    return (
        alive.where(f.col("window") < windows - 1)
        .join(later, [*pair, "window"], "left")
        .groupBy("window")
        .agg(
            f.count("*").alias("pairs"),
            f.count("again").alias("kept"),
            (f.count("again") / f.count("*")).alias("share"),
        )
        .orderBy("window")
    )


def _window(column: str) -> Any:
    part = f.expr(f"({column} - begin_us) div width_us").cast("int")
    return part.alias(f"{column}_window")


def groups(events: DataFrame) -> DataFrame:
    """application, site, containers: who is served together."""
    return (
        of_kind(events, Kind.APPLY)
        .groupBy("application", "site")
        .agg(f.count_distinct("node").alias("containers"))
    )


def measures(events: DataFrame) -> dict[str, float]:
    """The single figures that thresholds are derived from."""
    sizes = groups(events).agg(f.max("containers").alias("containers")).first()
    runs = f.col("sequence") - f.coalesce("first", "sequence") + 1
    applied = of_kind(events, Kind.APPLY).agg(f.percentile_approx(runs, 0.999).alias("runs"))
    stored = of_kind(events, Kind.STORE).agg(f.percentile_approx("bytes", 0.99).alias("bytes"))
    found = {
        "containers_max": sizes["containers"] if sizes is not None else 0,
        "versions_at_once": (applied.first() or {"runs": 0})["runs"],
        "value_bytes_p99": (stored.first() or {"bytes": 0})["bytes"],
    }
    return {name: float(value or 0) for name, value in found.items()}


def recommended(found: Mapping[str, float]) -> dict[str, Any]:
    """Settings of configurations for such a load.

    A relay and the server that feeds the relays should send about as much: √n each, for the
    largest group of n. A container that was away should find its deltas: twice as many versions as
    the longest usual run. A burst should hold a few whole values.
    """
    plain = ConfigSettings()
    largest = found["containers_max"]
    fanout = plain.relay_fanout if largest <= 1 else _bounded("relay_fanout", sqrt(largest))
    burst = 2 ** ceil(log(max(4 * found["value_bytes_p99"], 1), 2))
    return {
        "relay_fanout": fanout,
        "server_fanout": _bounded(
            "server_fanout", max(plain.server_fanout, largest / (fanout + 1))
        ),
        "relaying": largest > 2,
        "keep_versions": _bounded(
            "keep_versions", max(plain.keep_versions, 2 * found["versions_at_once"])
        ),
        "burst_bytes_max": _bounded("burst_bytes_max", burst),
    }


def _bounded(name: str, value: float) -> int:
    """What nodes would follow."""
    bounds = FOLLOWED[name]
    assert bounds is not None
    return min(bounds.most, max(bounds.least, ceil(value)))
