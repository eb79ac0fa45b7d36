"""Rows become versions of configurations of a running cluster: the sink of `format("swell")`.

    frame.write.format("swell").mode("append").option("nodes", "127.0.0.1:7000")
        .option("application", "shop").save()

Columns: `name` and `value` (text or bytes; null deletes), and `application` unless the option says
it. Options: `nodes`; `cluster` or `certificates`; `token` (by default the one in SWELL_TOKEN);
`application`; `name`.

Spark runs a task again when a worker fails, and a batch again when a query restarts from its
checkpoint, both perhaps with rows in another order or in other partitions. So every version names
as its author the query and batch it comes from, and a row is left out if the history shows a
version of that author with its value; of a value that occurs several times, as many as there are.
The version to follow is a condition of every change, so that of two attempts at once only one
succeeds. A row makes exactly one version, or none if it is what was there, as long as fewer
versions than the cluster keeps (64 by default; of large values few) came between the attempts.
Equal rows of a batch in different partitions are one row.

Rows of one name are published in the order in which they come. Spark keeps it between attempts if
nothing has shuffled them; behind a shuffle they have none, and any of them may be the last. So have
one row for each name in a batch, or sort within partitions by name and what tells them apart.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

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
from swell.config.versions import Kind
from swell.errors import ConfigurationError, StaleVersionError, UnavailableError
from swell.runtime.identity import LOCAL_CLUSTER

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS = 16
"""Of one step, while others publish the same names."""
READS_AT_ONCE = 64


class Row(NamedTuple):
    """What a configuration shall be."""

    name: str
    value: bytes | None
    """None deletes it."""
    repeats: int = 0
    """How many equal rows came before it."""


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
        return write_batches(self.settings, f"{self.id}/0", iterator)


class ConfigStreamWriter(DataSourceStreamArrowWriter):
    """Of a streaming query: its id and the batch's number are the checkpoint's."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return write_batches(self.settings, f"{query}/{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every row was published when its task ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays: the next attempt leaves it out."""


def write_batches(
    settings: SinkSettings, origin: str, batches: Iterator[pa.RecordBatch]
) -> Published:
    """Publish the rows of one partition; `origin` is that of their batch, in every attempt."""
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
            publisher = Publisher(client.configs(application), f"spark {origin}")
            for turn in turns(by_name):
                for first in range(0, len(turn), EDITS_MAX):
                    part = turn[first : first + EDITS_MAX]
                    done.rows += len(part)
                    done.versions += await publisher.publish(part)
    return done


def turns(values: Mapping[str, Sequence[bytes | None]]) -> Iterator[list[Row]]:
    """Rows of different names, which can be one step: the first of every name, the second …"""
    seen: Counter[tuple[str, bytes | None]] = Counter()
    for number in range(max(map(len, values.values()))):
        turn = [(name, each[number]) for name, each in values.items() if number < len(each)]
        yield [Row(*row, repeats=seen[row]) for row in turn]
        seen.update(turn)


class Publisher:
    """Publishes rows of one application under an author, each of them once."""

    def __init__(self, configs: Configs, author: str) -> None:
        self._configs = configs
        self._author = author
        self._digests: dict[bytes, bytes] = {}
        """Of the values of versions, as far as they are known, by their ids."""

    async def publish(self, rows: Sequence[Row]) -> int:
        """One step of different configurations, without rows that this author has published
        already; how many versions it made."""
        for _ in range(ATTEMPTS):
            changes = await self._changes(rows)
            if not changes:
                return 0
            try:
                made = await self._configs.publish(changes, author=self._author)
            except StaleVersionError:
                continue  # somebody else was faster: perhaps another attempt at the same rows
            values = {row.name: row.value for row in rows}
            self._digests |= {one.id: _digest(values[one.name]) for one in made}
            return sum(one.changed for one in made)
        raise UnavailableError(
            f"others keep changing configurations of {self._configs.application}: the sink gave up "
            f"after {ATTEMPTS} attempts"
        )

    async def _changes(self, rows: Sequence[Row]) -> list[edits.Edit]:
        changes: list[edits.Edit] = []
        for first in range(0, len(rows), READS_AT_ONCE):
            part = rows[first : first + READS_AT_ONCE]
            heads = await asyncio.gather(*map(self._head, part))
            for (name, value, _), head in zip(part, heads, strict=True):
                if head is None:
                    continue
                if value is not None:
                    changes.append(edits.put(name, value, head))
                elif head != ABSENT:
                    changes.append(edits.delete(name, head))
        return changes

    async def _head(self, row: Row) -> bytes | None:
        """The version that a change by this row follows; None: it has been published."""
        present = await self._configs.get(row.name)
        if present is None:
            return ABSENT
        same = 0
        for version in await self._configs.history(row.name):
            same += version.author == self._author and await self._is(version, row)
        return None if same > row.repeats else present.id

    async def _is(self, version: Kept, row: Row) -> bool:
        """Whether a version has the value of a row; it is read only if it may, and once."""
        if (version.kind == Kind.DELETE) != (row.value is None):
            return False
        if version.length != len(row.value or b""):
            return False
        if version.id not in self._digests:
            read = await self._configs.get(row.name, version.version)
            assert read is not None
            self._digests[version.id] = _digest(None if read.deleted else await read.bytes())
        return self._digests[version.id] == _digest(row.value)


def _digest(value: bytes | None) -> bytes:
    return b"" if value is None else blake2b(value).digest()
