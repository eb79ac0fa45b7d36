"""Messages of the store: clients' commands, replication, leases."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.overlay.contact import Contact, Number
from swell.store.record import Record
from swell.wire.codec import Message, message

Sequence64 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Status(IntEnum):
    """How a command or a query ended."""

    DONE = 0
    REDIRECT = 1
    """Not the primary; it was not executed here."""
    BUSY = 2
    """Not now; it was not executed. Try again."""
    UNKNOWN = 3
    """It may have been executed or not; a retry will not execute it twice."""
    REFUSED = 4
    """It breaks a rule; the body is a sentence that says which."""
    STALE = 5
    """A query answered by a member that may be behind."""
    RETRY = 6
    """The primary lost track of it: ask again with the same number."""


class Read(IntEnum):
    """What an `Execute` is."""

    COMMAND = 0
    LINEARIZABLE = 1
    STALE = 2


@message(80)
class Execute(Message, frozen=True):
    """`number` is unique and growing within `session`; `lowest` is the lowest one still open.
    `deadline_s` is what is left of it; `hops` counts nodes that passed it on."""

    session: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    number: Sequence64
    lowest: Sequence64
    slot: Number
    service: Annotated[int, Meta(ge=0, lt=256)]
    read: Annotated[int, Meta(ge=0, le=2)]
    body: bytes
    deadline_s: float
    hops: Annotated[int, Meta(ge=0, le=8)] = 0


@message(81)
class Executed(Message, frozen=True):
    """`primary`: who serves the slot, as far as the answering node knows; none with `DONE`: it
    does."""

    number: int
    status: int
    body: bytes
    primary: Contact | None = None


Commit = tuple[Number, Number, Sequence64]
"""Slot, epoch, sequence."""


class Run(Message, frozen=True):
    """Entries of one slot behind `base`, as `swell.store.entry` makes them, in order; the digest
    at `base` in the primary's log; its commit point."""

    slot: Number
    epoch: Number
    commit: Sequence64
    base: Sequence64
    digest: bytes
    entries: tuple[bytes, ...]


@message(82)
class Prepare(Message, frozen=True):
    """Append these. `epoch` is the primary's own; entries may be of earlier ones."""

    runs: tuple[Run, ...]


@message(83)
class Prepared(Message, frozen=True):
    """Durable up to here."""

    acks: tuple[Commit, ...]


@message(84)
class Adopt(Message, frozen=True):
    """Make these records' epochs your fences, then tell where you are."""

    records: tuple[Record, ...]


class Position(Message, frozen=True):
    """Where a member is in one slot. `fence` above the epoch asked for: not adopted."""

    slot: Number
    epoch: Number
    fence: Number
    lineage: Number
    last_epoch: Number
    last: Sequence64
    digest: bytes
    commit: Sequence64
    has_data: bool
    confirmed: bool
    leaseholder: Number
    """To whom this member granted its last lease; 0: it started too lately to know."""
    lease_left_s: float
    refused: bool = False
    """It answers a `Prepare` that could not be appended, not an `Adopt`."""


@message(85)
class Adopted(Message, frozen=True):
    positions: tuple[Position, ...]


@message(86)
class Pull(Message, frozen=True):
    """Entries of a slot behind `commit`, whose digest is given; or the state, if they are gone."""

    slot: Number
    epoch: Number
    commit: Sequence64
    digest: bytes


@message(87)
class Pulled(Message, frozen=True):
    """Entries, or none: then the state follows as `Copy`. `more`: pull again behind these."""

    slot: Number
    epoch: Number
    entries: tuple[bytes, ...]
    more: bool = False
    copying: bool = False


@message(88)
class Copy(Message, frozen=True):
    """One chunk of a slot's state as it is after entry `sequence`."""

    slot: Number
    epoch: Number
    sequence: Sequence64
    last_epoch: Number
    digest: bytes
    offset: Sequence64
    total: Sequence64
    data: bytes


@message(89)
class Copied(Message, frozen=True):
    """`offset` bytes have arrived; `durable` once the whole state is."""

    slot: Number
    epoch: Number
    sequence: Sequence64
    offset: Sequence64
    durable: bool = False


@message(90)
class Beat(Message, frozen=True):
    """A lease, please, for these slots that I am the primary of: (slot, epoch, commit)."""

    number: Sequence64
    claims: tuple[Commit, ...]


@message(91)
class Beaten(Message, frozen=True):
    """Granted, except for slots with a higher fence: (slot, fence). `behind`: slots of which the
    entries up to the commit point are not here, or the record is unknown."""

    number: Sequence64
    lineage: Number
    fenced: tuple[tuple[Number, Number], ...] = ()
    behind: tuple[Number, ...] = ()


@message(92)
class TableRequest(Message, frozen=True):
    number: Sequence64


@message(93)
class Table(Message, frozen=True):
    """Who serves which slot: `primaries[slot]` is a node's id, 0 if nobody does. `now_s`: the
    second by the node's clock, for a new session's id."""

    number: Sequence64
    primaries: tuple[int, ...]
    contacts: tuple[Contact, ...]
    now_s: Sequence64
