"""The record of a slot: who keeps it, as the directory's registry has it.

Pure: each function gives the next record of one kind of change (docs/protocols/replication.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from swell.errors import WireError
from swell.overlay.contact import Number
from swell.wire.codec import Message


class Member(Message, frozen=True):
    """A node with the data it has had since start number `lineage`."""

    node: Number
    lineage: Number


class Record(Message, frozen=True):
    """`basis`: the members of the last activated epoch; each holds all that was committed."""

    slot: Number
    epoch: Number
    primary: Number
    members: tuple[Member, ...]
    activated: bool
    basis: tuple[Member, ...] = ()

    def lineage(self, node: int) -> int | None:
        """The lineage that this member must have; None if it is none."""
        return next((m.lineage for m in self.members if m.node == node), None)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(member.node for member in self.members)

    def nodes_but(self, node: int) -> tuple[int, ...]:
        return tuple(member.node for member in self.members if member.node != node)

    @property
    def keepers(self) -> tuple[Member, ...]:
        """Who holds everything that was committed: the basis of the next epoch."""
        return self.members if self.activated else self.basis


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


def key(slot: int) -> str:
    """The registry's key of a slot."""
    return f"slots/{slot}"


def slot_of(key: str) -> int:
    """The slot of such a key; -1 if it is none."""
    name = key.removeprefix("slots/")
    return int(name) if name.isdecimal() else -1


def encode(record: Record) -> bytes:
    return _encode(record)


def decode(data: bytes) -> Record:
    """A record from the registry; `WireError` if it is none."""
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise WireError("bad-body", f"slot record: {error}") from None


def create(slot: int, members: Sequence[Member]) -> Record:
    """The first record; its first member is to activate it."""
    return Record(slot, 1, members[0].node, tuple(members), activated=False)


def take_over(record: Record, primary: int, members: Iterable[Member]) -> Record:
    return Record(record.slot, record.epoch + 1, primary, tuple(members), False, record.keepers)


def activate(record: Record) -> Record:
    return msgspec.structs.replace(record, activated=True, basis=record.members)


def reshape(record: Record, members: Sequence[Member]) -> Record:
    """Shrink or expand, by the primary that serves: activated at once."""
    assert record.activated
    assert record.primary in [member.node for member in members]
    fixed = tuple(members)
    return Record(record.slot, record.epoch + 1, record.primary, fixed, True, fixed)


def hand_over(record: Record, primary: int) -> Record:
    assert record.activated
    assert primary in record.nodes
    return take_over(record, primary, record.members)
