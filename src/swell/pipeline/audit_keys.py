"""Names as numbers: what is shuffled and sorted by the million is compared as whole numbers.

A configuration and a process get a hash of their names. It is tried on all names of the log, and
another salt is taken if two of them share one: equal numbers mean equal names, without exception.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from swell.events.schema import Kind
from swell.pipeline.audit_rows import CONFIGURATION, of_configurations

PAIR = ("process", "configuration")
"""A container and one of its configurations; the one that tells more apart comes first, since
sorting looks at it first."""


class Keys(NamedTuple):
    """The numbers of the names of a log."""

    salt: int
    processes: DataFrame
    """run, node, process."""

    def of_configurations(self, frame: DataFrame) -> DataFrame:
        """With `configuration`."""
        return frame.withColumn("configuration", configuration_key(self.salt))

    def of_processes(self, frame: DataFrame, node: str = "node") -> DataFrame:
        """With `process`, of the node or container that the column names."""
        return frame.withColumn("process", process_key(self.salt, node))


def find_keys(rows: DataFrame, tallied: DataFrame, subscribed: DataFrame) -> Keys:
    """Numbers for all processes, and for all configurations that were stored or received."""
    named = of_configurations(rows, Kind.STORE, Kind.APPLY, Kind.REJECT)
    names = _once(named.select(*CONFIGURATION))
    containers = subscribed.select("run", f.col("container").alias("node"))
    processes = _once(tallied.select("run", "node").unionByName(containers))
    salt = next(
        salt
        for salt in count()
        if _apart(names, configuration_key(salt)) and _apart(processes, process_key(salt))
    )
    return Keys(salt, processes.withColumn("process", process_key(salt)))


def configuration_key(salt: int) -> Column:
    return f.xxhash64(f.lit(salt), *CONFIGURATION)


def process_key(salt: int, node: str = "node") -> Column:
    return f.xxhash64(f.lit(salt), "run", node)


def _once(names: DataFrame) -> DataFrame:
    return names.distinct().localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)


def _apart(names: DataFrame, key: Column) -> bool:
    """Whether no two of the names have the same key."""
    row = names.agg(f.count(f.lit(1)).alias("all"), f.count_distinct(key).alias("apart")).first()
    return row is not None and row["all"] == row["apart"]
