"""The administrators of Ripple's evaluation: updates of many applications at a given rate.

An open loop: updates are due at random instants (a Poisson process), whatever became of those
before, and their latency counts from the instant when they were due. An incremental update sets
one key by its path; any other puts a value that has nothing in common with the one before.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from array import array
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from typing import NamedTuple

import uvloop

from swell.client.connection import Connection as Client
from swell.client.connection import connect
from swell.client.session_pending import Answer
from swell.config import requests
from swell.config.edits import Path, Whole
from swell.config.operations import CONFIG_SERVICE
from swell.errors import SwellError
from swell.lab.publisher_process import GO, STOP
from swell.world import Address

NAME = "value.json"
DEADLINE_S = 30.0
APPLIED_S_MAX = 30.0
"""How long the last updates may take until they are everywhere."""
TICK_S = 0.004
"""How long a due update may wait for others, so that the publisher leaves the processor to the
rest; it counts as latency."""
FIRST_S = 1.0
"""After one update of every application, until the rate begins."""
KEY_BYTES = 29
"""Of one key with its text, as JSON."""
TEMPLATES = 8
"""Texts of whole values, used in turn: random numbers for every value would cost the publisher as
much as all the rest of its work."""
GENERATION = "########"
"""What stands in a template for the part of the keys that no value before had."""


class Phase(NamedTuple):
    """A time with a rate of its own."""

    seconds: float
    rate_per_s: float


class Order(NamedTuple):
    """What to publish."""

    cluster: str
    addresses: tuple[Address, ...]
    applications: tuple[str, ...]
    phases: tuple[Phase, ...]
    """The last one goes on until told to stop."""
    payload_bytes: int
    incremental: float
    """Share of the updates."""
    seed: int


class Ready(NamedTuple):
    """Every application has its first value, as its first step."""


class Log(NamedTuple):
    """The updates of one application, in the order of their due instants."""

    due_ns: bytes
    steps: bytes
    """64-bit numbers; 0 for an update that was not stored."""


class Published(NamedTuple):
    """What happened."""

    logs: dict[str, Log]
    failures: dict[str, int]
    """Sentences, and how often."""
    incomplete: tuple[str, ...]
    """Applications whose last step was not reported as applied by all of its containers."""


class Application:
    """One application's values as they are published."""

    def __init__(self, name: str, payload_bytes: int, rng: random.Random) -> None:
        self.name = name
        self.due_ns: array[int] = array("q")
        self.steps: array[int] = array("q")
        self._keys = max(1, payload_bytes // KEY_BYTES)
        self._rng = rng
        self._generation = ""
        self._templates = cycle([self._template(payload_bytes) for _ in range(TEMPLATES)])

    def _template(self, payload_bytes: int) -> str:
        texts = f"{self._rng.getrandbits(48 * self._keys):0{12 * self._keys}x}"
        entries = ",".join(
            f'"{GENERATION}{number:04d}":"{texts[12 * number : 12 * number + 12]}"'
            for number in range(self._keys)
        )
        padding = max(0, payload_bytes - len(entries) - len('{,"":""}'))
        return f'{{{entries},"":"{"x" * padding}"}}'

    def whole(self) -> Whole:
        """A value of which no key was there before."""
        self._generation = f"{self._rng.getrandbits(32):08x}"
        value = next(self._templates).replace(GENERATION, self._generation)
        return Whole(NAME, value.encode())

    def change(self) -> Path:
        """One key of the value."""
        rng = self._rng
        number = rng.randrange(self._keys)
        key = f"{self._generation}{number:04d}"
        return Path(NAME, key, f"{rng.getrandbits(48):012x}", as_text=True)


class Publisher:
    """One client, and the clock."""

    def __init__(self, order: Order, client: Client, pipe: Connection) -> None:
        self._order = order
        self._client = client
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random(order.seed)
        self._applications = [
            Application(name, order.payload_bytes, self._rng) for name in order.applications
        ]
        self.stopped: asyncio.Future[None] = self._loop.create_future()
        self._open = 0
        self._failures: dict[str, int] = {}
        self._begun = False
        self._due_s = 0.0
        self._ends_s: list[float] = []

    async def begin(self) -> None:
        """Put the first values."""
        for one in self._applications:
            first = one.whole()
            await self._client.configs(one.name).put(first.name, first.data)
        self._loop.add_reader(self._pipe.fileno(), self._on_command)
        os.set_blocking(self._pipe.fileno(), True)  # the loop has unset it; answers may be long

    def _on_command(self) -> None:
        try:
            command = self._pipe.recv()
        except (EOFError, OSError):
            command = STOP
        if command == GO:
            self._begin_phases()
        elif not self.stopped.done():
            self._loop.remove_reader(self._pipe.fileno())
            self.stopped.set_result(None)

    def _begin_phases(self) -> None:
        now_s = time.monotonic()
        self._due_s = now_s
        for application in self._applications:  # relays dial their siblings
            self._submit(application, application.change())
        for phase in self._order.phases[:-1]:
            now_s += phase.seconds
            self._ends_s.append(now_s)
        self._loop.call_later(FIRST_S, self._publish)

    def _rate_per_s(self) -> float:
        past = sum(self._due_s >= end_s for end_s in self._ends_s)
        return self._order.phases[past].rate_per_s

    def _publish(self) -> None:
        """Everything that is due."""
        if self.stopped.done():
            return
        rng, now_s = self._rng, time.monotonic()
        if not self._begun:
            self._begun, self._due_s = True, now_s
        while self._due_s <= now_s:
            application = rng.choice(self._applications)
            incremental = rng.random() < self._order.incremental
            self._submit(application, application.change() if incremental else application.whole())
            self._due_s += rng.expovariate(self._rate_per_s())
        self._loop.call_later(TICK_S, self._publish)

    def _submit(self, application: Application, edit: Path | Whole) -> None:
        place, read, body = requests.publish(application.name, (edit,))
        application.due_ns.append(int(self._due_s * 1e9))
        application.steps.append(0)
        self._open += 1
        done = partial(self._on_stored, application, len(application.steps) - 1)
        self._client.submit(CONFIG_SERVICE, place, read, body, DEADLINE_S, done)

    def _on_stored(
        self, application: Application, number: int, answer: Answer | SwellError
    ) -> None:
        self._open -= 1
        if isinstance(answer, SwellError):
            sentence = f"{type(answer).__name__}: {answer}"
            self._failures[sentence] = self._failures.get(sentence, 0) + 1
        else:
            application.steps[number] = requests.published_of(answer.body).step

    async def end(self) -> Published:
        """Once all are answered, and everywhere."""
        while self._open:
            await asyncio.sleep(0.01)
        waits = [self._is_applied(one) for one in self._applications]
        applied = await asyncio.gather(*waits)
        pairs = zip(self._applications, applied, strict=True)
        return Published(
            {
                one.name: Log(one.due_ns.tobytes(), one.steps.tobytes())
                for one in self._applications
            },
            self._failures,
            tuple(one.name for one, complete in pairs if not complete),
        )

    async def _is_applied(self, application: Application) -> bool:
        configs = self._client.configs(application.name)
        step = max(application.steps, default=1) or 1
        report = await configs.wait(step, deadline_s=APPLIED_S_MAX)
        return report.complete and report.applied.count == report.interested


async def _serve(order: Order, pipe: Connection) -> None:
    nodes = [str(address) for address in order.addresses]
    async with connect(nodes, cluster=order.cluster) as client:
        publisher = Publisher(order, client, pipe)
        await publisher.begin()
        pipe.send(Ready())
        gc.disable()
        await publisher.stopped
        pipe.send(await publisher.end())
        pipe.recv()  # the link stays open until its bytes have been read


def main(order: Order, pipe: Connection) -> None:
    """The process of a `PublisherProcess`."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(order, pipe))
    except SwellError as error:
        pipe.send(str(error))
    except EOFError:
        pass
