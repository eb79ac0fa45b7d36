"""Bad input over real sockets: each peer is dropped and counted, the others are unharmed."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from swell.runtime import listener
from swell.runtime.world import Deadlines
from swell.wire.codec import frame
from swell.wire.limits import FRAME_BYTES_MAX, MAGIC
from tests.unit.runtime_toys import BUG, ECHO, SILENT, host, raw_peer, run, until

HELLO = frame(ECHO, b"hello")


def word(length: int) -> bytes:
    return length.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "wrong-magic"),
        (MAGIC[:6] + b"2\n" + HELLO, "wrong-magic"),
        (MAGIC + HELLO + word(0), "frame-too-short"),
        (MAGIC + HELLO + word(1) + b"x", "frame-too-short"),
        (MAGIC + HELLO + word(FRAME_BYTES_MAX + 1), "frame-too-long"),
        (MAGIC + HELLO + word(2**32 - 1), "frame-too-long"),
        (MAGIC + HELLO + frame(99, b"what is this"), "unknown-type"),
        (MAGIC + HELLO + frame(BUG, b""), "handler-error"),
    ],
)
def test_the_link_is_dropped_and_counted_and_nothing_else(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    async def main() -> None:
        async with host(tmp_path) as a, raw_peer(a.address) as other, raw_peer(a.address) as bad:
            await other.say(MAGIC + HELLO)
            assert await other.frames(1) == [HELLO]
            await bad.say(data)
            await bad.rest()
            assert a.counters == {reason: 1}
            downs = a.node.seen("down")
            assert downs == ([] if reason == "wrong-magic" else [reason])
            await other.say(HELLO)
            assert await other.frames(2) == [HELLO, HELLO]
            assert await a.answers()

    run(main)


def test_truncated_at_each_byte(tmp_path: Path) -> None:
    async def main() -> None:
        stream = MAGIC + HELLO
        async with host(tmp_path) as a:
            for cut in range(len(stream)):
                async with raw_peer(a.address) as peer:
                    await peer.say(stream[:cut])
                    peer.writer.write_eof()
                    assert await peer.rest() == MAGIC
            assert a.node.seen("frame") == []
            inside_a_unit = len(stream) - 2
            assert a.counters == {"truncated": inside_a_unit}
            assert await a.answers()

    run(main)


def test_one_byte_now_and_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path, deadlines=Deadlines(first_frame_s=0.15)) as a:
            for stream in (b"", MAGIC, MAGIC + HELLO):
                async with raw_peer(a.address) as peer:
                    waiting = asyncio.ensure_future(peer.rest())
                    for position in range(len(stream)):
                        peer.writer.write(stream[position : position + 1])
                        if (await asyncio.wait({waiting}, timeout=0.02))[0]:
                            break
                    assert await waiting == MAGIC
            assert a.counters == {"slow-first-frame": 3}
            assert a.node.seen("frame") == []
            assert await a.answers()

    run(main)


def test_the_deadline_ends_with_the_first_frame(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            host(tmp_path, deadlines=Deadlines(first_frame_s=0.05)) as a,
            raw_peer(a.address) as peer,
            raw_peer(a.address) as idle,
        ):
            await peer.say(MAGIC + HELLO)
            await idle.rest()
            assert a.counters == {"slow-first-frame": 1}
            await peer.say(HELLO)
            assert await peer.frames(2) == [HELLO, HELLO]

    run(main)


def test_a_flood_of_tiny_frames(tmp_path: Path) -> None:
    async def main() -> None:
        tiny, count = frame(SILENT, b""), 1_000_000
        async with host(tmp_path) as a, raw_peer(a.address) as flood, raw_peer(a.address) as other:
            await other.say(MAGIC + HELLO)
            await other.frames(1)
            await flood.say(MAGIC)
            flooding = asyncio.ensure_future(flood.say(tiny * count))
            slowest_s = 0.0
            for number in range(2, 30):
                began_s = time.perf_counter()
                await other.say(HELLO)
                await other.frames(number)
                slowest_s = max(slowest_s, time.perf_counter() - began_s)
            await flooding
            await until(lambda: len(a.node.seen("frame")) == count + 29)
            assert slowest_s < 0.5
            assert a.counters == {}

    run(main)


def test_connections_are_refused_when_descriptors_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        free = os.dup(0)
        os.close(free)
        monkeypatch.setattr(listener, "descriptors_max", lambda: free + 30)
        async with host(tmp_path) as a:
            peers = [raw_peer(a.address) for _ in range(30)]
            opened = [await peer.__aenter__() for peer in peers]
            await until(lambda: a.counters["descriptors-exhausted"])
            for peer in peers:
                await peer.__aexit__(None, None, None)
            del opened
            await until(lambda: not a.world.open_links)
            assert await a.answers()

    run(main)
