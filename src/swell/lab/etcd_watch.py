"""A watch of one key of etcd, and puts to it, as bytes in and bytes out.

A subscriber is one connection with one stream: etcd answers the request for a watch, then sends one
message for one or more events. The publisher has a stream per put on one connection; puts that are
under way together may be ordered either way, so an update's sequence number is its revision, which
the answer to the put tells. etcd keeps every revision for slow watchers, so none is ever skipped
before a compaction; a gap of revisions would be seen.

Source: etcd's API reference, version 3.4; framing as in `grpc_channel`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from swell.lab.etcd_messages import PUT, fields, put_request, read_number, watch_request
from swell.lab.fanout_protocol import TOPIC, PeerError, Publisher, Subscriber
from swell.lab.fanout_value import apply_patch
from swell.lab.grpc_channel import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    NUMBER,
    PING,
    PREFIX_BYTES,
    REPLENISH_BYTES,
    RESET,
    SETTINGS,
    WINDOW,
    WINDOW_FIRST,
    frame,
    header_block,
    opening,
    request,
)

WATCH = "/etcdserverpb.Watch/Watch"

_WATCH_BLOCK = header_block("etcd", WATCH)
_PUT_BLOCK = header_block("etcd", PUT)
_VARINT, _BYTES = 0, 2
_HEADER, _CREATED, _CANCELED, _EVENTS = 1, 3, 4, 11
_PAIR, _REVISION, _VALUE = 2, 3, 5


class Owner(Protocol):
    """Whose connection it is."""

    def on_message(self, stream: int, data: bytearray, at: int, end: int) -> None: ...

    def on_end(self, stream: int) -> None:
        """The server has said all it had to say on a stream."""

    def on_window(self, count: int) -> None:
        """The server lets us send so many bytes more."""


class Http2Frames:
    """Frames of one connection; whole messages go to the owner."""

    def __init__(self, owner: Owner, out: bytearray) -> None:
        self._owner = owner
        self._out = out
        self._out += opening()
        self._parts: dict[int, bytearray] = {}
        self._taken_bytes = 0

    def take(self, data: bytearray, end: int) -> int:
        at = 0
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            begin = at + HEAD_BYTES
            stop = begin + (high << 8 | low)
            if stop > end:
                break
            if kind == DATA:
                self._on_data(stream, data, begin, stop)
            elif kind != HEADERS:
                self._on_other(kind, flags, stream, bytes(data[begin:stop]))
            if flags & END_STREAM and kind in (DATA, HEADERS):
                self._owner.on_end(stream)
            at = stop
        return at

    def _on_data(self, stream: int, data: bytearray, begin: int, end: int) -> None:
        self._taken_bytes += end - begin
        if self._taken_bytes > REPLENISH_BYTES:
            for widened in (0, stream):
                self._out += frame(WINDOW, 0, NUMBER.pack(self._taken_bytes), widened)
            self._taken_bytes = 0
        part = self._parts.get(stream)
        if part is not None:
            part += data[begin:end]
            data, begin, end = part, 0, len(part)
        while end - begin >= PREFIX_BYTES:
            message_end = begin + PREFIX_BYTES + NUMBER.unpack_from(data, begin + 1)[0]
            if message_end > end:
                break
            self._owner.on_message(stream, data, begin + PREFIX_BYTES, message_end)
            begin = message_end
        if begin == end:
            self._parts.pop(stream, None)
        elif part is None or begin:
            self._parts[stream] = data[begin:end]

    def _on_other(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._out += frame(kind, ACK, body if kind == PING else b"")
        elif kind == WINDOW and not stream:
            self._owner.on_window(NUMBER.unpack(body)[0])
        elif kind in (GOAWAY, RESET):
            raise PeerError("etcd ended a watch or refused a put")


class EtcdSubscriber(Subscriber):
    def __init__(self, copy: bytearray | None) -> None:
        super().__init__(copy)
        self._frames = Http2Frames(self, self.out)
        self._first_revision = 0
        self.out += request(1, _WATCH_BLOCK, watch_request(TOPIC), 0)

    def take(self, data: bytearray, end: int) -> int:
        return self._frames.take(data, end)

    def on_message(self, stream: int, data: bytearray, at: int, end: int) -> None:
        while at < end:
            tag, at = read_number(data, at)
            number, at = read_number(data, at)
            if tag & 7 == _VARINT:
                if tag >> 3 == _CREATED:
                    self.ready = True
                elif tag >> 3 == _CANCELED:
                    raise PeerError("etcd cancelled a watch")
                continue
            if tag >> 3 == _EVENTS:
                self._on_event(data, at, at + number)
            elif tag >> 3 == _HEADER and not self.ready:
                self._first_revision = _revision(bytes(data[at : at + number]))
            at += number

    def _on_event(self, data: bytearray, at: int, end: int) -> None:
        sequence = 0
        while at < end:
            tag, at = read_number(data, at)
            number, at = read_number(data, at)
            if tag == _PAIR << 3 | _BYTES:
                continue  # into the pair, the last thing in an event
            if tag == _REVISION << 3 | _VARINT:
                sequence = number - self._first_revision
            elif tag == _VALUE << 3 | _BYTES and self.copy is not None:
                apply_patch(self.copy, data, at, at + number)
            if tag & 7 == _BYTES:
                at += number
        if sequence != self.last + 1:
            self.jumps.append((self.last, sequence))
        self.last = sequence

    def on_end(self, stream: int) -> None:
        raise PeerError("etcd ended a watch")

    def on_window(self, count: int) -> None: ...


class EtcdPublisher(Publisher):
    def __init__(self) -> None:
        super().__init__()
        self._frames = Http2Frames(self, self.out)
        self.ready = True
        self._stream = 1
        self._window = WINDOW_FIRST
        self._held: deque[bytes] = deque()
        self._versions: dict[int, int] = {}
        """Stream → version, of puts without an answer."""
        self._revisions: dict[int, int] = {}

    def publish(self, version: int, payload: bytes) -> None:
        self._versions[self._stream + 2 * len(self._held)] = version
        self._held.append(put_request(TOPIC, payload))
        self.on_window(0)

    def on_window(self, count: int) -> None:
        self._window += count
        while self._held and len(self._held[0]) + PREFIX_BYTES <= self._window:
            message = self._held.popleft()
            self._window -= len(message) + PREFIX_BYTES
            self.out += request(self._stream, _PUT_BLOCK, message, END_STREAM)
            self._stream += 2

    def take(self, data: bytearray, end: int) -> int:
        return self._frames.take(data, end)

    def on_message(self, stream: int, data: bytearray, at: int, end: int) -> None:
        header = fields(bytes(data[at:end])).get(_HEADER, b"")
        assert isinstance(header, bytes)
        self._revisions[_revision(header)] = self._versions.pop(stream)

    def on_end(self, stream: int) -> None:
        if stream in self._versions:
            raise PeerError("etcd refused a put")

    def versions(self) -> Mapping[int, int]:
        before = min(self._revisions, default=1) - 1
        return {revision - before: self._revisions[revision] for revision in self._revisions}


def _revision(header: bytes) -> int:
    """Of the store, from the header that every answer of etcd has."""
    revision = fields(header).get(_REVISION, 0)
    assert isinstance(revision, int)
    return revision
