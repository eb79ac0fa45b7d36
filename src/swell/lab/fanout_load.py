"""One trial, from the side of whoever orders it: load processes are started, watched and heard.

Processor time of servers and load processes is read from `/proc` at the begin and the end of what
is measured, and deliveries are counted between those two instants. Bytes are read before the first
update and after the last has ended, so that reading them disturbs nothing.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from swell.errors import SwellError
from swell.lab import socket_bytes
from swell.lab.fanout_protocol import Publisher, Subscriber
from swell.lab.fanout_reading import Reading
from swell.lab.fanout_trial import (
    Outcome,
    Trial,
    count,
    deliveries_of,
    published_by_sequence,
    runs_of,
)
from swell.lab.fanout_worker import DRAIN_S_MAX, GO, READY, STOP, Log, Order, main
from swell.world import Address

ANSWER_S_MAX = 60.0


class Protocol(NamedTuple):
    """How to speak to a system."""

    subscriber: Callable[[bytearray | None], Subscriber]
    publisher: Callable[[], Publisher]


class Servers(NamedTuple):
    """Where a system listens, the publisher's server first, and what is charged to it."""

    addresses: tuple[Address, ...]
    pids: tuple[int, ...]


class _Process(NamedTuple):
    process: BaseProcess
    commands: Connection


def run_trial(protocol: Protocol, servers: Servers, trial: Trial, processes: int) -> Outcome:
    """Measure, with the subscribers spread over one or two load processes."""
    orders = _orders(protocol, servers, trial, processes)
    with ExitStack() as stack:
        load = _start(stack, orders)
        pids = [process.pid or 0 for process, _ in load]
        sent_before = _sent(servers.pids)
        for _, commands in load:
            commands.send(GO)
        _sleep(trial.warm_up_s, load)
        begin = Reading.now(servers.pids, pids)
        _sleep(trial.seconds, load)
        end = Reading.now(servers.pids, pids)
        logs = []
        for _, commands in load:  # the one that publishes first: it waits until all have all
            commands.send(STOP)
            logs.append(_log(commands))
        sent_after = _sent(servers.pids)
    sent = None
    if sent_before is not None and sent_after is not None:
        sent = socket_bytes.between(sent_before, sent_after)
    return _outcome(trial, logs, begin, end, sent)


def _outcome(
    trial: Trial, logs: Sequence[Log], begin: Reading, end: Reading, sent: int | None
) -> Outcome:
    publishing = logs[0]
    published_ns = published_by_sequence(publishing.published_ns, publishing.versions)
    runs = runs_of([log.runs for log in logs])
    counted = count(runs, published_ns, begin.instant_ns, end.instant_ns)
    used = end.since(begin)
    skipped, everything = sum(log.skipped for log in logs), deliveries_of(runs)
    return Outcome(
        seconds=used.instant_ns / 1e9,
        deliveries=counted.deliveries,
        p50_ms=counted.p50_ms,
        p99_ms=counted.p99_ms,
        servers_cpu_s=used.servers_s,
        clients_cpu_s=used.clients_s,
        others_cpu_s=used.others_s,
        server_bytes=sent,
        bytes_deliveries=everything,
        skipped=skipped,
        missing=len(publishing.published_ns) * trial.subscribers - everything - skipped,
        load_processes=len(logs),
    )


def _orders(protocol: Protocol, servers: Servers, trial: Trial, processes: int) -> list[Order]:
    """Subscribers take the servers in turn; the first process publishes."""
    processes = min(processes, trial.subscribers)
    places = [
        servers.addresses[number % len(servers.addresses)] for number in range(trial.subscribers)
    ]
    return [
        Order(
            protocol.subscriber,
            tuple(places[number::processes]),
            protocol.publisher,
            None if number else servers.addresses[0],
            trial.patch,
            trial.window,
        )
        for number in range(processes)
    ]


def _start(stack: ExitStack, orders: Sequence[Order]) -> list[_Process]:
    """The processes, once every subscriber is subscribed. They end with the stack."""
    assert len(orders) in (1, 2), "two processes can tell each other how far they are"
    context = multiprocessing.get_context("spawn")
    ends: tuple[Any, ...] = (None,)
    if len(orders) == 2:
        heard, told = context.Pipe(duplex=False)
        ends = (heard, told)
    started = []
    for order, end in zip(orders, ends, strict=True):
        near, far = context.Pipe()
        process = context.Process(target=main, args=(order, far, end), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.kill)
        far.close()
        if end is not None:
            end.close()
        started.append(_Process(process, near))
    for _, commands in started:
        answer = _hear(commands, ANSWER_S_MAX)
        assert answer == READY
    return started


def _sleep(seconds: float, load: Sequence[_Process]) -> None:
    """Unless a load process has something to say, which would be a complaint."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        for commands in multiprocessing.connection.wait([each.commands for each in load], left_s):
            assert isinstance(commands, Connection)
            _hear(commands, 0.0)


def _log(commands: Connection) -> Log:
    log = _hear(commands, DRAIN_S_MAX + ANSWER_S_MAX)
    assert isinstance(log, Log)
    return log


def _hear(commands: Connection, seconds: float) -> object:
    try:
        if not commands.poll(seconds):
            raise SwellError("a load process does not answer")
        answer: object = commands.recv()
    except (EOFError, OSError):
        raise SwellError("a load process ended early; its log is on stderr") from None
    if isinstance(answer, str) and answer != READY:
        raise SwellError(answer)
    return answer


def _sent(pids: Sequence[int]) -> socket_bytes.Sent | None:
    return socket_bytes.sent_by(pids) if socket_bytes.is_installed() else None
