"""Fetching a long value by its chunks: only those that are not here (RIP-18).

The list of chunks of that very version is read first, then the missing ones, neighbours together,
a few reads at a time. What comes is verified against the content digest that the primary signed.

However many values a container lacks, a few are on their way at a time. When one of a feed cannot
be had, those of that feed that have not begun are given up with it: a burst that names other
versions is due.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from swell.client.session_pending import Answer, Done
from swell.config import requests
from swell.config.content import ChunkId, Content, assembled, missing
from swell.config.operations import PIECE_BYTES_MAX
from swell.container.changes import Ready
from swell.container.feed import Feed
from swell.errors import SwellError, WireError
from swell.store.request import Request
from swell.world import World

READS_MAX = 2
"""At a time, of one value."""

FETCHES_MAX = 8
"""Values on their way at a time; all others wait."""

FETCH_S = 30.0
"""Deadline of one read."""

Call = Callable[[Request, Done], None]
"""Asks the cluster about configurations."""


class Range(NamedTuple):
    """Neighbouring chunks that are read together."""

    offset: int
    chunks: list[ChunkId]

    @property
    def length(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


class _Wanted(NamedTuple):
    feed: Feed
    change: Ready
    mine: bytes | Content | None


class Fetches:
    """All values on their way to one container; `done(feed)` when something has come of one."""

    def __init__(
        self,
        world: World,
        call: Callable[[Request, float, Done], None],
        counters: Counter[str],
        done: Callable[[Feed], None],
    ) -> None:
        self._world = world
        self._call = call
        self._counters = counters
        self._done = done
        self._open = 0
        self._waiting: deque[_Wanted] = deque()

    def fetch(self, feed: Feed, change: Ready, mine: bytes | Content | None) -> None:
        """Get a value; `feed.on_fetched` hears of it."""
        self._waiting.append(_Wanted(feed, change, mine))
        self._start()

    def forget(self, feed: Feed) -> list[Ready]:
        """Nothing more is begun of what a feed wants; what that was."""
        given_up = [one.change for one in self._waiting if one.feed is feed]
        self._waiting = deque(one for one in self._waiting if one.feed is not feed)
        return given_up

    def _start(self) -> None:
        while self._waiting and self._open < FETCHES_MAX:
            self._open += 1
            self._counters["fetches"] += 1
            feed, change, mine = self._waiting.popleft()
            done = partial(self._on_done, feed, change)
            Fetch(self._world, self._ask, feed.application, change, mine, done).start()

    def _ask(self, request: Request, done: Done) -> None:
        self._call(request, FETCH_S, done)

    def _on_done(self, feed: Feed, change: Ready, content: Content | None) -> None:
        self._open -= 1
        if content is None:
            for other in self.forget(feed):
                feed.on_fetched(other, None)
        feed.on_fetched(change, content)
        self._start()
        self._done(feed)


class Fetch:
    """One value on its way; `done` gets it, or None if it cannot be had."""

    def __init__(
        self,
        world: World,
        call: Call,
        application: str,
        change: Ready,
        mine: bytes | Content | None,
        done: Callable[[Content | None], None],
    ) -> None:
        self._world = world
        self._call = call
        self._application = application
        self._change = change
        self._mine = Content.of(mine) if isinstance(mine, bytes) else mine
        self._done: Callable[[Content | None], None] | None = done
        self._chunks: list[ChunkId] = []
        self._ranges: deque[Range] = deque()
        self._reading = 0
        self._fetched: dict[bytes, bytes] = {}

    def start(self) -> None:
        self._ask_leaves()

    def _ask_leaves(self) -> None:
        change = self._change
        start = len(self._chunks)
        request = requests.leaves(self._application, change.name, change.version, start)
        self._call(request, self._on_leaves)

    def _on_leaves(self, answer: Answer | SwellError) -> None:
        if isinstance(answer, SwellError):
            self._end(None)
            return
        try:
            page = requests.leaves_of(answer.body)
        except WireError:
            self._end(None)
            return
        self._chunks += [ChunkId(length, digest) for length, digest in page.leaves]
        length = sum(chunk.length for chunk in self._chunks)
        if length > self._change.change.length or (page.more and not page.leaves):
            self._end(None)  # not the value that was signed for
        elif page.more:
            self._ask_leaves()
        else:
            self._ranges.extend(ranges_of(self._mine, self._chunks))
            self._go_on()

    def _go_on(self) -> None:
        while self._ranges and self._reading < READS_MAX:
            self._reading += 1
            self._read(self._ranges.popleft())
        if not self._reading and not self._ranges:
            argument = self._mine, self._chunks, self._fetched, self._change.change.data
            self._world.offload(_assemble, argument, self._on_assembled)

    def _read(self, wanted: Range) -> None:
        change = self._change

        def on_read(answer: Answer | SwellError) -> None:
            self._reading -= 1
            if self._done is None:
                return
            if isinstance(answer, SwellError):
                self._end(None)
                return
            at = 0
            for length, digest in wanted.chunks:
                self._fetched[digest] = answer.body[at : at + length]
                at += length
            self._go_on()

        self._call(
            requests.read(
                self._application, change.name, change.version, wanted.offset, wanted.length
            ),
            on_read,
        )

    def _on_assembled(self, result: Content | Exception) -> None:
        self._end(result if isinstance(result, Content) else None)

    def _end(self, content: Content | None) -> None:
        done, self._done = self._done, None
        self._fetched = {}
        if done is not None:
            done(content)


def ranges_of(mine: Content | None, chunks: Sequence[ChunkId]) -> list[Range]:
    """What has to be read, neighbours together."""
    found: list[Range] = []
    end = -1
    for offset, length, digest in missing(mine, chunks):
        if offset != end or found[-1].length + length > PIECE_BYTES_MAX:
            found.append(Range(offset, []))
        found[-1].chunks.append(ChunkId(length, digest))
        end = offset + length
    return found


def _assemble(
    argument: tuple[Content | None, Sequence[ChunkId], dict[bytes, bytes], bytes],
) -> Content:
    mine, chunks, fetched, digest = argument
    content = assembled(mine, chunks, fetched)
    if content.digest != digest:
        raise WireError("bad-content", "the value has another digest than the one signed")
    return content
