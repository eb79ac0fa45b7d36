"""A simulated cluster with a store and clients, and the verdicts that all workloads on it share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from swell.settings import Settings
from swell.simulation.checkers import chains
from swell.simulation.checkers.dht_model import DhtModel
from swell.simulation.checkers.history import UNKNOWN, Recorder, Value
from swell.simulation.checkers.linearizability import check
from swell.simulation.checkers.store import ServiceChecker, departures, differences, weaknesses
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store_clients import StoreClient

FORM_S_MAX = 60.0
IN_FLIGHT_S = 1.0
LOOK_EVERY_S = 0.5
READ_S_MAX = 10.0
SHOWN_MAX = 5


class StoreCluster:
    """Nodes `n0` … in sites `s0` …, the voters first and in distinct sites; clients beside them."""

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
        self.recorder = Recorder("simulation", self._now_ns)
        self.clients: list[StoreClient] = []
        self._chains: dict[str, Value] = {}
        """What the chain keys hold in the end."""

    def _now_ns(self) -> int:
        return round(self.simulation.time_s * 1e9)

    def add_nodes(self, count: int, sites: int) -> None:
        for _ in range(count):
            k = len(self.fleet.processes)
            self.fleet.add(f"n{k}", f"s{k % sites}", rack=f"r{k % 2}")

    def add_clients(self, count: int, sites: int, keys: Sequence[str]) -> None:
        for k in range(count):
            client = StoreClient(
                self.simulation, self.recorder, k, f"s{k % sites}", self._addresses, keys
            )
            self.clients.append(client)

    def _addresses(self) -> list[str]:
        return [name for name, process in self.fleet.processes.items() if not process.destroyed]

    def form(self) -> bool:
        """Until every slot is at full strength; then the clients begin."""
        if not self.strong(FORM_S_MAX):
            self.complain("never formed")
            return False
        for client in self.clients:
            client.start()
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

    def read_chains(self, keys: Sequence[str]) -> None:
        """Nobody writes any more: where do the chains end?"""
        self.simulation.run_until_true(
            lambda: not any(c.session.open_operations for c in self.clients), READ_S_MAX
        )
        client = self.clients[0]
        waiting = dict.fromkeys(keys)

        def end(key: str, known: bool) -> None:
            if known and client.heard is not UNKNOWN:
                del waiting[key]
                self._chains[key] = client.heard

        for key in keys:
            client.execute(key, ("get",), READ_S_MAX, partial(end, key))
        self.simulation.run_until_true(lambda: not waiting, READ_S_MAX)
        self.result.problems += [f"{key} cannot be read in the end" for key in waiting]

    def judge_history(self) -> None:
        history = self.recorder.history()
        verdict = check(history, DhtModel())
        if not verdict.ok:
            self.result.problems.insert(0, str(verdict))
        for key, last in self._chains.items():
            mine = [operation for operation in history.operations if operation.key == key]
            self.result.problems += chains.problems(key, mine, last)[:SHOWN_MAX]
        self.result.counts |= {
            "operations": len(history.operations) + history.failed,
            "acknowledged": verdict.returned,
            "unknown": verdict.unknown,
        }

    def finish(self) -> Result:
        simulation, result = self.simulation, self.result
        result.problems = self.service.violations[:SHOWN_MAX] + result.problems
        result.faults = dict(simulation.counters)
        struck = [n for kind, n in simulation.counters.items() if kind.startswith("fault ")]
        result.counts |= {
            "faults": sum(struck),
            "nodes": len(self.fleet.processes),
            "zones": len(self.fleet.zones()),
            "failovers": self.service.seen["failovers"],
            "activations": self.service.seen["activations"],
            "virtual_s": simulation.time_s,
        }
        result.digest = simulation.trace.digest()
        result.virtual_s = simulation.time_s
        result.events = simulation.events
        return result
