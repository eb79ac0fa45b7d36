"""Strikes: faults that look for the process that matters, such as the primary of some slot.

A fault at random hits a primary at a telling moment now and then; every run should see some slots
change hands. Struck is whoever serves a random slot at the time, or whoever `find` names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from swell.simulation.checkers.store import slot_records
from swell.simulation.faults import STORE
from swell.simulation.fleet import Fleet
from swell.simulation.network import Rule
from swell.simulation.process import Process
from swell.simulation.trace import Kind

CRASH, POWER, PAUSE = "crash", "power", "pause"
DEAF, MUTE, ALONE, ESTRANGED = "deaf", "mute", "alone", "estranged"
STRIKES = (CRASH, POWER, PAUSE, DEAF, MUTE, ALONE, ESTRANGED)
DIRECTORY = "DIRECTORY"
LASTS_S = (2.5, 7.0)
ESTRANGED_S = 4.0
AGAIN_S = 1.0


@dataclass
class Strikes:
    """`count` strikes between `begin_s` and `heal_s`."""

    fleet: Fleet
    rng: Random
    begin_s: float
    heal_s: float
    count: int
    kinds: Sequence[str] = STRIKES
    struck: list[str] = field(default_factory=list)
    what: str = "primary"
    find: Callable[[], Sequence[str]] | None = None
    """Whom to strike, any one of them; None: the primary of a random slot."""

    def schedule(self) -> None:
        simulation = self.fleet.simulation
        for _ in range(self.count):
            at_s = self.rng.uniform(self.begin_s, self.heal_s - LASTS_S[1])
            simulation.call_at(at_s, self._strike_one)

    def _strike_one(self) -> None:
        """Whoever matters; later, if there is nobody now."""
        simulation = self.fleet.simulation
        if simulation.time_s > self.heal_s - LASTS_S[1]:
            return
        names = self._primary() if self.find is None else list(self.find())
        if names and self.find is not None:
            names = [self.rng.choice(names)]
        if not any(self._strike(simulation.processes[name]) for name in names):
            simulation.call_later(AGAIN_S, self._strike_one)

    def _primary(self) -> list[str]:
        """Whoever serves a random slot."""
        served = [record for record in slot_records(self.fleet).values() if record.activated]
        primary = self.rng.choice(served).primary if served else 0
        return [overlay.me.name for overlay in self.fleet.living() if overlay.me.id == primary]

    def _strike(self, victim: Process) -> bool:
        simulation = self.fleet.simulation
        if not victim.alive or victim.paused or simulation.healed:
            return False
        kind = self.rng.choice(self.kinds)
        lasts_s = self.rng.uniform(*LASTS_S)
        text = f"strike {kind} {victim.name}"
        simulation.trace.note(simulation.time_s, None, Kind.FAULT, text.encode(), text)
        simulation.counters[f"fault {self.what}-{kind}"] += 1
        self.struck.append(
            f"{simulation.time_s:9.3f} .. {simulation.time_s + lasts_s:9.3f}  {text}"
        )
        if kind in (CRASH, POWER):
            victim.crash(power=kind == POWER)
            simulation.call_later(lasts_s, victim.start)
        elif kind == PAUSE:
            victim.pause()
            simulation.call_later(lasts_s, victim.resume)
        else:
            self._cut(kind, victim.name, STORE, lasts_s)
            if kind == ESTRANGED:
                # Back among its peers, it does not know what was decided meanwhile.
                self._cut(kind, victim.name, DIRECTORY, lasts_s + ESTRANGED_S)
        return True

    def _cut(self, kind: str, name: str, purpose: str, lasts_s: float) -> None:
        """It hears nobody, is heard by nobody, or both."""
        simulation = self.fleet.simulation
        mine = frozenset([name])
        others = frozenset(other for other in self.fleet.processes if other != name)
        left, right = (others, mine) if kind == DEAF else (mine, others)
        both_ways = kind in (ALONE, ESTRANGED)
        rule = Rule(left, right, both_ways=both_ways, cut=True, purpose=purpose)
        simulation.network.add(rule)
        simulation.call_later(lasts_s, lambda: simulation.network.remove(rule))
