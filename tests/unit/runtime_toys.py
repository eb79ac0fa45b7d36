"""A tiny real protocol and a bare peer, to try the runtime with.

`python -m tests.unit.runtime_toys NAME DATA_DIR PORT` runs it as a process of its own, which
prints one line with its port when it is ready.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from swell.errors import SwellError, WireError
from swell.runtime import process
from swell.runtime.logs import configure_logging
from swell.runtime.security import TlsMaterial
from swell.runtime.world import Deadlines, RuntimeWorld
from swell.wire.codec import TYPE_OFFSET, frame
from swell.wire.frames import FrameSplitter
from swell.wire.limits import MAGIC
from swell.world import Address, Link

HOST = "127.0.0.1"
ECHO, SILENT, BUG = 240, 241, 242


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine on a fresh uvloop, with a limit that no healthy test comes near."""

    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; the limit is that of `run`."""
    while not condition():
        await asyncio.sleep(0.001)


class EchoNode:
    """Sends back what comes, and remembers everything that happens to it."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.links: list[Link] = []
        self.on_up: Callable[[Link], None] | None = None

    def on_link_up(self, link: Link) -> None:
        self.log.append(("up", link.peer))
        self.links.append(link)
        if self.on_up is not None:
            self.on_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.log.append(("down", reason))

    def on_writable(self, link: Link) -> None:
        self.log.append(("writable", link.queued_bytes))

    def on_frame(self, link: Link, data: bytes) -> None:
        kind = data[TYPE_OFFSET]
        if kind == BUG:
            raise RuntimeError("a mistake of our own")
        if kind not in (ECHO, SILENT):
            raise WireError("unknown-type", f"type {kind}")
        self.log.append(("frame", data))
        if kind == ECHO and not link.dialed:
            link.send(data)

    def stop(self) -> None:
        self.log.append(("stop", None))

    def seen(self, what: str) -> list[Any]:
        return [detail for kind, detail in self.log if kind == what]


class Host:
    """A world with an echo node that listens on loopback."""

    def __init__(
        self,
        data_dir: Path,
        name: str = "a",
        tls: TlsMaterial | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.world = RuntimeWorld(name, data_dir, tls, deadlines=deadlines)
        self.node = EchoNode()
        self.address = self.world.listen(HOST, 0)
        self.world.start(self.node)
        self.counters = self.world.counters

    async def answers(self) -> bool:
        """A new connection gets its echo."""
        async with raw_peer(self.address) as peer:
            await peer.say(MAGIC + frame(ECHO, b"alive"))
            return await peer.frames(1) == [frame(ECHO, b"alive")]


@asynccontextmanager
async def host(data_dir: Path, **options: Any) -> AsyncIterator[Host]:
    one = Host(data_dir, **options)
    try:
        yield one
    finally:
        await one.world.stop()


class RawPeer:
    """A plain socket that says what it likes and reads only when told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._splitter = FrameSplitter()
        self._frames: list[bytes] = []

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def frames(self, count: int) -> list[bytes]:
        while len(self._frames) < count:
            data = await self.reader.read(65536)
            assert data, f"closed after {len(self._frames)} of {count} frames"
            self._frames += self._splitter.feed(data)
        return self._frames

    async def rest(self) -> bytes:
        """Everything until the other side ends the connection, politely or not."""
        parts = []
        try:
            while data := await self.reader.read(65536):
                parts.append(data)
        except ConnectionResetError:
            pass
        return b"".join(parts)


@asynccontextmanager
async def raw_peer(address: Address) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def main() -> int:
    name, data_dir, port = sys.argv[1:]
    configure_logging()

    async def begin() -> list[RuntimeWorld]:
        world = RuntimeWorld(name, Path(data_dir))
        address = world.listen(HOST, int(port))
        node = EchoNode()
        world.start(node)
        if name == "halting":
            world.call_later(0.0, lambda: world.halt("as asked for"))
        print("ready", address.port, flush=True)
        return [world]

    try:
        return process.run(begin)
    except SwellError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
