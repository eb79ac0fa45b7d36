"""Once and in order: repeated, reordered and withdrawn versions; acknowledgements.

The rows of one process have an order without doubt, so no clock plays a part here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_deliveries import RECEIVED
from swell.pipeline.audit_rows import of_configurations
from swell.pipeline.verdicts import Verdict, evidence

# A subscription is a row for each of its patterns, all at one moment; an ack row names them
# together. Most containers never come back, so few acknowledgements have to be put in order.
_LOST = """
WITH asked AS (
    SELECT run, node, start, application, peer, step, at_us, min(row) AS row,
           nullif(array_join(sort_array(collect_set(coalesce(name, ''))), ','), '') AS name
    FROM {rows} WHERE kind = 'subscribe' AND application IS NOT NULL AND peer IS NOT NULL
    GROUP BY run, node, start, application, peer, step, at_us, mono_us
),
came_back AS (SELECT run, node, start, application, peer FROM asked WHERE step > 0),
acks AS (
    SELECT run, node, start, application, peer, NULL AS step, at_us, row, name, sequence AS acked
    FROM {rows} LEFT SEMI JOIN came_back USING (run, node, start, application, peer)
    WHERE kind = 'ack'
),
told AS (
    SELECT *, max(acked) OVER (
        PARTITION BY run, node, start, application, peer, name ORDER BY row
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS sequence
    FROM (SELECT *, NULL AS acked FROM asked UNION ALL SELECT * FROM acks)
)
SELECT * FROM told WHERE step > 0 AND step < sequence
"""


def resumed(rows: DataFrame) -> DataFrame:
    """(run, node, start, application) of lives that go on with what earlier ones had."""
    return of_configurations(rows, Kind.START).select("run", "node", "start", "application")


def applied(got: DataFrame) -> DataFrame:
    """Of rows as `received` gives them, the apply rows, with what `misplaced` has to know."""
    return got.where(f.col("kind") == str(Kind.APPLY)).select(
        *RECEIVED,
        "start",
        "row",
        "at_us",
        "first",
        "sequence",
        "applied_in_life",
        "applied_in_lives_before",
    )


def misplaced(applies: DataFrame, resumed: DataFrame) -> DataFrame:
    """Evidence of duplicate, out-of-order and went-back."""
    again = applies.where(f.col("first") <= f.col("applied_in_life")).alias("a")
    earlier = applies.select(*RECEIVED, "start", "row", "first", "sequence").alias("b")
    overlap = [
        *(f.col(f"a.{name}") == f.col(f"b.{name}") for name in (*RECEIVED, "start")),
        f.col("b.row") < f.col("a.row"),
        f.col("b.first") <= f.col("a.sequence"),
        f.col("b.sequence") >= f.col("a.first"),
    ]
    back = applies.where(
        (f.col("sequence") < f.col("applied_in_lives_before"))
        & (f.col("first") > f.coalesce("applied_in_life", f.lit(0)))
    ).join(f.broadcast(resumed), ["run", "node", "start", "application"], "left_semi")
    found = (
        (again.join(earlier, overlap, "left_semi"), Verdict.DUPLICATE),
        (again.join(earlier, overlap, "left_anti"), Verdict.OUT_OF_ORDER),
        (back, Verdict.WENT_BACK),
    )
    shown = [
        evidence(frame, verdict, who=f.col("node"), first=f.col("first"))
        for frame, verdict in found
    ]
    return shown[0].unionByName(shown[1]).unionByName(shown[2])


def acknowledgements(rows: DataFrame) -> DataFrame:
    """Evidence of steps that a primary took for acknowledged twice, or after a later one. A
    container that subscribes anew begins anew."""
    pair = ("run", "node", "start", "application", "peer")
    session = Window.partitionBy(*pair).orderBy("row")
    subscribed = f.when(f.col("kind") == str(Kind.SUBSCRIBE), 1)
    feed = Window.partitionBy(*pair, "session", "name").orderBy("row")
    before = f.max("sequence").over(feed.rowsBetween(Window.unboundedPreceding, -1))
    acks = (
        of_configurations(rows, Kind.ACK, Kind.SUBSCRIBE)
        .withColumn("session", f.count(subscribed).over(session))
        .where(f.col("kind") == str(Kind.ACK))
        .withColumn("before", before)
        .where(f.col("sequence") <= f.col("before"))
    )
    verdict = f.when(f.col("sequence") == f.col("before"), str(Verdict.ACK_TWICE)).otherwise(
        str(Verdict.ACK_BACK)
    )
    return evidence(acks, verdict, who=f.col("peer"))


def lost_acknowledgements(rows: DataFrame) -> DataFrame:
    """Evidence of containers that came back with less than they had acknowledged to the same life
    of a primary. Who comes back with nothing has no snapshot, and never said that it would."""
    found = rows.sparkSession.sql(_LOST, rows=rows)
    return evidence(found, Verdict.ACK_LOST, who=f.col("peer"), first=f.col("step") + 1)
