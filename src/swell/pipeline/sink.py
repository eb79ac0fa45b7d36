"""Rows become versions of configurations of a running cluster: the sink of `format("swell")`.

    frame.write.format("swell").mode("append").option("nodes", "127.0.0.1:7000")
        .option("application", "shop").save()

Columns: `name` and `value` (text or bytes; null deletes), and `application` unless the option says
it. Options: `nodes`; `cluster` or `certificates`; `token` (by default the one in SWELL_TOKEN);
`application`; `name`.

Spark runs a task again when a worker fails, and a batch again when a query restarts from its
checkpoint. So every version names as its author the query, batch, partition and round it comes
from, and a row that the history already shows is left out; the version to follow is a condition of
every change, so that of two attempts at once only one succeeds. A row makes exactly one version,
or none if it is what was there, as long as fewer versions than the cluster keeps (64 by default)
came between the attempts. Rows of one name are published in the order of their partition:
repartition by name if a name may occur in several.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from swell.client import edits
from swell.client.configs import Configs
from swell.client.connection import connect
from swell.client.values import ABSENT
from swell.config.operations import EDITS_MAX, Kept
from swell.errors import ConfigurationError, StaleVersionError, UnavailableError
from swell.runtime.identity import LOCAL_CLUSTER

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS = 16
"""Of one step, while others publish the same names."""
READS_AT_ONCE = 64

Row = tuple[str, bytes | None]
"""Name and value of a configuration; None deletes it."""


@dataclass(frozen=True)
class SinkSettings:
    """Where rows go."""

    nodes: str
    cluster: str
    certificates: str | None
    token: str | None = field(repr=False)
    application: str
    name: str

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> SinkSettings:
        settings = cls(
            nodes=options.get("nodes", ""),
            cluster=options.get("cluster", LOCAL_CLUSTER),
            certificates=options.get("certificates") or None,
            token=options.get("token") or None,
            application=options.get("application", ""),
            name=options.get("name", ""),
        )
        if not settings.nodes:
            raise ConfigurationError("the sink needs option nodes: HOST:PORT of a node, or several")
        types = {column.name: column.dataType for column in schema.fields}
        for column in ("application", "name"):
            if not getattr(settings, column) and not isinstance(types.get(column), StringType):
                raise ConfigurationError(
                    f"the sink needs option {column}, or a column {column} of text"
                )
        if not isinstance(types.get("value"), StringType | BinaryType):
            raise ConfigurationError("the sink needs a column value of text or bytes")
        return settings


@dataclass
class Published(WriterCommitMessage):
    """What a task has done."""

    rows: int
    versions: int


class ConfigWriter(DataSourceArrowWriter):
    """Of a batch job: its id is drawn once, where the write is planned, and goes to every task."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self.settings, f"{self.id}/0/{_partition()}", iterator)


class ConfigStreamWriter(DataSourceStreamArrowWriter):
    """Of a streaming query: its id and the batch's number are the checkpoint's."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return write_batches(self.settings, f"{query}/{batch}/{_partition()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every row was published when its task ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays: the next attempt leaves it out."""


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def write_batches(
    settings: SinkSettings, origin: str, batches: Iterator[pa.RecordBatch]
) -> Published:
    """Publish the rows of one partition; `origin` is the same in every attempt."""
    rows: dict[str, dict[str, list[bytes | None]]] = {}
    for batch in batches:
        names = batch.schema.names
        columns = [
            batch.column(key).to_pylist() if key in names else [None] * batch.num_rows
            for key in ("application", "name", "value")
        ]
        for application, name, value in zip(*columns, strict=True):
            of_name = rows.setdefault(settings.application or application, {})
            of_name.setdefault(settings.name or name, []).append(_bytes(value))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_publish_all(settings, origin, rows))


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


async def _publish_all(
    settings: SinkSettings, origin: str, rows: Mapping[str, Mapping[str, list[bytes | None]]]
) -> Published:
    done = Published(0, 0)
    if not rows:
        return done
    async with connect(
        settings.nodes,
        cluster=settings.cluster,
        certificates=settings.certificates,
        token=settings.token,
    ) as client:
        for application, by_name in rows.items():
            configs = client.configs(application)
            for number in range(max(map(len, by_name.values()))):
                turn = [(name, v[number]) for name, v in by_name.items() if number < len(v)]
                for first in range(0, len(turn), EDITS_MAX):
                    part = turn[first : first + EDITS_MAX]
                    done.rows += len(part)
                    done.versions += await publish_once(configs, f"spark {origin}/{number}", part)
    return done


async def publish_once(configs: Configs, author: str, rows: Sequence[Row]) -> int:
    """One step of different configurations, without those that this author has published already;
    how many versions it made."""
    for _ in range(ATTEMPTS):
        heads = await _heads(configs, author, [name for name, _ in rows])
        changes: list[edits.Edit] = []
        for name, value in rows:
            head = heads[name]
            if head is None:
                continue
            if value is not None:
                changes.append(edits.put(name, value, head))
            elif head != ABSENT:
                changes.append(edits.delete(name, head))
        if not changes:
            return 0
        try:
            made = await configs.publish(changes, author=author)
        except StaleVersionError:
            continue  # somebody else was faster: perhaps another attempt at the same rows
        return sum(publication.changed for publication in made)
    raise UnavailableError(
        f"others keep changing configurations of {configs.application}: the sink gave up after "
        f"{ATTEMPTS} attempts"
    )


async def _heads(configs: Configs, author: str, names: Sequence[str]) -> dict[str, bytes | None]:
    """The version that a change of each configuration follows; None: this author was there."""
    heads: dict[str, bytes | None] = {}
    for first in range(0, len(names), READS_AT_ONCE):
        part = names[first : first + READS_AT_ONCE]
        histories = await asyncio.gather(*(_history(configs, name) for name in part))
        for name, history in zip(part, histories, strict=True):
            if any(version.author == author for version in history):
                heads[name] = None
            else:
                heads[name] = history[-1].id if history else ABSENT
    return heads


async def _history(configs: Configs, name: str) -> tuple[Kept, ...]:
    return await configs.history(name) if await configs.get(name) is not None else ()
