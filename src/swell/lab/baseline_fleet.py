"""A fleet process of a baseline system: many containers, each a link of its own, on one loop.

It takes the orders of a fleet process (`fleet_messages`) and gives its answers. A container keeps
the frame of its newest value and nothing else: no receipts, no signatures, no document, so that
nobody can say that the baselines were held back by their containers.
"""

from __future__ import annotations

import os
import time
from array import array
from hashlib import blake2b
from multiprocessing.connection import Connection

from swell.lab.baseline_protocol import (
    UPDATE,
    number_of,
    read_update,
    server_of,
    subscribe,
    value_of,
)
from swell.lab.fleet_messages import Collected, Following, Hosted
from swell.lab.hosted_fleet import OPENING_MAX, HostedFleet, host
from swell.lab.server_process import memory_mib
from swell.runtime.world import RuntimeWorld
from swell.wire.codec import TYPE_OFFSET
from swell.world import Link


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


class BaselineFleet(HostedFleet):
    """The node that this process's world drives, and its orders."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._world: RuntimeWorld | None = None
        self._coming: list[Hosted] = []
        self._followers: list[Follower] = []
        self._started = 0

    async def end(self) -> None:
        if self._world is not None:
            await self._world.stop()

    def _begin(self) -> None:
        self._world = RuntimeWorld("fleet", None)
        self._world.start(self)
        self._coming = list(reversed(self._start.containers))
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
            self._say_started()

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
        return Collected(
            self._take_runs(),
            tuple(one.following(contents) for one in self._followers),
            self._disorder,
            dict(self._world.counters) if self._world is not None else {},
            time.process_time(),
            memory_mib(os.getpid()).resident,
        )


def main(pipe: Connection) -> None:
    host(BaselineFleet, pipe)
