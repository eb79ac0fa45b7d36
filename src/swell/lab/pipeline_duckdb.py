"""The audit and the latency table in DuckDB's SQL, over the same files: a second engine to agree
with, and to be measured against.

Rules, names and tie-breaks are those of `docs/protocols/audit.md`. Left out is what the logs that
both are compared on do not have: losses, clocks that are off, and primaries that move.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.latency import PERCENTS, STEP_BITS

CONFIGURATION = "run, application, name"

EVENTS = """
CREATE OR REPLACE VIEW events AS
SELECT * REPLACE (coalesce(first, sequence) AS first),
       epoch_us("at") AS at_us, epoch_us(sent_at) AS sent_us
FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true)
"""

STORED = """
stored AS (
    SELECT run, application, name, sequence AS version, at_us, mono_us, node, start, row
    FROM events WHERE kind = 'store' AND application IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY run, application, name, sequence ORDER BY at_us, node, start, row) = 1
)
"""

SUBSCRIPTIONS = """
ends AS (
    SELECT run, coalesce(max(at_us) FILTER (role = 'node'), max(at_us)) AS log_end_us
    FROM events GROUP BY run
),
begins AS (
    SELECT run, application, coalesce(peer, node) AS container,
           CASE WHEN name = '*' THEN '' ELSE coalesce(name, '') END AS pattern,
           at_us, node, start, row
    FROM events WHERE kind = 'subscribe' AND application IS NOT NULL
),
stops AS (
    SELECT run, coalesce(peer, node) AS container, at_us, node, start, row,
           CASE WHEN kind = 'unsubscribe' THEN application END AS application,
           CASE WHEN kind = 'unsubscribe' THEN CASE WHEN name = '*' THEN '' ELSE name END END
               AS pattern
    FROM events
    WHERE kind IN ('stop', 'crash-found') OR (kind = 'unsubscribe' AND application IS NOT NULL)
),
subscriptions AS (
    SELECT b.run, b.application, b.container, b.pattern, b.at_us AS begin_us,
           least(min(s.at_us), any_value(e.log_end_us)) AS end_us
    FROM begins b JOIN ends e ON e.run = b.run
    LEFT JOIN stops s ON s.run = b.run AND s.container = b.container
        AND (s.application IS NULL OR s.application = b.application)
        AND (s.pattern IS NULL OR s.pattern = b.pattern)
        AND (s.at_us, s.node, s.start, s.row) > (b.at_us, b.node, b.start, b.row)
    GROUP BY b.run, b.application, b.container, b.pattern, b.at_us, b.node, b.start, b.row
)
"""

EXPECTED = """
expected AS (
    SELECT DISTINCT v.*, s.container
    FROM stored v JOIN subscriptions s ON s.run = v.run AND s.application = v.application
        AND v.at_us >= s.begin_us AND v.at_us + {sla_us} <= s.end_us
        AND CASE WHEN s.pattern = '' THEN v.name[1] <> '@'
            WHEN s.pattern[-1] = '*' THEN starts_with(v.name, s.pattern[:-2])
                AND (v.name[1] <> '@' OR s.pattern[1] = '@')
            ELSE v.name = s.pattern END
)
"""

PROGRESS = """
received AS (
    SELECT run, application, name, node AS container, kind, start, row, at_us, mono_us, first,
           sequence, digest,
           coalesce(max(sequence) OVER (
               PARTITION BY run, application, name, node ORDER BY start, row
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS reached
    FROM events WHERE kind IN ('apply', 'reject') AND application IS NOT NULL
),
progress AS (SELECT * FROM received WHERE sequence > reached)
"""

UNDELIVERED = f"""
WITH {STORED}, {SUBSCRIPTIONS}, {EXPECTED}, {PROGRESS},
judged AS (
    SELECT e.*, p.start AS by_start, p.row AS by_row,
           CASE WHEN abs((e.at_us - e.mono_us) - (p.at_us - p.mono_us)) <= {{same_machine_us}}
                THEN p.mono_us - e.mono_us ELSE p.at_us - e.at_us END AS latency_us
    FROM expected e ASOF LEFT JOIN progress p
        ON p.run = e.run AND p.application = e.application AND p.name = e.name
        AND p.container = e.container AND p.sequence >= e.version
)
SELECT run, 'missing' AS verdict, application, name, container AS who,
       min(version) AS first, max(version) AS last, arg_min(node, version) AS node,
       arg_min(start, version) AS start, arg_min(row, version) AS row
FROM judged WHERE latency_us IS NULL OR latency_us > {{horizon_us}}
GROUP BY run, application, name, container
UNION ALL
SELECT run, 'late', application, name, container, min(version), max(version), container,
       by_start, by_row
FROM judged WHERE latency_us > {{sla_us}} AND latency_us <= {{horizon_us}}
GROUP BY run, application, name, container, by_start, by_row
"""

REPEATED = """
WITH applies AS (
    SELECT run, application, name, node, start, row, first, sequence,
           max(sequence) OVER (
               PARTITION BY run, application, name, node, start ORDER BY row
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS applied
    FROM events WHERE kind = 'apply' AND application IS NOT NULL
),
again AS (SELECT * FROM applies WHERE first <= applied)
SELECT run, CASE WHEN EXISTS (
           SELECT 1 FROM applies b
           WHERE b.run = a.run AND b.application = a.application AND b.name = a.name
             AND b.node = a.node AND b.start = a.start AND b.row < a.row
             AND b.first <= a.sequence AND b.sequence >= a.first
       ) THEN 'duplicate' ELSE 'out-of-order' END AS verdict,
       application, name, node AS who, first, sequence AS last, node, start, row
FROM again a
"""

ALTERED = """
WITH digests AS (
    SELECT run, application, name, sequence, list(DISTINCT digest) AS digests
    FROM events WHERE kind = 'store' AND application IS NOT NULL GROUP BY ALL
)
SELECT a.run, CASE WHEN d.digests IS NULL THEN 'unknown' ELSE 'wrong-content' END AS verdict,
       a.application, a.name, a.node AS who, a.first, a.sequence AS last, a.node, a.start, a.row
FROM events a LEFT JOIN digests d USING (run, application, name, sequence)
WHERE a.kind = 'apply' AND a.application IS NOT NULL
  AND (d.digests IS NULL OR (a.digest IS NOT NULL AND NOT list_contains(d.digests, a.digest)))
"""

UNRECEIVED = f"""
WITH {STORED}, {SUBSCRIPTIONS}, {EXPECTED}
SELECT count(*) FROM expected e ANTI JOIN
    (SELECT * FROM events WHERE kind = 'apply' AND application IS NOT NULL) a
    ON a.run = e.run AND a.application = e.application AND a.name = e.name
    AND a.node = e.container AND a.sequence = e.version
"""

IN_TIME = f"""
WITH {STORED}, {SUBSCRIPTIONS}, {EXPECTED}
SELECT count(*) FROM expected e JOIN
    (SELECT * FROM events WHERE kind = 'apply' AND application IS NOT NULL) a
    ON a.run = e.run AND a.application = e.application AND a.name = e.name
    AND a.node = e.container AND a.sequence = e.version
    AND a.at_us >= e.at_us AND a.at_us <= e.at_us + {{sla_us}}
"""

LATENCY = """
WITH measured AS (
    SELECT run, {by}, greatest(1, CASE
        WHEN abs((at_us - mono_us) - (sent_us - sent_mono_us)) <= {same_machine_us}
        THEN mono_us - sent_mono_us ELSE at_us - sent_us END) AS latency_us
    FROM events WHERE kind = 'apply' AND application IS NOT NULL AND sent_at IS NOT NULL
),
stepped AS (
    SELECT *, CAST(1 << greatest(CAST(floor(log2(latency_us)) AS INTEGER) - {bits}, 0) AS BIGINT)
        AS step
    FROM measured
),
counted AS (
    SELECT run, {by}, (latency_us + step - 1) // step * step AS step_us, count(*) AS n,
           max(latency_us) AS max_us, count(*) FILTER (latency_us > {sla_us}) AS over
    FROM stepped GROUP BY ALL
),
ranked AS (
    SELECT *, sum(n) OVER (PARTITION BY run, {by}) AS total,
           sum(n) OVER (PARTITION BY run, {by} ORDER BY step_us) AS so_far
    FROM counted
)
SELECT run, {by}, sum(n)::BIGINT AS count, {percentiles}, max(max_us) / 1000 AS max_ms,
       sum(over)::BIGINT AS late
FROM ranked GROUP BY run, {by}
"""

Rows = list[tuple[Any, ...]]


def connect(
    log: str | Path, threads: int = 2, memory: str = "", spill: str | Path = ""
) -> duckdb.DuckDBPyConnection:
    """A connection that sees the files of a log as `events`. `spill`: where what does not fit into
    `memory` goes."""
    limits = {"memory_limit": memory, "temp_directory": str(spill)} if memory else {}
    connection = duckdb.connect(config={"threads": threads, **limits})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(EVENTS.format(files=f"{log}/*/*/*.parquet"))
    return connection


def findings(connection: duckdb.DuckDBPyConnection, settings: AuditSettings) -> Rows:
    """(run, verdict, application, name, who, first, last, node, start, row) of missing, late,
    duplicate, out-of-order, wrong-content and unknown."""
    return [
        row
        for query in (UNDELIVERED, REPEATED, ALTERED)
        for row in connection.execute(_filled(query, settings)).fetchall()
    ]


def find(connection: duckdb.DuckDBPyConnection, settings: AuditSettings) -> None:
    """The same as a table, `findings`."""
    queries = [_filled(query, settings) for query in (UNDELIVERED, REPEATED, ALTERED)]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE findings AS {queries[0]}")
    for query in queries[1:]:
        connection.execute(f"INSERT INTO findings {query}")


def unreceived(connection: duckdb.DuckDBPyConnection, settings: AuditSettings) -> int:
    """Expected deliveries without a row of that version: an anti-join."""
    return _count(connection, _filled(UNRECEIVED, settings))


def in_time(connection: duckdb.DuckDBPyConnection, settings: AuditSettings) -> int:
    """Expected deliveries with a row of that version within the SLA: a join by range."""
    return _count(connection, _filled(IN_TIME, settings))


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def latency(
    connection: duckdb.DuckDBPyConnection, settings: AuditSettings, by: tuple[str, ...]
) -> Rows:
    """(run, *by, count, p50_ms, p90_ms, p99_ms, max_ms, late)."""
    percentiles = ", ".join(
        f"least(min(step_us) FILTER (so_far * 100 >= total * {percent}), max(max_us)) / 1000"
        for percent in PERCENTS
    )
    query = LATENCY.format(
        by=", ".join(by),
        bits=STEP_BITS,
        percentiles=percentiles,
        same_machine_us=settings.same_machine_us,
        sla_us=settings.sla_us,
    )
    return connection.execute(query).fetchall()


def _filled(query: str, settings: AuditSettings) -> str:
    return query.format(
        sla_us=settings.sla_us,
        horizon_us=settings.horizon_us,
        same_machine_us=settings.same_machine_us,
    )
