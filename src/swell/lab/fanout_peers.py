"""The other systems of the comparison of fan-out, as they are commonly run for pushing.

Redis and NATS are one server each with default settings: neither keeps what it sends, nor sends it
to other servers. etcd is three members with default settings, durable and replicated as ours is;
subscribers are spread over the members, as etcd's own clients do, and the publisher speaks to the
leader. In all of them a subscriber is a connection of its own.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from swell.lab.etcd_cluster import EtcdCluster
from swell.lab.etcd_watch import EtcdPublisher, EtcdSubscriber
from swell.lab.fanout_load import Protocol, Servers, run_trial
from swell.lab.fanout_trial import Outcome, Trial
from swell.lab.nats_pubsub import NatsPublisher, NatsSubscriber
from swell.lab.redis_pubsub import RedisPublisher, RedisSubscriber
from swell.lab.server_process import ServerError, ServerProcess
from swell.runtime.ports import LOOPBACK, free_ports
from swell.world import Address

READY_S_MAX = 20.0
POLL_S = 0.05
LOAD_PROCESSES = (1, 2)
CHOICE_ROUNDS = 2
CHOICE_WARM_UP_S = 0.3
CHOICE_S = 1.0

Start = Callable[[Path], AbstractContextManager[tuple[Servers, str]]]
"""Servers and their version."""


class RunningPeer:
    """A peer, up."""

    def __init__(self, peer: Peer, servers: Servers, version: str) -> None:
        self._peer = peer
        self._servers = servers
        self.version = version

    def trial(self, trial: Trial) -> Outcome:
        processes = self._peer.load_processes.get(trial.patch)
        if processes is None:
            processes = self._peer.load_processes[trial.patch] = self._choose(trial)
        return run_trial(self._peer.protocol, self._servers, trial, processes)

    def _choose(self, trial: Trial) -> int:
        """How many load processes give this peer the higher rate, by trying."""
        brief = trial._replace(warm_up_s=CHOICE_WARM_UP_S, seconds=min(CHOICE_S, trial.seconds))
        rates = dict.fromkeys(LOAD_PROCESSES, 0.0)
        for processes in LOAD_PROCESSES * CHOICE_ROUNDS:
            outcome = run_trial(self._peer.protocol, self._servers, brief, processes)
            rates[processes] += outcome.deliveries / outcome.seconds
        return max(rates, key=lambda processes: rates[processes])


class Peer:
    """A system that is not ours."""

    by_hand = True

    def __init__(self, name: str, program: str, package: str, protocol: Protocol, start: Start):
        self.name = name
        self._program = program
        self._package = package
        self.protocol = protocol
        self._start = start
        self.load_processes: dict[bool, int] = {}
        """With and without patches: how many load processes did best here."""

    def absence(self) -> str:
        if shutil.which(self._program) is not None:
            return ""
        return (
            f"{self._program} is not installed, so nothing was compared with it: "
            f"`apt-get install {self._package}` (Debian, Ubuntu) and run this again"
        )

    @contextmanager
    def running(self, directory: Path) -> Iterator[RunningPeer]:
        with self._start(directory) as (servers, version):
            yield RunningPeer(self, servers, version)


@contextmanager
def _redis(directory: Path) -> Iterator[tuple[Servers, str]]:
    (port,) = free_ports(1)
    words = ["redis-server", "--bind", LOOPBACK, "--port", str(port), "--dir", str(directory)]
    with _one_server(words, Address(LOOPBACK, port), directory) as servers:
        yield servers, _version("redis-server")


@contextmanager
def _nats(directory: Path) -> Iterator[tuple[Servers, str]]:
    (port,) = free_ports(1)
    words = ["nats-server", "--addr", LOOPBACK, "--port", str(port)]
    with _one_server(words, Address(LOOPBACK, port), directory) as servers:
        yield servers, _version("nats-server")


@contextmanager
def _etcd(directory: Path) -> Iterator[tuple[Servers, str]]:
    with EtcdCluster(directory) as cluster:
        yield Servers(cluster.addresses(), cluster.pids), cluster.version


@contextmanager
def _one_server(words: Sequence[str], address: Address, directory: Path) -> Iterator[Servers]:
    server = ServerProcess(words[0], words, directory / "log", {})
    try:
        until_s = time.monotonic() + READY_S_MAX
        while not _answers(address):
            server.check()
            if time.monotonic() > until_s:
                raise ServerError(f"{words[0]} takes no connections after {READY_S_MAX:.0f} s")
            time.sleep(POLL_S)
        yield Servers((address,), (server.pid,))
    finally:
        server.kill()


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, POLL_S).close()
    except OSError:
        return False
    return True


def _version(program: str) -> str:
    """As it says itself, in the first word that has a number with dots."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = [word.removeprefix("v=").removeprefix("v") for word in said.stdout.split()]
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")


PEERS = {
    peer.name: peer
    for peer in (
        Peer("etcd", "etcd", "etcd-server", Protocol(EtcdSubscriber, EtcdPublisher), _etcd),
        Peer("nats", "nats-server", "nats-server", Protocol(NatsSubscriber, NatsPublisher), _nats),
        Peer(
            "redis",
            "redis-server",
            "redis-server",
            Protocol(RedisSubscriber, RedisPublisher),
            _redis,
        ),
    )
}
