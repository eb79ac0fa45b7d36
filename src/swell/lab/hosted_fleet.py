"""A process that hosts the containers of a fleet, whatever system they belong to: it takes the
orders of `fleet_messages` on a pipe and answers them, on one loop."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from multiprocessing.connection import Connection

import uvloop

from swell.lab.fleet_messages import (
    Answer,
    Collect,
    Collected,
    Start,
    Started,
    Stop,
    receive_command,
    send,
)
from swell.runtime.logs import configure_logging
from swell.runtime.process import GARBAGE_THRESHOLDS, work_in_batches
from swell.runtime.sockets import raise_descriptor_limit

OPENING_MAX = 64
"""Containers that come up at one time."""


class HostedFleet(ABC):
    """All containers of this process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._start: Start
        self._began_s = 0.0
        self._runs: dict[str, array[int]] = {}
        """By application: what every container got, as (before, after, when in ns) in a row."""
        self._disorder = 0
        self._loop.add_reader(pipe.fileno(), self._on_command)
        os.set_blocking(pipe.fileno(), True)  # the loop has unset it; answers may be long

    @abstractmethod
    def _begin(self) -> None:
        """Bring up the containers of `_start`, and say when all of them are."""

    @abstractmethod
    def _collected(self, contents: bool) -> Collected: ...

    @abstractmethod
    async def end(self) -> None: ...

    def _on_command(self) -> None:
        command = receive_command(self._pipe)
        match command:
            case Start():
                self._start = command
                self._began_s = time.monotonic()
                self._begin()
            case Collect():
                self._say(self._collected(command.contents))
            case Stop() | None:
                self._loop.remove_reader(self._pipe.fileno())
                if not self.ended.done():
                    self.ended.set_result(None)

    def _say(self, answer: Answer) -> None:
        send(self._pipe, answer)

    def _say_started(self) -> None:
        """All are up; what they are made of stays."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        self._say(Started(time.monotonic() - self._began_s))

    def _take_runs(self) -> dict[str, bytes]:
        """What has happened since they were taken last."""
        runs = {application: rows.tobytes() for application, rows in self._runs.items()}
        for rows in self._runs.values():
            del rows[:]
        return runs


def host(fleet: Callable[[Connection], HostedFleet], pipe: Connection) -> None:
    """The process: until it is told to stop, or whoever started it is gone."""

    async def serve() -> None:
        hosted = fleet(pipe)
        await hosted.ended
        await hosted.end()

    configure_logging()
    raise_descriptor_limit()
    work_in_batches()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    sys.stdout.flush()
