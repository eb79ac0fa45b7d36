"""The administrators of a baseline system: the load of `ripple_publisher`, as whole values.

An open loop with the same random instants. The baselines know no increments, so every update is a
whole value, given to the server that is its application's home.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import uvloop

from swell.errors import SwellError
from swell.lab.baseline_protocol import (
    STORED,
    Outbox,
    home_of,
    number_of,
    publish,
    read_stored,
)
from swell.lab.publisher_process import GO, STOP
from swell.lab.ripple_publisher import (
    APPLIED_S_MAX,
    FIRST_S,
    TICK_S,
    Application,
    Log,
    Order,
    Phase,
    Published,
    Ready,
)
from swell.runtime.world import RuntimeWorld
from swell.wire.codec import TYPE_OFFSET
from swell.world import Link

READY_S_MAX = 30.0
POLL_S = 0.01
OPEN_BYTES_MAX = 64 * 1024 * 1024
"""Updates that wait for one server; those that are due then are never answered."""


def arrivals(phases: Sequence[Phase], rng: random.Random) -> Iterator[float]:
    """Seconds from the beginning at which updates are due; the last phase goes on for ever."""
    due_s = 0.0
    while True:
        end_s = 0.0
        for phase in phases:
            end_s += phase.seconds
            if due_s < end_s:
                break
        yield due_s
        due_s += rng.expovariate(phase.rate_per_s)


class BaselinePublisher:
    """The node that this process's world drives, and the clock."""

    def __init__(self, order: Order, pipe: Connection) -> None:
        self._order = order
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random(order.seed)
        self._applications = {
            number_of(name): Application(name, order.payload_bytes, self._rng)
            for name in order.applications
        }
        self._servers: dict[Link, int] = {}
        self._outboxes: dict[int, Outbox] = {}
        self.open = 0
        self.stopped: asyncio.Future[None] = self._loop.create_future()
        self._arrivals = arrivals(order.phases, self._rng)
        self._begun_s = 0.0
        self._due_s = 0.0

    async def begin(self, world: RuntimeWorld) -> None:
        """Connect, and put the first values."""
        for number, address in enumerate(self._order.addresses):
            self._servers[world.dial(address)] = number
        until_s = time.monotonic() + READY_S_MAX
        while len(self._outboxes) < len(self._order.addresses):
            self._check(until_s)
            await asyncio.sleep(POLL_S)
        for number in self._applications:
            self._submit(number, time.monotonic())
        while self.open:
            self._check(until_s)
            await asyncio.sleep(POLL_S)
        for application in self._applications.values():  # the first value is no update
            del application.due_ns[:], application.steps[:]
        self._loop.add_reader(self._pipe.fileno(), self._on_command)
        os.set_blocking(self._pipe.fileno(), True)  # the loop has unset it; answers may be long

    def _check(self, until_s: float) -> None:
        if time.monotonic() > until_s:
            raise SwellError(f"the servers are not ready after {READY_S_MAX:.0f} s")

    def _on_command(self) -> None:
        try:
            command = self._pipe.recv()
        except (EOFError, OSError):
            command = STOP
        if command == GO:
            self._loop.call_later(FIRST_S, self._begin_phases)
        elif not self.stopped.done():
            self._loop.remove_reader(self._pipe.fileno())
            self.stopped.set_result(None)

    def _begin_phases(self) -> None:
        # The first phase has begun with GO, as that of `ripple_publisher`.
        self._begun_s = time.monotonic() - FIRST_S
        while self._due_s < FIRST_S:
            self._due_s = next(self._arrivals)
        self._publish()

    def _publish(self) -> None:
        """Everything that is due."""
        if self.stopped.done():
            return
        now_s = time.monotonic()
        numbers = tuple(self._applications)
        while self._begun_s + self._due_s <= now_s:
            self._submit(self._rng.choice(numbers), self._begun_s + self._due_s)
            self._due_s = next(self._arrivals)
        self._loop.call_later(TICK_S, self._publish)

    def _submit(self, number: int, due_s: float) -> None:
        application = self._applications[number]
        application.due_ns.append(int(due_s * 1e9))
        application.steps.append(0)
        self.open += 1
        home = home_of(number, len(self._order.addresses))
        self._outboxes[home].send(
            publish(number, len(application.steps) - 1, application.whole().data)
        )

    async def end(self) -> Published:
        """Once all are answered, or nobody answers any more."""
        until_s = time.monotonic() + APPLIED_S_MAX
        while self.open and time.monotonic() < until_s:
            await asyncio.sleep(POLL_S)
        failures = {"not answered in time": self.open} if self.open else {}
        logs = {
            one.name: Log(one.due_ns.tobytes(), one.steps.tobytes())
            for one in self._applications.values()
        }
        return Published(logs, failures, ())

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        self._outboxes[self._servers[link]] = Outbox(link, OPEN_BYTES_MAX)

    def on_link_down(self, link: Link, reason: str) -> None:
        """Its updates stay without an answer."""

    def on_writable(self, link: Link) -> None:
        self._outboxes[self._servers[link]].on_writable()

    def on_frame(self, link: Link, data: bytes) -> None:
        if data[TYPE_OFFSET] == STORED:
            application, number, step = read_stored(data)
            self._applications[application].steps[number] = step
            self.open -= 1

    def stop(self) -> None:
        """Nothing is left to be done."""


async def _serve(order: Order, pipe: Connection) -> None:
    publisher = BaselinePublisher(order, pipe)
    world = RuntimeWorld("publisher", None)
    world.start(publisher)
    await publisher.begin(world)
    pipe.send(Ready())
    gc.disable()
    await publisher.stopped
    pipe.send(await publisher.end())
    pipe.recv()  # links stay open until their bytes have been read


def main(order: Order, pipe: Connection) -> None:
    """The process of a `PublisherProcess`."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(order, pipe))
    except SwellError as error:
        pipe.send(str(error))
    except EOFError:
        pass
