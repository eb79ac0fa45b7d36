"""Staging a long value in pieces, ahead of the step that publishes it (RIP-18).

Pieces follow each other without waiting for answers. The cluster takes them in order: one that came
ahead of another is refused, and what became of one may be unknown. Then nothing more is sent until
all answers are there, and the cluster is asked where to go on; a piece that is there already
changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from swell.client.deadlines import Deadline
from swell.config import requests
from swell.config.operations import PIECE_BYTES_MAX
from swell.errors import OutcomeUnknownError, RefusedError
from swell.store.request import Request

PIECES_OPEN_MAX = 4
ROUNDS_MAX = 3
"""Times in a row that it goes on where the cluster says, without getting any further."""

Progress = Callable[[int, int], None]
"""Hears of bytes staged so far, and of all."""


class Asker(Protocol):
    """What it needs of `swell.client.configs.Configs`."""

    application: str

    async def ask(self, request: Request, deadline: Deadline) -> bytes: ...


class Staging:
    """One value on its way."""

    def __init__(
        self,
        asker: Asker,
        upload: bytes,
        data: bytes,
        deadline: Deadline,
        progress: Progress | None = None,
    ) -> None:
        self._asker = asker
        self._upload = upload
        self._data = data
        self._deadline = deadline
        self._progress = progress
        self._staged = 0
        self._offsets: Iterator[int] = iter(())

    async def run(self) -> None:
        """Until all of it is there."""
        rounds = 0
        while self._staged < len(self._data):
            before = self._staged
            trouble = await self._send_all()
            if trouble is None:
                continue
            self._staged = await self._stage(0, b"")
            rounds = rounds + 1 if self._staged <= before else 0
            if rounds >= ROUNDS_MAX:
                raise trouble

    async def _send_all(self) -> RefusedError | OutcomeUnknownError | None:
        """Send what is missing, a few pieces at a time, up to the first trouble."""
        self._offsets = iter(range(self._staged, len(self._data), PIECE_BYTES_MAX))
        senders = (self._send_some() for _ in range(PIECES_OPEN_MAX))
        outcomes = await asyncio.gather(*senders, return_exceptions=True)
        trouble = None
        for outcome in outcomes:
            if isinstance(outcome, RefusedError | OutcomeUnknownError):
                trouble = trouble or outcome
            elif outcome is not None:
                raise outcome
        return trouble

    async def _send_some(self) -> None:
        data = self._data
        try:
            for offset in self._offsets:
                size = await self._stage(offset, data[offset : offset + PIECE_BYTES_MAX])
                if size > self._staged:
                    self._staged = size
                    if self._progress is not None:
                        self._progress(size, len(data))
        except BaseException:
            self._offsets = iter(())
            raise

    async def _stage(self, offset: int, piece: bytes) -> int:
        """The bytes that are there now."""
        request = requests.stage(self._asker.application, self._upload, offset, piece)
        return requests.staged_of(await self._asker.ask(request, self._deadline))
