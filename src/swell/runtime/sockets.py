"""Socket options, addresses and the limit on file descriptors."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import socket

from swell.errors import ConfigurationError
from swell.world import Address

BACKLOG = 512

KEEPALIVE_IDLE_S = 15
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
"""A peer whose machine vanished is noticed after idle + probes · interval even on a silent link."""

UNSENT_BYTES_MAX = 1024 * 1024
"""Bytes the kernel takes per link ahead of what it has sent: the rest stays in our queues, where
control can still overtake it."""

DESCRIPTOR_SHARE_MAX = 0.9
"""Connections are refused above this share of the process's file descriptors; the rest is kept
for the disk and for our own dials."""


def tune(transport: asyncio.BaseTransport) -> None:
    """Set the options of a connected socket."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)


def is_loopback(host: str) -> bool:
    """True for 127.0.0.0/8, ::1 and the name `localhost`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def descriptors_max() -> int:
    """The highest descriptor number an accepted connection may get."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return int(soft * DESCRIPTOR_SHARE_MAX)


def raise_descriptor_limit() -> None:
    """Use as many file descriptors as the system allows this process to have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def listening_socket(host: str, port: int) -> tuple[socket.socket, Address]:
    """Bind and listen; port 0 takes a free one. The address says which."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {host!r} is not an address of this machine ({error})"
        ) from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            sentence = f"port {port} on {host} is in use: stop what uses it or choose another port"
        else:
            sentence = f"cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigurationError(sentence) from None
    return sock, Address(*sock.getsockname()[:2])
