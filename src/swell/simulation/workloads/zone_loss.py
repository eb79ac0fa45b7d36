"""A whole zone loses power for good: no key is lost, service goes on, and full strength returns.

Three zones of four nodes, 2,000 keys. What the zone kept of a slot, up to two of three copies, is
gone with it; the lateral replica has the rest. While the zone is being missed nobody can tell its
death from silence, so operations of its slots wait: the longest gap between two answers of any
slot is measured and bounded.
"""

from __future__ import annotations

from swell.dht import keys
from swell.settings import DirectorySettings, OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.availability import longest_wait_s
from swell.simulation.checkers.history import Value
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.cluster import SHOWN_MAX
from swell.simulation.workloads.loading import Loading
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store_cluster import StoreCluster

SITES = 3
NODES = 12
CLIENTS = 6
KEYS = 2_000
SLOTS = 32
BEFORE_S = 5.0
AFTER_S = 15.0
GAP_S_MAX = 15.0
"""Longest time without an answer of a slot: silence is noticed, the zone is reported dead, others
take its place, leases run out."""
STRONG_S_MAX = 60.0


def slot_of(key: Value) -> int:
    return keys.slot_of(str(key).encode(), SLOTS)


def settings() -> Settings:
    return Settings(
        overlay=OverlaySettings(connections=6, report_interval_s=1.0),
        directory=DirectorySettings(retire_after_s=600.0),
        store=StoreSettings(slots=SLOTS),
    )


class ZoneLoss(StoreCluster):
    """One run of it; the seed chooses the zone."""

    def __init__(self, seed: int, size: int = 0, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(Result("zone-loss", seed), Simulation(seed), settings(), SITES, bugs)
        self.add_nodes(NODES, SITES)
        self.keys = [f"k{k}" for k in range(size or KEYS)]
        self.add_clients(CLIENTS, SITES - 1, [f"key{k}" for k in range(2 * SLOTS)])
        self.lost = seed % SITES

    def run(self) -> Result:
        if not self.form():
            return self.finish()
        simulation, result = self.simulation, self.result
        loading = Loading(simulation, self.clients, self.keys)
        if not loading.write():
            result.problems.append(f"{loading.waiting} keys could not be loaded")
        simulation.run_for(BEFORE_S)
        began_s = simulation.time_s
        self._strike()
        if not self.settled(STRONG_S_MAX):
            self.complain("not repaired")
        result.counts["strong_s"] = simulation.time_s - began_s
        simulation.run_for(AFTER_S)
        for client in self.clients:
            client.resting = True
        self._judge_gap(round(began_s * 1e9))
        result.problems += loading.read()[:SHOWN_MAX]
        result.counts["keys"] = len(self.keys)
        self.judge_replicas()
        self.judge_history()
        return self.finish()

    def _judge_gap(self, began_ns: int) -> None:
        gap_s, slot = longest_wait_s(self.recorder.history(), slot_of, began_ns)
        self.result.counts["gap_s"] = gap_s
        if gap_s > GAP_S_MAX:
            self.result.problems.append(
                f"slot {slot} gave no answer for {gap_s:.1f} s, at most {GAP_S_MAX:g} s allowed"
            )

    def _strike(self) -> None:
        for process in self.fleet.processes.values():
            if process.site == f"s{self.lost}":
                process.destroy()
                self.result.counts["destroyed"] = self.result.counts.get("destroyed", 0) + 1
