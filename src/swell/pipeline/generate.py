"""The Double 11 day as a table of updates, at any fraction (RIP-24; Ripple 5.4).

Stated are 3 M configurations, 1,801 M deliveries, a mean of 139 K and a peak of 381 K a second.
Over 24 hours these contradict each other: 1,801 M at the mean rate are 3.6 hours, and a day at the
mean rate is 12,010 M. So there are two readings: `total` keeps the number and lasts 3.6 hours,
`mean` lasts a day. Both have the stated mean and peak.

Not stated, and therefore settings: how uneven popularity is (Zipf exponent), how many containers
follow a configuration, how large values are and how much of them changes. The rate follows one
swing over the period: a floor, and a bump (von Mises) on top that gives the stated peak.

Everything about a row follows from its number by hashing, so the table is the same on any number
of cores. A fraction keeps every n-th update: rates shrink with it, shapes do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.errors import ConfigurationError

DELIVERIES = 1_801_000_000
MEAN_PER_S = 139_000.0
PEAK_PER_S = 381_000.0
DAY_S = 86_400
PARTS = 1_440
"""The period in pieces of constant rate: minutes, of a day."""
UNIT = float(1 << 53)


class Reading(StrEnum):
    """Which of the contradicting figures holds."""

    TOTAL = "total"
    MEAN = "mean"


@dataclass(frozen=True)
class Day:
    """The load of one day."""

    reading: Reading = Reading.TOTAL
    fraction: float = 0.01
    configurations: int = 3_000_000
    applications: int = 300_000
    """Configurations of one application share a slot, and their followers."""
    exponent: float = 0.9
    """Of the Zipf law of popularity; below 1, so that no single one dominates."""
    followers: int = 100
    """Containers that follow an application."""
    value_bytes: int = 10_240
    delta_bytes: int = 512
    incremental: float = 0.8
    """The part of updates that change a little of a value; others change all of it."""
    floor: float = 0.25
    """The part of the load that is there at all times."""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigurationError(f"a fraction is above 0 and at most 1, not {self.fraction:g}")
        if not 0 <= self.exponent < 1:
            raise ConfigurationError(
                f"the exponent of popularity is at least 0 and below 1, not {self.exponent:g}"
            )

    @property
    def seconds(self) -> float:
        return DELIVERIES / MEAN_PER_S if self.reading is Reading.TOTAL else float(DAY_S)

    @property
    def deliveries(self) -> int:
        """Of the whole day, whatever the fraction."""
        return DELIVERIES if self.reading is Reading.TOTAL else round(MEAN_PER_S * DAY_S)

    @property
    def updates(self) -> int:
        """Rows of the table."""
        return max(1, round(self.deliveries * self.fraction / self.followers))


def swing(day: Day) -> np.ndarray:
    """The rate of every part over the mean: mean 1, the highest as stated."""
    angle = 2 * np.pi * (np.arange(PARTS) + 0.5) / PARTS - np.pi
    target = (PEAK_PER_S / MEAN_PER_S - day.floor) / (1 - day.floor)

    def bump(sharpness: float) -> np.ndarray:
        shape = np.exp(sharpness * (np.cos(angle) - 1))
        return np.asarray(shape / shape.mean())

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        if bump(middle).max() < target:
            low = middle
        else:
            high = middle
    return np.asarray(day.floor + (1 - day.floor) * bump(high))


def counts(day: Day) -> list[int]:
    """Updates in every part; they add up exactly."""
    ends = np.cumsum(swing(day)) * day.updates / PARTS
    whole = np.diff(np.floor(ends + 0.5).astype(np.int64), prepend=0)
    return [int(count) for count in whole]


def uniform(number: Column, salt: str) -> Column:
    """Between 0 and 1, by hashing."""
    bits = f.call_function("shiftrightunsigned", f.xxhash64(number, f.lit(salt)), f.lit(11))
    return (bits.cast("double") + 0.5) / UNIT


def zipf(quantile: Column, items: int, exponent: float) -> Column:
    """The rank, from 0, at a quantile of a Zipf law: by its continuous form, which differs from
    the exact one by less than half a rank."""
    power = 1 - exponent
    spread = float(items) ** power - 1
    rank = f.floor(f.pow(quantile * spread + 1, f.lit(1 / power))) - 1
    return f.least(rank.cast("long"), f.lit(items - 1))


def updates(spark: SparkSession, day: Day) -> DataFrame:
    """part, second, configuration, followers, value_bytes, delta_bytes, application: one row per
    update. `delta_bytes` is what changes: all of the value, for some."""
    parts: list[tuple[int, int, int]] = []
    first = 0
    for part, count in enumerate(counts(day)):
        if count:
            parts.append((part, first, first + count - 1))
        first += count
    begun = spark.createDataFrame(parts, "part int, first long, last long")
    spread = spark.sparkContext.defaultParallelism * 4
    numbered = begun.repartition(spread, "part").select(
        "part", f.explode(f.sequence("first", "last")).alias("number")
    )
    number = f.col("number")
    changes_little = uniform(number, "kind") < day.incremental
    per_part = day.seconds / PARTS
    return numbered.select(
        "part",
        ((f.col("part") + uniform(number, "time")) * per_part).alias("second"),
        zipf(uniform(number, "name"), day.configurations, day.exponent).alias("configuration"),
        f.lit(day.followers).cast("long").alias("followers"),
        f.lit(day.value_bytes).cast("long").alias("value_bytes"),
        f.when(changes_little, day.delta_bytes)
        .otherwise(day.value_bytes)
        .cast("long")
        .alias("delta_bytes"),
    ).withColumn("application", f.pmod(f.col("configuration"), f.lit(day.applications)))
