"""A run goes on until enough has happened in it.

A run in which too little happened proves nothing and fails as vacuous. That is to tell of a
workload that does not do what it should, not of bad luck: after the healing the administrators go
on for a while, and whatever chance has spared is struck, one at a time, until every count is high
enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from swell.simulation.checkers.store import slot_records
from swell.simulation.trace import Kind
from swell.simulation.workloads.config_fleet import ConfigFleet

GO_ON_S_MAX = 90.0
DOWN_S = 5.0
"""How long a process is down at most: longer than a slot takes to change hands."""
REST_S = 2.0
LOOK_EVERY_S = 0.25


class Enough:
    """`required`: what must have happened, by the names of `ConfigFleet.counts`."""

    def __init__(self, run: ConfigFleet, required: Mapping[str, float], rng: Random) -> None:
        self._run = run
        self._required = required
        self._rng = rng
        self.struck: list[str] = []

    def go_on(self) -> None:
        """Until there is enough of everything, or the time is over."""
        simulation = self._run.simulation
        end_s = simulation.time_s + GO_ON_S_MAX
        while simulation.time_s < end_s and (short := self._short()):
            victims: Sequence[str] = ()
            if "failovers" in short:
                victims = self._primaries()
            elif "mended" in short or "restarts" in short:
                victims = self._run.relays()
            if victims:
                self._strike(self._rng.choice(victims), short)
            self._wait(short, REST_S)

    def _short(self) -> list[str]:
        counts = self._run.counts()
        return [what for what, least in self._required.items() if counts[what] < least]

    def _primaries(self) -> list[str]:
        """Nodes that serve slots."""
        fleet = self._run.fleet
        serving = {one.primary for one in slot_records(fleet).values() if one.activated}
        return [overlay.me.name for overlay in fleet.living() if overlay.me.id in serving]

    def _strike(self, name: str, short: list[str]) -> None:
        """It dies, and comes back when that had an effect, or after a while. If nothing is wanting
        but something to mend, it stands still instead: the end of a link would tell at once."""
        simulation = self._run.simulation
        began_s = simulation.time_s
        deed = "pause" if short == ["mended"] else "crash"
        text = f"strike {deed} {name}, for want of {', '.join(short)}"
        simulation.trace.note(began_s, None, Kind.FAULT, text.encode(), text)
        simulation.counters[f"fault made-up-{deed}"] += 1
        victim = simulation.processes[name]
        if deed == "pause":
            victim.pause()
        else:
            victim.crash()
        self._wait(short, DOWN_S)
        if deed == "pause":
            victim.resume()
        else:
            victim.start()
        self.struck.append(f"{began_s:9.3f} .. {simulation.time_s:9.3f}  {text}")

    def _wait(self, short: list[str], within_s: float) -> None:
        """Until less is wanting."""
        simulation = self._run.simulation
        simulation.run_until_true(lambda: self._short() != short, within_s, LOOK_EVERY_S)
