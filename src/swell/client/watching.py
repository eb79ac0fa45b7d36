"""One reader of updates: a queue with a bound, and what of it the reader has judged.

A reader that keeps up gets every change in order. One that does not gets, for every name, the
newest version and never an older one; what it is spared is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from swell.client.documents import Document, Update
from swell.config.delivery.interest import matcher
from swell.errors import SwellError

BUFFER_MAX = 256
"""Updates that wait for a reader before those of the same name are joined."""

EVERYTHING = 1 << 63


class Court(Protocol):
    """Where judgements go to."""

    def judge(self, watch: Watch, name: str, version: int, reason: str | None) -> None: ...


class Watch:
    """`manual`: the reader says of every update whether it is applied; else taking it is that."""

    def __init__(
        self, court: Court, application: str, names: tuple[str, ...], manual: bool
    ) -> None:
        self.application = application
        self.matches: Callable[[str], bool] = matcher(names)
        self.coalesced = 0
        self._court = court
        self._manual = manual
        self._queue: deque[Update] = deque()
        self._queue_max = BUFFER_MAX
        self._seen: dict[str, int] = {}
        self._open: dict[str, int] = {}
        """The last version that was offered and is not judged, by name."""
        self._judged: dict[str, int] = {}
        """Of the names that are open: the last version that was judged."""
        self._taken: dict[str, int] = {}
        """Of those that are open: the last version that the reader has."""
        self._news = asyncio.Event()
        self._error: SwellError | None = None
        self._ended = False

    def offer(self, document: Document) -> bool:
        """A version is here; whether the reader has yet to judge it."""
        name, version = document.name, document.version
        if version > self._seen.get(name, 0):
            self._seen[name] = self._open[name] = version
            self._queue.append(Update(self.application, document, self._judge))
            if len(self._queue) > self._queue_max:
                self._coalesce()
            self._news.set()
        return name in self._open

    def _coalesce(self) -> None:
        """Keep the newest version of every name, where it stands."""
        last = {update.name: update for update in self._queue}
        left = [update for update in self._queue if last[update.name] is update]
        self.coalesced += len(self._queue) - len(left)
        self._queue = deque(left)
        # Readers of very many names: not again for every further one.
        self._queue_max = max(BUFFER_MAX, 2 * len(left))

    async def take(self) -> Update | None:
        """The next update; None if there will be no more."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        update = self._queue.popleft()
        self._taken[update.name] = update.version
        if not self._manual:
            self._judge(update.name, update.version, None)
        return update

    def fail(self, error: SwellError) -> None:
        """The cluster refuses it: the reader hears why, behind what is here."""
        self._error = error
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    # Judgement.

    def _judge(self, name: str, version: int, reason: str | None) -> None:
        if version >= self._taken.get(name, EVERYTHING):
            del self._taken[name]
        if version >= self._open.get(name, EVERYTHING):
            del self._open[name]
            self._judged.pop(name, None)
        elif name in self._open:
            self._judged[name] = max(version, self._judged.get(name, 0))
        self._court.judge(self, name, version, reason)

    def judged(self, name: str) -> int:
        """The last version that is not waited for."""
        return self._judged.get(name, 0) if name in self._open else EVERYTHING

    def open(self) -> list[tuple[str, int, bool]]:
        """What was offered and is not judged, and whether the reader has it."""
        return [
            (name, self._taken.get(name, version), name in self._taken)
            for name, version in self._open.items()
        ]
