"""What a member must never forget, and the records of it in the journal.

The journal is a sequence of records that are never rewritten: `State` (the one with the highest
number counts) and `Stored` entries that carry their own index. An entry at an index that the log
has already stands for a cut: it and everything behind it is replaced. A snapshot of the journal is
a `Base`. So no record's meaning depends on what a crash cut off behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from swell.directory.raft.log import Entry, Log
from swell.directory.raft.membership import Configuration


class State(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """`unclean`: 0, or the token of a loss: the journal lost something, so votes and entries that
    this member gave its word for may be gone."""

    number: int = 0
    term: int = 0
    vote: str = ""
    unclean: int = 0


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    index: int
    entry: Entry


class Base(msgspec.Struct, frozen=True, array_like=True):
    """State up to and including `index`."""

    state: State
    index: int
    term: int
    configuration: Configuration
    data: bytes


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_records: msgspec.msgpack.Decoder[State | Stored] = msgspec.msgpack.Decoder(State | Stored)
_bases = msgspec.msgpack.Decoder(Base)


def encode_record(record: State | Stored | Base) -> bytes:
    return _encode(record)


class Replay:
    """What the journal held: the log, the state, and the snapshot if there is one.

    `positions` gives the journal's index for every entry behind the base. `gap` is true if an entry
    did not join the log: possible only where the journal lost records.
    """

    def __init__(
        self, snapshot: bytes | None, base: int, records: Iterable[bytes], first: Configuration
    ) -> None:
        self.base = Base(State(), 0, 0, first, b"")
        if snapshot is not None:
            self.base = _bases.decode(snapshot)
        self.gap = snapshot is None and base > 0
        self.state = self.base.state
        self.log = Log(self.base.index, self.base.term, self.base.configuration)
        self.positions: dict[int, int] = {}
        for position, data in enumerate(records, start=base + 1):
            record = _records.decode(data)
            if isinstance(record, State):
                if record.number > self.state.number:
                    self.state = record
            else:
                self._add(record.index, record.entry, position)
        term = self.log.last_term
        if term > self.state.term:
            self.state = State(self.state.number + 1, term, "", self.state.unclean)
        self.log.unsaved = self.log.last + 1

    def _add(self, index: int, entry: Entry, position: int) -> None:
        if index <= self.log.base or index > self.log.last + 1:
            self.gap = self.gap or index > self.log.last + 1
            return
        if index <= self.log.last:
            self.log.cut(index - 1)
        self.log.append(entry)
        self.positions[index] = position
