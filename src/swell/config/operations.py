"""Commands and queries on configurations, and their results, as bytes.

Body of a request: operation u8, then a msgpack array. Body of a result: msgpack; for `read` the
bytes themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from swell.config.edits import Edit, Length, Resolved, UploadId, Version
from swell.config.versions import VersionId
from swell.errors import SwellError
from swell.wire.codec import Message

CONFIG_SERVICE = 2
"""The number of this service in commands."""

EDITS_MAX = 256
"""Configurations that one step may change."""

STEP_BYTES_MAX = 3 * 1024 * 1024
"""Of a step in the log: it travels in one frame."""

PIECE_BYTES_MAX = 512 * 1024
"""Bytes of one `stage`, and of one `read`."""

LEAVES_MAX = 4096
ROWS_MAX = 1024
"""Rows of one page."""

VERSIONS_KEPT_MAX = 1024
KEEP_VERSIONS = 64

CONFLICT = "conflict: "
"""Begins the sentence of a refusal whose reason is a condition that does not hold."""

Text = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=1, le=ROWS_MAX)]


class BadOperationError(SwellError):
    """A body that is no operation on configurations."""


class Operation(IntEnum):
    PUBLISH = 1
    STAGE = 2
    OPTIONS = 3
    STEP = 4
    REFUSE = 5
    """What the primary makes of a `publish`; only it may order these."""
    GET = 16
    READ = 17
    LEAVES = 18
    LIST = 19
    HISTORY = 20
    APPLICATIONS = 21


# Requests.


class Publish(Message, frozen=True):
    """`wall_us`: when; 0 for the primary's clock."""

    application: str
    edits: Annotated[tuple[Edit, ...], Meta(min_length=1, max_length=EDITS_MAX)]
    author: Text = ""
    wall_us: int = 0


class Step(Message, frozen=True):
    """A `Publish` that the primary has resolved. `keep_versions`: as its settings say, so that all
    replicas keep the same."""

    application: str
    edits: Annotated[tuple[Resolved, ...], Meta(min_length=1, max_length=EDITS_MAX)]
    author: Text = ""
    wall_us: int = 0
    keep_versions: Annotated[int, Meta(ge=1, le=VERSIONS_KEPT_MAX)] = KEEP_VERSIONS


class Refuse(Message, frozen=True):
    """A `Publish` that the primary has found wrong for these versions, and what is wrong. It is in
    the log so that whoever asks again hears the same, whatever has changed since."""

    application: str
    bases: Annotated[tuple[tuple[str, VersionId], ...], Meta(min_length=1, max_length=EDITS_MAX)]
    sentence: str


class Stage(Message, frozen=True):
    """The next piece of a value that is too long to be sent at once."""

    application: str
    upload: UploadId
    offset: Length
    data: Annotated[bytes, Meta(max_length=PIECE_BYTES_MAX)]
    wall_us: int = 0
    """The primary's clock, which it fills in."""


class SetOptions(Message, frozen=True):
    """None leaves an option as it is."""

    application: str
    relaying: bool | None = None
    versions_kept: Annotated[int, Meta(ge=0, le=VERSIONS_KEPT_MAX)] | None = None
    protect: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None


class Get(Message, frozen=True):
    """Version 0 is the newest. `data`: with the bytes, unless they are too long."""

    application: str
    name: str
    version: Version = 0
    data: bool = True


class ReadRange(Message, frozen=True):
    application: str
    name: str
    version: Annotated[int, Meta(ge=1)]
    offset: Length
    length: Annotated[int, Meta(ge=0, le=PIECE_BYTES_MAX)]


class GetLeaves(Message, frozen=True):
    application: str
    name: str
    version: Annotated[int, Meta(ge=1)]
    start: Length = 0


class ListNames(Message, frozen=True):
    application: str
    prefix: str = ""
    after: str = ""
    limit: Count = ROWS_MAX


class GetHistory(Message, frozen=True):
    application: str
    name: str


class ListApplications(Message, frozen=True):
    """`services`: only those that have instances."""

    after: str = ""
    limit: Count = ROWS_MAX
    services: bool = False


# Results.


class Made(Message, frozen=True):
    """What a configuration is after a step; whether that made a new version of it."""

    version: int
    id: VersionId
    length: int
    changed: bool = True


class Published(Message, frozen=True):
    """In the order in which the configurations were first named; who asked knows their names. So
    the longest result is short enough to be kept for who asks again."""

    step: int
    made: tuple[Made, ...]


class Options(Message, frozen=True):
    """`versions_kept` 0: as the nodes' settings say. `protect`: with a smaller share of healthy
    instances the service's list is protected."""

    relaying: bool = True
    versions_kept: int = 0
    protect: float = 0.0


class Got(Message, frozen=True):
    """One version. `data` is None if it is a deletion, too long or was not asked for."""

    version: int
    id: VersionId
    step: int
    length: int
    digest: bytes
    author: str
    wall_us: int
    deleted: bool
    data: bytes | None


class LeafPage(Message, frozen=True):
    """(length, digest) of the chunks from `start` on; `more` follow."""

    leaves: tuple[tuple[int, bytes], ...]
    more: bool


class Row(Message, frozen=True):
    """A configuration in a list."""

    name: str
    version: int
    id: VersionId
    length: int
    wall_us: int
    author: str


class Kept(Message, frozen=True):
    """A version in a history; `change_bytes` is what it took to make it from its base."""

    version: int
    id: VersionId
    base: VersionId
    step: int
    kind: int
    change_bytes: int
    length: int
    author: str
    wall_us: int


class ApplicationRow(Message, frozen=True):
    name: str
    step: int
    configurations: int


_encode = msgspec.msgpack.Encoder().encode


_BODIES: dict[type, Operation] = {
    Publish: Operation.PUBLISH,
    Stage: Operation.STAGE,
    SetOptions: Operation.OPTIONS,
    Step: Operation.STEP,
    Refuse: Operation.REFUSE,
    Get: Operation.GET,
    ReadRange: Operation.READ,
    GetLeaves: Operation.LEAVES,
    ListNames: Operation.LIST,
    GetHistory: Operation.HISTORY,
    ListApplications: Operation.APPLICATIONS,
}
_MARKS = {body: bytes([operation]) for body, operation in _BODIES.items()}
_DECODERS: dict[int, Callable[[memoryview], Any]] = {
    int(operation): msgspec.msgpack.Decoder(body).decode for body, operation in _BODIES.items()
}


def encode(body: Message) -> bytes:
    """The bytes of a request's body."""
    return _MARKS[type(body)] + _encode(body)


def decode(data: bytes) -> Any:
    """The request in these bytes; `BadOperationError` if there is none."""
    decoder = _DECODERS.get(data[0]) if data else None
    if decoder is None:
        raise BadOperationError(f"{data[:1]!r} is no operation on configurations")
    try:
        return decoder(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadOperationError(
            f"the {Operation(data[0]).name.lower()} is damaged: {error}"
        ) from None
