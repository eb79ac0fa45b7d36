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

from pyspark.sql import Column, DataFrame, Window
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
    """topic, side, client, seen, rate_milli: what is reported now, client by client. `seen` is the
    last report; rows are told apart by what comes before its rate."""
    side = f.when(f.col("source").isNotNull(), PRODUCER).otherwise(CONSUMER)
    # By topic from the start, so that nothing has to be moved again for what is said of a topic.
    return (
        reported(events, window_s)
        .repartition("name")
        .groupBy(
            f.col("name").alias("topic"),
            side.alias("side"),
            f.coalesce("source", "peer").alias("client"),
        )
        .agg(f.max(f.struct("at", "node", "start", "row", "rate")).alias("seen"))
        .select(
            "topic",
            "side",
            "client",
            "seen",
            whole(f.coalesce("seen.rate", f.lit(0.0)), MILLI).alias("rate_milli"),
        )
    )


def topics(flows: DataFrame, places: DataFrame, dimensions: int) -> DataFrame:
    """One row per topic: home, clients, centroids, W(t), E(t) and rates.

    A client without a coordinate counts in rates and in `unplaced`, not in latencies.

    Flows lie together by topic, and stay where they are: what is said of all clients of a topic
    comes to each of them by windows, not by a join. Places are plain columns, and each step does a
    part of the whole, since Java does not compile a method as long as all of it would be.
    """
    axes = range(dimensions + 1)
    centred = _centred(flows, places, axes)
    return _topics(_sides(_distances(centred, places, axes), axes), axes)


def _numbers(prefix: str, axes: range) -> list[str]:
    """Names of the columns of a place, the height last."""
    return [f"{prefix}_{axis}" for axis in axes]


def _spread(places: DataFrame, node: str, prefix: str, axes: range) -> DataFrame:
    """A place as one column for each number."""
    numbers = (f.col("place")[axis].alias(f"{prefix}_{axis}") for axis in axes)
    return places.select(f.col("node").alias(node), *numbers)


def _centred(flows: DataFrame, places: DataFrame, axes: range) -> DataFrame:
    """Flows with the places of their clients, the home of their topic, and the sum of all places on
    their side of it; `places` is how many those are, if any."""
    clients = _spread(places, "client", "at", axes)
    topic, side = Window.partitionBy("topic"), Window.partitionBy("topic", "side")
    return flows.join(clients, "client", "left").select(
        *("topic", "side", "rate_milli", *_numbers("at", axes)),
        f.max("seen").over(topic)["node"].alias("home"),
        f.nullif(f.count("at_0").over(side), f.lit(0)).alias("places"),
        *(f.sum(f"at_{axis}").over(side).alias(f"total_{axis}") for axis in axes),
    )


def _distances(centred: DataFrame, places: DataFrame, axes: range) -> DataFrame:
    """Flows with the client's way to the home, and its deviation from the centroid of its side."""
    homes = _spread(places.where(f.col("role") == NODE), "home", "home", axes)
    at, home = ([f.col(n).cast("double") for n in _numbers(p, axes)] for p in ("at", "home"))
    centre = [_mean(f"total_{axis}", "places") for axis in axes]
    return centred.join(f.broadcast(homes), "home", "left").select(
        *("topic", "home", "side", "places", *_numbers("total", axes), "rate_milli"),
        f.col("at_0").isNull().alias("unplaced"),
        (_length(at, centre) + (at[-1] - centre[-1])).alias("deviation"),
        (_length(at, home) + (at[-1] + home[-1])).alias("way"),
    )


def _mean(total: str, count: str) -> Column:
    return f.col(total).cast("double") / f.col(count).cast("double")


def _length(a: Sequence[Column], b: Sequence[Column]) -> Column:
    """Between two vectors; term by term as `swell.placement.space` adds them up."""
    squares = [(x - y) * (x - y) for x, y in zip(a[:-1], b[:-1], strict=True)]
    return f.sqrt(reduce(add, squares))


def _sides(distances: DataFrame, axes: range) -> DataFrame:
    """One row per side of a topic. What all its flows have in common is part of the key."""
    common = ("topic", "home", "side", "places", *_numbers("total", axes))
    return distances.groupBy(*common).agg(
        f.count("*").alias("clients"),
        f.count_if("unplaced").alias("unplaced"),
        f.sum("rate_milli").alias("milli"),
        f.max("deviation").alias("deviation"),
        f.max("way").alias("way"),
    )


def _topics(sides: DataFrame, axes: range) -> DataFrame:
    """One row per topic of its one or two sides."""
    numbers = ("clients", "milli", "places", "deviation", "way", *_numbers("total", axes))
    both = sides.groupBy("topic", "home").agg(
        f.sum("unplaced").alias("unplaced"),
        *(
            f.max(f.when(f.col("side") == side, f.col(number))).alias(f"{side}_{number}")
            for side in (PRODUCER, CONSUMER)
            for number in numbers
        ),
    )

    def of(side: str, number: str, none: float) -> Column:
        return f.coalesce(f"{side}_{number}", f.lit(none))

    def centroid(side: str) -> Column:
        places = f"{side}_places"
        means = (_mean(total, places) for total in _numbers(f"{side}_total", axes))
        return f.when(f.col(places).isNotNull(), f.array(*means))

    return both.select(
        "topic",
        "home",
        *(of(side, "clients", 0).alias(f"{side}s") for side in (PRODUCER, CONSUMER)),
        "unplaced",
        *(centroid(side).alias(f"{side}_centroid") for side in (PRODUCER, CONSUMER)),
        of(PRODUCER, "milli", 0).alias("rate_in_milli"),
        of(CONSUMER, "milli", 0).alias("rate_out_milli"),
        (of(PRODUCER, "deviation", 0.0) + of(CONSUMER, "deviation", 0.0)).alias("deviation_us"),
        (f.col("producer_way") + f.col("consumer_way")).alias("worst_us"),
    )


def nodes(topics: DataFrame) -> DataFrame:
    """home, topics, rate_in_milli, rate_out_milli: what every node carries."""
    return topics.groupBy("home").agg(
        f.count("*").alias("topics"),
        f.sum("rate_in_milli").alias("rate_in_milli"),
        f.sum("rate_out_milli").alias("rate_out_milli"),
    )
