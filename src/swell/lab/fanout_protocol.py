"""What a subscriber and a publisher of any system do here, without a socket: bytes in, bytes out.

The load process owns the sockets. It hands what has arrived to `take`, which says how much of it
was whole; the rest comes again with more behind it. What `out` holds is sent. A subscriber's `last`
is the sequence number of the newest update that it has; numbers follow each other without gaps,
unless the system skips some, which goes to `jumps`.

Nothing is kept of a value, and nothing decoded: a comparison is fair when the other system is not
held back by its subscribers. With patches by hand, `copy` is the subscriber's value, kept current.
"""

from __future__ import annotations

from collections.abc import Mapping

from swell.errors import SwellError
from swell.lab.fanout_value import VERSION_BYTES, apply_patch

TOPIC = b"c"
_CRLF = b"\r\n"


class PeerError(SwellError):
    """The other system said something that a subscriber or publisher cannot go on with."""


class Conversation:
    """One connection's worth of a protocol."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.ready = False
        """The server has answered everything that was said at the beginning."""

    def take(self, data: bytearray, end: int) -> int:
        """Read what is whole of `data[:end]`; how many bytes that were. What follows `end` is
        left over from others."""
        raise NotImplementedError


class Subscriber(Conversation):
    """Counts updates as they arrive."""

    def __init__(self, copy: bytearray | None) -> None:
        super().__init__()
        self.last = 0
        self.jumps: list[tuple[int, int]] = []
        """Sequence numbers before and after a gap, since somebody last cleared this."""
        self.copy = copy


class Publisher(Conversation):
    """Sends updates, many of them before the first is answered."""

    def publish(self, version: int, payload: bytes) -> None:
        raise NotImplementedError

    def versions(self) -> Mapping[int, int] | None:
        """Sequence number → version, where a system may order concurrent updates differently from
        how they were published; None: they are the same."""
        return None


class LengthSubscriber(Subscriber):
    """For protocols whose messages are: constant bytes, the length in digits, an end of line, the
    payload, an end of line."""

    PREFIX: bytes

    def take(self, data: bytearray, end: int) -> int:
        prefix, find, copy = self.PREFIX, data.find, self.copy
        at, last, prefix_bytes = 0, self.last, len(prefix)
        while at < end:
            length_at = at + prefix_bytes
            if data[at:length_at] != prefix:
                after = self.take_other(data, at, end)
                if after == at:
                    break
                at = after
                continue
            line_end = find(_CRLF, length_at, end)
            if line_end < 0:
                break
            begin = line_end + 2
            stop = begin + int(data[length_at:line_end])
            if stop + 2 > end:
                break
            version = int(data[begin : begin + VERSION_BYTES])
            if version != last + 1:
                self.jumps.append((last, version))
            last = version
            if copy is not None:
                apply_patch(copy, data, begin, stop)
            at = stop + 2
        self.last = last
        return at

    def take_other(self, data: bytearray, at: int, end: int) -> int:
        """Whatever else the server says; where that ends, or `at` if it is not whole yet."""
        raise NotImplementedError
