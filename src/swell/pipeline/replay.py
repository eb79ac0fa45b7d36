"""A day's load through placement and delivery trees: what each server would carry (RIP-24, PIP-7).

Every update goes to the primary of its application's slot, found on the same ring as in a cluster
(`swell.rings`). From there it is delivered in one of four ways, each mechanism on or off:

- relays: the primary sends to the roots of the group's delivery trees alone, at most
  `server_fanout` of them unless three hops need more; else to every follower;
- deltas: what changed travels; else the whole value.

The result is per server and part of the day: messages and bytes sent, in the four ways; from the
busiest server in the busiest part follows how many servers the load needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.config.delivery.trees import shares
from swell.directory.placement import slot_key
from swell.pipeline.generate import PARTS, Day
from swell.rings import Ring
from swell.settings import Settings

PIECES_MIN = 24
PIECE_UPDATES = 10_000
FRAME_BYTES = 64
"""Around a burst: header, signature's share, digest of the destination list."""


@dataclass(frozen=True)
class Servers:
    """The cluster that carries the load, and what one server can do."""

    count: int = 60
    messages_per_s: float = 100_000.0
    """That a server can send: measure with `swell lab fanout`."""
    bytes_per_s: float = 125e6
    """Of its network: 1 Gbit/s."""
    slots: int = 4_096
    """More than the default of small clusters: a slot must not be too much for one server."""
    sites: int = 4
    """Followers of an application are spread evenly over so many; each is a group of its own."""


@dataclass(frozen=True)
class Way:
    """One way of delivering."""

    name: str
    relays: bool
    deltas: bool


WAYS = (
    Way("relays_deltas", True, True),
    Way("relays_whole", True, False),
    Way("direct_deltas", False, True),
    Way("direct_whole", False, False),
)


def roots(followers: int, sites: int, settings: Settings | None = None) -> int:
    """How many copies the primary of a group of groups sends with relays."""
    config = (settings or Settings()).config
    sizes = [followers // sites + (site < followers % sites) for site in range(sites)]
    sizes = [size for size in sizes if size]
    own = shares(sizes, config.relay_fanout, config.server_fanout)
    # A group too small for relays is served directly.
    return sum(share or size for share, size in zip(own, sizes, strict=True))


def owners(servers: Servers) -> list[tuple[int, int]]:
    """(slot, server): where the primaries are."""
    ring: Ring[int] = Ring(range(servers.count))
    return [(slot, ring.owner(slot_key(slot))) for slot in range(servers.slots)]


def slot_of(application: Column, slots: int) -> Column:
    """As `swell.config.names.place` finds it."""
    name = f.concat(f.lit("app-"), application.cast("string"))
    return f.pmod(f.crc32(name.cast("binary")), f.lit(slots)).cast("int")


def load(spark: SparkSession, updates: DataFrame, day: Day, servers: Servers) -> DataFrame:
    """server, part, updates, deliveries, and messages and bytes a second in each way, scaled up to
    the whole day's rate."""
    placed = spark.createDataFrame(owners(servers), "slot int, server int")
    copies = f.lit(roots(day.followers, servers.sites))
    scale = 1 / (day.fraction * day.seconds / PARTS)
    sums = [f.count("*").alias("updates"), f.sum("followers").alias("deliveries")]
    for way in WAYS:
        sent = copies if way.relays else f.col("followers")
        size = f.col("delta_bytes" if way.deltas else "value_bytes") + FRAME_BYTES
        sums.append((f.sum(sent) * scale).alias(f"messages_{way.name}"))
        sums.append((f.sum(sent * size) * scale).alias(f"bytes_{way.name}"))
    # Servers and parts are few, slots and parts many: the sums fit in memory this way round.
    return (
        updates.withColumn("slot", slot_of(f.col("application"), servers.slots))
        .join(f.broadcast(placed), "slot")
        .groupBy("server", "part")
        .agg(*sums)
    )


def summary(load: DataFrame, servers: Servers) -> list[dict[str, object]]:
    """One row per way: the whole load at its peak, the busiest server's, and how many servers it
    takes. A server's part of the load is taken from the whole day, and the peak from pieces of the
    day with enough updates in them, so that a small fraction shows its load and not its noise."""
    figures = [f"{what}_{way.name}" for way in WAYS for what in ("messages", "bytes")]
    total = load.agg(f.sum("updates").alias("updates")).first()
    assert total is not None
    pieces = min(PARTS, max(PIECES_MIN, total["updates"] // PIECE_UPDATES))
    piece = f.floor(f.col("part") * pieces / PARTS)
    by_piece = load.groupBy(piece).agg(*(f.sum(name).alias(name) for name in figures))
    by_server = load.groupBy("server").agg(*(f.sum(name).alias(name) for name in figures))
    peak = by_piece.agg(*(f.max(name).alias(name) for name in figures)).first()
    share = by_server.agg(*((f.max(name) / f.sum(name)).alias(name) for name in figures)).first()
    assert peak is not None
    assert share is not None
    rows: list[dict[str, object]] = []
    for way in WAYS:
        row: dict[str, object] = {"way": way.name.replace("_", ", ")}
        busiest = []
        for what in ("messages", "bytes"):
            name = f"{what}_{way.name}"
            at_peak = peak[name] * pieces / PARTS
            row[f"peak_{what}_per_s"] = at_peak
            row[f"busiest_{what}_per_s"] = at_peak * share[name]
            busiest.append(at_peak * share[name])
        rows.append({**row, "servers_needed": servers_needed(servers, busiest)})
    return rows


def servers_needed(servers: Servers, busiest: Sequence[float]) -> int:
    """As many as make the busiest server fit, if more servers share evenly what the present ones
    do; never fewer than the three that keep the copies."""
    over = max(busiest[0] / servers.messages_per_s, busiest[1] / servers.bytes_per_s)
    return max(3, ceil(servers.count * over))
