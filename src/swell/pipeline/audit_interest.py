"""Who was subscribed to what, and from when to when.

Who let a container subscribe last serves it: only that node says when it leaves. What the primary
before says of its own end may come later, by its clock or in truth.

The patterns are those of `swell.config.delivery.interest`: nothing or `*` for everything, a prefix
with `*`, a name. What is reserved must be asked for: by a pattern that begins with `@`.

Both rules are one text each: a column that is put together in Python is a call to Java for each of
its parts, and on a short log those calls would take as long as the work.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from swell.config.delivery.interest import WILDCARD
from swell.config.names import RESERVED

_SUBSCRIPTIONS = """
WITH marks AS (
    SELECT /*+ BROADCAST(o) */ run, coalesce(peer, node) AS container, kind, node, start, row,
           CASE WHEN kind IN ('subscribe', 'unsubscribe') THEN application END AS application,
           CASE kind WHEN 'subscribe' THEN coalesce(nullif(name, {wildcard}), '')
                     WHEN 'unsubscribe' THEN CASE name WHEN {wildcard} THEN '' ELSE name END
           END AS pattern,
           CASE WHEN kind IN ('stop', 'crash-found') THEN at_us - coalesce(own_offset_us, 0)
                ELSE at_us END AS at_us
    FROM {rows} LEFT JOIN {own_offsets} AS o USING (run, node)
    WHERE kind IN ('stop', 'crash-found')
       OR (kind IN ('subscribe', 'unsubscribe') AND application IS NOT NULL)
),
-- All that is said of a container comes together once, for the three windows and the grouping.
together AS (SELECT /*+ REPARTITION(run, container) */ * FROM marks),
-- What names no pattern is said of each: from here on every mark is about one.
known AS (
    SELECT *, collect_set(CASE WHEN kind = 'subscribe' THEN struct(application, pattern) END)
                  OVER (PARTITION BY run, container) AS interests
    FROM together
),
about AS (
    SELECT run, container, kind, at_us, node, start, row, about.application, about.pattern
    FROM known LATERAL VIEW explode(
        CASE WHEN pattern IS NULL
             THEN filter(interests, i -> known.application IS NULL
                                         OR i.application = known.application)
             ELSE array(struct(application, pattern)) END) AS about
),
held AS (
    SELECT *, last_value(CASE WHEN kind = 'subscribe' THEN node END)
                  IGNORE NULLS OVER (PARTITION BY run, container, application, pattern
                   ORDER BY at_us, node, start, row {before}) AS holder
    FROM about
),
-- Backwards in time: what comes next has been seen already.
followed AS (
    SELECT *, last_value(CASE WHEN kind IN ('stop', 'crash-found')
                                OR (kind = 'unsubscribe' AND node = holder) THEN at_us END)
                  IGNORE NULLS OVER (PARTITION BY run, container, application, pattern
                   ORDER BY at_us DESC, node DESC, start DESC, row DESC {before}) AS left_us
    FROM held
),
ended AS (
    SELECT /*+ BROADCAST(e) */ *, least(left_us, log_end_us) AS end_us
    FROM followed JOIN {ends} AS e USING (run)
    WHERE kind = 'subscribe'
)
-- Whoever subscribes again goes on as before.
SELECT run, application, container, pattern, end_us, min(at_us) AS begin_us
FROM ended GROUP BY run, application, container, pattern, end_us
""".replace("{before}", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING")

_INTERESTED = """
SELECT versions.* EXCEPT (asked), container, process
FROM (SELECT *, explode(array('', name)) AS asked FROM {stored}) AS versions
-- Names join by equality; only patterns are tried on all names.
JOIN (
    SELECT *, CASE WHEN endswith(pattern, {wildcard}) THEN '' ELSE pattern END AS asked
    FROM {subscribed}
) USING (run, application, asked)
WHERE at_us >= begin_us AND at_us + {sla_us} <= end_us
  AND CASE WHEN pattern = '' THEN NOT startswith(name, {reserved})
           WHEN endswith(pattern, {wildcard})
           THEN startswith(name, left(pattern, length(pattern) - 1))
                AND (NOT startswith(name, {reserved}) OR startswith(pattern, {reserved}))
           ELSE true END
"""
# No WITH here: how a frame is to be joined (`broadcast`) does not reach through one.


def subscriptions(rows: DataFrame, ends: DataFrame, own_offsets: DataFrame) -> DataFrame:
    """(run, application, container, pattern, end_us, begin_us): one row per unbroken time.

    `own_offsets`: how much the clock of a container is ahead, for its own stop rows."""
    return rows.sparkSession.sql(
        _SUBSCRIPTIONS, rows=rows, ends=ends, own_offsets=own_offsets, wildcard=WILDCARD
    )


def interested(stored: DataFrame, subscribed: DataFrame, sla_us: int) -> DataFrame:
    """Expected deliveries: the columns of `stored`, `container` and `process`; several times, where
    several patterns match."""
    return stored.sparkSession.sql(
        _INTERESTED,
        stored=stored,
        subscribed=subscribed,
        sla_us=sla_us,
        wildcard=WILDCARD,
        reserved=RESERVED,
    )
