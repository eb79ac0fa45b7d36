"""Who was subscribed to what, and from when to when.

The patterns are those of `swell.config.delivery.interest`: nothing or `*` for everything, a prefix
with `*`, a name. What is reserved must be asked for: by a pattern that begins with `@`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.config.delivery.interest import WILDCARD
from swell.config.names import RESERVED
from swell.events.schema import Kind
from swell.pipeline.audit_rows import ACROSS, of_configurations, of_kind, subject

SUBSCRIPTION = ("run", "application", "container", "pattern")


def subscriptions(rows: DataFrame, ends: DataFrame, own_offsets: DataFrame) -> DataFrame:
    """(run, application, container, pattern, begin_us, end_us): one row per unbroken time.

    `own_offsets`: how much the clock of a container is ahead, for its own stop rows."""
    marks = _begins(rows).unionByName(_unsubscribes(rows)).unionByName(_deaths(rows, own_offsets))
    # All that is said of a container comes together once, for the three windows and the grouping.
    marks = marks.repartition("run", "container")

    def next_end(mark: Column, *partition: str) -> Column:
        behind = (
            Window.partitionBy(*partition)
            .orderBy(*ACROSS)
            .rowsBetween(1, Window.unboundedFollowing)
        )
        return f.first(f.when(mark, f.col("at_us")), ignorenulls=True).over(behind)

    of_one = (f.col("mark") == "unsubscribe") & f.col("pattern").isNotNull()
    of_all = (f.col("mark") == "unsubscribe") & f.col("pattern").isNull()
    return (
        marks.withColumns(
            {
                "left_us": next_end(of_one, *SUBSCRIPTION),
                "left_all_us": next_end(of_all, "run", "container", "application"),
                "dead_us": next_end(f.col("mark") == "death", "run", "container"),
            }
        )
        .where(f.col("mark") == "begin")
        .join(f.broadcast(ends), "run", "inner")
        .withColumn("end_us", f.least("left_us", "left_all_us", "dead_us", "log_end_us"))
        .groupBy(*SUBSCRIPTION, "end_us")  # whoever subscribes again goes on as before
        .agg(f.min("at_us").alias("begin_us"))
    )


def _marks(found: DataFrame, mark: str, application: Column, pattern: Column) -> DataFrame:
    return found.select(
        "run",
        subject().alias("container"),
        application.cast("string").alias("application"),
        pattern.cast("string").alias("pattern"),
        f.lit(mark).alias("mark"),
        *ACROSS,
    )


def _begins(rows: DataFrame) -> DataFrame:
    pattern = f.coalesce("name", f.lit(""))
    everything = f.when(pattern == WILDCARD, "").otherwise(pattern)
    found = of_configurations(rows, Kind.SUBSCRIBE)
    return _marks(found, "begin", f.col("application"), everything)


def _unsubscribes(rows: DataFrame) -> DataFrame:
    found = of_configurations(rows, Kind.UNSUBSCRIBE)
    pattern = f.when(f.col("name") == WILDCARD, "").otherwise(f.col("name"))
    return _marks(found, "unsubscribe", f.col("application"), pattern)


def _deaths(rows: DataFrame, own_offsets: DataFrame) -> DataFrame:
    found = of_kind(rows, Kind.STOP, Kind.CRASH_FOUND).join(
        f.broadcast(own_offsets), ["run", "node"], "left"
    )
    moved = found.withColumn("at_us", f.col("at_us") - f.coalesce("own_offset_us", f.lit(0)))
    return _marks(moved, "death", f.lit(None), f.lit(None))


def interested(stored: DataFrame, subscribed: DataFrame, sla_us: int) -> DataFrame:
    """Expected deliveries: the columns of `stored`, `container` and `process`; several times, where
    several patterns match. Names join by equality; only patterns are tried on all names."""
    in_time = (f.col("at_us") >= f.col("begin_us")) & (f.col("at_us") + sla_us <= f.col("end_us"))
    pattern = f.col("pattern")
    by_pattern = (pattern == "") | pattern.endswith(WILDCARD)
    named = stored.join(
        subscribed.where(~by_pattern).withColumnRenamed("pattern", "name"),
        ["run", "application", "name"],
        "inner",
    ).where(in_time)
    prefix = f.expr("left(pattern, length(pattern) - 1)")
    reserved = f.col("name").startswith(RESERVED)
    matches = f.when(pattern == "", ~reserved).otherwise(
        f.col("name").startswith(prefix) & (~reserved | pattern.startswith(RESERVED))
    )
    matched = stored.join(subscribed.where(by_pattern), ["run", "application"], "inner").where(
        in_time & matches
    )
    columns = [*stored.columns, "container", "process"]
    return named.select(*columns).unionByName(matched.select(*columns))
