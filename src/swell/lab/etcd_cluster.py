"""Three etcd members on loopback with etcd's default settings, from the system's own package.

Default means durable: a member syncs its log before it acknowledges. Data directories lie where
ours lie, so both systems write to the same file system.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from types import TracebackType

from swell.lab.etcd_messages import STATUS, Status, status_of
from swell.lab.grpc_channel import CallError, Channel, header_block
from swell.lab.server_process import ServerError, ServerProcess
from swell.runtime.ports import LOOPBACK, free_ports
from swell.world import Address

MEMBERS = 3
READY_S_MAX = 30.0
POLL_S = 0.1
ASK_S = 2.0

ABSENT = (
    "etcd is not installed, so nothing was compared with it: "
    "`apt-get install etcd-server` (Debian, Ubuntu) and run this again"
)


def is_installed() -> bool:
    return shutil.which("etcd") is not None


class EtcdCluster:
    """Its processes, as a context."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2 * MEMBERS)
        self._clients = [Address(LOOPBACK, port) for port in ports[:MEMBERS]]
        self._peers = [f"http://{LOOPBACK}:{port}" for port in ports[MEMBERS:]]
        self._directory = directory
        self._members: list[ServerProcess] = []
        self.version = ""

    def __enter__(self) -> EtcdCluster:
        try:
            self._members = [self._start(number) for number in range(MEMBERS)]
            until_s = time.monotonic() + READY_S_MAX
            while self._leader() is None:
                for member in self._members:
                    member.check()
                if time.monotonic() > until_s:
                    raise ServerError(f"etcd has no leader after {READY_S_MAX:.0f} s")
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
        for member in self._members:
            member.kill()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(member.pid for member in self._members)

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

    def kill(self, place: int) -> None:
        self._members[place].kill()

    def _start(self, number: int) -> ServerProcess:
        client, peer = f"http://{self._clients[number]}", self._peers[number]
        everybody = ",".join(f"m{place}={peer}" for place, peer in enumerate(self._peers))
        words = {
            "--name": f"m{number}",
            "--data-dir": str(self._directory / f"m{number}"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": everybody,
            "--initial-cluster-state": "new",
        }
        command = ["etcd", *(word for pair in words.items() for word in pair)]
        return ServerProcess(f"etcd m{number}", command, self._directory / f"m{number}.log", {})

    def _leader(self) -> int | None:
        """Which member leads, once one does and says so itself."""
        for place, member in enumerate(self._members):
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
