"""The table of topics in DuckDB's SQL: what `swell.pipeline.monitor` computes, term by term."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from swell.pipeline.monitor import CONSUMER, MESSAGES, PRODUCER, WINDOW_S
from swell.placement.monitoring import MILLI
from swell.placement.space import US_PER_MS

COLUMNS = (
    "topic",
    "home",
    "producers",
    "consumers",
    "unplaced",
    "rate_in_milli",
    "rate_out_milli",
    "deviation_us",
    "worst_us",
)
"""That both engines are compared by."""

TOPICS = """
CREATE OR REPLACE TEMP TABLE topics AS
WITH places AS (
    SELECT node, arg_max(coordinate, ("at", start, row)) AS last
    FROM events WHERE kind = 'coordinate' AND len(coordinate) = {dimensions} + 1 GROUP BY node
),
placed AS (SELECT node, {places} FROM places),
reported AS (
    SELECT * FROM events
    WHERE kind = 'traffic' AND reason = '{messages}' AND name IS NOT NULL
      AND coalesce(source, peer) IS NOT NULL
),
flows AS (
    SELECT name AS topic, source IS NOT NULL AS produces, coalesce(source, peer) AS client,
           arg_max(node, ("at", node, start, row)) AS home,
           arg_max(coalesce(rate, 0), ("at", node, start, row)) AS rate,
           max(("at", node, start, row)) AS seen
    FROM reported
    WHERE "at" >= (SELECT max("at") FROM reported) - INTERVAL '{window_s} seconds'
    GROUP BY topic, produces, client
),
located AS (
    SELECT f.*, CAST(floor(f.rate * {milli}.0 + 0.5) AS BIGINT) AS rate_milli, p.* EXCLUDE (node)
    FROM flows f LEFT JOIN placed p ON p.node = f.client
),
totals AS (
    SELECT topic, arg_max(home, seen) AS home, count(*) FILTER (p0 IS NULL) AS unplaced,
           {totals}
    FROM located GROUP BY topic
),
centred AS (
    SELECT t.*, {homes}
    FROM totals t LEFT JOIN placed h ON h.node = t.home
)
SELECT c.topic, any_value(c.home) AS home, any_value(c.producers) AS producers,
       any_value(c.consumers) AS consumers, any_value(c.unplaced) AS unplaced,
       any_value(c.producer_milli) AS rate_in_milli, any_value(c.consumer_milli) AS rate_out_milli,
       {deviation} AS deviation_us, {worst} AS worst_us
FROM centred c LEFT JOIN (SELECT * FROM located WHERE p0 IS NOT NULL) l ON l.topic = c.topic
GROUP BY c.topic
"""

OWN = {PRODUCER: "produces", CONSUMER: "NOT produces"}


def find_topics(connection: duckdb.DuckDBPyConnection, dimensions: int) -> None:
    """The table, as `topics`."""
    axes = range(dimensions + 1)
    places = [f"CAST(floor(last[{i + 1}] * {US_PER_MS}.0 + 0.5) AS BIGINT) AS p{i}" for i in axes]
    query = TOPICS.format(
        dimensions=dimensions,
        messages=MESSAGES,
        window_s=WINDOW_S,
        milli=MILLI,
        places=", ".join(places),
        totals=", ".join(_totals(side, dimensions) for side in OWN),
        homes=", ".join(f"h.p{i} AS h{i}" for i in axes),
        deviation=" + ".join(_farthest(side, dimensions, True) for side in OWN),
        worst=" + ".join(_farthest(side, dimensions, False) for side in OWN),
    )
    connection.execute(query)


def topics(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """What `find_topics` found."""
    return connection.sql(f"SELECT {', '.join(COLUMNS)} FROM topics").to_arrow_table()


def _totals(side: str, dimensions: int) -> str:
    own = OWN[side]
    means = [
        f"CAST(sum(p{i}) FILTER ({own}) AS DOUBLE) / count(p0) FILTER ({own}) AS {side}_{i}"
        for i in range(dimensions + 1)
    ]
    rate = f"CAST(coalesce(sum(rate_milli) FILTER ({own}), 0) AS BIGINT) AS {side}_milli"
    return ", ".join([f"count(*) FILTER ({own}) AS {side}s", rate, *means])


def _farthest(side: str, dimensions: int, from_centre: bool) -> str:
    to, sign = (f"{side}_", "-") if from_centre else ("h", "+")
    squares = " + ".join(f"(p{i} - {to}{i}) * (p{i} - {to}{i})" for i in range(dimensions))
    height = f"(p{dimensions} {sign} {to}{dimensions})"
    length = f"sqrt(CAST({squares} AS DOUBLE)) + {height}"
    found = f"max({length}) FILTER (l.{OWN[side]})".replace("l.NOT ", "NOT l.")
    return f"coalesce({found}, 0.0)" if from_centre else found
