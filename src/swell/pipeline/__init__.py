"""Spark proves what happened and plans what comes next.

    from swell.pipeline import audit, events
    frame = events(spark, "/var/lib/swell/events")
    audit.run(spark, frame, AuditSettings()).summary

Transforms are functions from frames to frames; only jobs read, write and know a session. Nothing
here imports Spark before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def events(spark: SparkSession, path: str) -> DataFrame:
    """The event log in a directory as a frame; `swell.pipeline.logs.read` also says what was left
    out of it."""
    from swell.pipeline import logs

    return logs.read(spark, path).events
