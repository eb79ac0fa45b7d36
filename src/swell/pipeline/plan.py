"""Which topics should move, for millions of them: EPU-4 over the table of `monitor` (PIP-5).

Spark finds the topics that violate their limit, have lost their home or must leave an overloaded
one, and ranks the nodes for each of them by W(t, b) (`plan_ranking`). What is left is a choice one
after the other, each depending on those before: it is made on the driver by
`swell.placement.planning.choose`, plain code without Spark, which gives the same moves alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyarrow.compute import sort_indices
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.pipeline.plan_ranking import RANKED, WANTED, by_name, ranker
from swell.placement.monitoring import NodeReport
from swell.placement.planning import Candidates, Load, Move, PlanSettings, choose

ROWS_AT_ONCE = 1 << 16
"""Topics that become Python's values at one time."""


def with_limits(
    topics: DataFrame, limit_us: int | None = None, limits: DataFrame | None = None
) -> DataFrame:
    """Topics with `limit_us`: their own (of `limits`: topic, limit_us), else the one for all."""
    common = f.lit(limit_us).cast("long")
    if limits is None:
        return topics.withColumn("limit_us", common)
    own = limits.select("topic", f.col("limit_us").cast("long").alias("own_us"))
    return topics.join(own, "topic", "left").select(
        *(f.col(name) for name in topics.columns),
        f.coalesce("own_us", common).alias("limit_us"),
    )


def load_of(topics: DataFrame, nodes: Sequence[NodeReport], settings: PlanSettings) -> Load:
    """What every node carries now."""
    rates = {node.node: 0 for node in nodes}
    for row in topics.groupBy("home").agg(f.sum("rate_out_milli").alias("milli")).collect():
        if row["home"] in rates:
            rates[row["home"]] = row["milli"]
    return Load(rates, {node.node: node.utilization for node in nodes}, settings)


def moving(topics: DataFrame, nodes: Sequence[NodeReport], load: Load) -> DataFrame:
    """Topics to be placed anew, each once."""
    names = sorted(node.node for node in nodes)
    violated = f.coalesce(f.col("worst_us") > f.col("limit_us"), f.lit(False))
    homeless = ~f.col("home").isin(names)
    overloaded = [name for name in names if not load.fits(name)]
    if not overloaded:
        return topics.where(violated | homeless)
    leaving = _shed(topics, overloaded, load)
    # By topic alone: the frame is read once more, but nothing of it is shuffled.
    return topics.join(f.broadcast(leaving), "topic", "left").where(
        violated | homeless | f.col("leaves")
    )


def _shed(topics: DataFrame, names: Sequence[str], load: Load) -> DataFrame:
    """topic, leaves: the largest topics of every overloaded node, until the rest fits."""
    order = Window.partitionBy("home").orderBy(f.desc("rate_out_milli"), "topic")
    before = f.sum("rate_out_milli").over(order) - f.col("rate_out_milli")
    rest = _by_name(f.col("home"), {name: load.rate_milli(name) for name in names}) - before
    most = _by_name(f.col("home"), {name: load.most_milli(name) for name in names})
    return (
        topics.where(f.col("home").isin(names) & (f.col("rate_out_milli") > 0))
        .select("topic", (rest > most).alias("leaves"))
        .where("leaves")
    )


def _by_name(name: Column, values: Mapping[str, int]) -> Column:
    cases: Column | None = None
    for key, value in values.items():
        condition = name == key
        cases = f.when(condition, value) if cases is None else cases.when(condition, value)
    assert cases is not None
    return cases


def ranked(moving: DataFrame, nodes: Sequence[NodeReport]) -> DataFrame:
    """Topics with the nodes to try, best first (`plan_ranking.RANKED`)."""
    return moving.select(*WANTED).mapInArrow(ranker(nodes), RANKED)


def candidates(ranked: DataFrame, nodes: Sequence[NodeReport]) -> Iterator[Candidates]:
    """The ranked topics on the driver, in the order in which they choose. The driver holds two
    bytes of every topic for each node that it may try."""
    names = [node.node for node in by_name(nodes)]
    table = ranked.toArrow()
    order = sort_indices(table, [("tried", "ascending"), ("topic", "ascending")])
    for begin in range(0, len(order), ROWS_AT_ONCE):
        rows = table.take(order.slice(begin, ROWS_AT_ONCE))
        for topic, home, rate, feasible, _, ranking in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            numbers = memoryview(ranking).cast("H")
            yield Candidates(topic, home, rate, feasible, map(names.__getitem__, numbers))


def plan(
    topics: DataFrame, nodes: Sequence[NodeReport], settings: PlanSettings | None = None
) -> list[Move]:
    """The moves of one decision; `topics` as `monitor.topics` and `with_limits` make them."""
    chosen = settings or PlanSettings()
    load = load_of(topics, nodes, chosen)
    placing = ranked(moving(topics, nodes, load), nodes)
    return choose(candidates(placing, nodes), load)
