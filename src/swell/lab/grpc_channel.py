"""A gRPC channel for unary calls: the part of HTTP/2 that they need, on one connection.

A comparison is fair when the other system is not held back by its client. The gRPC library for
Python spends more time on a call than an etcd server does; this channel, an `asyncio.Protocol` as
our own links are, spends a fraction of it. Requests carry constant header blocks without a dynamic
table. Response headers are not decoded: a call that succeeded has a message before its trailers,
one that failed has none. Windows: the server may send as it likes; ours waits in order whenever
the server's window of the connection is full.

Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK, literals only), the gRPC over HTTP/2 protocol.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import NamedTuple, cast

from swell.errors import SwellError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW_MAX = 2**31 - 1
WINDOW_FIRST = 65_535
REPLENISH_BYTES = 2**24
HEAD_BYTES = 9
PREFIX_BYTES = 5

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SET_PUSH, SET_WINDOW = 2, 4

HEAD = struct.Struct(">HBBBL")
"""Length in two parts (16 and 8 bits), type, flags, stream."""
HEAD_AND_PREFIX = struct.Struct(">HBBBLBL")
"""The same, then gRPC's prefix: not compressed, length of the message."""
NUMBER = struct.Struct(">L")
_SETTING = struct.Struct(">HL")


class CallError(SwellError):
    """A call that the server refused or that the connection's end left open."""


class _Held(NamedTuple):
    """A call that waits for the server's window."""

    header_block: bytes
    message: bytes
    answer: asyncio.Future[bytes]


def header_block(authority: str, path: str) -> bytes:
    """What precedes every request of one method."""
    return b"".join(
        (
            b"\x83\x86",  # static table: POST, http
            _literal(1, authority),
            _literal(4, path),
            _literal(31, "application/grpc"),
            b"\x00" + _text("te") + _text("trailers"),
        )
    )


class Channel(asyncio.Protocol):
    """One connection to one server."""

    def __init__(self) -> None:
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._messages: dict[int, bytes] = {}
        self._held: deque[_Held] = deque()
        self._stream = 1
        self._window = WINDOW_FIRST
        self._taken_bytes = 0
        self._rest = b""
        self._reason = ""
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, host: str, port: int) -> Channel:
        loop = asyncio.get_running_loop()
        try:
            _, channel = await loop.create_connection(cls, host, port)
        except OSError as error:
            raise CallError(f"cannot connect to {host}:{port}: {error}") from None
        return channel

    def close(self) -> None:
        self._transport.close()

    @property
    def ended(self) -> bool:
        return self._transport.is_closing()

    @property
    def oldest(self) -> int:
        """The number of the call that has waited longest; 0 if none waits."""
        return next(iter(self._calls), 0)

    def call(self, block: bytes, message: bytes) -> asyncio.Future[bytes]:
        """One unary call; the answer's message."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self._transport.is_closing():
            answer.set_exception(CallError("the connection has ended"))
        elif self._held or len(message) + PREFIX_BYTES > self._window:
            self._held.append(_Held(block, message, answer))
        else:
            self._send(block, message, answer)
        return answer

    def _send(self, block: bytes, message: bytes, answer: asyncio.Future[bytes]) -> None:
        stream = self._stream
        self._stream += 2
        self._window -= len(message) + PREFIX_BYTES
        self._calls[stream] = answer
        self._transport.write(request(stream, block, message, END_STREAM))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(opening())

    def connection_lost(self, error: Exception | None) -> None:
        self._reason = f"the connection has ended: {error or 'closed by the server'}"
        self._fail_all()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while size - at >= HEAD_BYTES:
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            end = at + HEAD_BYTES + (high << 8 | low)
            if end > size:
                break
            if kind == DATA:
                self._on_data(stream, data[at + HEAD_BYTES : end])
            elif kind != HEADERS:
                self._on_other(kind, flags, stream, data[at + HEAD_BYTES : end])
            if flags & END_STREAM and kind in (DATA, HEADERS):
                self._on_end(stream)
            at = end
        self._rest = data[at:]

    def _on_data(self, stream: int, part: bytes) -> None:
        known = self._messages.get(stream)
        self._messages[stream] = part if known is None else known + part
        self._taken_bytes += len(part)
        if self._taken_bytes > REPLENISH_BYTES:
            self._widen(self._taken_bytes)
            self._taken_bytes = 0

    def _on_end(self, stream: int) -> None:
        answer = self._calls.pop(stream, None)
        message = self._messages.pop(stream, None)
        if answer is None or answer.done():
            return
        if message is None:
            answer.set_exception(CallError("the server refused the call"))
        else:
            answer.set_result(message[PREFIX_BYTES:])

    def _on_other(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == WINDOW and not stream:
            self._window += NUMBER.unpack(body)[0]
            while self._held and len(self._held[0].message) + PREFIX_BYTES <= self._window:
                self._send(*self._held.popleft())
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(frame(kind, ACK, body if kind == PING else b""))
        elif kind == RESET:
            self._messages.pop(stream, None)
            self._on_end(stream)
        elif kind == GOAWAY:
            self._transport.close()

    def _widen(self, count: int) -> None:
        self._transport.write(frame(WINDOW, 0, NUMBER.pack(count)))

    def _fail_all(self) -> None:
        waiting = [*self._calls.values(), *(held.answer for held in self._held)]
        self._calls.clear()
        self._held.clear()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(CallError(self._reason))


def opening() -> bytes:
    """What a client says first: the server may send as it likes, and push nothing."""
    settings = _SETTING.pack(SET_PUSH, 0) + _SETTING.pack(SET_WINDOW, WINDOW_MAX)
    widen = NUMBER.pack(WINDOW_MAX - WINDOW_FIRST)
    return PREFACE + frame(SETTINGS, 0, settings) + frame(WINDOW, 0, widen)


def request(stream: int, block: bytes, message: bytes, flags: int) -> bytes:
    """A call's headers and its message; `flags` say whether it is the last one."""
    length = len(message) + PREFIX_BYTES
    return b"".join(
        (
            HEAD.pack(len(block) >> 8, len(block) & 255, HEADERS, END_HEADERS, stream),
            block,
            HEAD_AND_PREFIX.pack(length >> 8, length & 255, DATA, flags, stream, 0, len(message)),
            message,
        )
    )


def frame(kind: int, flags: int, body: bytes, stream: int = 0) -> bytes:
    """A frame of the connection, unless a stream is named."""
    return HEAD.pack(len(body) >> 8, len(body) & 255, kind, flags, stream) + body


def _literal(name: int, value: str) -> bytes:
    """A header whose name is in the static table, not to be indexed."""
    first = bytes((name,)) if name < 15 else bytes((15, name - 15))
    return first + _text(value)


def _text(value: str) -> bytes:
    data = value.encode("ascii")
    assert len(data) < 127, "lengths of one byte are enough for our constants"
    return bytes((len(data),)) + data
