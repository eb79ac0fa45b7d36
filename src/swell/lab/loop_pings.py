"""How long the loops of nodes stand still: a process that asks each of them all the time.

A question is answered within a turn of the loop, so that an answer that takes long tells of a turn
that took long, or of a machine that had no processor to spare.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType

import uvloop

from swell.errors import SwellError
from swell.lab.store_table import TableReader
from swell.runtime.logs import configure_logging
from swell.world import Address

INTERVAL_S = 0.02
ANSWER_S_MAX = 30.0
PING_S_MAX = 60.0


class Pings:
    """The process, as a context."""

    def __init__(self, cluster: str, addresses: Sequence[Address]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, far = context.Pipe()
        arguments = (far, cluster, tuple(addresses))
        self._process: BaseProcess = context.Process(target=_main, args=arguments, daemon=True)
        self._far = far

    def __enter__(self) -> Pings:
        self._process.start()
        self._far.close()
        return self

    def longest_ms(self) -> float:
        """The longest answer of any node since the last time this was asked."""
        self._pipe.send(None)
        if not self._pipe.poll(ANSWER_S_MAX):
            raise SwellError("the process that asks the nodes does not answer")
        longest: float = self._pipe.recv()
        return longest

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


class _Pinging:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._longest_s = 0.0
        self._asked_at: dict[Address, float] = {}
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._on_order)

    def _on_order(self) -> None:
        try:
            self._pipe.recv()
        except EOFError:
            self.ended.set()
            return
        now = time.monotonic()
        waiting = (now - asked for asked in self._asked_at.values())
        self._pipe.send(1000 * max(self._longest_s, *waiting, 0.0))
        self._longest_s = 0.0

    async def ask(self, address: Address, cluster: str) -> None:
        reader = TableReader(address, cluster)
        await reader.open()
        while not self.ended.is_set():
            asked = self._asked_at[address] = time.monotonic()
            async with asyncio.timeout(PING_S_MAX):
                await reader.ask()
            del self._asked_at[address]
            self._longest_s = max(self._longest_s, time.monotonic() - asked)
            await asyncio.sleep(INTERVAL_S)


async def _ping(pipe: Connection, cluster: str, addresses: Sequence[Address]) -> None:
    pinging = _Pinging(pipe)
    await asyncio.gather(*(pinging.ask(address, cluster) for address in addresses))


def _main(pipe: Connection, cluster: str, addresses: Sequence[Address]) -> None:
    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_ping(pipe, cluster, addresses))
