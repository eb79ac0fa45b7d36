"""Three Swell nodes in three processes on loopback, with default settings and real syncs.

Default means `Settings()`, the preset for a data centre, not the faster one of `swell up`. All
three nodes are voters of the directory and, with three replicas, all of them keep every slot.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import swell
from swell.client.facade import request
from swell.errors import SwellError
from swell.lab.server_process import LOOPBACK, ServerError, ServerProcess, free_ports
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
            while not self._serves():
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
        slots = [self._primary_of(place) for place in range(NODES)]
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
            {"name": f"n{place}", "host": address.host, "port": address.port}
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
            "settings": msgspec.to_builtins(Settings()),
        }

    def _serves(self) -> bool:
        """All slots have a primary, spread over all nodes."""
        slots = [self._primary_of(place) for place in range(NODES)]
        return sum(slots) == Settings().store.slots and min(slots) > 0

    def _primary_of(self, place: int) -> int:
        """How many slots a node is primary of; 0 if it does not say."""
        try:
            status = request([self._addresses[place]], self.cluster, "status", deadline_s=ASK_S)
        except SwellError:
            return 0
        return int(status.get("store", {}).get("primary", 0))
