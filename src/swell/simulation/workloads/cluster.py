"""A simulated cluster with a store, and the verdicts that all workloads on it share."""

from __future__ import annotations

from swell.settings import Settings
from swell.simulation.checkers.store import ServiceChecker, departures, differences, weaknesses
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.result import Result

FORM_S_MAX = 60.0
IN_FLIGHT_S = 1.0
LOOK_EVERY_S = 0.5
SHOWN_MAX = 5


class Cluster:
    """Nodes `n0` … in sites `s0` …, the voters first and in distinct sites."""

    def __init__(
        self,
        result: Result,
        simulation: Simulation,
        settings: Settings,
        voters: int,
        bugs: frozenset[str],
    ) -> None:
        self.result = result
        self.simulation = simulation
        self.fleet = Fleet(simulation, settings, bugs, voters=voters)
        self.service = ServiceChecker(simulation)

    def add_nodes(self, count: int, sites: int) -> None:
        for _ in range(count):
            k = len(self.fleet.processes)
            self.fleet.add(f"n{k}", f"s{k % sites}", rack=f"r{k % 2}")

    def addresses(self) -> list[str]:
        """The nodes that are not gone for good."""
        return [name for name, process in self.fleet.processes.items() if not process.destroyed]

    def form(self) -> bool:
        """Until every slot is at full strength."""
        if not self.strong(FORM_S_MAX):
            self.complain("never formed")
            return False
        return True

    def strong(self, within_s: float) -> bool:
        """Is every slot at full strength, within this time?"""
        fleet = self.fleet
        return self.simulation.run_until_true(lambda: not weaknesses(fleet), within_s, LOOK_EVERY_S)

    def settled(self, within_s: float) -> bool:
        """... and where the plan wants it?"""
        fleet = self.fleet
        return self.simulation.run_until_true(
            lambda: not departures(fleet) and not weaknesses(fleet), within_s, LOOK_EVERY_S
        )

    def complain(self, what: str) -> None:
        """Slots are not as they should be, and this is what it means."""
        found = weaknesses(self.fleet) + departures(self.fleet)
        self.result.problems += [f"{what}: {problem}" for problem in found[:SHOWN_MAX]]

    def judge_replicas(self) -> None:
        """Nobody writes any more: the members of each slot hold the same."""
        self.simulation.run_for(IN_FLIGHT_S)
        self.result.problems += differences(self.fleet)[:SHOWN_MAX]

    def counts(self) -> dict[str, float]:
        """What has happened so far."""
        counters = self.simulation.counters
        return {
            "faults": sum(n for kind, n in counters.items() if kind.startswith("fault ")),
            "nodes": len(self.fleet.processes),
            "zones": len(self.fleet.zones()),
            "failovers": self.service.seen["failovers"],
            "activations": self.service.seen["activations"],
            "virtual_s": self.simulation.time_s,
        }

    def finish(self) -> Result:
        simulation, result = self.simulation, self.result
        result.problems = self.service.violations[:SHOWN_MAX] + result.problems
        result.faults = dict(simulation.counters)
        result.counts |= self.counts()
        result.digest = simulation.trace.digest()
        result.virtual_s = simulation.time_s
        result.events = simulation.events
        return result
