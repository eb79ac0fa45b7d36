"""What is written down of every API event: the input of the pipeline.

A record is an event that becomes rows of the table of events (`swell.events.schema`). Many occur
with every update, so they are made only where somebody keeps them: `if world.recording`. One record
may stand for several rows that differ in a peer or a name only: then they are listed in it, so that
whoever emits it has next to nothing to do for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.events import Event


class Record(Event, frozen=True):
    """Base of all records."""


class LifeBegan(Record, frozen=True):
    """A container or a client has begun. Nodes say `Started`, once they have a zone."""

    role: str


class Resumed(Record, frozen=True):
    """A container goes on with what an earlier life of it had of an application: all up to a step.
    `name`: the interest of the subscription, None for all."""

    application: str
    name: str | None
    step: int


class LifeEnded(Record, frozen=True):
    """It stops, and this is its last row."""

    reason: str = ""


class CrashFound(Record, frozen=True):
    """A member of this node's zone is dead, as far as this node can tell."""

    peer: str
    epoch: int


class Located(Record, frozen=True):
    """The own network coordinate: the vector, then the height, in milliseconds."""

    coordinate: tuple[float, ...]


class Published(Record, frozen=True):
    """A change of these configurations has reached the primary; nothing is decided yet."""

    application: str
    names: Sequence[str]
    source: str | None
    epoch: int
    bytes: int


class Stored(Record, frozen=True):
    """A version is committed, on all replicas. `stored_us`: the primary's clock when it was
    ordered. `reason`: a new primary repeats what the last one may not have written down."""

    application: str
    name: str
    version: int
    step: int
    id: bytes
    base: bytes
    source: str | None
    epoch: int
    bytes: int
    stored_us: int
    reason: str | None = None


class Subscribed(Record, frozen=True):
    """The primary serves a container from here on: these names, `prefix*`, or `""` for all."""

    application: str
    names: Sequence[str]
    peer: str
    step: int
    epoch: int


class Unsubscribed(Record, frozen=True):
    """... and here no more."""

    application: str
    names: Sequence[str]
    peer: str
    epoch: int
    reason: str


class Sent(Record, frozen=True):
    """The primary has sent a burst, of steps `first` to `step`, to these containers."""

    application: str
    peers: Sequence[str]
    first: int
    step: int
    epoch: int
    bytes: int


class Relayed(Record, frozen=True):
    """A container has passed a burst on to these siblings."""

    application: str
    peers: Sequence[str]
    first: int
    step: int
    epoch: int
    bytes: int


class Span(Record, frozen=True):
    """Versions `first` to `version` of a configuration, one after the other, as one burst has them.
    `base`: of the first; `bytes`: length of the value after the last; `sealed_us`: the primary's
    clock when it sealed the burst. No record of its own: all containers of a process that apply
    the burst share it."""

    application: str
    name: str
    first: int
    version: int
    step: int
    id: bytes
    base: bytes
    epoch: int
    bytes: int
    sealed_us: int


class Applied(Record, frozen=True):
    """A container has applied what `peer` has brought."""

    span: Span
    peer: str


class Rejected(Record, frozen=True):
    """The application of a container refuses a version. `sealed_us`: of the burst that brought it;
    None if an earlier life of the container had it."""

    application: str
    name: str
    version: int
    step: int
    id: bytes | None
    reason: str
    sealed_us: int | None = None


class Acknowledged(Record, frozen=True):
    """The primary has these containers' receipts: a burst of steps `first` to `step` is applied.
    `name`: the interest of their subscription, None for all."""

    application: str
    name: str | None
    peers: Sequence[str]
    first: int
    step: int
    epoch: int
