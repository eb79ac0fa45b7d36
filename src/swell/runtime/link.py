"""One TCP connection as a `world.Link`: the hot path of the real world.

- The magic goes first in both directions. A link is up once the peer's magic is there, so what the
  protocol sees does speak Swell, and (TLS 1.3) the peer has accepted our certificate.
- Sends are coalesced: one flush per loop tick writes all control frames, then all data frames, in
  one write. While the transport is full, frames stay here, so that control overtakes data.
- Each plane has a high-water mark. `send` refuses above it; one frame may overshoot it.
- Received frames reach the node in a plain loop: no task, no future, no allocation but the frame.
- A peer that breaks the protocol costs only its own link; the reason is counted and logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from swell.errors import WireError
from swell.runtime.sockets import tune
from swell.wire.frames import FrameSplitter
from swell.wire.limits import MAGIC, QUEUE_BYTES_MAX_CONTROL, QUEUE_BYTES_MAX_DATA
from swell.world import Address, Plane, Role

if TYPE_CHECKING:
    from swell.runtime.world import RuntimeWorld

TRANSPORT_BYTES_MAX = 64 * 1024
"""High-water mark of the transport below us, plain and TLS alike."""

WRITE_BYTES_MAX = 2 * TRANSPORT_BYTES_MAX
"""More control than this is written in steps, until the transport is full. The data plane's own
mark bounds what it adds to a write."""

_DATA = Plane.DATA


class State(Enum):
    OPENING = "opening"
    UP = "up"
    DRAINING = "draining"
    ENDED = "ended"


_OPENING = State.OPENING
_UP = State.UP


class RuntimeLink(asyncio.Protocol):
    """A link of the runtime: the loop's protocol object and the protocols' `Link` in one."""

    __slots__ = (
        "_announced",
        "_beginning",
        "_blocked",
        "_call_soon",
        "_control",
        "_control_bytes",
        "_control_bytes_max",
        "_data",
        "_data_bytes",
        "_data_bytes_max",
        "_deadline",
        "_down_reason",
        "_feed",
        "_flush_scheduled",
        "_identity",
        "_loop",
        "_on_frame",
        "_opening",
        "_refused",
        "_settling",
        "_splitter",
        "_state",
        "_tick",
        "_transport",
        "_world",
        "_write",
        "address",
        "dialed",
        "peer",
        "role",
        "session",
    )

    def __init__(
        self, world: RuntimeWorld, address: Address, dialed: bool, identity: str = ""
    ) -> None:
        self.peer = ""
        self.role = Role.UNKNOWN
        self.address = address
        self.dialed = dialed
        self.session: Any = None
        self._world = world
        self._loop = world.loop
        self._identity = identity
        self._on_frame: Callable[[RuntimeLink, bytes], None] = world.node.on_frame
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter()
        self._feed = self._splitter.feed
        self._state = _OPENING
        # The protocol knows of this link, so it is owed one `on_link_down`.
        self._announced = dialed
        # `data_received` has to look twice: no frame came yet, or none may come any more.
        self._beginning = True
        self._down_reason = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._control: list[bytes] = []
        self._control_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        # 0 while the link is not up, so that `send` needs one comparison only.
        self._control_bytes_max = 0
        self._data_bytes_max = 0
        self._call_soon = world.loop.call_soon
        self._tick = self._flush  # bound once: it is scheduled for every write
        self._flush_scheduled = False
        # No transport, or one that is full: frames wait here.
        self._blocked = True
        self._write: Callable[[bytes], None]
        # A `send` was refused, so an `on_writable` is owed.
        self._refused = False
        # Refused or draining: there is more to do after a flush.
        self._settling = False

    def __repr__(self) -> str:
        direction = "to" if self.dialed else "from"
        return f"link of {self._world.name} {direction} {self.peer or self.address}"

    # The protocol's side.

    @property
    def queued_bytes(self) -> int:
        """Bytes in our queues and in the transport, not yet given to the kernel."""
        below = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._control_bytes + self._data_bytes + below

    def send(self, frame: bytes, plane: Plane = Plane.CONTROL) -> bool:
        if plane is _DATA:
            if self._data_bytes >= self._data_bytes_max and not self._make_room():
                return self._refuse_frame("queue-full-data")
            self._data_bytes += len(frame)
            self._data.append(frame)
        else:
            if self._control_bytes >= self._control_bytes_max:
                return self._refuse_frame("queue-full-control")
            self._control_bytes += len(frame)
            self._control.append(frame)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self._tick)
        return True

    def close(self, drain: bool = False, reason: str = "") -> None:
        """End the link; no callback follows. A drain is bounded by the world's deadline."""
        if self._state is State.DRAINING or self._state is State.ENDED:
            return
        self._announced = False
        if drain and self._state is _UP:
            self._state = State.DRAINING
            self._beginning = True
            self._settling = True
            self._control_bytes_max = self._data_bytes_max = 0
            self._set_deadline(self._world.deadlines.drain_s, self._expire_drain)
            self._schedule_flush()
        else:
            self._end(reason)

    # Opening.

    def open_with(self, opening: asyncio.Task[None]) -> None:
        """The task that connects or shakes hands; cancelled if the link ends before it does."""
        self._opening = opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if self._state is State.ENDED:
            transport.abort()
            return
        tune(transport)
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES_MAX)
        if self._world.tls is not None:
            try:
                certificate = transport.get_extra_info("peercert")
                self.role, self.peer = self._world.tls.identify(certificate)
            except WireError as error:
                self._break(error)
                return
            if self._identity and self.peer != self._identity:
                self._break(WireError("wrong-identity", f"expected {self._identity}"))
                return
        self._write = transport.write
        self._blocked = False
        transport.write(MAGIC)
        self._set_deadline(self._world.deadlines.first_frame_s, self._expire_first_frame)

    @property
    def attached(self) -> bool:
        """It has a connection."""
        return self._transport is not None

    def fail(self, reason: str) -> None:
        """The connection could not be opened; called as an event of its own."""
        self._opening = None
        if self._state is not State.ENDED:
            self._end(reason)
            self._report_down()

    def _go_up(self) -> None:
        self._state = _UP
        self._control_bytes_max = QUEUE_BYTES_MAX_CONTROL
        self._data_bytes_max = QUEUE_BYTES_MAX_DATA
        self._announced = True
        if self.dialed:
            self._clear_deadline()  # whoever accepted us may have nothing to say yet
        self._world.node.on_link_up(self)

    # Receiving.

    def data_received(self, data: bytes) -> None:
        frames = self._feed(data)
        try:
            if self._beginning and not self._begin(frames):
                return
            on_frame = self._on_frame
            for frame in frames:
                on_frame(self, frame)
                if self._state is not _UP:
                    return
            if self._splitter.error is not None:
                raise self._splitter.error
        except WireError as error:
            self._break(error)
        except Exception:
            self._world.report_bug(repr(self))
            if self._state is not State.ENDED:
                self._end("handler-error")

    def _begin(self, frames: list[bytes]) -> bool:
        """Before the first frame, or after the end; True: go on with the frames, if any."""
        if self._state is _OPENING and self._splitter.greeted:
            self._go_up()
        if self._state is _UP and frames:
            self._beginning = False
            self._clear_deadline()
        return self._state is _UP or self._state is _OPENING

    def eof_received(self) -> None:
        """The peer has finished: the transport closes itself and `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._state is not State.ENDED:
            if self._splitter.pending_bytes:
                self._world.counters["truncated"] += 1
            self._end(f"connection lost: {exc}" if exc else "closed by the peer")
        self._report_down()

    # Sending.

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = self._state is State.ENDED
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self._tick)

    def _flush(self) -> None:
        """Write what was queued since the last tick, control first; an event of its own."""
        self._flush_scheduled = False
        if self._blocked:
            return
        data = self._data
        if self._control:
            self._flush_both()
        elif len(data) == 1:
            self._data_bytes = 0
            self._write(data.pop())
        elif data:
            self._data_bytes = 0
            self._data = []
            self._write(b"".join(data))
        if self._settling:
            self._settle()

    def _flush_both(self) -> None:
        """Control, then data; much of it in steps, until the transport is full."""
        while self._control_bytes > WRITE_BYTES_MAX and not self._blocked:
            step, size = _take(self._control, TRANSPORT_BYTES_MAX)
            self._control_bytes -= size
            self._write(step)
        if not self._blocked:
            frames = self._control
            frames += self._data
            self._control = []
            self._data = []
            self._control_bytes = self._data_bytes = 0
            self._write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _make_room(self) -> bool:
        """Write at once what fills the data plane: many frames within one tick, as when a long
        read is forwarded, do not mean that the peer is slow."""
        if self._blocked or self._state is not _UP:
            return False
        self._flush_both()
        return self._data_bytes < self._data_bytes_max

    def _refuse_frame(self, reason: str) -> bool:
        if self._state is _UP:
            self._refused = self._settling = True
            self._world.counters[reason] += 1
        return False

    def _settle(self) -> None:
        """After a flush: offer room to a sender that was refused, or go on with a drain."""
        if self._state is State.DRAINING:
            if not self._control and not self._data:
                self._finish_drain()
        elif self._refused and self._control_bytes * 2 <= QUEUE_BYTES_MAX_CONTROL:
            self._refused = self._settling = False
            self._world.guard(self._world.node.on_writable, self)

    # Ending.

    def _finish_drain(self) -> None:
        """Say that we are done, then read on until the peer closes: closing a socket with unread
        bytes would reset the connection and could destroy what the peer has not read yet."""
        self._settling = False
        transport = self._transport
        assert transport is not None
        transport.write_eof()

    def _break(self, error: WireError) -> None:
        """The peer misbehaved: end this link, and only this one."""
        if self._state is not State.ENDED:
            self._world.count_drop(error.reason, f"{self!r}: {error}")
            self._end(error.reason)

    def _end(self, reason: str) -> None:
        """Give up the connection at once. `connection_lost` follows if there was one."""
        self._state = State.ENDED
        self._beginning = True
        self._down_reason = reason
        self._control_bytes_max = self._data_bytes_max = 0
        self._control_bytes = self._data_bytes = 0
        self._control.clear()
        self._data.clear()
        self._refused = self._settling = False
        self._blocked = True
        self._clear_deadline()
        if self._transport is not None:
            self._transport.abort()
            return
        if self._opening is not None:
            self._opening.cancel()
        self._world.forget_link(self)

    def _report_down(self) -> None:
        self._world.forget_link(self)
        if self._announced:
            self._announced = False
            self._world.guard(self._world.node.on_link_down, self, self._down_reason)

    def _expire_first_frame(self) -> None:
        what = "magic" if self._state is _OPENING else "first frame"
        self._break(WireError("slow-first-frame", f"no whole {what} in time"))

    def _expire_drain(self) -> None:
        self._world.count_drop("drain-timeout", f"{self!r}: {self.queued_bytes} bytes unread")
        self._end("drain-timeout")

    def _set_deadline(self, delay_s: float, expire: Callable[[], None]) -> None:
        self._clear_deadline()
        self._deadline = self._loop.call_later(delay_s, expire)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _take(frames: list[bytes], bytes_max: int) -> tuple[bytes, int]:
    """Remove frames from the front, at least one, until `bytes_max` is reached."""
    count = size = 0
    while count < len(frames) and size < bytes_max:
        size += len(frames[count])
        count += 1
    step = b"".join(frames[:count])
    del frames[:count]
    return step, size
