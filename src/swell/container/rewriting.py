"""A snapshot that is written anew, in pieces, beside the file in use, which goes on meanwhile.

First what was there at the beginning, then, in rounds, what was kept since: the *tail*. Each round
is shorter than the one before, as a rule. Before the last one the snapshot holds its syncs back
(`closing`), so that nothing counts as durable that is in the old file alone; what comes during it
is appended once the new file is in its place.

Invariant: a chunk goes before every record that names it. What the tail brings is not counted among
the chunks of the part before it, which may still be on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from swell.container.documents import Document, Refusal
from swell.container.snapshot_file import FeedRecord, Kind, document_records, encode, record
from swell.world import DiskError, World

NEW = "container.snapshot.new"

WRITE_BYTES = 1024 * 1024
"""Written at a time; a tail that is not longer is the last."""

ROUNDS_MAX = 4
"""Then the tail is the last, however long."""

TAIL_BYTES_MAX = 64 * 1024 * 1024
"""What may wait; beyond, the rewriting is given up."""

Key = tuple[str, bytes]


class State(NamedTuple):
    """A feed as it is when the rewriting begins."""

    key: Key
    record: FeedRecord
    documents: list[Document]
    refusals: list[Refusal]


class Rewriting:
    """`done(True)` when all but `tail` is in the new file, and durable; `done(False)` if that
    cannot be, and the old file stays."""

    __slots__ = (
        "_chunks", "_disk", "_done", "_pieces", "_rounds", "_tail_bytes", "_tail_chunks", "closing",
        "size", "tail",
    )  # fmt: skip

    def __init__(self, world: World, states: Iterable[State], done: Callable[[bool], None]) -> None:
        self._disk = world.disk
        self._done: Callable[[bool], None] | None = done
        self._chunks: dict[bytes, None] = {}
        self._pieces: Iterator[bytes] = self._whole(states)
        self._rounds = 0
        self.closing = False
        self.size = 0
        """Of the new file."""
        self.tail: list[bytes] = []
        self._tail_bytes = 0
        self._tail_chunks: dict[bytes, None] = {}

    def start(self) -> None:
        if self._disk.list().get(NEW):
            self._disk.truncate(NEW, 0, self._on_written)
        else:
            self._write_on()

    def stop(self) -> None:
        """It is of no use any more."""
        self._done = None
        self.tail.clear()

    @property
    def chunks(self) -> dict[bytes, None]:
        """Those in the new file and its tail."""
        return self._chunks | self._tail_chunks

    def add(self, data: bytes) -> None:
        """A record that was kept meanwhile."""
        self.tail.append(data)
        self._tail_bytes += len(data)
        if self._tail_bytes > TAIL_BYTES_MAX:
            self._end(False)

    def add_documents(self, key: Key, documents: Iterable[Document], refused: int = 0) -> None:
        """The same of documents: the new file need not have the chunks that the old one has."""
        known = self.chunks
        for one in document_records(key, documents, known, refused):
            self.add(one)
        self._tail_chunks = {digest: None for digest in known if digest not in self._chunks}

    def _whole(self, states: Iterable[State]) -> Iterator[bytes]:
        for key, about, documents, refusals in states:
            yield record(Kind.FEED, encode(about))
            yield from document_records(key, documents, self._chunks)
            for version, instead in refusals:
                yield from document_records(key, (instead,), self._chunks, version)

    def _write_on(self) -> None:
        """The next piece; when there is none, the tail."""
        size = 0
        for piece in self._pieces:
            self._disk.append(NEW, piece)
            size += len(piece)
            if size >= WRITE_BYTES:
                break
        else:
            tail, self.tail, self._tail_bytes = self.tail, [], 0
            for piece in tail:
                self._disk.append(NEW, piece)
                size += len(piece)
            self._rounds += 1
            self.closing = size <= WRITE_BYTES or self._rounds >= ROUNDS_MAX
        self.size += size
        self._disk.sync(NEW, self._on_written)

    def _on_written(self, error: DiskError | None) -> None:
        if self._done is None:
            return
        if error is not None:
            self._end(False)
        elif self.closing:
            self._end(True)
        else:
            self._write_on()

    def _end(self, good: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(good)
