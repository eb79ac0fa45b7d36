"""Swell nodes on loopback with default settings and real syncs, each in a process of its own unless
several are to share one.

Default means three nodes and `Settings()`, the preset for a data centre, not the faster one of
`swell up`. The first three nodes are voters of the directory; with three replicas, each of three
keeps every slot. With TLS the cluster has an authority of its own, and a certificate for whoever
measures.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import uvloop

import swell
from swell.directory.messages import Voter
from swell.errors import SwellError
from swell.lab.server_cluster import ServerCluster
from swell.lab.server_process import ServerProcess
from swell.lab.store_table import slots_served
from swell.runtime.ports import LOOPBACK, free_ports
from swell.runtime.security import TlsMaterial, create_cluster, issue
from swell.settings import Settings
from swell.world import Address, Role

NODES = 3
VOTERS_MAX = 3
ASK_S = 2.0


class SwellCluster(ServerCluster):
    """Its processes, as a context. Node n is in the one at place n modulo their number."""

    READY_S_MAX = 60.0

    def __init__(
        self,
        directory: Path,
        nodes: int = NODES,
        settings: Settings | None = None,
        tls: bool = False,
        processes: int = 0,
    ) -> None:
        """`processes` 0: one for each node."""
        super().__init__(min(processes or nodes, nodes))
        self._directory = directory
        self._addresses = [Address(LOOPBACK, port) for port in free_ports(nodes)]
        self._settings = settings or Settings().with_replicas(min(NODES, nodes))
        self.certificates = self._certify() if tls else None
        """Directory with the certificate of whoever measures."""
        self._tls = TlsMaterial(self.certificates) if self.certificates is not None else None
        self.cluster = self._tls.cluster if self._tls else f"lab-{os.urandom(6).hex()}"
        self.version = swell.__version__

    def _certify(self) -> Path:
        authority = self._directory / "authority"
        create_cluster(authority, "lab")
        for number in range(len(self._addresses)):
            issue(authority, f"n{number}", self._directory / "certificates" / f"n{number}")
        out = self._directory / "certificates" / "lab"
        issue(authority, "lab", out, Role.ADMIN)
        return out

    def _end(self) -> None:
        if self._settings.events.directory:
            for server in self._servers:
                server.stop()  # killed, it would take rows of events with it
        super()._end()

    def addresses(self) -> tuple[Address, ...]:
        """That of the busiest node first."""
        first = self.busiest()
        return (*self._addresses[first:], *self._addresses[:first])

    def busiest(self) -> int:
        """The node that is primary of most slots; with a process each, as a place in `pids`."""
        slots = self._slots()
        return slots.index(max(slots))

    def _start(self, place: int) -> ServerProcess:
        numbers = range(place, len(self._addresses), self._count)
        spec = self._directory / f"n{place}.json"
        spec.write_bytes(msgspec.json.encode([self._spec(number) for number in numbers]))
        source = str(Path(swell.__file__).parent.parent)
        return ServerProcess(
            f"node {' and '.join(f'n{number}' for number in numbers)}",
            [sys.executable, "-m", "swell.cli.hosting", str(spec)],
            self._directory / f"n{place}.log",
            {"PYTHONPATH": source},
        )

    def _spec(self, number: int) -> dict[str, Any]:
        """As `swell.cli.hosting` reads it."""
        host, port = self._addresses[number]
        voters = [
            Voter(f"n{place}", address.host, address.port)
            for place, address in enumerate(self._addresses[:VOTERS_MAX])
        ]
        certificates = self._directory / "certificates" / f"n{number}"
        return {
            "name": f"n{number}",
            "site": "lab",
            "rack": f"r{number}",
            "data": str(self._directory / f"n{number}"),
            "host": host,
            "port": port,
            "voters": voters,
            "cluster": self.cluster,
            "certificates": str(certificates) if self._tls is not None else "",
            "settings": self._settings,
        }

    def _trouble(self) -> str:
        served = sum(self._slots())
        return "" if served >= self._settings.store.slots else "the nodes do not serve every slot"

    def _slots(self) -> list[int]:
        """How many slots every node serves; zeros while nobody can tell."""
        for number, address in enumerate(self._addresses):
            if not self._servers[number % self._count].running:
                continue
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    served = runner.run(_ask(address, self.cluster, self._tls))
            except (SwellError, TimeoutError):
                continue
            return [served[place] for place in self._addresses]
        return [0] * len(self._addresses)


async def _ask(address: Address, cluster: str, tls: TlsMaterial | None) -> Counter[Address]:
    async with asyncio.timeout(ASK_S):
        return await slots_served(address, cluster, tls)
