"""Losses of data: what takes a node's copy of its slots away, one node at a time.

The store survives the loss of one copy of a slot while the others are whole (the records' `basis`);
two losses before the first is repaired may take the last copy, which nobody claims to survive. So
a loss waits until every slot is at full strength again. Everything that merely stops a node
(crashes of many and all, pauses, partitions) may strike before, meanwhile and after.

A copy of the data directory that is restored within the start it was taken in is not told from the
real one by anybody but the store itself; one of an earlier start is refused by the directory, and
its machine is replaced by one with another name. Voters of the directory are spared copies and
destruction: their words were counted, and no majority of true ones may be left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from swell.simulation.fleet import Fleet
from swell.simulation.process import Process
from swell.simulation.trace import Kind

FLIP, EIO, FULL = "disk-flip", "disk-eio", "disk-full"
OLD_COPY, OLD_START, DEATH, JOIN = "old-copy", "old-start-copy", "death", "join"
DEVASTATION = "devastation"
"""Everybody crashes and half of the disks rot: more than anybody claims to survive. Slots may be
lost by it, but nothing false may ever be said about them."""
LOSSES = (FLIP, EIO, FULL, OLD_COPY, OLD_START, DEATH)

TRY_EVERY_S = 0.5
BACK_S = (0.3, 3.0)
"""How long a victim stays down before it is started again."""
AGE_S = (0.2, 6.0)
"""How old a copy is when it is restored."""
LAST_S = 8.0
"""No loss begins within this time before the healing."""


@dataclass
class Losses:
    """Up to `maximum` losses between `begin_s` and `heal_s`; a new node may join as well."""

    fleet: Fleet
    rng: Random
    begin_s: float
    heal_s: float
    ready: Callable[[], bool]
    """Is every slot at full strength?"""
    voters: Sequence[str]
    kinds: Sequence[str] = LOSSES
    maximum: int = 3
    struck: list[str] = field(default_factory=list)
    """What happened, for the report."""
    _busy: bool = False
    _joined: int = 0

    def schedule(self) -> None:
        """Put the attempts on the heap."""
        simulation, rng = self.fleet.simulation, self.rng
        end_s = self.heal_s - LAST_S
        for _ in range(rng.randint(0, self.maximum) if self.kinds else 0):
            kind = rng.choice(self.kinds)
            simulation.call_at(rng.uniform(self.begin_s, end_s), partial(self._begin, kind))
        if rng.random() < 0.5:
            simulation.call_at(rng.uniform(self.begin_s, end_s), self.join)

    def join(self) -> None:
        """A new machine."""
        self._joined += 1
        sites = list(dict.fromkeys(p.site for p in self.fleet.processes.values()))
        name = f"late{self._joined}"
        self._note(JOIN, name)
        self.fleet.add(name, self.rng.choice(sites))

    def _devastate(self) -> None:
        processes = [p for p in self.fleet.processes.values() if not p.destroyed]
        self._note(DEVASTATION, "")
        for process in processes:
            process.crash()
        for process in self.rng.sample(processes, len(processes) // 2):
            if process.name not in self.voters:
                process.disk.flip_bit()
        for process in processes:
            self._later(self.rng.uniform(*BACK_S), process.start)

    def _begin(self, kind: str) -> None:
        if kind == DEVASTATION:
            self._devastate()
            return
        victim = self._victim(kind)
        if kind in (OLD_COPY, OLD_START) and victim is not None:
            victim.back_up()
            if kind == OLD_START:
                victim.crash()
                victim.start()
            age_s = self.rng.uniform(*AGE_S)
            starts = victim.starts
            self._later(age_s, lambda: self._strike(kind, victim, starts))
        elif victim is not None:
            self._strike(kind, victim, victim.starts)

    def _strike(self, kind: str, victim: Process, starts: int) -> None:
        """Now, or as soon as everything is at full strength; never, if the victim has changed."""
        now_s = self.fleet.simulation.time_s
        if now_s > self.heal_s - LAST_S or victim.starts != starts or not victim.alive:
            return
        if self._busy or victim.paused or not self.ready():
            self._later(TRY_EVERY_S, lambda: self._strike(kind, victim, starts))
            return
        self._busy = True
        self._note(kind, victim.name)
        if kind == DEATH:
            victim.destroy()
        elif kind in (EIO, FULL):
            self._fail_disk(kind, victim)
        else:
            victim.crash()
            if kind == FLIP:
                victim.disk.flip_bit()
            else:
                victim.go_back()
        self._later(self.rng.uniform(*BACK_S), lambda: self._come_back(kind, victim))

    def _fail_disk(self, kind: str, victim: Process) -> None:
        if kind == FULL:
            victim.disk.full = True
        else:
            victim.disk.fail_next("sync")

    def _come_back(self, kind: str, victim: Process) -> None:
        self._busy = False
        if kind == DEATH:
            self.join()
            return
        victim.disk.heal()
        victim.start()
        if kind == OLD_START:
            self._later(BACK_S[1], lambda: self._replace(victim))

    def _replace(self, victim: Process) -> None:
        """The operator reads that the copy was refused and takes another machine."""
        refused = not victim.alive and "stale-epoch" in victim.ended
        self.fleet.simulation.counters["old start refused"] += refused
        victim.destroy()
        self.join()

    def _victim(self, kind: str) -> Process | None:
        """A running node; of the voters only the first may lose its disk, the only one never."""
        weak = self.voters[:1] if len(self.voters) > 1 and kind in (FLIP, EIO, FULL) else ()
        running = [
            process
            for name, process in self.fleet.processes.items()
            if process.alive and not process.paused and (name in weak or name not in self.voters)
        ]
        return self.rng.choice(running) if running else None

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.fleet.simulation.call_later(delay_s, action)

    def _note(self, kind: str, name: str) -> None:
        simulation = self.fleet.simulation
        text = f"{kind} {name}"
        simulation.trace.note(simulation.time_s, None, Kind.FAULT, text.encode(), text)
        simulation.counters[f"fault {kind}"] += 1
        self.struck.append(f"{simulation.time_s:9.3f}  {text}")
