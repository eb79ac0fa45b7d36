"""Three etcd members on loopback with etcd's default settings, from the system's own package.

Default means durable: a member syncs its log before it acknowledges. Data directories lie where
ours lie, so both systems write to the same file system.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from swell.lab.etcd_messages import STATUS, Status, status_of
from swell.lab.grpc_channel import CallError, Channel, header_block
from swell.lab.server_cluster import ServerCluster
from swell.lab.server_process import ServerError, ServerProcess
from swell.runtime.ports import LOOPBACK, free_ports
from swell.world import Address

MEMBERS = 3
ASK_S = 2.0

ABSENT = (
    "etcd is not installed, so nothing was compared with it: "
    "`apt-get install etcd-server` (Debian, Ubuntu) and run this again"
)


def is_installed() -> bool:
    return shutil.which("etcd") is not None


class EtcdCluster(ServerCluster):
    """Its processes, as a context."""

    POLL_S = 0.1

    def __init__(self, directory: Path) -> None:
        super().__init__(MEMBERS)
        ports = free_ports(2 * MEMBERS)
        self._clients = [Address(LOOPBACK, port) for port in ports[:MEMBERS]]
        self._peers = [f"http://{LOOPBACK}:{port}" for port in ports[MEMBERS:]]
        self._directory = directory
        self.version = ""

    def addresses(self) -> tuple[Address, ...]:
        """The leader's first."""
        leader = self._leader() or 0
        return (*self._clients[leader:], *self._clients[:leader])

    def busiest(self) -> int:
        """The leader, as a place in `pids`."""
        leader = self._leader()
        if leader is None:
            raise ServerError("etcd has no leader at the moment: run this again")
        return leader

    def _start(self, place: int) -> ServerProcess:
        client, peer = f"http://{self._clients[place]}", self._peers[place]
        everybody = ",".join(f"m{number}={one}" for number, one in enumerate(self._peers))
        words = {
            "--name": f"m{place}",
            "--data-dir": str(self._directory / f"m{place}"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": everybody,
            "--initial-cluster-state": "new",
        }
        command = ["etcd", *(word for pair in words.items() for word in pair)]
        return ServerProcess(f"etcd m{place}", command, self._directory / f"m{place}.log", {})

    def _trouble(self) -> str:
        return "etcd has no leader" if self._leader() is None else ""

    def _leader(self) -> int | None:
        """Which member leads, once one does and says so itself."""
        for place, member in enumerate(self._servers):
            if member.running:
                status = asyncio.run(_ask(self._clients[place]))
                if status is not None and status.leader and status.leader == status.member:
                    self.version = status.version
                    return place
        return None


async def _ask(address: Address) -> Status | None:
    try:
        async with asyncio.timeout(ASK_S):
            channel = await Channel.connect(address.host, address.port)
            try:
                return status_of(await channel.call(header_block("etcd", STATUS), b""))
            finally:
                channel.close()
    except (CallError, TimeoutError):
        return None
