"""The catalogue of faults: small values that know how to begin and how to end.

`begin` says whether the fault took effect (a dead process cannot crash again), so that a run
can count what really happened. `end` undoes what can be undone and is harmless when something
else, such as `Simulation.heal`, undid it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from swell.simulation.network import Rule

if TYPE_CHECKING:
    from swell.simulation.process import Process
    from swell.simulation.simulation import Simulation


STORE = "STORE"
"""The purpose of links between stores."""

RELAY = "RELAY"
"""The purpose of links between containers."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong with `victims`: the names of processes or sites."""

    kind: ClassVar[str] = ""
    duration_s: ClassVar[tuple[float, float]] = (1.0, 15.0)
    """How long it usually lasts, shortest and longest."""

    victims: tuple[str, ...]

    def begin(self, simulation: Simulation) -> bool:
        raise NotImplementedError

    def end(self, simulation: Simulation) -> None:
        """Nothing to undo unless a kind says so."""

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.victims)}"


@dataclass(frozen=True, slots=True)
class ProcessFault(Fault):
    """A fault of one machine or its process."""

    def process(self, simulation: Simulation) -> Process:
        return simulation.processes[self.victims[0]]

    def begin(self, simulation: Simulation) -> bool:
        process = self.process(simulation)
        if not process.alive:
            return False
        self.strike(process)
        return True

    def strike(self, process: Process) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Crash(ProcessFault):
    """Kill -9; started again at the end, unless it stays dead."""

    kind: ClassVar[str] = "crash"
    stays_dead: bool = False

    def strike(self, process: Process) -> None:
        process.crash()

    def end(self, simulation: Simulation) -> None:
        if not self.stays_dead:
            self.process(simulation).start()


@dataclass(frozen=True, slots=True)
class PowerLoss(Crash):
    kind: ClassVar[str] = "power-loss"
    duration_s: ClassVar[tuple[float, float]] = (3.0, 30.0)

    def strike(self, process: Process) -> None:
        process.crash(power=True)


@dataclass(frozen=True, slots=True)
class Restart(ProcessFault):
    """A graceful stop, and a start at the end."""

    kind: ClassVar[str] = "restart"
    duration_s: ClassVar[tuple[float, float]] = (0.5, 5.0)

    def strike(self, process: Process) -> None:
        process.stop()

    def end(self, simulation: Simulation) -> None:
        self.process(simulation).start()


@dataclass(frozen=True, slots=True)
class Pause(ProcessFault):
    kind: ClassVar[str] = "pause"
    duration_s: ClassVar[tuple[float, float]] = (0.5, 15.0)

    def strike(self, process: Process) -> None:
        process.pause()

    def end(self, simulation: Simulation) -> None:
        self.process(simulation).resume()


@dataclass(frozen=True, slots=True)
class Suspend(Pause):
    kind: ClassVar[str] = "suspend"
    duration_s: ClassVar[tuple[float, float]] = (1.0, 30.0)

    def strike(self, process: Process) -> None:
        process.suspend()


@dataclass(frozen=True, slots=True)
class Slow(ProcessFault):
    kind: ClassVar[str] = "slow"
    delay_s: float = 0.1

    def strike(self, process: Process) -> None:
        process.slow(self.delay_s)

    def end(self, simulation: Simulation) -> None:
        self.process(simulation).slow(0.0)


@dataclass(frozen=True, slots=True)
class ClockSkew(ProcessFault):
    kind: ClassVar[str] = "clock-skew"
    duration_s: ClassVar[tuple[float, float]] = (5.0, 30.0)
    offset_s: float = 0.0
    rate: float = 1.0

    def strike(self, process: Process) -> None:
        process.skew(self.offset_s, self.rate)

    def end(self, simulation: Simulation) -> None:
        self.process(simulation).skew(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class LinkLoss(Fault):
    """Some of the victim's links break: a middlebox forgot them, a cable was touched."""

    kind: ClassVar[str] = "link-loss"
    duration_s: ClassVar[tuple[float, float]] = (0.0, 0.0)
    share: float = 0.5

    def begin(self, simulation: Simulation) -> bool:
        network = simulation.network
        links = network.links_between(self.victims[0])
        if not links:
            return False
        for link in network.rng.sample(links, max(1, round(self.share * len(links)))):
            network.lose(link)
        return True


@dataclass(frozen=True, slots=True)
class PathFault(Fault):
    """A rule of the network between the victims and the `others`."""

    others: tuple[str, ...]

    def rule(self) -> Rule:
        raise NotImplementedError

    def begin(self, simulation: Simulation) -> bool:
        simulation.network.add(self.rule())
        return True

    def end(self, simulation: Simulation) -> None:
        simulation.network.remove(self.rule())

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.victims)} | {' '.join(self.others)}"


@dataclass(frozen=True, slots=True)
class Partition(PathFault):
    kind: ClassVar[str] = "partition"
    duration_s: ClassVar[tuple[float, float]] = (1.0, 30.0)

    def rule(self) -> Rule:
        return Rule(frozenset(self.victims), frozenset(self.others), cut=True)


@dataclass(frozen=True, slots=True)
class OneWayPartition(PathFault):
    """Nothing gets from the victims to the others; the way back is open."""

    kind: ClassVar[str] = "one-way-partition"
    duration_s: ClassVar[tuple[float, float]] = (1.0, 30.0)

    def rule(self) -> Rule:
        return Rule(frozenset(self.victims), frozenset(self.others), both_ways=False, cut=True)


@dataclass(frozen=True, slots=True)
class Clog(PathFault):
    kind: ClassVar[str] = "clog"
    clog_s: float = 0.05

    def rule(self) -> Rule:
        return Rule(frozenset(self.victims), frozenset(self.others), clog_s=self.clog_s)


@dataclass(frozen=True, slots=True)
class LatencySpike(PathFault):
    kind: ClassVar[str] = "latency-spike"
    extra_s: float = 0.1

    def rule(self) -> Rule:
        return Rule(frozenset(self.victims), frozenset(self.others), extra_s=self.extra_s)


@dataclass(frozen=True, slots=True)
class DiskTorn(Crash):
    """A power loss in the middle of writing: un-synced bytes survive in part, with garbage."""

    kind: ClassVar[str] = "disk-torn"

    def strike(self, process: Process) -> None:
        process.disk.tear_next()
        process.crash(power=True)


@dataclass(frozen=True, slots=True)
class DiskFlip(Crash):
    """A durable bit is flipped while the process is down."""

    kind: ClassVar[str] = "disk-flip"

    def strike(self, process: Process) -> None:
        process.crash()
        process.disk.flip_bit()


@dataclass(frozen=True, slots=True)
class DiskFault(ProcessFault):
    """A fault of the disk of a running process, which may halt on it: it is started again."""

    def end(self, simulation: Simulation) -> None:
        process = self.process(simulation)
        process.disk.heal()
        if process.failed:
            process.start()


@dataclass(frozen=True, slots=True)
class DiskEio(DiskFault):
    kind: ClassVar[str] = "disk-eio"

    def strike(self, process: Process) -> None:
        process.disk.fail_next("sync", "read")


@dataclass(frozen=True, slots=True)
class DiskFull(DiskFault):
    kind: ClassVar[str] = "disk-full"

    def strike(self, process: Process) -> None:
        process.disk.full = True


@dataclass(frozen=True, slots=True)
class DiskSlow(DiskFault):
    kind: ClassVar[str] = "disk-slow"
    delay_s: float = 0.2

    def strike(self, process: Process) -> None:
        process.disk.delay_s = self.delay_s


@dataclass(frozen=True, slots=True)
class CrashMany(Fault):
    """Kill -9 or a loss of power of many at one instant; all are started again at the end."""

    kind: ClassVar[str] = "crash-many"
    duration_s: ClassVar[tuple[float, float]] = (0.5, 10.0)
    power: bool = False

    def begin(self, simulation: Simulation) -> bool:
        alive = [p for name in self.victims if (p := simulation.processes[name]).alive]
        for process in alive:
            process.crash(self.power)
        return len(alive) > 1

    def end(self, simulation: Simulation) -> None:
        for name in self.victims:
            simulation.processes[name].start()


@dataclass(frozen=True, slots=True)
class CrashAll(CrashMany):
    kind: ClassVar[str] = "crash-all"
    duration_s: ClassVar[tuple[float, float]] = (0.5, 5.0)


@dataclass(frozen=True, slots=True)
class ReplicationCut(PathFault):
    """Nothing passes between stores, while gossip and the directory's links live."""

    kind: ClassVar[str] = "replication-cut"
    one_way: bool = False

    def rule(self) -> Rule:
        left, right = frozenset(self.victims), frozenset(self.others)
        return Rule(left, right, both_ways=not self.one_way, cut=True, purpose=STORE)


@dataclass(frozen=True, slots=True)
class ReplicationClog(PathFault):
    kind: ClassVar[str] = "replication-clog"
    clog_s: float = 0.5

    def rule(self) -> Rule:
        left, right = frozenset(self.victims), frozenset(self.others)
        return Rule(left, right, clog_s=self.clog_s, purpose=STORE)


@dataclass(frozen=True, slots=True)
class RelayCut(PathFault):
    """Nothing passes between siblings, while their links to the nodes live."""

    kind: ClassVar[str] = "relay-cut"
    one_way: bool = False

    def rule(self) -> Rule:
        left, right = frozenset(self.victims), frozenset(self.others)
        return Rule(left, right, both_ways=not self.one_way, cut=True, purpose=RELAY)


@dataclass(frozen=True, slots=True)
class RelayClog(PathFault):
    kind: ClassVar[str] = "relay-clog"
    clog_s: float = 0.5

    def rule(self) -> Rule:
        left, right = frozenset(self.victims), frozenset(self.others)
        return Rule(left, right, clog_s=self.clog_s, purpose=RELAY)


KINDS: dict[str, type[Fault]] = {
    fault.kind: fault
    for fault in (
        Crash, PowerLoss, Restart, Pause, Slow, Suspend, ClockSkew, LinkLoss, Partition,
        OneWayPartition, Clog, LatencySpike, DiskTorn, DiskFlip, DiskEio, DiskFull, DiskSlow,
    )
}  # fmt: skip
"""What can happen to any process."""

CLUSTER_KINDS: dict[str, type[Fault]] = KINDS | {
    fault.kind: fault for fault in (CrashMany, CrashAll, ReplicationCut, ReplicationClog)
}
"""... and to a cluster that replicates what it keeps."""

FLEET_KINDS: dict[str, type[Fault]] = CLUSTER_KINDS | {
    fault.kind: fault for fault in (RelayCut, RelayClog)
}
"""... and to a cluster with containers that relay for each other."""
