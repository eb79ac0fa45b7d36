"""Reading a long value: its list of chunks, then the chunks that are not here, a few at a time.

The chunks are those of one version, and what they make is compared with its content digest: a value
is that version's, whole, or an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from swell.config import requests
from swell.config.content import ChunkId, Content, assembled
from swell.container.fetching import Range, ranges_of
from swell.errors import WireError
from swell.store.request import Request

READS_MAX = 4

Ask = Callable[[Request], Awaitable[bytes]]
"""Asks the cluster about configurations."""


class Wanted(NamedTuple):
    """Which value: a version and what it must be."""

    application: str
    name: str
    version: int
    length: int
    digest: bytes


async def read_content(ask: Ask, wanted: Wanted, mine: Content | None = None) -> Content:
    """The content of a version; chunks that `mine` has are not read."""
    application, name, version, length, digest = wanted
    chunks: list[ChunkId] = []
    more = True
    while more:
        answer = await ask(requests.leaves(application, name, version, len(chunks)))
        page = requests.leaves_of(answer)
        chunks += (ChunkId(*leaf) for leaf in page.leaves)
        more = page.more and bool(page.leaves)
    if sum(chunk.length for chunk in chunks) != length:
        raise WireError("bad-content", f"the chunks of {name} have another length: try again")
    fetched: dict[bytes, bytes] = {}
    waiting = iter(ranges_of(mine, chunks))

    async def read() -> None:
        for part in waiting:
            data = await ask(
                requests.read(application, name, version, part.offset, part.length, stale=False)
            )
            _divide(part, data, fetched)

    await asyncio.gather(*(read() for _ in range(READS_MAX)))
    content = await asyncio.to_thread(assembled, mine, chunks, fetched)
    if await asyncio.to_thread(lambda: content.digest) != digest:
        raise WireError("bad-content", f"{name} is not what its digest says: try again")
    return content


def _divide(part: Range, data: bytes, fetched: dict[bytes, bytes]) -> None:
    at = 0
    for length, digest in part.chunks:
        fetched[digest] = data[at : at + length]
        at += length
