"""Three Swell nodes in three processes on loopback, with default settings and real syncs.

Default means `Settings()`, the preset for a data centre, not the faster one of `swell up`. All
three nodes are voters of the directory and, with three replicas, all of them keep every slot.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import uvloop

import swell
from swell.directory.messages import Voter
from swell.errors import SwellError
from swell.lab.server_process import ServerError, ServerProcess
from swell.lab.store_table import slots_served
from swell.runtime.ports import LOOPBACK, free_ports
from swell.settings import Settings
from swell.world import Address

NODES = 3
READY_S_MAX = 60.0
POLL_S = 0.2
ASK_S = 2.0


class SwellCluster:
    """Its processes, as a context."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._addresses = [Address(LOOPBACK, port) for port in free_ports(NODES)]
        self._nodes: list[ServerProcess] = []
        self.cluster = f"lab-{os.urandom(6).hex()}"
        self.version = swell.__version__

    def __enter__(self) -> SwellCluster:
        try:
            self._nodes = [self._start(number) for number in range(NODES)]
            until_s = time.monotonic() + READY_S_MAX
            while sum(self._slots()) < Settings().store.slots:
                for node in self._nodes:
                    node.check()
                if time.monotonic() > until_s:
                    raise ServerError(
                        f"the nodes do not serve every slot after {READY_S_MAX:.0f} s"
                    )
                time.sleep(POLL_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for node in self._nodes:
            node.kill()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self._nodes)

    def addresses(self) -> tuple[Address, ...]:
        """That of the busiest node first."""
        first = self.busiest()
        return (*self._addresses[first:], *self._addresses[:first])

    def busiest(self) -> int:
        """The node that is primary of most slots, as a place in `pids`."""
        slots = self._slots()
        return slots.index(max(slots))

    def kill(self, place: int) -> None:
        self._nodes[place].kill()

    def _start(self, number: int) -> ServerProcess:
        spec = self._directory / f"n{number}.json"
        spec.write_bytes(msgspec.json.encode([self._spec(number)]))
        source = str(Path(swell.__file__).parent.parent)
        return ServerProcess(
            f"node n{number}",
            [sys.executable, "-m", "swell.cli.hosting", str(spec)],
            self._directory / f"n{number}.log",
            {"PYTHONPATH": source},
        )

    def _spec(self, number: int) -> dict[str, Any]:
        """As `swell.cli.hosting` reads it."""
        host, port = self._addresses[number]
        voters = [
            Voter(f"n{place}", address.host, address.port)
            for place, address in enumerate(self._addresses)
        ]
        return {
            "name": f"n{number}",
            "site": "lab",
            "rack": f"r{number}",
            "data": str(self._directory / f"n{number}"),
            "host": host,
            "port": port,
            "voters": voters,
            "cluster": self.cluster,
            "settings": Settings(),
        }

    def _slots(self) -> list[int]:
        """How many slots every node serves; zeros while nobody can tell."""
        for node, address in zip(self._nodes, self._addresses, strict=True):
            if not node.running:
                continue
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    served = runner.run(_ask(address, self.cluster))
            except (SwellError, TimeoutError):
                continue
            return [served[place] for place in self._addresses]
        return [0] * NODES


async def _ask(address: Address, cluster: str) -> Counter[Address]:
    async with asyncio.timeout(ASK_S):
        return await slots_served(address, cluster)
