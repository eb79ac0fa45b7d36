"""Links of the runtime between two worlds: the rules of the seam, planes, back-pressure, drain."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from swell.runtime.link import TRANSPORT_BYTES_MAX
from swell.wire.codec import frame
from swell.wire.limits import MAGIC, QUEUE_BYTES_MAX_CONTROL, QUEUE_BYTES_MAX_DATA
from swell.world import Address, Link, Plane
from tests.unit.runtime_toys import ECHO, HOST, SILENT, Host, host, raw_peer, run, until


@asynccontextmanager
async def two_hosts(path: Path) -> AsyncIterator[tuple[Host, Host]]:
    async with host(path / "a", name="a") as a, host(path / "b", name="b") as b:
        yield a, b


def fill(link: Link, data: bytes, plane: Plane) -> int:
    """Send until refused; how many frames were taken."""
    count = 0
    while link.send(data, plane):
        count += 1
    return count


def test_dial_echo_close(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_hosts(tmp_path) as (a, b):
            link = b.world.dial(a.address)
            assert link.dialed
            assert not link.send(frame(ECHO, b"too early"))
            assert b.node.log == []
            await until(lambda: b.node.links)
            for number in range(100):
                assert link.send(frame(ECHO, b"%d" % number))
            await until(lambda: len(b.node.seen("frame")) == 100)
            assert b.node.seen("frame") == [frame(ECHO, b"%d" % n) for n in range(100)]
            link.close()
            assert not link.send(frame(ECHO, b"too late"))
            await until(lambda: a.node.seen("down"))
            assert a.node.seen("down") == ["closed by the peer"]
            assert b.node.seen("down") == []

    run(main)


def test_a_failed_dial_is_one_later_event(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            with socket.create_server((HOST, 0)) as unused:
                port = unused.getsockname()[1]
            a.world.dial(Address(HOST, port))
            a.world.dial(Address("192.0.2.1", 1))
            assert a.node.log == []
            await until(lambda: len(a.node.log) == 2)
            refused, plain = sorted(a.node.seen("down"), key=lambda reason: "plain" in reason)
            assert "refused" in refused
            assert "loopback only" in plain
            assert a.counters["dial-failed"] == 2

    run(main)


def test_no_callback_after_close(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_hosts(tmp_path) as (a, b):
            b.world.dial(a.address).close()
            b.node.on_up = lambda link: link.close()
            closed_when_up = b.world.dial(a.address)
            await until(lambda: a.node.seen("down"))
            assert not closed_when_up.send(frame(ECHO, b""))
            assert b.node.log == [("up", "")]

    run(main)


def test_closing_in_a_handler_stops_the_frames_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as peer:
            a.node.on_up = lambda link: link.close()
            await peer.say(MAGIC + frame(ECHO, b"x") * 10)
            assert await peer.rest() == MAGIC
            assert a.node.log == [("up", "")]

    run(main)


def test_sends_of_one_tick_are_one_write_with_control_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as peer:
            await peer.say(MAGIC + frame(SILENT, b""))
            await until(lambda: a.node.links)
            link = a.node.links[0]
            for number in range(5):
                link.send(frame(1, b"d%d" % number), Plane.DATA)
                link.send(frame(1, b"c%d" % number))
            received = [data[6:] for data in await peer.frames(10)]
            control, data = [b"c%d" % n for n in range(5)], [b"d%d" % n for n in range(5)]
            assert received == control + data

    run(main)


def test_a_peer_that_never_reads_costs_bounded_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as peer:
            await peer.say(MAGIC + frame(SILENT, b""))
            await until(lambda: a.node.links)
            link = a.node.links[0]
            peer.writer.transport.pause_reading()
            payload, sent = b"x" * 10_000, 0
            while True:
                count = fill(link, frame(1, payload), Plane.DATA)
                sent += count
                await asyncio.sleep(0.01)
                if not count:
                    break
            bound = QUEUE_BYTES_MAX_DATA + TRANSPORT_BYTES_MAX + 4 * len(payload)
            assert QUEUE_BYTES_MAX_DATA < link.queued_bytes < 2 * bound
            assert a.counters["queue-full-data"] > 0
            writable = len(a.node.seen("writable"))
            control = frame(2, b"urgent")
            assert link.send(control)
            peer.writer.transport.resume_reading()
            frames = await peer.frames(sent + 1)
            assert len(frames) == sent + 1
            behind = sent - frames.index(control)
            assert behind * len(payload) > QUEUE_BYTES_MAX_DATA - 2 * len(payload)
            await until(lambda: len(a.node.seen("writable")) == writable + 1)
            assert link.send(frame(1, payload), Plane.DATA)

    run(main)


def test_the_control_plane_is_bounded_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as peer:
            await peer.say(MAGIC + frame(SILENT, b""))
            await until(lambda: a.node.links)
            link = a.node.links[0]
            size = 10_000
            count = fill(link, frame(1, b"x" * size), Plane.CONTROL)
            assert 0 <= count * size - QUEUE_BYTES_MAX_CONTROL < 2 * size
            assert len(await peer.frames(count)) == count
            await until(lambda: a.node.seen("writable"))

    run(main)


def test_draining_loses_nothing_even_when_the_peer_talks_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as peer:
            await peer.say(MAGIC + frame(SILENT, b""))
            await until(lambda: a.node.links)
            link = a.node.links[0]
            sent = fill(link, frame(1, b"x" * 100), Plane.DATA)
            sent += fill(link, frame(2, b"y" * 1000), Plane.CONTROL)
            link.close(drain=True)
            assert not link.send(frame(1, b""))
            peer.writer.write(frame(SILENT, b"unread") * 1000)
            assert len(await peer.frames(sent)) == sent
            assert await peer.rest() == b""
            assert a.node.seen("down") == []

    run(main)


def test_stop_drains_every_link(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_hosts(tmp_path) as (a, b):
            b.world.dial(a.address)
            await until(lambda: a.node.links and b.node.links)
            for number in range(500):
                assert a.node.links[0].send(frame(SILENT, b"%d" % number), Plane.DATA)
            await a.world.stop()
            await until(lambda: b.node.seen("down"))
            assert len(b.node.seen("frame")) == 500
            assert a.node.log[-1] == ("stop", None)

    run(main)
