"""NATS as it is commonly run for pushing: one server, core publish and subscribe on one subject.

Source: the client protocol of NATS.
"""

from __future__ import annotations

from swell.lab.fanout_protocol import TOPIC, Conversation, LengthSubscriber, PeerError, Publisher

_CRLF = b"\r\n"
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"0"}\r\n'
_PING, _PONG = b"PING\r\n", b"PONG\r\n"
_PASSED_OVER = (b"INFO ", b"+OK")


class NatsSubscriber(LengthSubscriber):
    PREFIX = b"MSG %b 1 " % TOPIC

    def __init__(self, copy: bytearray | None) -> None:
        super().__init__(copy)
        self.out += _CONNECT + b"SUB %b 1\r\n" % TOPIC + _PING

    def take_other(self, data: bytearray, at: int, end: int) -> int:
        return _take_line(self, data, at, end)


class NatsPublisher(Publisher):
    def __init__(self) -> None:
        super().__init__()
        self.out += _CONNECT + _PING

    def publish(self, version: int, payload: bytes) -> None:
        self.out += b"PUB %b %d\r\n%b\r\n" % (TOPIC, len(payload), payload)

    def take(self, data: bytearray, end: int) -> int:
        at = 0
        while (after := _take_line(self, data, at, end)) != at:
            at = after
        return at


def _take_line(conversation: Conversation, data: bytearray, at: int, end: int) -> int:
    """Whatever is no message; where it ends, or `at` if it is not whole yet."""
    line_end = data.find(_CRLF, at, end)
    if line_end < 0:
        return at
    line = bytes(data[at : line_end + 2])
    if line == _PING:
        conversation.out += _PONG
    elif line == _PONG:
        conversation.ready = True
    elif not line.startswith(_PASSED_OVER):
        raise PeerError(f"nats said: {line[:80]!r}")
    return line_end + 2
