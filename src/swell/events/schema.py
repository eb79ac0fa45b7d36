"""The table of events: one row for each thing that a process saw, declared here and nowhere else.

`swell.events.arrow` and `swell.pipeline.schema` derive their forms from it. Nodes, containers,
clients and the simulation write it; `docs/events.md` says what each kind fills in.

A row may stand for a run of events of one kind: `first` to `sequence`, both included, one after the
other. So a container that applies 32 versions at once writes one row.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

VERSION = 1
"""Written into every row. A higher one has columns that are not known here; the rest holds."""


class Kind(StrEnum):
    """What happened; part of a file's path."""

    WRITE = "write"
    PUBLISH = "publish"
    STORE = "store"
    DELIVER = "deliver"
    NOTIFY = "notify"
    APPLY = "apply"
    REJECT = "reject"
    ACK = "ack"
    RELAY = "relay"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    START = "start"
    STOP = "stop"
    CRASH_FOUND = "crash-found"
    MIGRATE = "migrate"
    COORDINATE = "coordinate"
    TRAFFIC = "traffic"


class Type(Enum):
    """Of a column."""

    TEXT = "text"
    BYTES = "bytes"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    DOUBLES = "doubles"
    TIMESTAMP = "timestamp"
    """Microseconds, UTC."""


class Column(NamedTuple):
    """One column. `required`: every row has it; any other is null where a kind does not use it."""

    name: str
    type: Type
    meaning: str
    required: bool = False


PARTITIONS = ("date", "kind")
"""Directories, not columns of the files: `date=2026-11-16/kind=apply/`."""

COLUMNS = (
    Column("schema", Type.SHORT, "version of this table", required=True),
    Column("run", Type.TEXT, "the cluster, or the run of a simulation or an experiment", True),
    Column("at", Type.TIMESTAMP, "wall clock of the process that wrote the row", True),
    Column("mono_us", Type.LONG, "its monotonic clock, since its machine was started", True),
    Column("node", Type.TEXT, "the process: name of a node, id of a container or a client", True),
    Column("role", Type.TEXT, "what it is: node, container or client", True),
    Column("start", Type.LONG, "which of its lives: grows with every start", True),
    Column("row", Type.LONG, "number of the row in that life, from 1 without gaps", True),
    Column("site", Type.TEXT, "where the process runs"),
    Column("zone", Type.INT, "its zone"),
    Column("application", Type.TEXT, "of a configuration or a service"),
    Column("name", Type.TEXT, "the configuration, topic or variable"),
    Column("epoch", Type.LONG, "of the slot, or of the source of a message"),
    Column("first", Type.LONG, "first version or sequence that the row stands for"),
    Column("sequence", Type.LONG, "last version or sequence that the row stands for"),
    Column("step", Type.LONG, "of the application, with the last one"),
    Column("digest", Type.BYTES, "id of the last version, or digest of the content"),
    Column("base", Type.BYTES, "id of the version before the first one"),
    Column("source", Type.TEXT, "who wrote or published it"),
    Column("peer", Type.TEXT, "the other process: sender, receiver, or the one it is about"),
    Column("sent_at", Type.TIMESTAMP, "wall clock of whoever sent or stored it, when it did"),
    Column("sent_mono_us", Type.LONG, "monotonic clock of the same process"),
    Column("hops", Type.SHORT, "links that it has travelled"),
    Column("bytes", Type.LONG, "on the wire, or of the content"),
    Column("rate", Type.DOUBLE, "per second, of a traffic row"),
    Column("coordinate", Type.DOUBLES, "network coordinate: the vector, then the height, in ms"),
    Column("reason", Type.TEXT, "in words: of a rejection, a stop, a crash, a move"),
)

NAMES = tuple(column.name for column in COLUMNS)
