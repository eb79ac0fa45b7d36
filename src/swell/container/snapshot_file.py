"""Records of a container's snapshot, as bytes.

    mark 2 | CRC32 u32 | length u32 | kind u8 | body

The CRC covers length, kind and body. What is behind the last whole record was being written when
the process ended and counts as never written; a bad record with a good one behind it is rot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from swell.config.content import Content
from swell.container.documents import Document
from swell.wire.codec import Message

MARK = b"\xc5\x3e"
RECORD_BYTES_MAX = 8 * 1024 * 1024

_head = Struct(">2sIIB")
_covered = Struct(">IB")
HEAD_BYTES = _head.size


class Kind(IntEnum):
    FEED = 1
    DOCUMENT = 2
    CHUNK = 3
    BURST = 4
    REFUSAL = 5
    """A document that is used instead of a later one."""


class FeedRecord(Message, frozen=True):
    """A feed and the step its documents are of; those follow."""

    application: str
    interest: tuple[str, ...]
    at: int
    complete_at: int = 0


class DocumentRecord(Message, frozen=True):
    """`data`, or for a long value the digests of its chunks, which went before."""

    application: str
    interest: bytes
    name: str
    version: int
    id: bytes
    step: int
    deleted: bool
    data: bytes
    chunks: tuple[bytes, ...] = ()
    refused: int = 0
    """Of a refusal: the version that is not used."""


class Record(NamedTuple):
    kind: int
    body: bytes


encode = msgspec.msgpack.Encoder().encode
decode_feed = msgspec.msgpack.Decoder(FeedRecord).decode
decode_document = msgspec.msgpack.Decoder(DocumentRecord).decode


def record(kind: int, body: bytes) -> bytes:
    covered = _covered.pack(len(body), kind)
    return b"%b%b%b%b" % (MARK, crc32(body, crc32(covered)).to_bytes(4, "big"), covered, body)


def record_at(data: bytes, at: int) -> tuple[Record, int] | None:
    """The record at `at` and where it ends; None if there is no whole one."""
    if at + HEAD_BYTES > len(data):
        return None
    mark, crc, length, kind = _head.unpack_from(data, at)
    end = at + HEAD_BYTES + length
    if mark != MARK or length > RECORD_BYTES_MAX or end > len(data):
        return None
    body = data[at + HEAD_BYTES : end]
    if crc32(body, crc32(_covered.pack(length, kind))) != crc:
        return None
    return Record(kind, body), end


class Parsed(NamedTuple):
    records: list[Record]
    length: int
    """Of the good part."""
    rotten: bool


def parse(data: bytes) -> Parsed:
    """The records of a file, up to the first that is not whole."""
    records = []
    at = 0
    while (found := record_at(data, at)) is not None:
        records.append(found[0])
        at = found[1]
    return Parsed(records, at, _any_behind(data, at))


def _any_behind(data: bytes, at: int) -> bool:
    """Whether a good record follows a bad one."""
    while (at := data.find(MARK, at + 1)) >= 0:
        if record_at(data, at) is not None:
            return True
    return False


def document_records(
    key: tuple[str, bytes],
    documents: Iterable[Document],
    chunks: dict[bytes, None],
    refused: int = 0,
) -> Iterator[bytes]:
    """The records of documents; `chunks` are those the file has, and are added to. `refused`: the
    later version in whose place they are used."""
    for one in documents:
        digests: list[bytes] = []
        data = one.content if isinstance(one.content, bytes) else b""
        if isinstance(one.content, Content):
            for digest, leaf in one.content.leaves_by_digest().items():
                if digest not in chunks:
                    chunks[digest] = None
                    yield record(Kind.CHUNK, digest + leaf.data)
            digests = [chunk.digest for chunk in one.content.chunk_ids()]
        made = DocumentRecord(
            *key, one.name, one.version, one.id, one.step, one.deleted, data, tuple(digests),
            refused,
        )  # fmt: skip
        yield record(Kind.REFUSAL if refused else Kind.DOCUMENT, encode(made))
