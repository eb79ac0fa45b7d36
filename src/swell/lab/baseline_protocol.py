"""What the baseline systems say to each other, and the ways that their updates take.

Both are those that Ripple is compared with (paper, section 5), as small as they can be written on
our own links. Applications are numbered; the server that an application's updates are given to, its
home, is its number modulo the servers. Updates are passed on as the frames they came in.

- *flooding* (Nacos): every server has a link to every other. A stored update goes whole to all
  servers, and each delivers it to its own containers.
- *reverse-path* (Padres): the servers are a tree. A subscription goes through it to the home, and
  every server on the way remembers whence it came; updates take the reverse path.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from struct import Struct
from zlib import crc32

from swell.wire.codec import HEADER_BYTES, frame
from swell.world import Link, Plane

PEER, SUBSCRIBE, PUBLISH, STORED, UPDATE = range(176, 181)
"""Types of frames."""

TREE_FANOUT = 2
OUTBOX_BYTES_MAX = 4 * 1024 * 1024
"""What waits for a slow link; what comes then is dropped, and so is lost."""

_SUBSCRIBE = Struct(">H")
_UPDATE = Struct(">HI")
_STORED = Struct(">HII")
_DATA = Plane.DATA


class Mode(StrEnum):
    FLOODING = "flooding"
    REVERSE_PATH = "reverse-path"


def home_of(application: int, servers: int) -> int:
    return application % servers


def server_of(container: str, servers: int) -> int:
    """Where a container connects."""
    return crc32(container.encode()) % servers


def number_of(application: str) -> int:
    """Of a name as `ripple_run` gives it."""
    return int(application.rpartition("-")[2])


def dialed_by(mode: Mode, server: int) -> list[int]:
    """The servers that one dials; the others dial it."""
    if mode is Mode.FLOODING:
        return list(range(server))
    return [parent(server)] if server else []


def parent(server: int) -> int:
    return (server - 1) // TREE_FANOUT


def next_hop(server: int, towards: int) -> int:
    """The neighbour in the tree that is nearer to another server."""
    assert server != towards
    at = towards
    while at > server:
        above = parent(at)
        if above == server:
            return at
        at = above
    return parent(server)


def subscribe(application: int) -> bytes:
    return frame(SUBSCRIBE, _SUBSCRIBE.pack(application))


def publish(application: int, number: int, value: bytes) -> bytes:
    return frame(PUBLISH, _UPDATE.pack(application, number) + value)


def update(application: int, step: int, value: bytes) -> bytes:
    return frame(UPDATE, _UPDATE.pack(application, step) + value)


def stored(application: int, number: int, step: int) -> bytes:
    return frame(STORED, _STORED.pack(application, number, step))


def read_subscribe(data: bytes) -> int:
    return int(_SUBSCRIBE.unpack_from(data, HEADER_BYTES)[0])


def read_update(data: bytes) -> tuple[int, int]:
    """Application and step, or number of a `publish`."""
    application, step = _UPDATE.unpack_from(data, HEADER_BYTES)
    return application, step


def value_of(data: bytes) -> bytes:
    """Of an update, or of a `publish`."""
    return data[HEADER_BYTES + _UPDATE.size :]


def read_stored(data: bytes) -> tuple[int, int, int]:
    application, number, step = _STORED.unpack_from(data, HEADER_BYTES)
    return application, number, step


class Outbox:
    """Frames for one link, in order, while it has no room."""

    __slots__ = ("_bytes", "_bytes_max", "_frames", "_link")

    def __init__(self, link: Link, bytes_max: int = OUTBOX_BYTES_MAX) -> None:
        self._link = link
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: deque[bytes] = deque()

    def send(self, data: bytes) -> bool:
        """False: it was dropped."""
        if self._frames or not self._link.send(data, _DATA):
            if self._bytes >= self._bytes_max:
                return False
            self._frames.append(data)
            self._bytes += len(data)
        return True

    def on_writable(self) -> None:
        frames, link = self._frames, self._link
        while frames and link.send(frames[0], _DATA):
            self._bytes -= len(frames.popleft())
