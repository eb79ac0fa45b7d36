"""Per topic, who uses it from where and how much: EPU-2 over a log of events (ePulsar 3.2).

From `coordinate` rows comes the last place of every node and client, from `traffic` rows the last
rate of every flow: of a producer into a topic (`source` is the client) or to a consumer (`peer`
is the client), as the topic's home (`node`) saw it. A flow that was not reported for `window_s`
has ended. All quantities are whole numbers until the last division, and every choice has a total
order behind it: the same log gives the same table, bit by bit, on any number of cores, and the
same as `swell.placement.monitoring` computes in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.placement.monitoring import MILLI
from swell.placement.space import US_PER_MS

WINDOW_S = 60.0
PRODUCER, CONSUMER = "producer", "consumer"
NODE = "node"
"""The role of those that topics live on."""
MESSAGES = "msgs"
"""`reason` of the traffic rows that count messages; others count bytes."""


def whole(value: Column, parts: int) -> Column:
    """In whole parts of the unit, rounded half up."""
    return f.floor(value * f.lit(float(parts)) + f.lit(0.5)).cast("long")


def places(events: DataFrame, dimensions: int) -> DataFrame:
    """node, role, place: the last coordinate of every process in µs, the vector and then the
    height. Coordinates of another number of dimensions are none."""
    order = f.struct("at", "start", "row")
    return (
        events.where((f.col("kind") == Kind.COORDINATE) & (f.size("coordinate") == dimensions + 1))
        .groupBy("node")
        .agg(f.max_by("coordinate", order).alias("last"), f.max_by("role", order).alias("role"))
        .select(
            "node",
            "role",
            f.array(*(whole(f.col("last")[i], US_PER_MS) for i in range(dimensions + 1))).alias(
                "place"
            ),
        )
    )


def reported(events: DataFrame, window_s: float) -> DataFrame:
    """Traffic rows that tell of flows which have not ended."""
    rows = events.where(
        (f.col("kind") == Kind.TRAFFIC)
        & (f.col("reason") == MESSAGES)
        & f.col("name").isNotNull()
        & f.coalesce("source", "peer").isNotNull()
    )
    end = rows.agg(f.max("at").alias("last_at"))
    window = f.make_dt_interval(secs=f.lit(window_s))
    recent = rows.join(f.broadcast(end)).where(f.col("at") >= f.col("last_at") - window)
    return recent.drop("last_at")


def flows(events: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """topic, side, client, home, rate_milli: what is reported now, client by client."""
    recent = reported(events, window_s)
    order = f.struct("at", "node", "start", "row")
    side = f.when(f.col("source").isNotNull(), PRODUCER).otherwise(CONSUMER)
    # By topic from the start, so that nothing has to be moved again for what is said of a topic.
    return (
        recent.repartition("name")
        .groupBy(
            f.col("name").alias("topic"),
            side.alias("side"),
            f.coalesce("source", "peer").alias("client"),
        )
        .agg(
            f.max_by(f.struct("node", "rate"), order).alias("last"),
            f.max(order).alias("seen"),
        )
        .select(
            "topic",
            "side",
            "client",
            f.col("last.node").alias("home"),
            whole(f.coalesce("last.rate", f.lit(0.0)), MILLI).alias("rate_milli"),
            "seen",
        )
    )


def parts(place: str, dimensions: int) -> list[Column]:
    """The numbers of a place, the height last."""
    return [f.col(place)[i].cast("double") for i in range(dimensions + 1)]


def length(a: Sequence[Column], b: Sequence[Column]) -> Column:
    """Between two vectors; term by term as `swell.placement.space` adds them up."""
    squares = [(x - y) * (x - y) for x, y in zip(a[:-1], b[:-1], strict=True)]
    return f.sqrt(reduce(add, squares))


def distance(a: Sequence[Column], b: Sequence[Column]) -> Column:
    return length(a, b) + (a[-1] + b[-1])


def deviation(place: Sequence[Column], centre: Sequence[Column]) -> Column:
    return length(place, centre) + (place[-1] - centre[-1])


def topics(flows: DataFrame, places: DataFrame, dimensions: int) -> DataFrame:
    """One row per topic: home, clients, centroids, W(t), E(t) and rates.

    A client without a coordinate counts in rates and in `unplaced`, not in latencies.
    """
    clients = places.select(f.col("node").alias("client"), "place")
    located = flows.join(clients, "client", "left")
    homes = places.where(f.col("role") == NODE).select(
        f.col("node").alias("home"), f.col("place").alias("home_place")
    )
    centred = _totals(located, dimensions).join(f.broadcast(homes), "home", "left")
    placed = located.where(f.col("place").isNotNull()).select("topic", "side", "place")
    return _worst(centred.join(placed, "topic", "left"), centred.columns, dimensions)


def _totals(located: DataFrame, dimensions: int) -> DataFrame:
    aggregates = [
        f.max_by("home", "seen").alias("home"),
        f.sum(f.when(f.col("place").isNull(), 1).otherwise(0)).alias("unplaced"),
    ]
    centroids = []
    for side in (PRODUCER, CONSUMER):
        own = f.col("side") == side
        aggregates += [
            f.count_if(own).alias(f"{side}s"),
            f.count(f.when(own, f.col("place"))).alias(f"{side}_places"),
            f.coalesce(f.sum(f.when(own, f.col("rate_milli"))), f.lit(0)).alias(f"{side}_milli"),
            *(
                f.sum(f.when(own, f.col("place")[i])).alias(f"{side}_{i}")
                for i in range(dimensions + 1)
            ),
        ]
        count = f.col(f"{side}_places")
        means = [
            f.col(f"{side}_{i}").cast("double") / count.cast("double")
            for i in range(dimensions + 1)
        ]
        centroids.append(f.when(count > 0, f.array(*means)).alias(f"{side}_centroid"))
    return (
        located.groupBy("topic")
        .agg(*aggregates)
        .select(
            "topic",
            "home",
            "producers",
            "consumers",
            "unplaced",
            *centroids,
            f.col("producer_milli").alias("rate_in_milli"),
            f.col("consumer_milli").alias("rate_out_milli"),
        )
    )


def _worst(joined: DataFrame, known: Sequence[str], dimensions: int) -> DataFrame:
    """One row per topic again: what is known of it, and W(t) and E(t) of its farthest clients.

    The columns that are known go along with each client: they are at hand where the farthest are
    found, and nothing has to be joined again.
    """
    place, home = parts("place", dimensions), parts("home_place", dimensions)
    kept = [name for name in known if name not in ("topic", "home_place")]
    farthest = [f.first(name).alias(name) for name in kept]
    for side in (PRODUCER, CONSUMER):
        own = f.col("side") == side
        from_centre = deviation(place, parts(f"{side}_centroid", dimensions))
        farthest += [
            f.max(f.when(own, from_centre)).alias(f"{side}_deviation"),
            f.max(f.when(own, distance(place, home))).alias(f"{side}_way"),
        ]
    none = f.lit(0.0)
    spread = [f.coalesce(f"{side}_deviation", none) for side in (PRODUCER, CONSUMER)]
    return (
        joined.groupBy("topic")
        .agg(*farthest)
        .select(
            "topic",
            *kept,
            (spread[0] + spread[1]).alias("deviation_us"),
            (f.col("producer_way") + f.col("consumer_way")).alias("worst_us"),
        )
    )


def nodes(topics: DataFrame) -> DataFrame:
    """home, topics, rate_in_milli, rate_out_milli: what every node carries."""
    return topics.groupBy("home").agg(
        f.count("*").alias("topics"),
        f.sum("rate_in_milli").alias("rate_in_milli"),
        f.sum("rate_out_milli").alias("rate_out_milli"),
    )
