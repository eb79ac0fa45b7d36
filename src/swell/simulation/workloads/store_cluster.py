"""A simulated cluster with clients of its store, and what is judged by their history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from swell.settings import Settings
from swell.simulation.checkers import chains
from swell.simulation.checkers.dht_model import DhtModel
from swell.simulation.checkers.history import UNKNOWN, Recorder, Value
from swell.simulation.checkers.linearizability import check
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.cluster import SHOWN_MAX, Cluster
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store_clients import StoreClient

READ_S_MAX = 10.0


class StoreCluster(Cluster):
    """A cluster, and clients beside its nodes."""

    def __init__(
        self,
        result: Result,
        simulation: Simulation,
        settings: Settings,
        voters: int,
        bugs: frozenset[str],
    ) -> None:
        super().__init__(result, simulation, settings, voters, bugs)
        self.recorder = Recorder("simulation", self._now_ns)
        self.clients: list[StoreClient] = []
        self._chains: dict[str, Value] = {}
        """What the chain keys hold in the end."""

    def _now_ns(self) -> int:
        return round(self.simulation.time_s * 1e9)

    def add_clients(self, count: int, sites: int, keys: Sequence[str]) -> None:
        for k in range(count):
            client = StoreClient(
                self.simulation, self.recorder, k, f"s{k % sites}", self.addresses, keys
            )
            self.clients.append(client)

    def form(self) -> bool:
        """Until every slot is at full strength; then the clients begin."""
        formed = super().form()
        if formed:
            for client in self.clients:
                client.start()
        return formed

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
