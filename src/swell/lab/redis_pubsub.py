"""Redis as it is commonly run for pushing: one server, PUBLISH and SUBSCRIBE on one channel.

Source: the Redis serialization protocol, version 2.
"""

from __future__ import annotations

from swell.lab.fanout_protocol import TOPIC, LengthSubscriber, PeerError, Publisher

_CRLF = b"\r\n"


def _command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class RedisSubscriber(LengthSubscriber):
    PREFIX = b"*3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$" % (len(TOPIC), TOPIC)
    _CONFIRMED = b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(TOPIC), TOPIC)

    def __init__(self, copy: bytearray | None) -> None:
        super().__init__(copy)
        self.out += _command(b"SUBSCRIBE", TOPIC)

    def take_other(self, data: bytearray, at: int, end: int) -> int:
        begun = bytes(data[at : min(end, at + len(self._CONFIRMED))])
        if begun == self._CONFIRMED:
            self.ready = True
            return at + len(begun)
        if self._CONFIRMED.startswith(begun) or self.PREFIX.startswith(begun):
            return at
        raise PeerError(f"redis said to a subscriber: {begun[:80]!r}")


class RedisPublisher(Publisher):
    def __init__(self) -> None:
        super().__init__()
        self.out += _command(b"PING")

    def publish(self, version: int, payload: bytes) -> None:
        self.out += _command(b"PUBLISH", TOPIC, payload)

    def take(self, data: bytearray, end: int) -> int:
        """Answers are lines: a greeting, then how many subscribers each update went to."""
        at = 0
        while (line_end := data.find(_CRLF, at, end)) >= 0:
            if data[at:line_end] == b"+PONG":
                self.ready = True
            elif data[at] != ord(":"):
                raise PeerError(f"redis said to the publisher: {bytes(data[at:line_end])!r}")
            at = line_end + 2
        return at
