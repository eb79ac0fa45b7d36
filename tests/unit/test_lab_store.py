"""The comparison of stores: what is reported, how load is counted, how etcd is spoken to."""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from swell.cli.lab import lab as lab_command
from swell.errors import UnavailableError
from swell.lab import etcd_messages, store, store_memory
from swell.lab.experiment import NOT_MEASURED
from swell.lab.grpc_channel import CallError, Channel, header_block
from swell.lab.server_process import Memory, cpu_s, memory_mib
from swell.lab.store_trials import BUSY_CPU, Row, find_burden, restored_s, row_of
from swell.lab.store_worker import (
    KEYS,
    VALUE_BYTES,
    Outcome,
    Slow,
    Trial,
    Workers,
    key_of,
    percentile,
    value_of,
)
from swell.runtime.ports import free_ports

# What is reported.


def outcome(**changes: Any) -> Outcome:
    usual = Outcome(1000.0, 1.0, 2.0, 0.01, 0, 0, 0, 0.5, (0.2, 0.4, 0.3), ())
    return usual._replace(**changes)


def report_rows(**systems: tuple[float, float, float, float]) -> list[Row]:
    """Rows of a whole run: per system puts/s, gets/s, p99 of puts, p99 of gets at 64 clients."""
    rows = []
    for name, (puts, gets, put_p99, get_p99) in systems.items():
        for operation, rate, p99 in (("put", puts, put_p99), ("get", gets, get_p99)):
            measured = outcome(rate_per_s=rate, p99_ms=p99)
            rows.append(row_of("closed loop", name, operation, [measured]) | {"clients": 64})
            slower = outcome(rate_per_s=rate / 9, p99_ms=p99 / 9)
            rows.append(row_of("closed loop", name, operation, [slower]) | {"clients": 1})
        rows.append({"part": "recovery after kill -9", "system": name, "restored_s": 3.0})
    return rows


def verdicts(rows: list[Row], peers: tuple[str, ...]) -> list[tuple[object, bool]]:
    return [(bar.measured, bar.holds) for bar in store.bars(rows, peers)]


def test_bars_are_held_against_the_better_of_the_peers() -> None:
    rows = report_rows(
        swell=(1300, 2000, 10, 5),
        etcd=(1000, 800, 11, 5),
        **{"etcd-grpcio": (900, 1000, 12, 4)},  # type: ignore[arg-type]
    )
    assert verdicts(rows, ("etcd", "etcd-grpcio")) == [
        (1.3, True),
        (2.0, True),
        (0.909, True),
        (1.25, False),
        (0, True),
        (3.0, True),
    ]


def test_an_absent_peer_leaves_its_bars_open_and_none_asked_for_leaves_them_out() -> None:
    rows = report_rows(swell=(1300, 2000, 10, 5))
    asked = verdicts(rows, ("etcd",))
    assert asked[:4] == [(NOT_MEASURED, False)] * 4
    assert verdicts(rows, ()) == asked[4:] == [(0, True), (3.0, True)]
    assert "apt-get install etcd-server" in store.etcd_cluster.ABSENT


def test_a_failed_operation_and_a_late_recovery_are_seen() -> None:
    rows = report_rows(swell=(1300, 2000, 10, 5))
    rows[0]["failed"] = 2
    rows[-1]["restored_s"] = 5.5
    assert verdicts(rows, ()) == [(2, False), (5.5, False)]


def test_a_row_holds_medians_and_sums_up_the_servers() -> None:
    row = row_of(
        "closed loop",
        "swell",
        "put",
        [
            outcome(rate_per_s=900.0, p99_ms=9.0, failures=1),
            outcome(rate_per_s=1100.0, p99_ms=3.0, server_cpu=(0.2, 0.6, 0.3), wrong=1),
            outcome(rate_per_s=1000.0, p99_ms=4.0),
        ],
    )
    assert (row["per_s"], row["p99_ms"], row["p99_ms_max"]) == (1000, 4.0, 9.0)
    assert (row["servers_cpu"], row["busiest_cpu"], row["failed"]) == (0.9, 0.4, 2)


def test_restored_is_the_end_of_the_last_put_that_waited_for_the_kill() -> None:
    slow = (Slow(8.0, 8.5), Slow(9.5, 12.0), Slow(11.0, 13.5))
    assert restored_s(outcome(slow=slow), killed_s=10.0) == 3.5
    assert restored_s(outcome(), killed_s=10.0) == 0.0
    never = restored_s(outcome(slow=(*slow, Slow(10.0, math.inf))), killed_s=10.0)
    assert never == math.inf


def test_a_burden_is_found_by_what_one_request_costs() -> None:
    tried: list[float] = []

    def measure(burden_per_s: float) -> Outcome:
        tried.append(burden_per_s)
        return outcome(server_cpu=(0.1, 0.2 + burden_per_s * 1e-3))

    found = find_burden(measure, scheduled_per_s=1000.0)
    assert max(found.outcome.server_cpu) == pytest.approx(BUSY_CPU, abs=0.05)
    assert found.burden_per_s == tried[-1] == pytest.approx(700, abs=50)
    assert tried[0] == 0.0


def test_a_server_that_cannot_do_more_ends_the_search() -> None:
    burdens: list[float] = []

    def measure(burden_per_s: float) -> Outcome:
        burdens.append(burden_per_s)
        return outcome(
            server_cpu=(0.5 + burden_per_s * 1e-4,), rate_per_s=10.0 if burden_per_s > 300 else 1e3
        )

    found = find_burden(measure, scheduled_per_s=1000.0)
    assert burdens == [0.0, 25.0, 100.0, 400.0]
    assert found.burden_per_s == 100.0, "the closest one that kept up"
    busy = find_burden(lambda _: outcome(server_cpu=(0.97,)), scheduled_per_s=1000.0)
    assert busy.burden_per_s == 0.0


def test_a_busy_part_that_was_not_busy_says_so() -> None:
    rows = [
        row_of("busy server", name, "put", [outcome(server_cpu=(0.1, cpu))])
        for name, cpu in (("swell", 0.5), ("etcd", 0.88))
    ]
    (note,) = store.short_of_busy(rows)
    assert "swell came to 0.5 of a core" in note


def test_memory_is_extrapolated_from_what_the_keys_took() -> None:
    row = store_memory.row_of(0, 50_000, Memory(40.0, 41.0), Memory(70.0, 80.0))
    assert (row["resident_mib"], row["peak_mib"], row["extrapolated_mib"]) == (70.0, 80.0, 640)
    assert row["bytes_per_key"] == round(30 * 2**20 / 50_000)
    whole = store_memory.row_of(0, store_memory.KEYS, Memory(40.0, 41.0), Memory(500.0, 500.0))
    assert "extrapolated_mib" not in whole


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["store", "--peers", "consul"], "store has no peer 'consul'; known are: etcd"),
        (["thor-topology", "--peers", "etcd"], "thor-topology has no peer 'etcd'; it compares"),
    ],
)
def test_an_unknown_peer_is_told_before_anything_runs(arguments: list[str], complaint: str) -> None:
    app = typer.Typer()
    app.command("lab")(lab_command)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


# How load is counted.


class ToyStore:
    """A store in memory that may be told to misbehave."""

    def __init__(self) -> None:
        self.held = {key_of(number): value_of(number, VALUE_BYTES) for number in range(KEYS)}
        self.failures = 0
        self.pause_s = 0.0
        self.puts = self.burdens = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def put(self, key: str, value: bytes) -> None:
        assert len(value) == VALUE_BYTES
        await asyncio.sleep(self.pause_s)
        if self.failures:
            self.failures -= 1
            raise UnavailableError("not now")
        self.puts += 1
        self.held[key] = value

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return self.held.get(key)

    async def burden(self) -> None:
        self.burdens += 1


def trial(operation: str, clients: int = 4, **more: float) -> Trial:
    return Trial(operation, clients, 0.01, 0.05, (os.getpid(),), **more)


def measure(client: ToyStore, what: Trial) -> Outcome:
    return asyncio.run(Workers(client, what).run())


def test_a_closed_loop_counts_what_succeeded_and_what_did_not() -> None:
    client = ToyStore()
    client.failures = 3
    found = measure(client, trial("put")._replace(warm_up_s=0.0))
    assert found.failures == 3
    assert found.wrong == found.dropped == 0
    assert 0 < found.rate_per_s * 0.05 <= client.puts
    assert 0 < found.p50_ms <= found.p99_ms
    assert len(found.server_cpu) == 1


def test_a_get_of_something_else_is_counted() -> None:
    client = ToyStore()
    assert measure(client, trial("get")).wrong == 0
    client.held.clear()
    found = measure(client, trial("get"))
    assert found.wrong == pytest.approx(found.rate_per_s * 0.05, rel=0.2)


def test_an_operation_that_never_ends_is_not_forgotten() -> None:
    client = ToyStore()
    client.pause_s = 0.4
    found = measure(client, Trial("put", 2, 0.0, 0.3, ()))
    assert [slow.ended_s for slow in found.slow] == [math.inf, math.inf]
    assert found.gap_s >= 0.29


def test_an_open_loop_follows_its_schedule_and_burdens_beside_it() -> None:
    client = ToyStore()
    found = measure(client, trial("put", rate_per_s=2000.0, burden_per_s=1000.0))
    assert 30 < client.puts < 300
    assert 10 < client.burdens < 200
    assert found.dropped == 0


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.995, 100), (1.0, 100)]
)
def test_percentiles(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected
    assert math.isnan(percentile([], share))


def test_a_process_is_read_from_outside() -> None:
    assert cpu_s(os.getpid()) > 0
    assert cpu_s(2**22 + 1) == 0
    memory = memory_mib(os.getpid())
    assert 1 < memory.resident <= memory.peak
    assert len(set(free_ports(6))) == 6


# How etcd is spoken to.


def test_messages_are_those_of_etcd() -> None:
    assert etcd_messages.put_request(b"k", b"v" * 200) == b"\x0a\x01k\x12\xc8\x01" + b"v" * 200
    assert etcd_messages.range_request(b"key") == b"\x0a\x03key"
    assert etcd_messages.count_request() == b"\x0a\x01\0\x12\x01\0\x38\x01\x48\x01"
    pair = b"\x0a\x01k\x10\x05\x18\x07\x20\x01\x2a\x02vv"
    header = b"\x0a\x04\x08\x01\x10\x02"
    assert etcd_messages.value_of(header + b"\x12" + bytes([len(pair)]) + pair) == b"vv"
    assert etcd_messages.value_of(header) is None
    status = header + b"\x12\x063.4.23" + b"\x18\x80\x01" + b"\x20\x02"
    assert etcd_messages.status_of(status) == etcd_messages.Status("3.4.23", 2, 2)


def test_fields_of_every_kind_are_passed_over() -> None:
    data = b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x18\xff\x01" + b"\x18\x02"
    assert etcd_messages.fields(data) == {1: bytes(8), 2: bytes(4), 3: 255}


class ToyServer(asyncio.Protocol):
    """As much of an HTTP/2 server as the channel sees: `answer` makes frames of a request."""

    def __init__(self, answer: Callable[[ToyServer, int, bytes], bytes]) -> None:
        self._answer = answer
        self._data = b""
        self._opened = False
        self.acknowledged: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._opened:
            self._opened = True
            assert self._data.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            self._data = self._data[24:]
        while len(self._data) >= 9:
            length = int.from_bytes(self._data[:3], "big")
            if len(self._data) < 9 + length:
                return
            kind, flags, stream = struct.unpack_from(">BBL", self._data, 3)
            body, self._data = self._data[9 : 9 + length], self._data[9 + length :]
            if kind in (4, 6) and flags:
                self.acknowledged.append(kind)
            if kind == 0:
                self.transport.write(self._answer(self, stream, body[5:]))


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, stream) + body


def success(stream: int, message: bytes) -> bytes:
    """Headers, a message in two frames, trailers."""
    data = b"\0" + struct.pack(">L", len(message)) + message
    return (
        frame(1, 4, stream, b"\x88")
        + frame(0, 0, stream, data[:7])
        + frame(0, 0, stream, data[7:])
        + frame(1, 5, stream, b"\x88")
    )


def converse(
    answer: Callable[[ToyServer, int, bytes], bytes], requests: list[bytes]
) -> tuple[list[bytes | BaseException], list[int]]:
    """All answers to requests sent at once, and which frames the client acknowledged."""

    async def run() -> tuple[list[bytes | BaseException], list[int]]:
        servers: list[ToyServer] = []

        def make() -> ToyServer:
            servers.append(ToyServer(answer))
            return servers[-1]

        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        async with server:
            channel = await Channel.connect("127.0.0.1", server.sockets[0].getsockname()[1])
            block = header_block("etcd", "/a/b")
            answers = await asyncio.gather(
                *(channel.call(block, request) for request in requests), return_exceptions=True
            )
            channel.close()
            with pytest.raises(CallError):
                await channel.call(block, b"too late")
            servers[0].transport.close()
            return answers, servers[0].acknowledged

    return asyncio.run(run())


def test_calls_are_answered_and_pings_and_settings_acknowledged() -> None:
    answers, acknowledged = converse(
        lambda server, stream, message: success(stream, message[::-1]), [b"abc", b"", b"x" * 300]
    )
    assert answers == [b"cba", b"", b"x" * 300]
    assert sorted(acknowledged) == [4, 6]


def test_a_refused_call_and_a_reset_fail_alone() -> None:
    def answer(server: ToyServer, stream: int, message: bytes) -> bytes:
        if message == b"refuse":
            return frame(1, 5, stream, b"\x88")
        if message == b"reset":
            return frame(3, 0, stream, bytes(4))
        return success(stream, b"fine")

    answers, _ = converse(answer, [b"refuse", b"reset", b"well"])
    assert [type(found) for found in answers] == [CallError, CallError, bytes]


def test_the_end_of_the_connection_fails_what_is_open() -> None:
    def answer(server: ToyServer, stream: int, message: bytes) -> bytes:
        server.transport.close()
        return b""

    answers, _ = converse(answer, [b"one", b"two"])
    assert [type(found) for found in answers] == [CallError, CallError]


def test_a_full_window_holds_calls_back_until_it_opens() -> None:
    """Five messages of 20,000 bytes do not fit into 65,535: the last two wait for an update."""
    seen: list[int] = []

    def answer(server: ToyServer, stream: int, message: bytes) -> bytes:
        seen.append(len(message))
        if len(seen) < 3:
            return b""
        widen = frame(8, 0, 0, struct.pack(">L", 60_015)) if len(seen) == 3 else b""
        streams = [1, 3, 5] if len(seen) == 3 else [stream]
        return widen + b"".join(success(number, b"ok") for number in streams)

    answers, _ = converse(answer, [b"x" * 20_000] * 5)
    assert answers == [b"ok"] * 5
    assert seen == [20_000] * 5
