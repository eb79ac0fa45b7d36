"""Which faults a seed brings: swarm testing.

Every seed first picks a random subset of the kinds, then faults of only those kinds. Runs that
leave kinds out reach states that a run with a bit of everything hides (Groce et al., Swarm
Testing, ISSTA 2012). Faults end before `heal_s`, where the safety phase ends; then everything is
healed and the liveness phase begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from swell.simulation.faults import (
    FLEET_KINDS,
    KINDS,
    ClockSkew,
    Clog,
    Crash,
    CrashAll,
    CrashMany,
    DiskFlip,
    DiskSlow,
    Fault,
    LatencySpike,
    LinkLoss,
    PathFault,
    ProcessFault,
    RelayClog,
    RelayCut,
    ReplicationClog,
    ReplicationCut,
    Slow,
)
from swell.simulation.simulation import derive
from swell.simulation.trace import Kind

if TYPE_CHECKING:
    from swell.simulation.simulation import Simulation

KINDS_PICKED = (3, 8)
"""Fewest and most kinds of one seed."""

ATTEMPTS = 400
"""Draws for one plan, at most."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    begin_s: float
    end_s: float
    fault: Fault

    def __str__(self) -> str:
        return f"{self.begin_s:9.3f} .. {self.end_s:9.3f}  {self.fault}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one seed in order of time; everything is healed at `heal_s`."""

    seed: int
    faults: tuple[PlannedFault, ...]
    heal_s: float
    stay_dead: tuple[str, ...]

    def schedule(self, simulation: Simulation) -> None:
        """Put every begin and end, and the healing, on the heap. `simulation.counters` then has
        `fault <kind>` for each that took effect."""
        for planned in self.faults:
            _schedule(simulation, planned)
        simulation.call_at(self.heal_s, lambda: simulation.heal(self.stay_dead))

    def kinds(self) -> list[str]:
        """The kinds that occur, sorted."""
        return sorted({planned.fault.kind for planned in self.faults})

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {len(self.faults)} faults, healed at {self.heal_s:.3f}"]
        lines += [str(planned) for planned in self.faults]
        if self.stay_dead:
            lines.append(f"stay dead: {' '.join(self.stay_dead)}")
        return "\n".join(lines)


def _schedule(simulation: Simulation, planned: PlannedFault) -> None:
    fault = planned.fault
    text = str(fault)

    def begin() -> None:
        simulation.trace.note(simulation.time_s, None, Kind.FAULT, text.encode(), text)
        if fault.begin(simulation):
            simulation.counters[f"fault {fault.kind}"] += 1

    def end() -> None:
        over = f"end of {text}"
        simulation.trace.note(simulation.time_s, None, Kind.FAULT, over.encode(), over)
        fault.end(simulation)

    simulation.call_at(planned.begin_s, begin)
    if not (isinstance(fault, Crash) and fault.stays_dead):
        simulation.call_at(planned.end_s, end)


@dataclass(frozen=True, slots=True)
class Swarm:
    """How faults are drawn for a set of processes."""

    sites: Mapping[str, str]
    """Name of every process → its site."""
    begin_s: float
    heal_s: float
    minimum: int = 5
    maximum: int = 12
    kinds: tuple[str, ...] = tuple(KINDS)
    spared: frozenset[str] = field(default_factory=frozenset)
    """Processes that no process or disk fault strikes."""
    returning: frozenset[str] = field(default_factory=frozenset)
    """Processes that come back from every crash."""
    disks: tuple[str, ...] = ()
    """Processes with something on their disk: the only victims of disk faults, if given."""
    down_max: int = 0
    """Victims of process and disk faults at one time; 0: a third of the processes."""
    deaths_max: int = 0
    """How many crashed processes at most never come back."""
    against: tuple[str, ...] = ()
    """Others, from whom faults of the network may cut the processes off."""
    name: str = "swarm"
    """Of the source of chance: two swarms of a seed differ."""

    def plan(self, seed: int) -> Plan:
        rng = derive(seed, self.name)
        fewest, most = (min(count, len(self.kinds)) for count in KINDS_PICKED)
        picked = rng.sample(self.kinds, rng.randint(fewest, most))
        count = rng.randint(self.minimum, self.maximum)
        planned: list[PlannedFault] = []
        dead: list[str] = []
        victims = [name for name in self.sites if name not in self.spared]
        for patience in range(ATTEMPTS, 0, -1):
            if len(planned) == count:
                break
            fault_class = FLEET_KINDS[rng.choice(picked)]
            begin_s, end_s = self._times(rng, fault_class, patience / ATTEMPTS)
            if fault_class is DiskFlip and self.disks:
                # Its process may refuse to start again, and could not suffer anything else.
                end_s = self.heal_s
            fault: Fault
            if issubclass(fault_class, ProcessFault):
                on_disk = fault_class.kind.startswith("disk-") and self.disks
                candidates = list(self.disks) if on_disk else victims
                free = self._free(candidates, planned, dead, begin_s, end_s)
                if not free:
                    continue
                victim = rng.choice(free)
                fault = self._process_fault(rng, fault_class, victim)
                if (
                    isinstance(fault, Crash)
                    and victim not in self.returning
                    and len(dead) < self.deaths_max
                    and rng.random() < 0.5
                    # Another fault of the same victim would not take effect.
                    and all(other.fault.victims != fault.victims for other in planned)
                ):
                    fault = replace(fault, stays_dead=True)
                    dead.append(victim)
            else:
                fault = self._network_fault(rng, fault_class)
            planned.append(PlannedFault(begin_s, end_s, fault))
        assert len(planned) >= self.minimum, "too few processes or too little time for the faults"
        planned.sort(key=lambda item: item.begin_s)
        return Plan(seed, tuple(planned), self.heal_s, tuple(dead))

    def _times(self, rng: Random, fault_class: type[Fault], patience: float) -> tuple[float, float]:
        """The harder it was to find room for faults so far, the shorter they become."""
        shortest_s, longest_s = fault_class.duration_s
        begin_s = rng.uniform(self.begin_s, max(self.begin_s, self.heal_s - shortest_s))
        duration_s = shortest_s + rng.random() * (longest_s - shortest_s) * patience
        return begin_s, min(self.heal_s, begin_s + duration_s)

    def _free(
        self,
        victims: list[str],
        planned: list[PlannedFault],
        dead: list[str],
        begin_s: float,
        end_s: float,
    ) -> list[str]:
        """Victims that nothing else befalls at that time; none if enough of them are struck."""
        struck = {
            other.fault.victims[0]: None
            for other in planned
            if isinstance(other.fault, ProcessFault)
            and other.begin_s <= end_s
            and begin_s <= other.end_s
        }
        struck.update(dict.fromkeys(dead))
        if len(struck) >= (self.down_max or max(1, len(self.sites) // 3)):
            return []
        return [name for name in victims if name not in struck]

    def _process_fault(
        self, rng: Random, fault_class: type[ProcessFault], victim: str
    ) -> ProcessFault:
        victims = (victim,)
        if fault_class is Slow:
            return Slow(victims, delay_s=rng.choice((0.01, 0.1, 0.5)))
        if fault_class is ClockSkew:
            offset_s = rng.choice((0.0, rng.uniform(-10.0, 10.0), 3600.0))
            return ClockSkew(victims, offset_s=offset_s, rate=rng.uniform(0.98, 1.02))
        if fault_class is DiskSlow:
            return DiskSlow(victims, delay_s=rng.choice((0.02, 0.2, 1.0)))
        return fault_class(victims)

    def _network_fault(self, rng: Random, fault_class: type[Fault]) -> Fault:
        if fault_class is LinkLoss:
            return LinkLoss((rng.choice(list(self.sites)),), share=rng.choice((0.1, 0.5, 1.0)))
        if issubclass(fault_class, CrashMany):
            return self._crash_many(rng, fault_class)
        assert issubclass(fault_class, PathFault)
        left, right = self._sides(rng, beside=fault_class in (RelayCut, RelayClog))
        if fault_class is RelayCut:
            return RelayCut(left, right, one_way=rng.random() < 0.5)
        if fault_class is RelayClog:
            return RelayClog(left, right, clog_s=rng.choice((0.1, 0.5, 2.0)))
        if fault_class is ReplicationCut:
            return ReplicationCut(left, right, one_way=rng.random() < 0.5)
        if fault_class is ReplicationClog:
            return ReplicationClog(left, right, clog_s=rng.choice((0.1, 0.5, 2.0)))
        if fault_class is Clog:
            return Clog(left, right, clog_s=rng.choice((0.01, 0.05, 0.5)))
        if fault_class is LatencySpike:
            return LatencySpike(left, right, extra_s=rng.choice((0.02, 0.1, 0.5)))
        return fault_class(left, right)

    def _crash_many(self, rng: Random, fault_class: type[CrashMany]) -> CrashMany:
        victims = [name for name in self.sites if name not in self.spared]
        if fault_class is not CrashAll:
            victims = rng.sample(victims, rng.randint(2, max(2, len(victims) * 2 // 3)))
        return fault_class(tuple(victims), power=rng.random() < 0.5)

    def _sides(self, rng: Random, beside: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """One process, one site, or a random half against the rest; or two single processes. Unless
        it is to happen `beside` the others, half of the time some against one or all of them."""
        names = list(self.sites)
        if self.against and not beside and rng.random() < 0.5:
            others = self.against if rng.random() < 0.5 else (rng.choice(self.against),)
            return tuple(rng.sample(names, rng.randint(1, max(1, len(names) // 2)))), others
        places = list(dict.fromkeys(self.sites.values()))
        shape = rng.choice(("pair", "process", "site", "half"))
        if shape == "pair" and len(names) > 1:
            a, b = rng.sample(names, 2)
            return (a,), (b,)
        if shape == "site" and len(places) > 1:
            site = rng.choice(places)
            return (site,), tuple(place for place in places if place != site)
        size = 1 if shape != "half" else max(1, len(names) // 2)
        left = rng.sample(names, size)
        return tuple(left), tuple(name for name in names if name not in left)
