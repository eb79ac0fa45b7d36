"""The audit of a stream: rows in, evidence out, as soon as the watermark allows a verdict.

State is kept by buckets: a container's rows and all rows about it go to the bucket of its name,
store rows and starts of nodes to every bucket of their run. So one pass serves all verdicts and
Spark keeps a handful of states per run, not one per delivery, which was measured a hundred times
slower. A bucket's state is one value; Spark's checkpoint keeps it with the offsets, so a restart
goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from swell.errors import ConfigurationError
from swell.events.rows import NODE_ROLE
from swell.events.schema import Kind
from swell.pipeline.audit_rows import subject, timed
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.streaming_auditor import Auditor, Finding
from swell.pipeline.streaming_state import Seen, State
from swell.pipeline.verdicts import EVIDENCE, LOST_ROWS
from swell.pipeline.workers import begin_task

if TYPE_CHECKING:
    import pandas as pd

BUCKETS = 16
DELAY_S = 10.0
US_PER_MS = 1000
COLUMNS = Seen.__struct_fields__
_MADE = ("time_us", "at_us", "sent_us")
NEEDED = ("run", "at", "sent_at", *(name for name in COLUMNS if name not in _MADE))
"""Columns of a log that the audit of a stream looks at."""

OF_CONTAINERS = (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.ACK)
DEATHS = (Kind.STOP, Kind.CRASH_FOUND)
"""Rows of nodes that are about a container: of an application, and of any process."""

COUNTED = ("bucket", "judged", "unjudged")
OUTPUT = StructType([*EVIDENCE.fields, *(StructField(name, LongType()) for name in COUNTED)])
"""Evidence; and rows without a verdict that say how many deliveries a bucket has judged in a batch,
and how many versions it has still to judge."""


def evidence(
    events: DataFrame,
    settings: AuditSettings,
    delay_s: float = DELAY_S,
    buckets: int = BUCKETS,
) -> DataFrame:
    """Evidence of deliveries, order and acknowledgements in a stream of events; append mode. The
    session must use the RocksDB state store."""
    found = counted_evidence(events, settings, delay_s, buckets)
    return found.where(f.col("verdict").isNotNull()).select(*EVIDENCE.fieldNames())


def counted_evidence(
    events: DataFrame,
    settings: AuditSettings,
    delay_s: float = DELAY_S,
    buckets: int = BUCKETS,
) -> DataFrame:
    """As `evidence`, with rows that count: `OUTPUT`."""
    if settings.horizon_s is None or settings.horizon_s < settings.sla_s:
        raise ConfigurationError(
            "an audit of a stream needs a horizon, not below the SLA: after that long it gives up "
            "waiting for a delivery (--horizon 60)"
        )
    if not state_can_be_kept():
        raise ConfigurationError(
            "an audit of a stream needs protobuf, by which Spark keeps its state: run "
            "`pip install 'swell[pipeline]'`"
        )
    routed = route(timed(events), settings, buckets).withWatermark("time", f"{delay_s} seconds")
    return routed.groupBy("run", "bucket").transformWithStateInPandas(
        statefulProcessor=BucketProcessor(settings),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="EventTime",
    )


def state_can_be_kept() -> bool:
    """Spark's Python worker imports protobuf, which PySpark does not bring, once a query runs."""
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even its parent is there
        return False


def route(rows: DataFrame, settings: AuditSettings, buckets: int) -> DataFrame:
    """Rows with the buckets that need them, and where they stand on the stream's clock."""
    kind = f.col("kind")
    of_configuration = f.col("application").isNotNull()
    is_store = (kind == str(Kind.STORE)) & of_configuration
    is_begin = (kind == str(Kind.START)) & (f.col("role") == NODE_ROLE)
    of_all = is_store | is_begin
    about = kind.isin(*map(str, DEATHS)) | (kind.isin(*map(str, OF_CONTAINERS)) & of_configuration)
    is_about = about & (f.col("role") != "container")
    is_own = f.col("role") == "container"
    whom = f.when(is_about, subject()).otherwise(f.col("node"))
    own_bucket = f.pmod(f.xxhash64(whom), f.lit(buckets)).cast("int")
    everywhere = f.sequence(f.lit(0), f.lit(buckets - 1))
    return (
        rows.where(of_all | is_own | is_about)
        .withColumn("time_us", stream_clock(settings))
        .withColumn("time", f.timestamp_micros("time_us"))
        .withColumn("bucket", f.explode(f.when(of_all, everywhere).otherwise(f.array(own_bucket))))
        .select("run", "bucket", "time", *COLUMNS)
    )


def stream_clock(settings: AuditSettings) -> Column:
    """An apply row whose clock contradicts the sender's stands where the sender's clock says."""
    took = f.col("at_us") - f.col("sent_us")
    contradicts = (f.col("kind") == str(Kind.APPLY)) & (
        (took < 0) | (took > settings.clock_bound_us)
    )
    return f.when(contradicts, f.col("sent_us")).otherwise(f.col("at_us"))


class BucketProcessor(StatefulProcessor):
    """Keeps the state of an `Auditor` and wakes it when the watermark has moved."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        begin_task()
        self._handle = handle
        schema = StructType([StructField("state", BinaryType())])
        self._state = handle.getValueState("state", schema)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(State)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        yield from self._advance(key, seen(rows), timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield from self._advance(key, iter(()), timerValues)

    def close(self) -> None:
        pass

    def _advance(self, key: Any, rows: Iterator[Seen], timers: Any) -> Iterator[pd.DataFrame]:
        held = self._state.get() if self._state.exists() else None
        state = State() if held is None else self._decoder.decode(held[0])
        auditor = Auditor(self._settings, state)
        watermark_ms = timers.getCurrentWatermarkInMs()
        found = auditor.advance(rows, watermark_ms * US_PER_MS)
        self._state.update((self._encoder.encode(state),))
        self._wake(auditor.next_due_us(), watermark_ms)
        run, bucket = key
        if found:
            yield frame_of(run, found)
        yield counts_of(run, bucket, auditor.judged, auditor.unjudged())

    def _wake(self, due_us: int | None, watermark_ms: int) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if due_us is not None:
            due_ms = -(-due_us // US_PER_MS)
            self._handle.registerTimer(max(due_ms, watermark_ms + 1))


def seen(frames: Iterator[pd.DataFrame]) -> Iterator[Seen]:
    """Rows as the auditor takes them; what pandas has for nothing becomes None."""
    for frame in frames:
        held = frame[list(COLUMNS)].astype(object)
        for values in held.where(held.notna(), None).itertuples(index=False, name=None):
            yield Seen(*map(_plain, values))


def _plain(value: Any) -> Any:
    """Columns with nulls come as floats."""
    return int(value) if isinstance(value, float) else value


def frame_of(run: str, found: list[Finding]) -> pd.DataFrame:
    import pandas as pd

    def row(one: Finding) -> tuple[Any, ...]:
        about = (run, str(one.verdict), one.application, one.name, one.who, one.first, one.last)
        at = pd.Timestamp(one.at_us * 1000, unit="ns", tz="UTC")
        return (*about, *one.place, at, one.value_ms, LOST_ROWS if one.excused else None)

    nothing = (None,) * len(COUNTED)
    return pd.DataFrame([(*row(one), *nothing) for one in found], columns=OUTPUT.fieldNames())


def counts_of(run: str, *counts: int) -> pd.DataFrame:
    """A frame of its own: whole numbers beside nothing would become floats."""
    import pandas as pd

    nothing = (None,) * (len(EVIDENCE) - 1)
    return pd.DataFrame([(run, *nothing, *counts)], columns=OUTPUT.fieldNames())
