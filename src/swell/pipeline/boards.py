"""The five properties of the Bulletin Board over write and notify rows (BRD-2; paper, section 4).

A notify row says which write each entry of a view reads from, so the function `readsFrom` of the
definitions is given and need not be guessed. The first three properties are about safety and hold
in every prefix of a log; the last two are about what holds for ever, which a finite log shows only
for what holds until its end.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_losses import touched
from swell.pipeline.audit_rows import ACROSS, IN_PROCESS, of_boards, of_kind, subject
from swell.pipeline.audit_settings import NEVER_US, AuditSettings
from swell.pipeline.verdicts import Verdict, evidence

ENTRY = ("run", "node", "name", "source")
"""Of a subscriber's view: (subscriber, topic, writer)."""


def boards(
    rows: DataFrame,
    ends: DataFrame,
    lost: DataFrame,
    settings: AuditSettings,
    keep: Callable[[DataFrame], DataFrame],
) -> list[DataFrame]:
    """Evidence of every property. `keep`: holds on to what several of them use."""
    writes = of_boards(rows, Kind.WRITE)
    notifies = of_boards(rows, Kind.NOTIFY)
    living = keep(processes(rows))
    lasting = keep(subscribed_to_the_end(rows, living))
    last_seen = keep(last_entries(notifies))
    return [
        integrity(writes, notifies, lost, settings),
        order(notifies),
        validity(rows),
        inclusion(writes, last_seen, living, lasting, ends, settings),
        exclusion(last_seen, living, lasting, ends, settings),
    ]


def _shown(found: DataFrame, verdict: Verdict, who: Column, excused: Column | None) -> DataFrame:
    return evidence(found, verdict, who=who, excused=excused)


def integrity(
    writes: DataFrame, notifies: DataFrame, lost: DataFrame, settings: AuditSettings
) -> DataFrame:
    """What is shown was written, as it is shown, and before."""
    write = f.min(f.struct(*ACROSS, "mono_us", "digest"))
    known = writes.groupBy("run", "name", "source", "epoch", "sequence").agg(write.alias("write"))
    writer_losses = lost.select("run", f.col("node").alias("source"), "losses")
    a, b = notifies.where(f.col("sequence").isNotNull()).alias("a"), known.alias("b")
    same = [
        f.col(f"a.{name}").eqNullSafe(f.col(f"b.{name}"))
        for name in ("run", "name", "source", "epoch", "sequence")
    ]
    joined = a.join(b, same, "left").select("a.*", "b.write")
    written = f.col("write")
    altered = f.col("digest").isNotNull() & ~f.col("digest").eqNullSafe(written["digest"])
    one_process = (f.col("node") == written["node"]) & (f.col("start") == written["start"])
    boots = (f.col("at_us") - f.col("mono_us")) - (written["at_us"] - written["mono_us"])
    too_early = f.when(one_process, f.col("row") < written["row"]).when(
        f.abs(boots) <= settings.same_machine_us, f.col("mono_us") < written["mono_us"]
    )
    bad = joined.where(written.isNull() | altered | too_early).join(
        f.broadcast(writer_losses), ["run", "source"], "left"
    )
    excused = written.isNull() & touched(f.lit(-NEVER_US), f.lit(NEVER_US))
    return _shown(bad, Verdict.INTEGRITY, f.col("source"), excused)


def order(notifies: DataFrame) -> DataFrame:
    """A subscriber never sees an older write of a writer after a newer one."""
    seen = f.struct(f.coalesce("epoch", f.lit(0)).alias("epoch"), "sequence")
    view = Window.partitionBy(*ENTRY).orderBy(*IN_PROCESS)
    before = f.max("seen").over(view.rowsBetween(Window.unboundedPreceding, -1))
    bad = (
        notifies.where(f.col("sequence").isNotNull())
        .withColumn("seen", seen)
        .withColumn("before", before)
        .where(f.col("seen") < f.col("before"))
    )
    return _shown(bad, Verdict.ORDER, f.col("source"), None)


def validity(rows: DataFrame) -> DataFrame:
    """Only who is subscribed is notified."""
    life = ("run", "node", "start")
    own = subject() == f.col("node")
    stops = of_kind(rows, Kind.STOP).where(own).groupBy(*life).agg(f.min("row").alias("stop_row"))
    kind = f.col("kind")
    state = f.when(kind == str(Kind.SUBSCRIBE), True).when(kind == str(Kind.UNSUBSCRIBE), False)
    topic = Window.partitionBy(*life, "name").orderBy("row")
    so_far = topic.rowsBetween(Window.unboundedPreceding, -1)
    notified = (
        of_boards(rows, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.NOTIFY)
        .where((kind == str(Kind.NOTIFY)) | own)
        .withColumn("subscribed", f.last(state, ignorenulls=True).over(so_far))
        .where(kind == str(Kind.NOTIFY))
        .join(stops, list(life), "left")
    )
    stopped = f.coalesce(f.col("stop_row") < f.col("row"), f.lit(False))
    bad = notified.where(~f.coalesce("subscribed", f.lit(False)) | stopped)
    return _shown(bad, Verdict.VALIDITY, f.col("source"), None)


def processes(rows: DataFrame) -> DataFrame:
    """(run, process, died_us): when each process that has a start, stop or crash-found row, or
    writes on the board, was last gone for good; null: it lives."""
    marks = of_kind(rows, Kind.START, Kind.STOP, Kind.CRASH_FOUND).select(
        "run", subject().alias("process"), f.struct(*ACROSS, "kind").alias("mark")
    )
    started = f.max(f.when(f.col("mark.kind") == str(Kind.START), f.col("mark")))
    gone = f.when(f.col("mark.kind") != str(Kind.START), f.col("mark"))
    last = Window.partitionBy("run", "process")
    return (
        marks.withColumn("started", started.over(last))
        .where(f.col("started").isNull() | (f.col("mark") >= f.col("started")))
        .groupBy("run", "process")
        .agg(f.min(gone).alias("gone"))
        .select("run", "process", f.col("gone.at_us").alias("died_us"))
    )


def subscribed_to_the_end(rows: DataFrame, living: DataFrame) -> DataFrame:
    """(run, node, name, begin_us) of the subscriptions of living processes that go on."""
    own = subject() == f.col("node")
    kind = f.col("kind")
    marks = of_boards(rows, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE).where(own)
    lives = (
        of_kind(rows, Kind.START)
        .where(own)
        .groupBy("run", "node")
        .agg(f.max("start").alias("newest_start"))
    )
    place = f.struct(*IN_PROCESS)
    left = f.max(f.when(kind == str(Kind.UNSUBSCRIBE), place))
    in_topic = Window.partitionBy("run", "node", "name")
    dead = living.where(f.col("died_us").isNotNull()).select("run", f.col("process").alias("node"))
    return (
        marks.withColumn("left", left.over(in_topic))
        .where((kind == str(Kind.SUBSCRIBE)) & (f.col("left").isNull() | (place > f.col("left"))))
        .join(lives, ["run", "node"], "left")
        .where(f.col("newest_start").isNull() | (f.col("start") == f.col("newest_start")))
        .groupBy("run", "node", "name")
        .agg(f.min("at_us").alias("begin_us"))
        .join(dead, ["run", "node"], "left_anti")
    )


def last_entries(notifies: DataFrame) -> DataFrame:
    """Per entry of a view: the newest write it ever showed, its last row, whether that is ⊥."""
    read = f.when(
        f.col("sequence").isNotNull(),
        f.struct(f.coalesce("epoch", f.lit(0)).alias("epoch"), "sequence"),
    )
    last = f.struct(*IN_PROCESS, "at_us", "sequence", f.col("digest").isNull().alias("bottom"))
    return notifies.groupBy(*ENTRY).agg(f.max(read).alias("newest_read"), f.max(last).alias("last"))


def inclusion(
    writes: DataFrame,
    last_seen: DataFrame,
    living: DataFrame,
    lasting: DataFrame,
    ends: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """What a living writer writes is seen by everybody who stays subscribed."""
    dead = living.where(f.col("died_us").isNotNull()).select(
        "run", f.col("process").alias("source")
    )
    write = f.struct(
        f.struct(f.coalesce("epoch", f.lit(0)).alias("epoch"), "sequence").alias("number"),
        *ACROSS,
        f.col("digest").isNull().alias("bottom"),
    )
    alive = writes.withColumn("write", write).join(dead, ["run", "source"], "left_anti")
    newest_of_all = alive.groupBy("run", "name", "source").agg(
        f.max("write.number").alias("newest_number")
    )
    due = (
        alive.select("run", "name", "source", "write")
        .join(lasting.withColumnRenamed("node", "who"), ["run", "name"], "inner")
        .join(f.broadcast(ends), "run", "inner")
        .where(f.col("write.at_us") >= f.col("begin_us"))
        .where(f.col("write.at_us") + settings.settle_us <= f.col("log_end_us"))
        .groupBy("run", "name", "source", "who")
        .agg(f.max("write").alias("write"))
    )
    seen = last_seen.withColumnRenamed("node", "who")
    judged = due.join(seen, ["run", "name", "source", "who"], "left").join(
        newest_of_all, ["run", "name", "source"], "inner"
    )
    number = f.col("write.number")
    unseen = f.coalesce(f.col("newest_read") < number, f.lit(True))
    wiped = f.col("last.bottom") & ~f.col("write.bottom") & (number == f.col("newest_number"))
    bad = judged.where(unseen | f.coalesce(wiped, f.lit(False))).select(
        "run",
        f.lit(None).alias("application"),
        "name",
        "who",
        *(f.col(f"write.{name}").alias(name) for name in ACROSS),
        f.col("write.number.sequence").alias("sequence"),
    )
    return _shown(bad, Verdict.INCLUSION, f.col("who"), None)


def exclusion(
    last_seen: DataFrame,
    living: DataFrame,
    lasting: DataFrame,
    ends: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """A writer that is gone is shown no more."""
    gone = (
        living.where(f.col("died_us").isNotNull())
        .join(f.broadcast(ends), "run", "inner")
        .where(f.col("died_us") + settings.settle_us <= f.col("log_end_us"))
        .select("run", f.col("process").alias("source"), "died_us")
    )
    bad = (
        last_seen.where(~f.col("last.bottom"))
        .join(gone, ["run", "source"], "inner")
        .join(lasting, ["run", "node", "name"], "inner")
        .where(f.col("begin_us") <= f.col("died_us"))
        .select(
            *ENTRY,
            f.lit(None).alias("application"),
            *(f.col(f"last.{name}").alias(name) for name in (*IN_PROCESS, "at_us", "sequence")),
        )
    )
    return _shown(bad, Verdict.EXCLUSION, f.col("source"), None)
