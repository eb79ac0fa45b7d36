"""The comparison of fan-out: what is carried, how peers are spoken to, what is counted, bars."""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swell.lab import etcd_messages, fanout, fanout_peers, socket_bytes
from swell.lab.etcd_watch import EtcdPublisher, EtcdSubscriber
from swell.lab.experiment import NOT_MEASURED, Lab
from swell.lab.fanout_protocol import Conversation, PeerError, Publisher, Subscriber
from swell.lab.fanout_reading import Reading
from swell.lab.fanout_trial import (
    Outcome,
    Trial,
    count,
    deliveries_of,
    published_by_sequence,
    runs_of,
)
from swell.lab.fanout_value import (
    KEYS,
    VALUE_BYTES,
    apply_edit,
    apply_patch,
    edit_of,
    first_value,
    patch_payload,
    whole_payload,
)
from swell.lab.fanout_worker import GO, STOP, Load, Log, Order
from swell.lab.nats_pubsub import NatsPublisher, NatsSubscriber
from swell.lab.redis_pubsub import RedisPublisher, RedisSubscriber
from swell.world import Address

# What is carried.


def test_an_update_changes_one_key_and_nothing_else() -> None:
    value = first_value()
    before = json.loads(value)
    for version in (1, 2, KEYS, KEYS + 1, 123_456):
        edit = edit_of(version)
        apply_edit(value, edit)
        after = json.loads(value)
        assert len(value) == VALUE_BYTES
        assert {key for key in after if after[key] != before[key]} == {edit.key}
        assert after[edit.key] == edit.text
        before = after


def test_a_patch_by_hand_gives_the_same_value_in_any_order() -> None:
    value, copy = first_value(), first_value()
    for version in range(1, 33):
        apply_edit(value, edit_of(version))
    for version in reversed(range(1, 33)):
        patch = patch_payload(edit_of(version))
        assert len(patch) < 40
        apply_patch(copy, bytearray(b"before" + patch + b"behind"), 6, 6 + len(patch))
    assert copy == value
    assert whole_payload(32, value) == b"0000000032" + value


# How peers are spoken to.


def feed(conversation: Conversation, data: bytes, step: int) -> None:
    """As the load process does it: what was not taken comes again, garbage follows."""
    held = b""
    for begin in range(0, len(data), step):
        held += data[begin : begin + step]
        taken = conversation.take(bytearray(held + b"*3\r\nMSG c 1 9\r\n"), len(held))
        held = held[taken:]
    assert held == b""


def redis_stream(payloads: list[bytes]) -> bytes:
    head = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%b\r\n"
    return head + b"".join(message % (len(payload), payload) for payload in payloads)


def nats_stream(payloads: list[bytes]) -> bytes:
    messages = [b"MSG c 1 %d\r\n%b\r\n" % (len(payload), payload) for payload in payloads]
    return b'INFO {"max":1}\r\nPONG\r\n' + b"PING\r\n".join([b"", *messages])


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, stream) + body


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    low, high = value & 127, value >> 7
    return bytes((low | 128,)) + varint(high) if high else bytes((low,))


def header(revision: int) -> bytes:
    return field(1, field(1, 7) + field(2, 2**63 + 5) + field(3, revision) + field(4, 2))


def event(revision: int, payload: bytes) -> bytes:
    pair = field(1, b"c") + field(2, 3) + field(3, revision) + field(4, 9) + field(5, payload)
    return field(11, field(2, pair))


def etcd_stream(payloads: list[bytes]) -> bytes:
    """A watch from revision 1000: one event, then all others in one message cut into frames."""
    created = header(1000) + field(3, 1)
    first = header(1001) + event(1001, payloads[0])
    rest = header(2000) + b"".join(
        event(1002 + number, payload) for number, payload in enumerate(payloads[1:])
    )
    data = [b"\0" + struct.pack(">L", len(each)) + each for each in (created, first, rest)]
    cut = [data[2][at : at + 1000] for at in range(0, len(data[2]), 1000)]
    return (
        frame(4, 0, 0, b"\0\x05\0\0\x40\0")
        + frame(1, 4, 1, b"\x88")
        + frame(0, 0, 1, data[0])
        + frame(6, 0, 0, b"12345678")
        + b"".join(frame(0, 0, 1, part) for part in (data[1], *cut))
    )


STREAMS: list[tuple[Callable[[bytearray | None], Subscriber], Callable[[list[bytes]], bytes]]] = [
    (RedisSubscriber, redis_stream),
    (NatsSubscriber, nats_stream),
    (EtcdSubscriber, etcd_stream),
]


@pytest.mark.parametrize(("make", "stream"), STREAMS)
@pytest.mark.parametrize("step", [1, 7, 1000, 10**6])
def test_a_subscriber_reads_patches_however_they_are_cut(
    make: Callable[[bytearray | None], Subscriber],
    stream: Callable[[list[bytes]], bytes],
    step: int,
) -> None:
    subscriber, value = make(first_value()), first_value()
    payloads = [patch_payload(edit_of(version)) for version in range(1, 41)]
    for version in range(1, 41):
        apply_edit(value, edit_of(version))
    feed(subscriber, stream(payloads), step)
    assert subscriber.ready
    assert (subscriber.last, subscriber.jumps) == (40, [])
    assert subscriber.copy == value


@pytest.mark.parametrize(("make", "stream"), STREAMS)
def test_a_subscriber_reads_whole_values(
    make: Callable[[bytearray | None], Subscriber], stream: Callable[[list[bytes]], bytes]
) -> None:
    subscriber = make(None)
    payloads = [whole_payload(version, first_value()) for version in range(1, 6)]
    feed(subscriber, stream(payloads), 4096)
    assert (subscriber.last, subscriber.jumps) == (5, [])


@pytest.mark.parametrize(("make", "stream"), STREAMS[:2])
def test_a_skipped_version_is_seen(
    make: Callable[[bytearray | None], Subscriber], stream: Callable[[list[bytes]], bytes]
) -> None:
    subscriber = make(None)
    feed(subscriber, stream([b"%010d" % version for version in (1, 2, 5, 6, 9)]), 11)
    assert (subscriber.last, subscriber.jumps) == (9, [(2, 5), (6, 9)])


def test_a_gap_of_revisions_is_seen() -> None:
    subscriber = EtcdSubscriber(None)
    gap = header(1009) + event(1007, b"x") + event(1009, b"y")
    message = b"\0" + struct.pack(">L", len(gap)) + gap
    feed(subscriber, etcd_stream([b"a", b"b"]) + frame(0, 0, 1, message), 5)
    assert (subscriber.last, subscriber.jumps) == (9, [(2, 7), (7, 9)])


@pytest.mark.parametrize(
    ("conversation", "data"),
    [
        (RedisSubscriber(None), b"-ERR max number of clients reached\r\n"),
        (RedisPublisher(), b"+PONG\r\n:3\r\n-LOADING\r\n"),
        (NatsSubscriber(None), b"PONG\r\n-ERR 'Slow Consumer'\r\n"),
        (NatsPublisher(), b"-ERR 'Authorization Violation'\r\n"),
        (EtcdSubscriber(None), frame(7, 0, 0, bytes(8))),
        (EtcdSubscriber(None), frame(1, 5, 1, b"\x88")),
        (EtcdSubscriber(None), frame(0, 0, 1, b"\0\0\0\0\x02" + field(4, 1))),
    ],
)
def test_a_complaint_ends_the_trial(conversation: Conversation, data: bytes) -> None:
    with pytest.raises(PeerError):
        feed(conversation, data, 3)


def test_pings_are_answered_by_every_protocol() -> None:
    nats, etcd = NatsSubscriber(None), EtcdSubscriber(None)
    nats.out.clear()
    etcd.out.clear()
    feed(nats, b"PING\r\n", 2)
    feed(etcd, frame(6, 0, 0, b"12345678") + frame(4, 0, 0, b""), 2)
    assert nats.out == b"PONG\r\n"
    assert etcd.out == frame(6, 1, 0, b"12345678") + frame(4, 1, 0, b"")


def test_what_a_publisher_sends_is_what_its_server_expects() -> None:
    redis, nats = RedisPublisher(), NatsPublisher()
    for publisher in (redis, nats):
        publisher.out.clear()
        publisher.publish(1, b"0000000001xyz")
    assert redis.out == b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$13\r\n0000000001xyz\r\n"
    assert nats.out == b"PUB c 13\r\n0000000001xyz\r\n"
    feed(redis, b"+PONG\r\n:500\r\n:500\r\n", 1)
    feed(nats, b"INFO {}\r\nPONG\r\n", 1)
    assert redis.ready
    assert nats.ready


def test_puts_wait_for_the_window_and_are_known_by_their_revision() -> None:
    publisher = EtcdPublisher()
    publisher.out.clear()
    for version in range(1, 9):
        publisher.publish(version, b"%010d" % version + bytes(10_000))
    assert publisher.out.count(b"etcdserverpb.KV/Put") == 6, "65,535 bytes are let through"
    feed(publisher, frame(8, 0, 0, struct.pack(">L", 65_535)), 4)
    assert publisher.out.count(b"etcdserverpb.KV/Put") == 8
    for stream, revision in ((1, 41), (5, 42), (3, 43), (7, 44)):
        answer = header(revision)
        data = b"\0" + struct.pack(">L", len(answer)) + answer
        done = frame(1, 4, stream, b"\x88") + frame(0, 0, stream, data)
        feed(publisher, done + frame(1, 5, stream, b"\x88"), 3)
    assert publisher.versions() == {1: 1, 2: 3, 3: 2, 4: 4}
    with pytest.raises(PeerError):
        feed(publisher, frame(1, 5, 9, b"\x88"), 100)


def test_the_request_for_a_watch() -> None:
    assert etcd_messages.watch_request(b"c") == b"\x0a\x03\x0a\x01c"
    assert bytes(EtcdSubscriber(None).out).endswith(b"\0\0\0\0\x05\x0a\x03\x0a\x01c")


# How deliveries are counted.


class ToyServer(asyncio.Protocol):
    """As much of NATS as a publisher and subscribers see; keeps to itself what it is told to."""

    connected: list[asyncio.Transport]
    everybody: list[ToyServer]
    withheld: frozenset[int]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.data = transport, b""
        self.connected.append(transport)
        transport.write(b"INFO {}\r\n")

    def data_received(self, data: bytes) -> None:
        self.data += data
        while True:
            line, found, rest = self.data.partition(b"\r\n")
            if not found:
                return
            if line.startswith(b"PUB "):
                size = int(line.split()[2])
                if len(rest) < size + 2:
                    return
                self.forward(rest[:size])
                rest = rest[size + 2 :]
            elif line.startswith(b"SUB "):
                self.everybody.append(self)
            elif line == b"PING":
                self.transport.write(b"PONG\r\n")
            self.data = rest

    def forward(self, payload: bytes) -> None:
        if int(payload[:10]) not in self.withheld:
            for each in self.everybody:
                each.transport.write(b"MSG c 1 %d\r\n%b\r\n" % (len(payload), payload))


@contextmanager
def toy_server(*withheld: int) -> Iterator[Address]:
    loop = asyncio.new_event_loop()
    about: dict[str, Any] = {"connected": [], "everybody": [], "withheld": frozenset(withheld)}
    kind = type("Kind", (ToyServer,), about)
    server = loop.run_until_complete(loop.create_server(kind, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Address(*server.sockets[0].getsockname()[:2])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for transport in about["connected"]:
            transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class Witness(NatsPublisher):
    """Stops the trial after so many updates."""

    published: list[int]
    stop_after: int
    commands: Any

    def publish(self, version: int, payload: bytes) -> None:
        super().publish(version, payload)
        self.published.append(version)
        if version == self.stop_after:
            self.commands.send(STOP)


def converse(patch: bool, stop_after: int, *withheld: int) -> tuple[Log, list[int]]:
    near, far = Pipe()
    made = {"published": [], "stop_after": stop_after, "commands": near}
    publisher: type[Publisher] = type("Publisher", (Witness,), made)
    with toy_server(*withheld) as address:
        load = Load(Order(NatsSubscriber, (address,) * 5, publisher, address, patch, 4), far, None)
        try:
            load.connect()
            near.send(GO)
            return load.run(), publisher.published  # type: ignore[attr-defined]
        finally:
            load.close()
            near.close()
            far.close()


@pytest.mark.parametrize("patch", [False, True])
def test_every_update_reaches_every_subscriber_once(patch: bool) -> None:
    log, published = converse(patch, 100)
    runs = runs_of([log.runs])
    assert published == list(range(1, len(published) + 1))
    assert 100 <= len(published) <= 104
    assert deliveries_of(runs) == 5 * len(published) == 5 * len(log.published_ns)
    assert (log.skipped, log.versions) == (0, None)


def test_the_loop_is_closed() -> None:
    """Of the last 4 updates before any, somebody still waits for one."""
    log, published = converse(True, 50)
    runs = runs_of([log.runs])
    for version in range(5, len(published) + 1):
        reached = runs[runs[:, 1] >= version - 4]
        ended_ns = sorted(reached[reached[:, 0] < version - 4][:, 2])[-1]
        assert log.published_ns[version - 1] >= ended_ns


def test_versions_that_nobody_gets_are_skipped_not_counted() -> None:
    log, published = converse(False, 60, 7, 8, 20)
    assert log.skipped == 5 * 3
    assert deliveries_of(runs_of([log.runs])) == 5 * (len(published) - 3)


def test_a_server_of_another_kind_is_told_as_a_sentence() -> None:
    near, far = Pipe()
    with toy_server() as address:
        load = Load(
            Order(RedisSubscriber, (address,), RedisPublisher, address, False, 4), far, None
        )
        with pytest.raises(PeerError, match="redis said to a subscriber: b'INFO"):
            load.connect()
        load.close()
    near.close()
    far.close()


def test_runs_are_told_apart_by_time_and_by_what_was_published_when() -> None:
    ms = 10**6
    runs = np.array(
        [(0, 2, 10 * ms), (0, 1, 12 * ms), (1, 4, 20 * ms), (2, 4, 30 * ms)], dtype=np.int64
    )
    published = published_by_sequence([1 * ms, 2 * ms, 4 * ms, 8 * ms], None)
    counted = count(runs, published, 11 * ms, 30 * ms)
    assert counted.deliveries == 4
    assert counted.p50_ms == pytest.approx(14), "of 11, 18, 16, 12"
    assert counted.p99_ms == pytest.approx(18, abs=0.1)
    reordered = published_by_sequence([1, 2, 4, 8], {1: 1, 2: 3, 3: 2, 4: 4})
    assert list(reordered) == [0, 1, 4, 2, 8]
    nothing = count(runs, published, 100 * ms, 200 * ms)
    assert nothing.deliveries == 0
    assert math.isnan(nothing.p50_ms)


def test_what_neither_servers_nor_clients_used_is_everything_else() -> None:
    begin, end = Reading(5, 1.0, 2.0, 10.0), Reading(25, 3.0, 3.0, 17.0)
    assert end.since(begin) == (20, 2.0, 1.0, 7.0)
    assert end.since(begin).others_s == 4.0
    now = Reading.now([os.getpid()], [])
    assert now.machine_s > now.servers_s > 0 == now.clients_s


LISTING = """\
ESTAB 0 0 127.0.0.1:4000 127.0.0.1:50001 users:(("nats-server",pid=70,fd=9)) bbr bytes_sent:1000 \
bytes_retrans:100 bytes_acked:900 segs_out:3
ESTAB 0 0 127.0.0.1:50001 127.0.0.1:4000 users:(("python",pid=71,fd=9)) bbr bytes_sent:20 segs:3
ESTAB 0 0 127.0.0.1:4000 127.0.0.1:50002 users:(("nats-server",pid=70,fd=10)) bbr segs_out:3
ESTAB 0 0 127.0.0.1:60000 127.0.0.1:4001 users:(("a",pid=7,fd=1),("b",pid=72,fd=5)) bytes_sent:5
"""


def test_bytes_are_those_of_the_servers_sockets() -> None:
    before = socket_bytes.sent_in(LISTING, {70, 72})
    assert sorted(before.values()) == [5, 900]
    later = LISTING.replace("bytes_sent:1000", "bytes_sent:1800").replace("segs_out:3\n", "a:1\n")
    later += later.splitlines()[0].replace("50001", "50003") + "\n"
    after = socket_bytes.sent_in(later, {70, 72})
    assert socket_bytes.between(before, after) == 800 + 1700
    assert socket_bytes.sent_in(LISTING, ()) == {}


# What is reported.


def outcome(**changes: Any) -> Outcome:
    usual = Outcome(10.0, 100_000, 5.0, 9.0, 2.0, 4.0, 0.1, 10_000_000, 1000, 0, 0, 1)
    return usual._replace(**changes)


def rows(**systems: tuple[int, float, int]) -> list[fanout.Row]:
    """Per system: deliveries in 10 s, servers' processor seconds, bytes of 1000 deliveries."""
    found = []
    for name, (deliveries, cpu_s, sent) in systems.items():
        measured = outcome(deliveries=deliveries, servers_cpu_s=cpu_s, server_bytes=sent)
        found.append(fanout.row_of(fanout.OWN_WAY, name, [measured]))
        if name != "swell":
            better = measured._replace(deliveries=deliveries * 100, server_bytes=1)
            found.append(fanout.row_of(fanout.BY_HAND, name, [better]))
    return found


def test_bars_are_held_against_the_best_peer_for_each_figure() -> None:
    measured = rows(
        swell=(3_000_000, 0.6, 20_000),
        nats=(1_000_000, 4.0, 10_049_000),
        redis=(900_000, 1.8, 10_044_000),
    )
    rate, cpu, sent, lost = fanout.bars(measured, ("nats", "redis"))
    assert (rate.measured, rate.holds) == (3.0, True)
    assert "(nats)" in rate.what
    assert (cpu.measured, cpu.holds) == (0.1, True)
    assert "(redis)" in cpu.what
    assert (sent.measured, sent.holds) == (0.001991, True)
    assert "(redis)" in sent.what
    assert lost.holds
    worse = rows(swell=(2_990_000, 0.65, 20_200), redis=(1_000_000, 2.0, 10_000_000))
    assert [bar.holds for bar in fanout.bars(worse, ("redis",))] == [False, False, False, True]


def test_bars_stay_open_without_a_peer_or_without_ours() -> None:
    for measured in (rows(swell=(1, 1.0, 1)), rows(nats=(1, 1.0, 1))):
        found = fanout.bars(measured, ("nats",))[:3]
        assert [(bar.measured, bar.holds) for bar in found] == [(NOT_MEASURED, False)] * 3
    assert fanout.bars(rows(swell=(1, 1.0, 1)), ()) == []


def test_a_row_holds_medians_per_delivery() -> None:
    row = fanout.row_of(
        fanout.OWN_WAY,
        "nats",
        [
            outcome(p99_ms=30.0, skipped=2),
            outcome(deliveries=200_000, p99_ms=7.0, missing=1),
            outcome(deliveries=150_000),
        ],
    )
    assert (row["deliveries_per_s"], row["updates_per_s"], row["p99_ms"]) == (15_000, 30.0, 9.0)
    assert (row["server_cpu_us"], row["client_cpu_us"]) == (13.3333, 26.6667)
    assert (row["server_bytes"], row["skipped"], row["missing"]) == (10_000, 2, 1)
    unread = fanout.row_of(fanout.OWN_WAY, "nats", [outcome(), outcome(server_bytes=None)])
    assert unread["server_bytes"] is None
    nothing = fanout.row_of(fanout.OWN_WAY, "nats", [outcome(deliveries=0, p50_ms=math.nan)])
    assert nothing["server_cpu_us"] == math.inf


class ToySystem:
    """Takes part without doing anything."""

    version = "1.0"

    def __init__(self, name: str, by_hand: bool, trials: list[tuple[str, bool]]) -> None:
        self.name, self.by_hand, self._trials = name, by_hand, trials
        self.missing = ""

    def absence(self) -> str:
        return self.missing

    @contextmanager
    def running(self, directory: Path) -> Iterator[ToySystem]:
        assert list(directory.iterdir()) == []
        yield self

    def trial(self, trial: Trial) -> Outcome:
        assert (trial.subscribers, trial.window) == (500, 32)
        self._trials.append((self.name, trial.patch))
        return outcome()


def test_systems_take_turns_and_ours_has_only_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    trials: list[tuple[str, bool]] = []
    monkeypatch.setattr(fanout, "OURS", ToySystem("swell", False, trials))
    monkeypatch.setitem(fanout_peers.PEERS, "nats", ToySystem("nats", True, trials))  # type: ignore[arg-type]
    report = fanout.run(Lab(peers=("nats",)))
    one_round = [("swell", False), ("nats", False), ("nats", True)]
    assert trials == [*one_round, *one_round[1:], *one_round[:1], *one_round]
    assert [(row["part"], row["system"]) for row in report.rows] == [
        (fanout.OWN_WAY, "swell"),
        (fanout.OWN_WAY, "nats"),
        (fanout.BY_HAND, "nats"),
    ]
    assert [bar.measured for bar in report.bars] == [1.0, 1.0, 1.0, 0]
    assert report.settings["versions"] == {"swell": "1.0", "nats": "1.0"}


def test_an_absent_peer_is_said_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "OURS", ToySystem("swell", False, []))
    monkeypatch.setenv("PATH", os.devnull)
    report = fanout.run(Lab(quick=True, peers=("etcd", "nats", "redis")))
    assert [row["system"] for row in report.rows] == ["swell"]
    assert [bar.measured for bar in report.bars] == [*[NOT_MEASURED] * 3, 0]
    for package in ("etcd-server", "nats-server", "redis-server", "iproute2"):
        assert any(f"apt-get install {package}" in note for note in report.notes)
    assert tuple(fanout_peers.PEERS) == fanout.PEERS
