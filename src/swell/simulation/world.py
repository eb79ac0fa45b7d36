"""What one life of a simulated process sees: an implementation of `swell.world.World`.

Every callback into the node passes the world's gate. An open gate costs one test; otherwise
the event is put off (slow process), held (paused process, suspended machine) or dropped (dead).
Events of one stream (a link, the disk) keep their order whatever the gate does. When a held
process resumes, timers that became due run first and held events after them, as an event loop
does that runs its timers before it polls: the worst case for failure detectors.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from swell.events import Event
from swell.events.records import LifeEnded, Record
from swell.simulation.trace import Kind
from swell.world import Address, Disk, Emitter, Link, Node, Resources

if TYPE_CHECKING:
    from swell.simulation.link import SimLink
    from swell.simulation.process import Process

OPEN, SLOW, HELD, DEAD = range(4)

OFFLOAD_S_MAX = 0.001

_TIMER = int(Kind.TIMER)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Stream(Protocol):
    """A source of events that must stay in order; `ready_s` is when the last put-off one runs."""

    ready_s: float


Held = tuple[Stream, Callable[[Any], None], Any]


class _Nobody:
    """The node of a world that has none yet or no more."""

    def on_link_up(self, link: Link) -> None: ...

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None: ...

    def stop(self) -> None: ...


NOBODY = _Nobody()


class SimTimer:
    """A pending `call_later`; the action is None once it ran or was cancelled."""

    __slots__ = ("action", "world")

    def __init__(self, world: SimWorld, action: Callable[[], None]) -> None:
        self.world = world
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self.world.simulation.forget_timer()


def fire_timer(timer: SimTimer) -> None:
    if timer.action is None:
        return
    world = timer.world
    if world.gate:
        world.put_off_timer(timer)
    else:
        _run_timer(timer)


def _run_timer(timer: SimTimer) -> None:
    action = timer.action
    if action is None:
        return
    timer.action = None
    simulation = timer.world.simulation
    simulation.trace.note(simulation.time_s, timer.world.process, _TIMER, b"", None)
    action()


class SimWorld:
    """One life of a process, from its start to its end."""

    __slots__ = (
        "_delay_s", "_delayed", "_entropy", "_held", "_held_timers", "clock", "disk", "gate",
        "links", "name", "node", "process", "ready_s", "recording", "rng", "simulation",
    )  # fmt: skip

    def __init__(self, process: Process) -> None:
        self.process = process
        self.simulation = process.simulation
        self.name = process.name
        self.clock = process.clock
        self.disk: Disk = process.disk
        life = f"process/{process.name}/{process.starts}"
        self.rng = self.simulation.rng(life)
        self._entropy: Random | None = None
        self.node: Node = NOBODY
        self.links: dict[SimLink, None] = {}
        self.recording = self.simulation.recording is not None
        self.gate = OPEN
        self.ready_s = 0.0
        """As a stream, the world orders what belongs to no link: accepts, offloads, probes."""
        self._delay_s = 0.0
        self._delayed = 0
        self._held: list[Held] = []
        self._held_timers: list[SimTimer] = []

    # -- swell.world.World ---------------------------------------------------------------------

    def now(self) -> float:
        return self.clock.now_s(self.simulation.time_s)

    def wall_us(self) -> int:
        return self.clock.wall_us(self.simulation.time_s)

    def entropy(self, n: int) -> bytes:
        if self._entropy is None:
            self._entropy = self.simulation.rng(f"entropy/{self.name}/{self.process.starts}")
        return self._entropy.randbytes(n)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> SimTimer:
        assert delay_s >= 0.0
        timer = SimTimer(self, action)
        simulation = self.simulation
        due_s = simulation.time_s + delay_s / self.clock.rate
        heappush(simulation.heap, (due_s, simulation.tick(), fire_timer, timer))
        return timer

    def dial(self, address: Address, identity: str = "") -> SimLink:
        return self.simulation.network.dial(self, address, identity)

    def probe(
        self, address: Address, kind: str, timeout_s: float, done: Callable[[bool], None]
    ) -> None:
        self.simulation.network.probe(self, address, kind, timeout_s, done)

    def offload(
        self, function: Callable[[Any], Any], argument: Any, done: Callable[[Any], None]
    ) -> None:
        def run(_: None) -> None:
            if self.gate == DEAD:
                return
            try:
                result = function(argument)
            except Exception as error:
                result = error
            self.post(self, done, result)

        simulation = self.simulation
        simulation.push(simulation.time_s + self.rng.random() * OFFLOAD_S_MAX, run, None)

    def resources(self) -> Resources:
        return self.process.resources

    def emit(self, event: Event) -> None:
        simulation = self.simulation
        if simulation.recording is not None:
            simulation.recording.take(self, event)
        if isinstance(event, Record):
            return  # recorded or not, a seed has one trace
        data = type(event).__name__.encode() + _encode(event)
        simulation.trace.note(simulation.time_s, self.process, Kind.EVENT, data, event)
        for subscriber in simulation.subscribers:
            subscriber(simulation.time_s, self.name, event)

    @property
    def recorder(self) -> Emitter:
        return self

    def halt(self, reason: str) -> None:
        if self.gate != DEAD:
            if self.recording:
                self.emit(LifeEnded(reason))
            self.process.halt(reason)

    # -- the gate ------------------------------------------------------------------------------

    def post(self, stream: Stream, done: Callable[[Any], None], result: Any) -> None:
        """Run a completion of the node's as soon as the gate lets it through."""
        self.admit(stream, self._run_done, (done, result))

    def admit(self, stream: Stream, call: Callable[[Any], None], argument: Any) -> None:
        """Run `call(argument)` now if the gate is open; else put it off, hold it or drop it."""
        gate = self.gate
        if gate == OPEN:
            call(argument)
        elif gate == SLOW or (gate == HELD and stream.ready_s > self.simulation.time_s):
            self._put_off((stream, call, argument))
        elif gate == HELD:
            self._held.append((stream, call, argument))

    def put_off_timer(self, timer: SimTimer) -> None:
        if self.gate == SLOW:
            self._delayed += 1
            self.simulation.push(self._later_s(), self._run_late_timer, timer)
        elif self.gate == HELD:
            self._held_timers.append(timer)

    def hold(self) -> None:
        self.gate = HELD

    def release(self) -> None:
        """Timers that became due first, then held events, each stream in order."""
        assert self.gate == HELD
        self.gate = SLOW if self._delay_s or self._delayed else OPEN
        timers, self._held_timers = self._held_timers, []
        held, self._held = self._held, []
        if not timers and not held:
            return
        self.gate = SLOW
        simulation = self.simulation
        for timer in timers:
            self._delayed += 1
            simulation.push(simulation.time_s, self._run_late_timer, timer)
        for item in held:
            self._put_off(item)

    def slow(self, delay_s: float) -> None:
        """Every event late by up to `delay_s`; 0 ends it once the late ones have run."""
        self._delay_s = delay_s
        if self.gate in (OPEN, SLOW):
            self.gate = SLOW if delay_s or self._delayed else OPEN

    def kill(self) -> None:
        self.gate = DEAD
        self.node = NOBODY
        self._held.clear()
        self._held_timers.clear()

    def _later_s(self) -> float:
        if self._delay_s and self.gate == SLOW:
            return self.simulation.time_s + self.simulation.network.rng.random() * self._delay_s
        return self.simulation.time_s

    def _put_off(self, item: Held) -> None:
        stream = item[0]
        stream.ready_s = max(stream.ready_s, self._later_s())
        self._delayed += 1
        self.simulation.push(stream.ready_s, self._run_late, item)

    def _run_late(self, item: Held) -> None:
        if self.gate == DEAD:
            return
        self._delayed -= 1
        if self.gate == HELD:
            self._held.append(item)
            return
        self._open_if_caught_up()
        item[1](item[2])

    def _run_late_timer(self, timer: SimTimer) -> None:
        if self.gate == DEAD:
            return
        self._delayed -= 1
        if self.gate == HELD:
            self._held_timers.append(timer)
            return
        self._open_if_caught_up()
        _run_timer(timer)

    def _open_if_caught_up(self) -> None:
        if not self._delayed and not self._delay_s:
            self.gate = OPEN

    def _run_done(self, item: tuple[Callable[[Any], None], Any]) -> None:
        done, result = item
        data = result if isinstance(result, bytes) else b""
        self.simulation.trace.note(self.simulation.time_s, self.process, Kind.DONE, data, None)
        done(result)
