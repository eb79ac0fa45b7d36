"""A simulated machine with one process on it, and all that can happen to either.

The machine keeps its name, disk and clocks; every start of the process is a new life with a
`SimWorld` and a node of its own. A process that is killed leaves a kernel behind that resets
its links; a machine that loses power leaves silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swell.simulation.clock import Clock
from swell.simulation.trace import Kind
from swell.simulation.world import HELD, SimWorld
from swell.world import Node, Resources, Role, World

if TYPE_CHECKING:
    from swell.simulation.disk import SimDisk
    from swell.simulation.simulation import Simulation

Factory = Callable[[World], Node]

BOOTED_AGO_S_MAX = 100_000.0
BOOT_S = 5.0
"""Boot time at the start of the process after a power loss."""

SUPERVISOR_S = 1.0
"""How soon a halted process is started again in the liveness phase."""


class Process:
    """One machine and its process; `world` and `node` are None while it is not running."""

    def __init__(
        self,
        simulation: Simulation,
        number: int,
        name: str,
        site: str,
        rack: str,
        identity: str,
        factory: Factory,
    ) -> None:
        self.simulation = simulation
        self.number = number
        self.name = name
        self.site = site
        self.rack = rack
        self.identity = identity
        self.factory = factory
        self.disk: SimDisk
        self.clock = Clock(simulation.rng(f"clock/{name}").random() * BOOTED_AGO_S_MAX)
        self.world: SimWorld | None = None
        self.starts = 0
        self.counted_starts = 0
        """The number of starts as the data directory tells: an old copy tells an old number."""
        self.suspended = False
        self.powered = True
        self.destroyed = False
        self.ended = ""
        """Why it is not running: `killed`, `power`, `stopped`, or the reason of its halt."""
        self.resources = Resources(1.0, 1.0, 1.0)
        """What the machine has free; for workloads to set."""
        self.role = Role.NODE
        """What its certificate says that it is; for tests to set."""
        self._delay_s = 0.0
        self._copy: tuple[int, dict[str, bytes]] | None = None

    @property
    def alive(self) -> bool:
        return self.world is not None

    @property
    def node(self) -> Node | None:
        return None if self.world is None else self.world.node

    @property
    def paused(self) -> bool:
        return self.world is not None and self.world.gate == HELD

    @property
    def reachable(self) -> bool:
        """True if the machine's kernel answers."""
        return self.powered and not self.suspended

    @property
    def failed(self) -> bool:
        """True if it ran once and ended otherwise than by `stop`."""
        return self.world is None and self.starts > 0 and self.ended != "stopped"

    def start(self) -> None:
        """Begin a new life with what the disk holds; harmless if it is running or destroyed."""
        if self.world is not None or self.destroyed:
            return
        was_silent = not self.reachable
        if not self.powered:
            self.clock.boot(self.simulation.time_s, BOOT_S)
        self.powered = True
        self.suspended = False
        self.ended = ""
        self.starts += 1
        self.counted_starts += 1
        world = SimWorld(self)
        self.world = world
        self.disk.attach(world)
        self._note("start")
        world.slow(self._delay_s)
        world.node = self.factory(world)
        if was_silent:
            self._wake_peers()

    restart = start

    def crash(self, power: bool = False) -> None:
        """Kill -9, or with `power` the loss of the machine; a suspended machine has no kernel
        that could say so either."""
        if self.world is not None:
            gone = power or self.suspended
            self.end("power" if power else "killed", power=gone)
        if power:
            self.powered = False
            self.suspended = False

    def destroy(self) -> None:
        """The machine is gone with its disk, for good: no start helps."""
        self.crash(power=True)
        self.destroyed = True

    def stop(self) -> None:
        """Graceful: the node's `stop`, then its links are drained and closed."""
        world = self.world
        if world is not None:
            self.simulation.push(self.simulation.time_s, self._ask_to_stop, world)

    def _ask_to_stop(self, world: SimWorld) -> None:
        world.admit(world, self._stop, world)

    def _stop(self, world: SimWorld) -> None:
        if self.world is not world:
            return
        world.node.stop()
        if self.world is not world:
            return
        for link in list(world.links):
            link.close(drain=True)
        self.end("stopped", power=False)

    def halt(self, reason: str) -> None:
        """The node gives up. An error of the disk may come to light only after the healing: then
        a supervisor starts the process again, since no fault will."""
        self.end(reason, power=False)
        if self.simulation.healed and self.disk.failed:
            self.simulation.call_later(SUPERVISOR_S, self.start)

    def end(self, reason: str, power: bool) -> None:
        """This life is over, at once."""
        world = self.world
        assert world is not None
        self.world = None
        self.ended = reason
        self._note(f"end {reason}")
        for link in list(world.links):
            link.abort(power)
        world.kill()
        if reason == "stopped":
            self.disk.detach()
        else:
            self.disk.lose_unsynced(power)

    def pause(self) -> None:
        """SIGSTOP: the kernel still takes what arrives, until its buffers are full."""
        if self.world is not None and not self.paused:
            self._note("pause")
            self.world.hold()

    def suspend(self) -> None:
        """The whole machine stands still: peers hear no acknowledgement."""
        if self.world is not None:
            self._note("suspend")
            self.suspended = True
            self.world.hold()

    def resume(self) -> None:
        """End a pause or a suspend."""
        was_suspended, self.suspended = self.suspended, False
        world = self.world
        if world is not None and world.gate == HELD:
            self._note("resume")
            world.release()
        if was_suspended:
            self._wake_peers()

    def back_up(self) -> None:
        """Copy the data directory, to be restored by `go_back`."""
        self._copy = self.counted_starts, self.disk.snapshot()

    def go_back(self) -> bool:
        """Restore the last copy, while the process is down; False if there is none."""
        if self._copy is None:
            return False
        self.counted_starts, files = self._copy
        self.disk.restore(files)
        return True

    def slow(self, delay_s: float) -> None:
        """Every event of the process comes late by up to `delay_s`; 0 ends it."""
        self._delay_s = delay_s
        if self.world is not None:
            self.world.slow(delay_s)

    def skew(self, offset_s: float, rate: float = 1.0) -> None:
        """Put the wall clock off by `offset_s` and let the machine's clocks run at `rate`."""
        factor = self.clock.rate / rate
        self.clock.skew(self.simulation.time_s, offset_s, rate)
        if factor != 1.0 and self.world is not None:
            self.simulation.stretch_timers(self.world, factor)

    def _wake_peers(self) -> None:
        """The kernel answers again: what waits for it is sent once more."""
        network = self.simulation.network
        for process in self.simulation.processes.values():
            if process.world is not None:
                for link in list(process.world.links):
                    if link.address.host == self.name:
                        link.refresh()
        network.retry_dials()

    def _note(self, what: str) -> None:
        simulation = self.simulation
        simulation.trace.note(simulation.time_s, self, Kind.PROCESS, what.encode(), what)
