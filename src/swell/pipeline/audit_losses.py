"""Losses: the times in which a process may have had rows that the log lacks.

A killed process loses what it had not written yet, a full disk costs rows, old files are removed,
and a process may live before it begins to write events. Row numbers count from 1 without gaps in
each life and a life that ends well ends with its own stop row; nodes number the lives of each data
directory from 1 (`swell.ids.life_of`), and who subscribes lives. So all of it shows. What a loss
explains is excused: the audit proves, it does not guess.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.events.rows import NODE_ROLE
from swell.events.schema import Kind
from swell.ids import LIVES_PER_DIRECTORY
from swell.pipeline.audit_rows import of_configurations, of_kind, subject
from swell.pipeline.audit_settings import NEVER_US, US_PER_S

LIFE = ("run", "node", "start")

CONTAINER_ROLE = "container"

CRASH_TOLERANCE_US = US_PER_S
"""A crash that was found that long before the last row of the life was none of it."""


def lives_of(tallied: DataFrame, own_offsets: DataFrame) -> DataFrame:
    """One row per life of a process. `own_offsets`: how much the clock of a container is ahead,
    where it is; by this `offset_us` times are moved to the nodes' clocks."""
    lives = tallied.groupBy(*LIFE).agg(
        f.max("role").alias("role"),
        f.min("begin_us").alias("begin_us"),
        f.max("last_us").alias("last_us"),
        f.sum("rows").alias("rows"),
        f.max("top").alias("top"),
        f.max("stopped").alias("stopped"),
    )
    offset_us = f.coalesce("own_offset_us", f.lit(0))
    return (
        lives.join(f.broadcast(own_offsets), ["run", "node"], "left")
        .withColumns({name: f.col(name) - offset_us for name in ("begin_us", "last_us")})
        .withColumn("offset_us", offset_us)
        .drop("own_offset_us")
    )


def losses(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """(run, node, role, `losses`: array of (from_us, to_us)) of every process that has any; by the
    nodes' clocks, as all that they are compared with."""
    found = (
        _crashes(rows, lives)
        .unionByName(_gaps(rows, lives))
        .unionByName(_lives_of_nodes(lives))
        .unionByName(_lives_of_containers(rows, lives))
    )
    window = f.struct("from_us", "to_us")
    return found.groupBy("run", "node").agg(
        f.max("role").alias("role"), f.sort_array(f.collect_list(window)).alias("losses")
    )


def _crashes(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """From the last row of a life without a stop row until somebody noticed."""
    crashes = of_kind(rows, Kind.CRASH_FOUND).select(
        "run", subject().alias("node"), f.col("at_us").alias("crash_us")
    )
    after = Window.partitionBy("run", "node").orderBy("start")
    torn = lives.withColumn("next_us", f.lead("begin_us").over(after)).where(~f.col("stopped"))
    is_its = (f.col("crash_us") >= f.col("last_us") - CRASH_TOLERANCE_US) & (
        f.col("next_us").isNull() | (f.col("crash_us") <= f.col("next_us"))
    )
    return (
        torn.join(crashes, ["run", "node"], "left")
        .groupBy(*LIFE, "role", "last_us", "next_us")
        .agg(f.min(f.when(is_its, f.col("crash_us"))).alias("crash_us"))
        .withColumn("noticed_us", f.least("crash_us", "next_us"))
        .where(f.col("noticed_us").isNotNull())
        .select(
            "run",
            "node",
            "role",
            f.col("last_us").alias("from_us"),
            f.greatest("last_us", "noticed_us").alias("to_us"),
        )
    )


def _gaps(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """Between the rows around missing row numbers; only lives with too few rows are looked at."""
    with_gaps = lives.where(f.col("rows") < f.col("top")).select(*LIFE, "offset_us")
    in_life = Window.partitionBy(*LIFE).orderBy("row")
    before = (f.lag("row", 1, 0).over(in_life), f.lag("at_us", 1, -NEVER_US).over(in_life))
    return (
        rows.select(*LIFE, "role", "row", "at_us")
        .join(f.broadcast(with_gaps), list(LIFE), "inner")
        .withColumn("at_us", f.col("at_us") - f.col("offset_us"))
        .withColumns({"row_before": before[0], "from_us": before[1]})
        .where(f.col("row") > f.col("row_before") + 1)
        .select("run", "node", "role", "from_us", f.col("at_us").alias("to_us"))
    )


def _lives_of_nodes(lives: DataFrame) -> DataFrame:
    """Before a life whose number is not the next one: lives between may have no rows."""
    in_order = Window.partitionBy("run", "node").orderBy("start")
    none_yet = f.col("start") - f.col("start") % LIVES_PER_DIRECTORY
    before = (f.lag("start").over(in_order), f.lag("last_us", 1, -NEVER_US).over(in_order))
    return (
        lives.where(f.col("role") == NODE_ROLE)
        .withColumns({"start_before": f.coalesce(before[0], none_yet), "from_us": before[1]})
        .where(f.col("start") > f.col("start_before") + 1)
        .select("run", "node", "role", "from_us", f.col("begin_us").alias("to_us"))
    )


def _lives_of_containers(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """Between two lives of a container, before the first and after the last, if it subscribed then:
    it lived, and has no rows of it."""
    subscribes = (
        of_configurations(rows, Kind.SUBSCRIBE)
        .select("run", subject().alias("node"), f.col("at_us").alias("subscribe_us"))
        .distinct()
    )
    in_order = Window.partitionBy("run", "node").orderBy("start")
    begins = lives.withColumns(
        {
            "from_us": f.lag("last_us", 1, -NEVER_US).over(in_order),
            "next_us": f.lead("begin_us").over(in_order),
        }
    )
    between = begins.select("run", "node", "from_us", f.col("begin_us").alias("to_us")).unionByName(
        begins.where(f.col("next_us").isNull() & f.col("stopped")).select(
            "run", "node", f.col("last_us").alias("from_us"), f.lit(NEVER_US).alias("to_us")
        )
    )
    inside = (f.col("subscribe_us") > f.col("from_us")) & (f.col("subscribe_us") < f.col("to_us"))
    unseen = subscribes.select("run", "node").distinct().join(lives, ["run", "node"], "left_anti")
    return (
        between.join(subscribes, ["run", "node"], "inner")
        .where(inside)
        .select("run", "node", "from_us", "to_us")
        .unionByName(
            unseen.select(
                "run",
                "node",
                f.lit(-NEVER_US).alias("from_us"),
                f.lit(NEVER_US).alias("to_us"),
            )
        )
        .distinct()
        .select("run", "node", f.lit(CONTAINER_ROLE).alias("role"), "from_us", "to_us")
    )


def of_nodes(lost: DataFrame) -> DataFrame:
    """(run, `losses`): of all nodes of a run together."""
    return (
        lost.where(f.col("role") == NODE_ROLE)
        .groupBy("run")
        .agg(f.flatten(f.collect_list("losses")).alias("losses"))
    )


def touched(from_us: Column, to_us: Column) -> Column:
    """Whether one of a row's `losses`, if it has any, touches this time."""

    def touches(loss: Column) -> Column:
        return (loss["from_us"] <= to_us) & (loss["to_us"] >= from_us)

    return f.coalesce(f.exists("losses", touches), f.lit(False))
