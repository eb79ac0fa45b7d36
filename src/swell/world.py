"""The seam between protocols and the world they act in.

Protocol code is plain synchronous Python: handlers and timers on an injected `World`. It never
imports asyncio, socket, time, random, uuid, os or threading. Two worlds implement this module:
`swell.runtime` (uvloop, TCP with TLS, a real disk) and `swell.simulation` (one heap of events,
virtual time, one seed).

Rules that both worlds keep, and that protocol code may rely on:

- Every callback (`on_*`, a timer's action, a `done`) runs as an event of its own: never
  re-entrantly from inside another call, never after `halt`.
- A link is ordered while it lasts. Every link that `dial` returned or `on_link_up` announced ends
  with exactly one `on_link_down`, unless the protocol itself closed it: after `close` there is
  no further callback for that link.
- `done` callbacks of one disk run in the order in which the operations were submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, StrEnum
from random import Random
from typing import Any, NamedTuple, Protocol

from swell.events import Event

WRONG_AUTHORITY = "wrong-authority"
"""Reason of `on_link_down` when the peer's certificate is of another authority than ours: dialling
again does not help."""


class Plane(IntEnum):
    """The priority of a frame on its link: control overtakes data, never the other way round."""

    CONTROL = 0
    DATA = 1


class Role(StrEnum):
    """What a certificate says that its holder is."""

    UNKNOWN = ""
    """The world cannot know it: plain TCP on loopback."""
    NODE = "node"
    ADMIN = "admin"
    CLIENT = "client"


class Address(NamedTuple):
    """Where a node listens. In the simulation the host is the node's name and the port is 0."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Resources(NamedTuple):
    """What is free of a machine, as fractions of all: 0 to 1."""

    cpu_free: float
    memory_free: float
    network_free: float


class Timer(Protocol):
    """A pending `call_later`; `cancel` is idempotent and harmless after the action ran."""

    def cancel(self) -> None: ...


class Link(Protocol):
    """An ordered, two-way stream of frames to one peer."""

    peer: str
    """Identity of the other side, from its certificate; empty where the world cannot know it
    (plain TCP on loopback, where the peer's hello names it)."""
    role: Role
    """Of the other side, from its certificate too."""
    address: Address
    """The address dialled, or the remote address of an accepted link."""
    dialed: bool
    """True if this side opened the link."""
    session: Any
    """Free for the protocol: its own state for this link. The worlds never touch it."""

    @property
    def queued_bytes(self) -> int: ...

    def send(self, frame: bytes, plane: Plane = Plane.CONTROL) -> bool:
        """Queue one encoded frame. False: over the plane's high-water mark, or not up, or closed;
        the frame was NOT queued."""
        ...

    def close(self, drain: bool = False, reason: str = "") -> None:
        """End the link; with `drain`, after everything queued has been written."""
        ...


class DiskError(Exception):
    """A disk operation failed (EIO, ENOSPC, missing file). Never retry a failed sync."""


class Disk(Protocol):
    """Files of bytes, one flat directory per node. What was not synced may be lost at a crash."""

    def append(self, file: str, data: bytes) -> None: ...

    def sync(self, file: str, done: Callable[[DiskError | None], None]) -> None: ...

    def read(
        self, file: str, offset: int, length: int, done: Callable[[bytes | DiskError], None]
    ) -> None: ...

    def truncate(
        self, file: str, length: int, done: Callable[[DiskError | None], None]
    ) -> None: ...

    def replace(self, old: str, new: str, done: Callable[[DiskError | None], None]) -> None:
        """Atomically and durably rename `old`, synced before, to `new`."""
        ...

    def list(self) -> dict[str, int]:
        """Name → size of every file."""
        ...


class Emitter(Protocol):
    """Takes events."""

    def emit(self, event: Event) -> None: ...


class World(Protocol):
    """All that protocol code may touch."""

    name: str
    rng: Random
    disk: Disk
    recording: bool
    """Whether API events are written down: `swell.events.records` are emitted only then."""

    def now(self) -> float:
        """Seconds, CLOCK_BOOTTIME: leases must see a suspended machine."""
        ...

    def wall_us(self) -> int: ...

    def entropy(self, n: int) -> bytes:
        """Unpredictable bytes for tokens, keys and nonces; never use `rng` for those."""
        ...

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer: ...

    def dial(self, address: Address, identity: str = "") -> Link:
        """Open a link. Its `on_link_up` or `on_link_down` follows. A peer whose certificate does
        not carry `identity` (if given) is refused."""
        ...

    def probe(
        self, address: Address, kind: str, timeout_s: float, done: Callable[[bool], None]
    ) -> None:
        """Health check: kind is `tcp` (connects) or `http:/path` (answers 2xx)."""
        ...

    def offload(
        self, function: Callable[[Any], Any], argument: Any, done: Callable[[Any], None]
    ) -> None:
        """Run a pure function off the loop. `done` gets its result, or the exception it raised."""
        ...

    def resources(self) -> Resources:
        """What is free here, as of at most a second ago."""
        ...

    def emit(self, event: Event) -> None: ...

    @property
    def recorder(self) -> Emitter:
        """The shortest way for whoever has many records to emit: to be asked for once, where
        `recording`."""
        ...

    def halt(self, reason: str) -> None:
        """Stop this node now; no callback runs afterwards."""
        ...


class Node(Protocol):
    """What a world drives: the protocol's side of the seam."""

    def on_link_up(self, link: Link) -> None: ...

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None:
        """A link whose `send` returned False has room again."""
        ...

    def on_frame(self, link: Link, frame: bytes) -> None: ...

    def stop(self) -> None:
        """The world asks for a clean stop; links are drained and closed afterwards."""
        ...
