"""The process that publishes to a fleet of ours: a closed loop over the client library's requests.

An update sets one key by its path, as a user would do it; the primary makes a delta of that. An
update has ended when the primary has the proofs that every container has applied it, which is what
the answer to an `Await` says. One is asked for whatever was published at one time: receipts come
for bursts of updates, so more answers would say nothing more.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import uvloop

from swell.client.connection import Connection as Client
from swell.client.connection import connect
from swell.client.session_pending import Answer
from swell.config import reports, requests
from swell.config.edits import Path
from swell.config.operations import CONFIG_SERVICE
from swell.config.reports import REPORT_SERVICE, Await
from swell.errors import SwellError
from swell.lab.fanout_value import edit_of, first_value
from swell.lab.fanout_worker import DRAIN_S_MAX
from swell.lab.publisher_process import GO, STOP
from swell.world import Address

NAME = "value.json"
DEADLINE_S = 30.0


class Order(NamedTuple):
    """What to publish, and for how many."""

    cluster: str
    addresses: tuple[Address, ...]
    application: str
    subscribers: int
    window: int


class Ready(NamedTuple):
    """The value before the first update is there, as this step."""

    step: int


class Published(NamedTuple):
    """What happened. Update 1 is the step behind the one that `Ready` named."""

    published_ns: tuple[int, ...]
    ended: int
    """Updates whose receipts of all containers have reached the primary."""


class Publisher:
    """One client, and the loop."""

    def __init__(self, order: Order, client: Client, pipe: Connection) -> None:
        self._order = order
        self._client = client
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[Published] = self._loop.create_future()
        self._step = 0
        self._published_ns: list[int] = []
        self._ended = 0
        self._stopping = False

    async def begin(self) -> int:
        """Put the first value; the step that did it."""
        configs = self._client.configs(self._order.application)
        published = await configs.put(NAME, bytes(first_value()))
        self._step = published.step
        await configs.wait(self._step)  # a primary that has just begun gives no answers yet
        self._loop.add_reader(self._pipe.fileno(), self._on_command)
        os.set_blocking(self._pipe.fileno(), True)  # the loop has unset it; answers may be long
        return self._step

    def _on_command(self) -> None:
        try:
            command = self._pipe.recv()
        except (EOFError, OSError):
            command = STOP
        if command == GO:
            self._publish()
        else:
            self._loop.remove_reader(self._pipe.fileno())
            self._stopping = True
            self._loop.call_later(DRAIN_S_MAX, self._finish)
            self._finish_if_ended()

    def _publish(self) -> None:
        """As many as there is room for, and one question about the last of them."""
        order, last = self._order, self._ended + self._order.window
        for version in range(len(self._published_ns) + 1, last + 1):
            edit = edit_of(version)
            self._published_ns.append(time.monotonic_ns())
            change = Path(NAME, edit.key, edit.text, as_text=True)
            place, read, body = requests.publish(order.application, (change,))
            done = partial(self._on_stored, version)
            self._client.submit(CONFIG_SERVICE, place, read, body, DEADLINE_S, done)
        self._ask(last)

    def _ask(self, version: int) -> None:
        question = Await(self._order.application, self._step + version, names_max=0)
        place, read, body = reports.request(question)
        done = partial(self._on_awaited, version)
        self._client.submit(REPORT_SERVICE, place, read, body, DEADLINE_S, done)

    def _on_stored(self, version: int, answer: Answer | SwellError) -> None:
        if isinstance(answer, SwellError):
            self._fail(answer)
        elif requests.published_of(answer.body).step != self._step + version:
            self._fail(SwellError(f"update {version} became another step than the next one"))

    def _on_awaited(self, version: int, answer: Answer | SwellError) -> None:
        if isinstance(answer, SwellError):
            self._fail(answer)
            return
        report = reports.awaited_of(answer.body)
        if not report.complete:
            self._ask(version)
            return
        if report.applied.count != self._order.subscribers:
            self._fail(SwellError(f"update {version} was not applied by all: {report}"))
            return
        self._ended = max(self._ended, version)
        if self._stopping:
            self._finish_if_ended()
        else:
            self._publish()

    def _finish_if_ended(self) -> None:
        if self._ended == len(self._published_ns):
            self._finish()

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(Published(tuple(self._published_ns), self._ended))

    def _fail(self, error: SwellError) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)


async def _serve(order: Order, pipe: Connection) -> None:
    nodes = [str(address) for address in order.addresses]
    async with connect(nodes, cluster=order.cluster) as client:
        publisher = Publisher(order, client, pipe)
        pipe.send(Ready(await publisher.begin()))
        gc.disable()
        pipe.send(await publisher.finished)
        pipe.recv()  # the link stays open until its bytes have been read


def main(order: Order, pipe: Connection) -> None:
    """The process: `Ready`, then GO is awaited, then STOP, then `Published`; a text tells what
    failed."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(order, pipe))
    except SwellError as error:
        pipe.send(str(error))
    except EOFError:
        pass
