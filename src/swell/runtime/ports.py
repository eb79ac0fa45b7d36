"""Ports for nodes that are about to be started on this machine."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from swell.errors import UnavailableError

LOOPBACK = "127.0.0.1"
PORT_MIN = 10_240


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, from below the range that the system takes ports for outgoing
    connections from: a node that starts later still finds its own free."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first = 32768
    candidates = range(PORT_MIN, first) if first > PORT_MIN + 1000 else range(PORT_MIN, 65536)
    ports: list[int] = []
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise UnavailableError("there are not enough free ports on this machine")
