"""Which topics should move, for millions of them: EPU-4 over the table of `monitor` (PIP-5).

Spark finds the topics that violate their limit, have lost their home or must leave an overloaded
one, and ranks the nodes for each of them by W(t, b), in native expressions written out for every
node. What is left is a choice one after the other, each depending on those before: it is made on
the driver by `swell.placement.planning.choose`, the same code that nodes run. So both give the
same moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from swell.pipeline.monitor import distance, parts, whole
from swell.placement.monitoring import NS_PER_US, NodeReport
from swell.placement.planning import Candidates, Load, Move, PlanSettings, choose

NODES_MAX = 1 << 12


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


def moving(
    topics: DataFrame, nodes: Sequence[NodeReport], load: Load, settings: PlanSettings
) -> DataFrame:
    """Topics to be placed anew, each once."""
    names = sorted(node.node for node in nodes)
    violated = f.coalesce(f.col("worst_us") > f.col("limit_us"), f.lit(False))
    homeless = ~f.col("home").isin(names)
    overloaded = [node for node in nodes if not load.fits(node.node)]
    if not overloaded:
        return topics.where(violated | homeless)
    leaving = _shed(topics, overloaded, load, settings)
    # By topic alone: the frame is read once more, but nothing of it is shuffled.
    return topics.join(f.broadcast(leaving), "topic", "left").where(
        violated | homeless | f.col("leaves")
    )


def _shed(
    topics: DataFrame, overloaded: Sequence[NodeReport], load: Load, settings: PlanSettings
) -> DataFrame:
    """topic, leaves: the largest topics of every overloaded node, until the rest fits."""
    names = [node.node for node in overloaded]
    order = Window.partitionBy("home").orderBy(f.desc("rate_out_milli"), "topic")
    before = f.sum("rate_out_milli").over(order) - f.col("rate_out_milli")
    rate = _by_name(f.col("home"), {name: load.rate_milli(name) for name in names}) - before
    used = _by_name(f.col("home"), {node.node: node.utilization for node in overloaded})
    seen = _by_name(f.col("home"), {name: load.rate_milli(name) for name in names})
    share = f.try_divide(rate.cast("double"), seen.cast("double"))
    estimated = f.when(seen == 0, used).otherwise(used * share)
    too_much = (rate > settings.rate_out_max_milli) | (estimated > settings.utilization_max)
    return (
        topics.where(f.col("home").isin(names) & (f.col("rate_out_milli") > 0))
        .select("topic", too_much.alias("leaves"))
        .where("leaves")
    )


def _by_name(name: Column, values: dict[str, int] | dict[str, float]) -> Column:
    cases: Column | None = None
    for key, value in values.items():
        condition = name == key
        cases = f.when(condition, value) if cases is None else cases.when(condition, value)
    assert cases is not None
    return cases


def ranked(moving: DataFrame, nodes: Sequence[NodeReport]) -> DataFrame:
    """topic, home, rate_out_milli, feasible, keys: the nodes to try, best first; those that choose
    first come first. A key is W(t, b) in nanoseconds, and in its low bits the number of the node in
    the order of names: plain numbers, because those are sorted many times as fast as pairs."""
    ordered = sorted(nodes, key=lambda node: node.node)
    assert len(ordered) < NODES_MAX
    dimensions = len(ordered[0].place.vector_us)
    keys = [
        whole(_expected(node, dimensions), NS_PER_US) * NODES_MAX + number
        for number, node in enumerate(ordered)
    ]
    # An array that is used so often is not written out again: every W(t, b) is computed once.
    computed = moving.select(
        "topic",
        "home",
        "rate_out_milli",
        ((f.col("limit_us") * NS_PER_US + 1) * NODES_MAX).alias("beyond"),
        f.array(*keys).alias("keys"),
    )
    beyond = f.col("beyond")
    fits = [
        f.when(beyond.isNull() | (f.col("keys")[number] < beyond), 1).otherwise(0)
        for number in range(len(ordered))
    ]
    counted = computed.select(
        "topic",
        "home",
        "rate_out_milli",
        reduce(add, fits).alias("feasible"),
        f.sort_array("keys").alias("keys"),
    )
    tried = f.when(f.col("feasible") > 0, f.col("feasible")).otherwise(len(ordered))
    return counted.select(
        "topic",
        "home",
        "rate_out_milli",
        "feasible",
        # In the order of latency, so the feasible ones are the first.
        f.slice("keys", f.lit(1), tried).alias("keys"),
    ).orderBy(tried, "topic")


def _expected(node: NodeReport, dimensions: int) -> Column:
    """W(t, b) of one node, as `swell.placement.monitoring.expected_us` adds it up."""
    here = [f.lit(float(us)) for us in (*node.place.vector_us, node.place.height_us)]
    ways = [
        f.coalesce(distance(parts(f"{side}_centroid", dimensions), here), f.lit(0.0))
        for side in ("producer", "consumer")
    ]
    return ways[0] + ways[1] + f.col("deviation_us")


def candidates(ranked: DataFrame, nodes: Sequence[NodeReport]) -> Iterator[Candidates]:
    """The ranked topics on the driver, in order."""
    names = sorted(node.node for node in nodes)
    for batch in ranked.toArrow().to_batches():
        *plain, keys = batch.columns
        numbers = (keys.values.to_numpy() & (NODES_MAX - 1)).tolist()
        ends = keys.offsets.to_numpy().tolist()
        for topic, home, rate, feasible, first, end in zip(
            *(column.to_pylist() for column in plain), ends[:-1], ends[1:], strict=True
        ):
            tried = [names[number] for number in numbers[first:end]]
            yield Candidates(topic, home, rate, feasible, tried)


def plan(
    topics: DataFrame, nodes: Sequence[NodeReport], settings: PlanSettings | None = None
) -> list[Move]:
    """The moves of one decision; `topics` as `monitor.topics` and `with_limits` make them."""
    chosen = settings or PlanSettings()
    load = load_of(topics, nodes, chosen)
    placing = ranked(moving(topics, nodes, load, chosen), nodes)
    return choose(candidates(placing, nodes), load)
