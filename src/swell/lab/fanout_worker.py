"""The process that hosts the subscribers of a system, and its publisher: one epoll loop.

Sockets are bare and non-blocking, all of them read into one buffer that stays in the processor's
cache; per read there is one append to the log of runs. Whether an update has reached everybody is
known without counting each delivery: `_standing[n]` is how many subscribers have exactly the
updates up to n, so all updates up to the lowest standing have ended. With two processes, the one
without the publisher tells the other its lowest standing whenever that rises.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import struct
import time
from array import array
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import NamedTuple

from swell.errors import SwellError
from swell.lab.fanout_protocol import Conversation, PeerError, Publisher, Subscriber
from swell.lab.fanout_value import apply_edit, edit_of, first_value, patch_payload, whole_payload
from swell.world import Address

BUFFER_BYTES = 2**18
CONNECT_S_MAX = 20.0
DRAIN_S_MAX = 10.0
POLL_S = 0.1

READY, GO, STOP = "ready", "go", "stop"

_floor = struct.Struct("=q")


class Order(NamedTuple):
    """What a load process is to do."""

    subscriber: Callable[[bytearray | None], Subscriber]
    subscribe_at: tuple[Address, ...]
    """Where each of its subscribers connects to."""
    publisher: Callable[[], Publisher]
    publish_at: Address | None
    """None: another process publishes."""
    patch: bool
    window: int


class Log(NamedTuple):
    """What happened."""

    runs: bytes
    """Rows of (before, after, instant in ns)."""
    skipped: int
    published_ns: tuple[int, ...]
    versions: Mapping[int, int] | None


class Line:
    """A conversation and its socket."""

    __slots__ = ("conversation", "fd", "recv_into", "rest", "sock", "waits_to_send")

    def __init__(self, conversation: Conversation, address: Address) -> None:
        self.conversation = conversation
        self.sock = socket.create_connection(address, CONNECT_S_MAX)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.sock.fileno()
        self.recv_into = self.sock.recv_into
        self.rest = b""
        self.waits_to_send = False


class Load:
    """All lines of this process, and the loop over them."""

    def __init__(self, order: Order, commands: Connection, other: Connection | None) -> None:
        self._order = order
        self._commands = commands
        self._other = other
        self._other_floor = 0
        """Of the other process, where this one publishes; unused where it does not."""
        self._poll = select.epoll()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._subscribers: dict[int, tuple[Line, Subscriber]] = {}
        self._line: Line | None = None
        self._publisher: Publisher | None = None
        self._standing = [0]
        self._floor = 0
        self._runs = array("q")
        self._skipped = 0
        self._value = first_value()
        self._published_ns: list[int] = []

    # Before anything is published.

    def connect(self) -> None:
        for address in self._order.subscribe_at:
            subscriber = self._order.subscriber(first_value() if self._order.patch else None)
            line = Line(subscriber, address)
            self._subscribers[line.fd] = line, subscriber
            self._greet(line)
        self._standing[0] = len(self._subscribers)
        if self._order.publish_at is not None:
            self._publisher = self._order.publisher()
            self._line = Line(self._publisher, self._order.publish_at)
            self._greet(self._line)
            if self._other is not None:
                self._poll.register(self._other.fileno(), select.EPOLLIN)
        self._poll.register(self._commands.fileno(), select.EPOLLIN)

    def close(self) -> None:
        for line, _ in self._subscribers.values():
            line.sock.close()
        if self._line is not None:
            self._line.sock.close()
        self._poll.close()

    def _greet(self, line: Line) -> None:
        """Everything that is said first, while the socket still blocks."""
        self._send(line)
        while not line.conversation.ready:
            self._receive(line)
        line.sock.setblocking(False)
        self._poll.register(line.fd, select.EPOLLIN)

    # While updates are published.

    def run(self) -> Log:
        """Until told to stop, and until everybody has what was published."""
        publishing = self._publisher is not None
        self._commands.recv()
        give_up_s = float("inf")
        while time.monotonic() < give_up_s:
            if give_up_s == float("inf"):
                self._publish()
            elif not publishing or self._lowest() == len(self._published_ns):
                break
            if self._serve(self._poll.poll(POLL_S)):
                self._commands.recv()
                give_up_s = time.monotonic() + DRAIN_S_MAX
        self._check_copies()
        versions = self._publisher.versions() if self._publisher is not None else None
        return Log(self._runs.tobytes(), self._skipped, tuple(self._published_ns), versions)

    def _serve(self, events: list[tuple[int, int]]) -> bool:
        """Handle what is ready; whether a command waits."""
        commanded = False
        subscribers = self._subscribers
        for fd, _ in events:
            found = subscribers.get(fd)
            if found is not None:
                self._deliver(*found)
            elif self._line is not None and fd == self._line.fd:
                self._exchange(self._line)
            elif fd == self._commands.fileno():
                commanded = True
            else:
                told = os.read(fd, BUFFER_BYTES)
                self._other_floor = _floor.unpack(told[-_floor.size :])[0]
        self._rise()
        return commanded

    def _deliver(self, line: Line, subscriber: Subscriber) -> None:
        before = subscriber.last
        self._exchange(line)
        after = subscriber.last
        if after == before:
            return
        now_ns = time.monotonic_ns()
        standing = self._standing
        while len(standing) <= after:
            standing.append(0)
        standing[before] -= 1
        standing[after] += 1
        if subscriber.jumps:
            for low, high in subscriber.jumps:
                if high <= low:
                    raise PeerError(f"a subscriber got version {high} after {low}")
                if low > before:
                    self._runs.extend((before, low, now_ns))
                self._skipped += high - low - 1
                before = high - 1
            subscriber.jumps.clear()
        self._runs.extend((before, after, now_ns))

    def _rise(self) -> None:
        """Updates that everybody here has."""
        standing, floor = self._standing, self._floor
        while not standing[floor]:
            floor += 1
        if floor == self._floor:
            return
        self._floor = floor
        if self._other is not None and self._publisher is None:
            os.write(self._other.fileno(), _floor.pack(floor))

    def _lowest(self) -> int:
        """Updates that everybody has."""
        return self._floor if self._other is None else min(self._floor, self._other_floor)

    def _publish(self) -> None:
        if self._publisher is None or self._line is None:
            return
        room = self._lowest() + self._order.window - len(self._published_ns)
        for version in range(len(self._published_ns) + 1, len(self._published_ns) + room + 1):
            self._published_ns.append(time.monotonic_ns())
            edit = edit_of(version)
            if self._order.patch:
                payload = patch_payload(edit)
            else:
                apply_edit(self._value, edit)
                payload = whole_payload(version, self._value)
            self._publisher.publish(version, payload)
        if room and not self._line.waits_to_send:
            self._send(self._line)

    # Sockets.

    def _exchange(self, line: Line) -> None:
        if line.waits_to_send:
            self._send(line)
        try:
            self._receive(line)
        except BlockingIOError:
            return  # it was ready for sending only

    def _receive(self, line: Line) -> None:
        rest = line.rest
        held = len(rest)
        if held:
            self._buffer[:held] = rest
            count = line.recv_into(self._view[held:])
        else:
            count = line.recv_into(self._view)
        if not count:
            raise PeerError("a server has closed a connection")
        end = held + count
        at = line.conversation.take(self._buffer, end)
        if at != end or held:
            line.rest = bytes(self._view[at:end])
        if line.conversation.out:
            self._send(line)

    def _send(self, line: Line) -> None:
        out = line.conversation.out
        try:
            while out:
                del out[: line.sock.send(out)]
        except BlockingIOError:
            pass
        if bool(out) != line.waits_to_send:
            line.waits_to_send = bool(out)
            self._poll.modify(line.fd, select.EPOLLIN | (select.EPOLLOUT if out else 0))

    def _check_copies(self) -> None:
        """With patches by hand: everybody has come to the value that its version stands for."""
        value, version = first_value(), 0
        for _, subscriber in sorted(self._subscribers.values(), key=lambda pair: pair[1].last):
            while version < subscriber.last:
                version += 1
                apply_edit(value, edit_of(version))
            if subscriber.copy is not None and subscriber.copy != value:
                raise PeerError("a subscriber's copy is not what was published")


def main(order: Order, commands: Connection, other: Connection | None) -> None:
    """The process: READY, then GO is awaited, then STOP, then a `Log`; a text tells what failed."""
    gc.disable()
    try:
        load = Load(order, commands, other)
        load.connect()
        commands.send(READY)
        commands.send(load.run())
        commands.recv()  # connections stay open until their bytes have been read
    except SwellError as error:
        commands.send(str(error))
    except OSError as error:
        commands.send(f"a connection of a subscriber or the publisher failed: {error}")
