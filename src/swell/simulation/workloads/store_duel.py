"""A duel: elections of the directory without end, for bugs that a few elections do not show.

Two of three voters never hear each other, so both stand in every election; the third dies as soon
as it has made one of them the leader, to be back at once, and is cut off from the leader.
"""

from __future__ import annotations

from random import Random

from swell.directory.raft.events import LeaderElected
from swell.events import Event
from swell.simulation.fleet import Fleet
from swell.simulation.network import Rule

BACK_S = (0.001, 0.02)
APART_S = (0.1, 1.2)
EVERY_S = (0.05, 0.7)
LAST_S = 5.0
"""The duel ends that long before the healing."""
VOTER = "VOTER"


class Duel:
    def __init__(self, fleet: Fleet, rng: Random, heal_s: float) -> None:
        self._fleet = fleet
        self._rng = rng
        self._end_s = heal_s - LAST_S
        *self._rivals, self._judge = rng.sample(fleet.voters, len(fleet.voters))

    def begin(self) -> None:
        simulation = self._fleet.simulation
        rule = self._cut(*self._rivals)
        simulation.call_at(self._end_s, lambda: simulation.network.remove(rule))
        simulation.on_event(self._on_event)
        self._disturb()

    def _cut(self, one: str, other: str) -> Rule:
        rule = Rule(frozenset([one]), frozenset([other]), cut=True, purpose=VOTER)
        return self._fleet.simulation.network.add(rule)

    def _crash_judge(self) -> None:
        judge = self._fleet.processes[self._judge]
        judge.crash()
        self._fleet.simulation.call_later(self._rng.uniform(*BACK_S), judge.start)

    def _disturb(self) -> None:
        simulation = self._fleet.simulation
        if simulation.time_s < self._end_s:
            self._crash_judge()
            simulation.call_later(self._rng.uniform(*EVERY_S), self._disturb)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if not isinstance(event, LeaderElected) or time_s >= self._end_s:
            return
        if process in self._rivals:
            simulation = self._fleet.simulation
            simulation.call_later(0.0, self._crash_judge)
            rule = self._cut(process, self._judge)
            apart_s = self._rng.uniform(*APART_S)
            simulation.call_later(apart_s, lambda: simulation.network.remove(rule))
