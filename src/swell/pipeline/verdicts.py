"""Verdicts, and the one shape that all evidence has.

A finding names the verdict, what it is about and the row that shows it. A finding with an `excuse`
is explained by rows that the log has lost; only those without one are violations.
"""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


class Verdict(StrEnum):
    """What can be wrong."""

    MISSING = "missing"
    LATE = "late"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out-of-order"
    WRONG_CONTENT = "wrong-content"
    UNKNOWN = "unknown"
    DIGEST_CONFLICT = "digest-conflict"
    BASE_BROKEN = "base-broken"
    VERSION_GAP = "version-gap"
    STEP_GAP = "step-gap"
    STEP_ORDER = "step-order"
    WENT_BACK = "went-back"
    ACK_TWICE = "ack-twice"
    ACK_BACK = "ack-back"
    ACK_LOST = "ack-lost"
    INTEGRITY = "integrity"
    ORDER = "order"
    VALIDITY = "validity"
    INCLUSION = "inclusion"
    EXCLUSION = "exclusion"


MEANINGS: dict[Verdict, str] = {
    Verdict.MISSING: "stored, and never applied by a container that subscribed to it",
    Verdict.LATE: "applied later than the SLA allows",
    Verdict.DUPLICATE: "applied twice in one life of a container",
    Verdict.OUT_OF_ORDER: "applied after a newer version",
    Verdict.WRONG_CONTENT: "applied with another digest than was stored",
    Verdict.UNKNOWN: "applied, but never stored",
    Verdict.DIGEST_CONFLICT: "one version with two digests",
    Verdict.BASE_BROKEN: "a version that is not based on the one before it",
    Verdict.VERSION_GAP: "versions that were never stored",
    Verdict.STEP_GAP: "steps that were never stored",
    Verdict.STEP_ORDER: "a newer version with an older step",
    Verdict.WENT_BACK: "an older version after a restart",
    Verdict.ACK_TWICE: "a step acknowledged twice",
    Verdict.ACK_BACK: "a step acknowledged after a later one",
    Verdict.ACK_LOST: "acknowledged, and gone when the container came back",
    Verdict.INTEGRITY: "a subscriber saw what its writer did not write",
    Verdict.ORDER: "a subscriber saw an older write after a newer one",
    Verdict.VALIDITY: "a subscriber was notified without a subscription",
    Verdict.INCLUSION: "a write that a subscriber never saw",
    Verdict.EXCLUSION: "a writer that is gone and still shown",
}

EVIDENCE = StructType(
    [
        StructField("run", StringType()),
        StructField("verdict", StringType()),
        StructField("application", StringType()),
        StructField("name", StringType()),
        StructField("who", StringType()),
        StructField("first", LongType()),
        StructField("last", LongType()),
        StructField("node", StringType()),
        StructField("start", LongType()),
        StructField("row", LongType()),
        StructField("at", TimestampType()),
        StructField("value_ms", DoubleType()),
        StructField("excuse", StringType()),
    ]
)
"""`who`: the container, subscriber or peer that it is about. `first` to `last`: versions, steps or
sequences. `node`, `start`, `row`, `at`: the row that shows it. `value_ms`: how late."""

LOST_ROWS = "rows of that time are lost"


def evidence(
    found: DataFrame,
    verdict: Verdict | Column,
    *,
    who: Column | None = None,
    first: Column | None = None,
    last: Column | None = None,
    value_ms: Column | None = None,
    excused: Column | None = None,
) -> DataFrame:
    """Findings in the common shape. `found` has the columns that name a row and its `at_us`."""
    nothing = f.lit(None)
    given: dict[str, Column] = {
        "verdict": f.lit(str(verdict)) if isinstance(verdict, Verdict) else verdict,
        "who": nothing if who is None else who,
        "first": f.col("sequence") if first is None else first,
        "last": f.col("sequence") if last is None else last,
        "at": f.timestamp_micros("at_us"),
        "value_ms": nothing if value_ms is None else value_ms,
        "excuse": nothing if excused is None else f.when(excused, LOST_ROWS),
    }
    return found.select(
        *(
            given.get(field.name, f.col(field.name)).cast(field.dataType).alias(field.name)
            for field in EVIDENCE
        )
    )


def summary(found: DataFrame) -> DataFrame:
    """How many findings of each verdict there are, violations and excused ones."""
    excused = f.col("excuse").isNotNull()
    return found.groupBy("run", "verdict").agg(
        f.count_if(~excused).alias("violations"), f.count_if(excused).alias("excused")
    )


def earliest(found: DataFrame, count: int) -> DataFrame:
    """So many findings, the same whenever they are asked for."""
    place = ("at", "run", "node", "start", "row", "who", "first")
    return found.orderBy(*place, "verdict", "application", "name", "last").limit(count)
