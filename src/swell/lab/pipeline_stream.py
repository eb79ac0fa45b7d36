"""How long a micro-batch takes, of queries that follow a log: without state, and the audit.

A log grows by the files of some seconds at a time, as those of nodes do, and the query takes them
while it waits for more. Times are what Spark says of a batch from its trigger to its commit, of the
batches that had deliveries. The first ones start Python workers and compile code, and the audit
judges nothing before the watermark is a horizon behind: they do not count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from swell.events.arrow import parquet_options
from swell.lab.pipeline_rows import BEGIN_US, BOOT_US, DATE, table_of
from swell.pipeline import following
from swell.pipeline.audit_settings import US_PER_S, AuditSettings
from swell.pipeline.following import Following

STEP_S = 10
"""Of the log's time, by which it grows."""
PLAIN_WARM_UP = 8
AUDIT_WARM_UP = 18
"""Batches before those that count: longer than delay and horizon, so that as much is judged and
forgotten as comes."""
NAMES = 10
MS_PER_S = 1000


class MicroBatches(NamedTuple):
    """Seconds of each warm batch."""

    plain_s: list[float]
    """Rows are read, and counted by application and name."""
    audit_s: list[float]


def micro_batches(
    spark: SparkSession, folder: Path, batches: int = 10, containers: int = 100, versions: int = 100
) -> MicroBatches:
    """Measure both queries, one after the other, on logs below `folder`. A batch has the rows of so
    many containers that apply so many versions each."""

    def count(batch: DataFrame, number: int) -> None:
        batch.groupBy("application", "name").count().collect()

    log = GrowingLog(folder / "plain", containers, versions)
    how = Following(str(log.root), str(folder / "plain-checkpoint"))
    plain_s = _measured(how.start(how.read(spark), count), log, PLAIN_WARM_UP, batches)

    log = GrowingLog(folder / "audited", containers, versions)
    how = Following(str(log.root), str(folder / "audited-checkpoint"))
    found: list[dict[str, Any]] = []
    settings = AuditSettings(horizon_s=following.HORIZON_S)
    query = following.start_audit(spark, how, settings, found.extend)
    audit_s = _measured(query, log, AUDIT_WARM_UP, batches)
    if found:
        raise AssertionError(f"nothing was wrong, and the audit said {found[0]}")
    return MicroBatches(plain_s, audit_s)


def _measured(query: StreamingQuery, log: GrowingLog, warm_up: int, batches: int) -> list[float]:
    try:
        for _ in range(warm_up + batches):
            log.grow()
            query.processAllAvailable()
        progress = [one for one in query.recentProgress if one["numInputRows"] >= log.deliveries]
    finally:
        query.stop()
    return [one["durationMs"]["triggerExecution"] / MS_PER_S for one in progress[-batches:]]


class GrowingLog:
    """One primary, one application, and containers that apply every version at once."""

    def __init__(self, root: Path, containers: int, versions: int) -> None:
        self.root = root
        self.containers = containers
        self.versions = versions
        self.steps = 0
        node = np.array([f"c{number}" for number in range(containers)])
        self._container = np.repeat(np.arange(containers), versions)
        self._node = pa.array(node).take(pa.array(self._container))
        rows = np.arange(1, containers + 1)
        subscribes = self._rows(np.full(containers, BEGIN_US - US_PER_S), rows)
        subscribes |= {"name": pa.repeat("", containers), "peer": pa.array(node)}
        self._write("subscribe", "primary", subscribes)

    @property
    def deliveries(self) -> int:
        """Rows of containers that a step adds."""
        return self.containers * self.versions

    def grow(self) -> None:
        """By the files of one step."""
        index = np.arange(self.versions) + self.steps * self.versions
        at_us = BEGIN_US + index * (STEP_S * US_PER_S // self.versions)
        version = {
            "name": pa.array([f"name{one}" for one in index % NAMES]),
            "sequence": pa.array(index // NAMES + 1),
            "step": pa.array(index + 1),
            "epoch": pa.repeat(1, self.versions),
            "digest": pa.array([int(one).to_bytes(20, "big") for one in index]),
        }
        stores = self._rows(at_us, self.containers + 1 + index) | version
        self._write("store", "primary", stores)
        place = np.tile(np.arange(self.versions), self.containers)
        applies = self._rows(at_us[place] + 5_000, index[place] + 1, "container")
        applies |= {name: column.take(pa.array(place)) for name, column in version.items()}
        applies |= {"node": self._node, "sent_at": _stamps(at_us[place])}
        applies["sent_mono_us"] = pa.array(at_us[place] - BOOT_US)
        self._write("apply", "containers", applies)
        self.steps += 1

    def _rows(self, at_us: Any, row: Any, role: str = "node") -> dict[str, Any]:
        count = len(at_us)
        return {
            "schema": pa.repeat(1, count),
            "run": pa.repeat("growing", count),
            "at": _stamps(at_us),
            "mono_us": pa.array(at_us - BOOT_US),
            "node": pa.repeat("primary", count),
            "role": pa.repeat(role, count),
            "start": pa.repeat(1, count),
            "row": pa.array(row),
            "application": pa.repeat("app", count),
        }

    def _write(self, kind: str, process: str, columns: dict[str, Any]) -> None:
        """Under a name that is none while it is written."""
        directory = self.root / f"date={DATE}" / f"kind={kind}"
        directory.mkdir(parents=True, exist_ok=True)
        hidden = directory / f".{process}.parquet"
        pq.write_table(table_of(columns), hidden, **parquet_options())
        hidden.rename(directory / f"{process}-1-{self.steps + 1}.parquet")


def _stamps(us: Any) -> pa.Array:
    return pa.array(us).cast(pa.timestamp("us", tz="UTC"))
