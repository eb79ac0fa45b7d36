"""Accepts connections and hands them to links.

A connection is accepted by hand rather than by the loop's server, for two reasons: a failed TLS
handshake is seen and counted here, and a process short of file descriptors refuses connections
one by one while it goes on accepting.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

from swell.errors import ConfigurationError
from swell.runtime.link import RuntimeLink
from swell.runtime.sockets import descriptors_max, is_loopback, listening_socket
from swell.runtime.tls import TlsTransport
from swell.world import Address

if TYPE_CHECKING:
    from swell.runtime.world import RuntimeWorld

ACCEPTS_PER_EVENT = 64
"""So that a storm of connections does not starve those that exist."""

EXHAUSTED_PAUSE_S = 0.5
"""Rest after the kernel refused a descriptor: the socket stays readable and would spin us."""


class Listener:
    """One listening socket. Connections wait in the backlog until `begin`."""

    def __init__(self, world: RuntimeWorld, host: str, port: int) -> None:
        if world.tls is None and not is_loopback(host):
            raise ConfigurationError(
                f"cannot listen on {host} without TLS: give this node a certificate "
                "(swell cluster issue) or listen on 127.0.0.1"
            )
        self._world = world
        self._socket, self.address = listening_socket(host, port)
        self._descriptors_max = descriptors_max()
        self._ssl = world.tls.server_context() if world.tls is not None else None

    def begin(self) -> None:
        self._world.loop.add_reader(self._socket, self._on_readable)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._world.loop.remove_reader(self._socket)
            self._socket.close()

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            try:
                connection, remote = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_accept_error(error)
                return
            # Descriptors are given out lowest first: the number says how many are in use.
            if connection.fileno() > self._descriptors_max:
                connection.close()
                self._world.count_drop("descriptors-exhausted", f"refused {remote[0]}")
                continue
            self._adopt(connection, Address(*remote[:2]))

    def _on_accept_error(self, error: OSError) -> None:
        self._world.count_drop("accept-failed", str(error))
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            self._world.loop.remove_reader(self._socket)
            self._world.loop.call_later(EXHAUSTED_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self.begin()

    def _adopt(self, connection: socket.socket, remote: Address) -> None:
        connection.setblocking(False)
        link = RuntimeLink(self._world, remote, dialed=False)
        self._world.remember_link(link)
        link.open_with(self._world.loop.create_task(self._shake_hands(link, connection)))

    async def _shake_hands(self, link: RuntimeLink, connection: socket.socket) -> None:
        try:
            if self._ssl is None:
                await self._world.loop.connect_accepted_socket(lambda: link, connection)
            else:
                tls = TlsTransport(link, self._ssl, True, self._world.deadlines.handshake_s)
                await self._world.loop.connect_accepted_socket(lambda: tls, connection)
                await tls.wait_open()
        except OSError as error:
            reason = "tls-failed" if self._ssl is not None else "accept-failed"
            self._world.count_drop(reason, f"{link!r}: {str(error) or type(error).__name__}")
            link.fail(reason)
        except asyncio.CancelledError:
            connection.close()
            raise
