"""The sending half of a simulated link: how frames get to the other side, or do not.

While nothing is in the way (`_clear`) a frame costs one push on the heap. Everything else takes
the slow road:

- a cut path holds frames in the backlog, as TCP retransmits, until it heals or until data went
  unacknowledged for the network's `user_timeout_s`, when the link breaks;
- a clogged path lets the backlog trickle, one frame at a time;
- frames held at a paused receiver, and frames whose acknowledgements are cut off, count as queued;
- an orphan (the other machine lost power) notices nothing until it sends.

The backlog is bounded: `send` refuses at the plane's high-water mark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any

from swell.wire.limits import QUEUE_BYTES_MAX_CONTROL, QUEUE_BYTES_MAX_DATA
from swell.world import Address, Plane

if TYPE_CHECKING:
    from swell.simulation.link import SimLink
    from swell.simulation.network import Network
    from swell.simulation.world import SimWorld

OPENING, UP, BROKEN, CLOSED = range(4)

_QUEUE_BYTES_MAX = (QUEUE_BYTES_MAX_CONTROL, QUEUE_BYTES_MAX_DATA)
_FAREWELL = 2
"""Plane number of the end of a link in the backlog: behind everything else."""


class Outgoing:
    """One direction of a connection, seen from the end of `world` that sends."""

    __slots__ = (
        "_backlog", "_clear", "_deliver", "_last_s", "_room_bytes", "_trickling",
        "_unacked_bytes", "_unacked_s", "address", "clog_s", "cut", "deaf", "latency_s",
        "network", "orphan", "other", "queued_bytes", "simulation", "state", "world",
    )  # fmt: skip

    def __init__(self, network: Network, world: SimWorld, address: Address) -> None:
        self.address = address
        self.network = network
        self.simulation = network.simulation
        self.world = world
        self.other: SimLink | None = None
        self.state = OPENING
        self.queued_bytes = 0
        self.latency_s = 0.0
        self.clog_s = 0.0
        self.cut = False
        """No frame of ours gets through."""
        self.deaf = False
        """Ours do, but their acknowledgements do not come back."""
        self.orphan = False
        self._clear = False
        self._deliver: Callable[[bytes], None]
        """The other end's `arrive`."""
        self._last_s = 0.0
        """When the last frame sent arrives: the next one not before it."""
        self._backlog: deque[tuple[int, bytes]] | None = None
        self._trickling = False
        self._unacked_bytes = 0
        self._unacked_s = -1.0
        """Since when data waits for acknowledgement; negative: it does not."""
        self._room_bytes = -1
        """After a refused `send`, `on_writable` follows when no more than this is queued."""

    def end(self, reason: str) -> None:
        """The link is over: tell the node."""
        raise NotImplementedError

    def break_off(self, reason: str) -> None:
        """Stop both directions; `end` follows."""
        raise NotImplementedError

    def writable(self, _: None) -> None:
        """There is room again: tell the node."""
        raise NotImplementedError

    def send(self, frame: bytes, plane: Plane = Plane.CONTROL) -> bool:
        if not self._clear:
            return self._send_slowly(frame, plane)
        simulation = self.simulation
        network = self.network
        time_s = simulation.time_s + self.latency_s * (1.0 + network.jitter * network.random())
        if time_s < self._last_s:
            time_s = self._last_s
        else:
            self._last_s = time_s
        heappush(simulation.heap, (time_s, simulation.tick(), self._deliver, frame))
        return True

    def _say_farewell(self, reason: str) -> None:
        other = self.other
        if other is None or other.state == CLOSED or self.orphan:
            return
        if self.cut or self._backlog:
            self._queue(_FAREWELL, reason.encode())
            self.network.lingering[self] = None
        else:
            self._push(other.end, reason)

    # -- obstacles on the way ------------------------------------------------------------------

    def refresh(self) -> None:
        """The rules of the network, or the state of the other side, changed."""
        self.network.set_path(self)
        now_s = self.simulation.time_s
        if self.cut or self.deaf:
            if self._last_s > now_s and self.state == UP:
                self._start_unacked()
        else:
            if self._unacked_bytes:
                self._uncount(self._unacked_bytes)
                self._unacked_bytes = 0
            if self.orphan and self._unacked_s >= 0.0:
                self._notice_orphan()
            elif not self._receiver_suspended():
                self._unacked_s = -1.0
        if self._backlog and not self.cut:
            self._trickle() if self.clog_s else self._flush()
        self._set_clear()

    def _set_clear(self) -> None:
        self._clear = (
            self.state == UP
            and not (self.cut or self.deaf or self.orphan or self._backlog)
            and not self.clog_s
            and not self.queued_bytes
        )

    def _send_slowly(self, frame: bytes, plane: Plane) -> bool:
        if self.state != UP:
            return False
        limit = _QUEUE_BYTES_MAX[plane]
        if self.queued_bytes >= limit:
            self._room_bytes = max(self._room_bytes, limit // 2)
            self.simulation.counters["send-refused"] += 1
            return False
        if self.cut or self.clog_s or self._backlog:
            self._queue(plane, frame)
            if not self.cut:
                self._trickle()
        elif self.orphan:
            self.queued_bytes += len(frame)
            self._notice_orphan()
        else:
            if self.deaf:
                self.queued_bytes += len(frame)
                self._unacked_bytes += len(frame)
                self._start_unacked()
            self._push(self._deliver, frame)
        return True

    def _push(self, action: Any, argument: Any) -> None:
        delay_s = self.latency_s * (1.0 + self.network.jitter * self.network.random())
        self._last_s = max(self._last_s, self.simulation.time_s + delay_s)
        self.simulation.push(self._last_s, action, argument)

    def _queue(self, plane: int, data: bytes) -> None:
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append((plane, data))
        self.queued_bytes += len(data)
        self._clear = False
        if self.cut:
            self._start_unacked()

    def _flush(self) -> None:
        """The path is free: control first, then data, then the end."""
        assert self._backlog is not None
        for item in sorted(self._backlog, key=lambda item: item[0]):
            self._transmit(item)
        self._backlog.clear()
        self.network.lingering.pop(self, None)

    def _trickle(self) -> None:
        if not self._trickling and self._backlog:
            self._trickling = True
            delay_s = self.network.random() * self.clog_s
            self.simulation.push(self.simulation.time_s + delay_s, self._trickle_one, None)

    def _trickle_one(self, _: None) -> None:
        self._trickling = False
        if not self._backlog or self.cut:
            return
        if not self.clog_s:
            self._flush()
            self._set_clear()
            return
        item = min(self._backlog, key=lambda item: item[0])
        self._backlog.remove(item)
        self._transmit(item)
        self._trickle()
        if not self._backlog:
            self.network.lingering.pop(self, None)

    def _transmit(self, item: tuple[int, bytes]) -> None:
        plane, data = item
        self._uncount(len(data))
        other = self.other
        if other is None or other.state == CLOSED:
            if self.orphan and self.state == UP:
                self._notice_orphan()
            return
        if plane == _FAREWELL:
            self._push(other.end, data.decode())
        else:
            self._push(self._deliver, data)

    def _drop_backlog(self) -> None:
        if self._backlog:
            self._backlog.clear()
        self.network.lingering.pop(self, None)

    # -- accounts ------------------------------------------------------------------------------

    def _count_held(self, length: int, suspended: bool) -> None:
        self.queued_bytes += length
        self._clear = False
        if suspended:
            self._start_unacked()

    def _uncount(self, length: int) -> None:
        self.queued_bytes -= length
        if self.state != UP:
            return
        if self.queued_bytes <= self._room_bytes:
            self._room_bytes = -1
            self.simulation.push(self.simulation.time_s, self.writable, None)
        if not self.queued_bytes:
            self._set_clear()

    def _receiver_suspended(self) -> bool:
        return self.other is not None and self.other.world.process.suspended

    def _start_unacked(self) -> None:
        if self._unacked_s < 0.0:
            now_s = self.simulation.time_s
            self._unacked_s = now_s
            self.simulation.push(now_s + self.network.user_timeout_s, self._expire_unacked, now_s)

    def _expire_unacked(self, since_s: float) -> None:
        if self._unacked_s != since_s:
            return
        other = self.other
        if self.state == CLOSED:
            self._drop_backlog()
            if other is not None:
                other.orphaned()
            return
        self._unacked_s = -1.0
        self.break_off("timeout")
        self._say_farewell("reset")

    def _notice_orphan(self) -> None:
        """Data went to a machine that does not know this link: reset if it is up again."""
        self._start_unacked()
        assert self.other is not None
        if self.other.world.process.reachable and not self.cut and not self.deaf:
            delay_s = 2 * self.latency_s
            self.simulation.push(self.simulation.time_s + delay_s, self.end, "reset")
