"""The rows of a log in the forms that the rules of the audit use.

Clocks become microseconds as whole numbers: ANSI arithmetic on them is exact and does not overflow
in differences. Windows are ordered by `IN_PROCESS` inside one process and by `ACROSS` otherwise:
both are total, so that every engine and every partitioning gives the same answer.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from swell.events.rows import NODE_ROLE
from swell.events.schema import Kind
from swell.pipeline.audit_settings import AuditSettings

IN_PROCESS = ("start", "row")
ACROSS = ("at_us", "node", "start", "row")
CONFIGURATION = ("run", "application", "name")

_TIMED = """
SELECT * EXCEPT (first), coalesce(first, sequence) AS first,
       unix_micros(at) AS at_us, unix_micros(sent_at) AS sent_us,
       unix_micros(at) - unix_micros(sent_at) AS took_us
FROM {events}
"""


def timed(events: DataFrame) -> DataFrame:
    """With the wall clocks in microseconds, the time between them, and `first` in every row that
    has a `sequence`."""
    return events.sparkSession.sql(_TIMED, events=events)


def of_kind(rows: DataFrame, *kinds: Kind) -> DataFrame:
    return rows.where(f.col("kind").isin(*(str(kind) for kind in kinds)))


def of_configurations(rows: DataFrame, *kinds: Kind) -> DataFrame:
    return of_kind(rows, *kinds).where(f.col("application").isNotNull())


def of_boards(rows: DataFrame, *kinds: Kind) -> DataFrame:
    return of_kind(rows, *kinds).where(f.col("application").isNull())


def subject() -> Column:
    """Whom a start, stop or crash-found row is about."""
    return f.coalesce("peer", "node")


def stored(rows: DataFrame) -> DataFrame:
    """One row per version: its first store row, and the set of its `digests`."""
    taken = ("at_us", "node", "start", "row", "mono_us", "epoch", "step", "base")
    return (
        of_configurations(rows, Kind.STORE)
        .groupBy(*CONFIGURATION, f.col("sequence").alias("version"))
        .agg(f.min(f.struct(*taken)).alias("one"), f.collect_set("digest").alias("digests"))
        .select(*CONFIGURATION, "version", "one.*", "digests")
    )


def tally(rows: DataFrame) -> DataFrame:
    """What one look at all rows gives, by process, life, kind, application and epoch: how many
    `rows`, the `top` number, from `begin_us` to `last_us`, the shortest `took_us`. `stopped`: these
    are a process's own stop rows."""
    own_stop = (f.col("kind") == str(Kind.STOP)) & (subject() == f.col("node"))
    life = ("run", "node", "start", "role")
    return rows.groupBy(*life, "kind", "application", "epoch", own_stop.alias("stopped")).agg(
        f.count(f.lit(1)).alias("rows"),
        f.max("row").alias("top"),
        f.min("at_us").alias("begin_us"),
        f.max("at_us").alias("last_us"),
        f.min("took_us").alias("took_us"),
    )


def log_ends(tallied: DataFrame, settings: AuditSettings) -> DataFrame:
    """Up to when each run is judged: `log_end_us`."""
    of_nodes = f.max(f.when(f.col("role") == NODE_ROLE, f.col("last_us")))
    end = f.coalesce(of_nodes, f.max("last_us")) - settings.tail_us
    return tallied.groupBy("run").agg(end.alias("log_end_us"))
