"""One heap of events, virtual time, one seed.

An entry of the heap is `(time, sequence, action, argument)` and runs as `action(argument)`;
the sequence makes the order total, so that a run is a function of its seed. Every source of
chance is a `Random` derived from the seed by name.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from swell.errors import SwellError
from swell.events import Event
from swell.simulation.disk import SimDisk
from swell.simulation.network import Latency, Network
from swell.simulation.process import Factory, Process
from swell.simulation.recording import current_recording
from swell.simulation.trace import Kind, Trace
from swell.simulation.world import fire_timer

if TYPE_CHECKING:
    from swell.simulation.world import SimTimer, SimWorld

Action = Callable[[Any], None]
Subscriber = Callable[[float, str, Event], None]

_COMPACT_MIN = 1024


class SimulationFailure(SwellError):
    """Protocol code or a checker raised: the cause is chained, seed and time replay it."""

    def __init__(self, seed: int, time_s: float, process: str, cause: BaseException) -> None:
        self.seed = seed
        self.time_s = time_s
        self.process = process
        where = f" in process {process}" if process else ""
        super().__init__(
            f"seed {seed}, virtual time {time_s:.6f} s{where}: {type(cause).__name__}: {cause}"
        )


def derive(seed: int, name: str) -> Random:
    """A source of chance of its own for every name, the same in every run of the seed."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return Random(int.from_bytes(digest, "big"))


class Simulation:
    """The simulated world: its machines, its network and its time."""

    def __init__(self, seed: int, *, latency: Latency | None = None, jitter: float = 0.2) -> None:
        self.seed = seed
        self.time_s = 0.0
        self.events = 0
        """Events run so far, the put-off and cancelled ones included."""
        self.heap: list[tuple[float, int, Action, Any]] = []
        self.tick = itertools.count(1).__next__
        self.trace = Trace()
        self.processes: dict[str, Process] = {}
        self.counters: Counter[str] = Counter()
        """Drops, refusals and faults, by name."""
        self.subscribers: list[Subscriber] = []
        self.recording = current_recording()
        self.network = Network(self, latency, jitter)
        self.healed = False
        """The liveness phase has begun."""
        self._cancelled = 0
        self._running = False

    def rng(self, name: str) -> Random:
        return derive(self.seed, name)

    def add(
        self, name: str, site: str, factory: Factory, *, rack: str = "", identity: str = ""
    ) -> Process:
        """A machine with one process, not started yet. `factory(world)` makes the node at every
        start; `identity` is what its certificate says, the name unless given."""
        assert name not in self.processes, f"process {name} exists already"
        number = len(self.processes) + 1
        process = Process(self, number, name, site, rack, identity or name, factory)
        process.disk = SimDisk(self, process)
        self.processes[name] = process
        return process

    def on_event(self, subscriber: Subscriber) -> None:
        """Hand every emitted event to `subscriber(time, process name, event)`, once."""
        self.subscribers.append(subscriber)

    def push(self, time_s: float, action: Action, argument: Any) -> None:
        heappush(self.heap, (time_s, self.tick(), action, argument))

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Run `action` as an event of no process: workloads, faults, checks."""
        assert time_s >= self.time_s
        self.push(time_s, _call, action)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.call_at(self.time_s + delay_s, action)

    def step(self) -> bool:
        """Run the next event; False if there is none."""
        if not self.heap:
            return False
        self._run(self.heap[0][0], 1)
        return True

    def run_until(self, time_s: float) -> None:
        """Run every event up to and including `time_s`, and be there."""
        self._run(time_s, -1)
        if time_s > self.time_s:
            self.time_s = time_s

    def run_for(self, duration_s: float) -> None:
        self.run_until(self.time_s + duration_s)

    def run_until_true(
        self, predicate: Callable[[], bool], within_s: float, every_s: float = 0.1
    ) -> bool:
        """Run until the predicate holds, looked at every `every_s`; False if it does not hold
        within `within_s` from now."""
        deadline_s = self.time_s + within_s
        while not predicate():
            if self.time_s >= deadline_s:
                return False
            self.run_until(min(deadline_s, self.time_s + every_s))
        return True

    def heal(self, stay_dead: Iterable[str] = ()) -> None:
        """End every fault; restart what crashed or halted, unless it is to stay dead."""
        dead = frozenset(stay_dead)
        self.healed = True
        self.trace.note(self.time_s, None, Kind.FAULT, b"heal", "heal")
        for process in self.processes.values():
            process.slow(0.0)
            process.resume()
            process.skew(0.0, 1.0)
            process.disk.heal()
        self.network.clear()
        for process in self.processes.values():
            if process.failed and process.name not in dead:
                process.start()

    def forget_timer(self) -> None:
        """A timer was cancelled: when they are half of the heap, take them out."""
        self._cancelled += 1
        if self._cancelled < _COMPACT_MIN or self._cancelled * 2 < len(self.heap):
            return
        self.heap[:] = [
            entry
            for entry in self.heap
            if entry[2] is not fire_timer or entry[3].action is not None
        ]
        heapify(self.heap)
        self._cancelled = 0

    def stretch_timers(self, world: SimWorld, factor: float) -> None:
        """The clock of `world` changed its rate: what its timers still have to wait changes."""
        now_s = self.time_s

        def stretched(entry: tuple[float, int, Action, Any]) -> tuple[float, int, Action, Any]:
            if entry[2] is not fire_timer:
                return entry
            timer: SimTimer = entry[3]
            if timer.world is not world:
                return entry
            return (now_s + (entry[0] - now_s) * factor, *entry[1:])

        self.heap[:] = [stretched(entry) for entry in self.heap]
        heapify(self.heap)

    def _run(self, time_s: float, limit: int) -> None:
        assert not self._running, "the simulation is already running"
        self._running = True
        heap = self.heap
        action: Action = _call
        argument: Any = None
        count = 0
        try:
            while heap and heap[0][0] <= time_s and count != limit:
                self.time_s, _, action, argument = heappop(heap)
                count += 1
                action(argument)
        except SimulationFailure:
            raise
        except Exception as error:
            where = _process_of(action, argument)
            raise SimulationFailure(self.seed, self.time_s, where, error) from error
        finally:
            self.events += count
            self._running = False


def _call(action: Callable[[], None]) -> None:
    action()


def _process_of(action: Action, argument: Any) -> str:
    """The name of the process whose event this was, if it was one's."""
    for owner in (getattr(action, "__self__", None), argument):
        world = getattr(owner, "world", owner)
        process = getattr(world, "process", None)
        if isinstance(process, Process):
            return process.name
    return ""
