"""A container written by hand on a plain socket: it says what it likes, and may stop reading."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from swell.config.messages import DELIVER, Subscribe
from swell.overlay.contact import Contact
from swell.overlay.messages import Hello, LinkKind, Welcome
from swell.wire import codec
from swell.wire.codec import TYPE_OFFSET
from swell.wire.limits import MAGIC
from swell.world import Address

WINDOW_BYTES = 16 * 1024
"""Of the receiving socket: little hides in the kernel."""


OWNER = "raw"


class RawContainer:
    """`deliveries`: how many bursts have come."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        self.deliveries = 0
        self._reader = reader
        self._writer = writer
        self._number = 0

    async def greet(self, cluster: str) -> None:
        contact = Contact(0, self.name, "s", "", 0, "", 0, 0)
        self._writer.write(MAGIC + codec.encode(Hello(cluster, LinkKind.CLIENT, contact)))
        assert await self._reader.readexactly(len(MAGIC)) == MAGIC
        assert isinstance(await self.hear(), Welcome)

    async def subscribe(self, application: str, interest: Sequence[str] = ()) -> None:
        """Nobody can reach it as a sibling."""
        self._number += 1
        message = Subscribe(
            self._number, application, tuple(interest), 0, self.name, OWNER, "s", "", 0, False
        )
        self._writer.write(codec.encode(message))
        await self._writer.drain()

    async def hear(self) -> Any:
        """The next message that is not a burst."""
        while True:
            size = await self._reader.readexactly(4)
            frame = size + await self._reader.readexactly(int.from_bytes(size, "big"))
            if frame[TYPE_OFFSET] != DELIVER:
                return codec.decode(frame)
            self.deliveries += 1

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]


@asynccontextmanager
async def raw_container(address: Address, cluster: str, name: str) -> AsyncIterator[RawContainer]:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, address)
    reader, writer = await asyncio.open_connection(sock=connection, limit=WINDOW_BYTES)
    container = RawContainer(name, reader, writer)
    try:
        await container.greet(cluster)
        yield container
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)
