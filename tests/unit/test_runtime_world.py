"""Timers, offloading, probes, halting: what the world promises besides links and disk."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from swell.errors import ConfigurationError
from swell.events import Event, MemberAlive
from swell.runtime.world import RuntimeWorld
from swell.world import Address
from tests.unit.runtime_toys import HOST, EchoNode, host, run, until


def test_timers_are_never_early(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            fired: list[tuple[float, float]] = []

            def fire(due_s: float) -> None:
                fired.append((due_s, a.world.now()))

            for delay_s in (0.0123, 0.0, 0.0004, 0.0049, 0.0081):
                due_s = a.world.now() + delay_s
                a.world.call_later(delay_s, lambda due_s=due_s: fire(due_s))
            assert fired == []
            await until(lambda: len(fired) == 5)
            assert all(now_s >= due_s for due_s, now_s in fired)
            assert fired == sorted(fired)

    run(main)


def test_a_cancelled_timer_stays_silent(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            fired: list[str] = []
            timer = a.world.call_later(0.001, lambda: fired.append("cancelled"))
            a.world.call_later(0.005, lambda: fired.append("later"))
            timer.cancel()
            timer.cancel()
            await until(lambda: fired)
            assert fired == ["later"]

    run(main)


def test_a_mistake_in_a_timer_stops_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            fired: list[int] = []
            a.world.call_later(0.0, lambda: [][1])
            a.world.call_later(0.002, lambda: fired.append(1))
            await until(lambda: fired)
            assert a.counters["handler-error"] == 1

    run(main)


def test_offloaded_work_runs_elsewhere_and_reports_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            here = threading.get_ident()
            results: list[Any] = []

            def divide(number: int) -> float:
                assert threading.get_ident() != here
                return 12 / number

            for number in (1, 0, 3):
                a.world.offload(divide, number, results.append)
            assert results == []
            await until(lambda: len(results) == 3)
            assert results[0] == 12
            assert isinstance(results[1], ZeroDivisionError)
            assert results[2] == 4

    run(main)


@pytest.mark.parametrize(
    ("answer", "kind", "healthy"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "http:/health", True),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "http:/health", False),
        (b"220 mail ready\r\n", "http:/health", False),
        (b"", "http:/health", False),
        (b"x" * 100_000, "http:/health", False),
        (b"", "tcp", True),
    ],
)
def test_probes(tmp_path: Path, answer: bytes, kind: str, healthy: bool) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        results: list[bool] = []
        async with await asyncio.start_server(serve, HOST, 0) as server, host(tmp_path) as a:
            address = Address(*server.sockets[0].getsockname())
            a.world.probe(address, kind, 2.0, results.append)
            await until(lambda: results)
        assert results == [healthy]

    run(main)


def test_a_probe_of_nobody_fails(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server((HOST, 0)) as unused:
            address = Address(*unused.getsockname())
        results: list[bool] = []
        async with host(tmp_path) as a:
            a.world.probe(address, "tcp", 2.0, results.append)
            await until(lambda: results)
        assert results == [False]

    run(main)


def test_halt_is_the_end_of_all_callbacks(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path / "a") as a, host(tmp_path / "b") as b:
            b.world.dial(a.address)
            await until(lambda: a.node.links)
            before = list(a.node.log)
            called: list[Any] = []
            a.world.call_later(0.0, lambda: called.append("timer"))
            a.world.offload(abs, -1, called.append)
            a.world.disk.append("x", b"1")
            a.world.disk.sync("x", called.append)
            a.world.halt("test")
            assert await a.world.halted == "test"
            await until(lambda: b.node.seen("down"))
            assert called == []
            assert a.node.log == before

    run(main)


def test_events_reach_the_sink_with_their_time(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[tuple[float, Event]] = []
        world = RuntimeWorld("n", tmp_path, sink=lambda now_s, event: seen.append((now_s, event)))
        world.start(EchoNode())
        world.emit(MemberAlive(1, 1))
        assert [event for _, event in seen] == [MemberAlive(1, 1)]
        assert abs(seen[0][0] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5
        await world.stop()

    run(main)


def test_port_in_use(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as a:
            with pytest.raises(ConfigurationError, match=f"port {a.address.port} .* is in use"):
                a.world.listen(*a.address)

    run(main)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_plain_tcp_listens_on_loopback_only(tmp_path: Path, address: str) -> None:
    async def main() -> None:
        world = RuntimeWorld("n", tmp_path)
        with pytest.raises(ConfigurationError, match="without TLS"):
            world.listen(address, 0)
        await world.stop()

    run(main)
