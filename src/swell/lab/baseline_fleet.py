"""A fleet process of a baseline system: many containers, each a link of its own, on one loop.

It takes the orders of a fleet process (`fleet_messages`) and gives its answers. A container keeps
the frame of its newest value and nothing else: no receipts, no signatures, no document, so that
nobody can say that the baselines were held back by their containers.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from array import array
from hashlib import blake2b
from multiprocessing.connection import Connection

import uvloop

from swell.lab.baseline_protocol import (
    UPDATE,
    number_of,
    read_update,
    server_of,
    subscribe,
    value_of,
)
from swell.lab.fleet_messages import (
    Collect,
    Collected,
    Following,
    Hosted,
    Start,
    Started,
    Stop,
    receive_command,
    send,
)
from swell.lab.server_process import memory_mib
from swell.runtime.logs import configure_logging
from swell.runtime.process import GARBAGE_THRESHOLDS, work_in_batches
from swell.runtime.sockets import raise_descriptor_limit
from swell.runtime.world import RuntimeWorld
from swell.wire.codec import TYPE_OFFSET
from swell.world import Link

OPENING_MAX = 64
"""Containers that connect at one time."""


class Follower:
    """One container, which follows the application that owns it."""

    __slots__ = ("at", "hosted", "latest", "runs")

    def __init__(self, hosted: Hosted, runs: array[int]) -> None:
        self.hosted = hosted
        self.runs = runs
        self.at = 0
        self.latest = b""

    def following(self, contents: bool) -> Following:
        digest = blake2b(value_of(self.latest), digest_size=16).digest() if contents else b""
        return Following(self.hosted.name, self.hosted.owner, self.at, digest)


class BaselineFleet:
    """The node that this process's world drives, and its orders."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._world: RuntimeWorld | None = None
        self._start: Start
        self._began_s = 0.0
        self._coming: list[Hosted] = []
        self._followers: list[Follower] = []
        self._runs: dict[str, array[int]] = {}
        self._started = 0
        self._disorder = 0
        self._loop.add_reader(pipe.fileno(), self._on_command)
        os.set_blocking(pipe.fileno(), True)  # the loop has unset it; answers may be long

    def _on_command(self) -> None:
        command = receive_command(self._pipe)
        match command:
            case Start():
                self._begin(command)
            case Collect():
                send(self._pipe, self._collected(command.contents))
            case Stop() | None:
                self._loop.remove_reader(self._pipe.fileno())
                if not self.ended.done():
                    self.ended.set_result(None)

    async def end(self) -> None:
        if self._world is not None:
            await self._world.stop()

    def _begin(self, start: Start) -> None:
        self._start = start
        self._began_s = time.monotonic()
        self._world = RuntimeWorld("fleet", None)
        self._world.start(self)
        self._coming = list(reversed(start.containers))
        for _ in range(OPENING_MAX):
            self._open()

    def _open(self) -> None:
        if not self._coming:
            return
        assert self._world is not None
        hosted = self._coming.pop()
        addresses = self._start.addresses
        link = self._world.dial(addresses[server_of(hosted.name, len(addresses))])
        follower = Follower(hosted, self._runs.setdefault(hosted.owner, array("q")))
        self._followers.append(follower)
        link.session = follower

    def _on_started(self) -> None:
        self._started += 1
        self._open()
        if self._started == len(self._start.containers):
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GARBAGE_THRESHOLDS)
            send(self._pipe, Started(time.monotonic() - self._began_s))

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        link.send(subscribe(number_of(link.session.hosted.owner)))

    def on_link_down(self, link: Link, reason: str) -> None:
        """What it lacks from now on is found to be lost."""

    def on_writable(self, link: Link) -> None:
        """Nothing waits."""

    def on_frame(self, link: Link, data: bytes) -> None:
        if data[TYPE_OFFSET] != UPDATE:
            return
        follower: Follower = link.session
        _, step = read_update(data)
        before = follower.at
        if before and step != before + 1:
            self._disorder += 1
        if step > before:
            follower.latest = data
            follower.runs.extend((before, step, time.monotonic_ns()))
            follower.at = step
        if not before:
            self._on_started()

    def stop(self) -> None:
        """Nothing is left to be done."""

    def _collected(self, contents: bool) -> Collected:
        runs = {application: rows.tobytes() for application, rows in self._runs.items()}
        for rows in self._runs.values():
            del rows[:]
        return Collected(
            runs,
            tuple(one.following(contents) for one in self._followers),
            self._disorder,
            dict(self._world.counters) if self._world is not None else {},
            time.process_time(),
            memory_mib(os.getpid()).resident,
        )


async def _serve(pipe: Connection) -> None:
    fleet = BaselineFleet(pipe)
    await fleet.ended
    await fleet.end()


def main(pipe: Connection) -> None:
    """The process: until it is told to stop, or whoever started it is gone."""
    configure_logging()
    raise_descriptor_limit()
    work_in_batches()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(pipe))
