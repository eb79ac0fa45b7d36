"""From three nodes to nine and back under load: about 1/n of the slots move each time (SPI-6).

Nodes come and go one at a time. Consistent hashing promises that a step between n − 1 and n nodes
changes who is first for about 1/n of the slots. No operation fails: each is answered by its
deadline while the slots are handed over.
"""

from __future__ import annotations

from collections.abc import Callable

from swell.settings import DirectorySettings, OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.history import UNKNOWN
from swell.simulation.checkers.store import slot_records
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.cluster import SHOWN_MAX
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store_cluster import StoreCluster

SITES = 3
SMALL = 3
LARGE = 9
CLIENTS = 4
SLOTS = 96
STEP_S_MAX = 60.0
REST_S = 3.0
"""Between two steps, so that a change that would undo itself shows."""
MOVED_MAX = 2.0
"""Primaries that move in one step, as a multiple of slots / n: the ring's points lie unevenly."""


def settings() -> Settings:
    return Settings(
        overlay=OverlaySettings(connections=6, report_interval_s=1.0),
        directory=DirectorySettings(retire_after_s=600.0),
        store=StoreSettings(slots=SLOTS),
    )


class Growth(StoreCluster):
    """One run: up to `size` nodes, nine by default, and back to three."""

    def __init__(self, seed: int, size: int = 0, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(Result("growth", seed), Simulation(seed), settings(), SMALL, bugs)
        self.large = size or LARGE
        self.add_nodes(SMALL, SITES)
        self.add_clients(CLIENTS, SITES, [f"key{k}" for k in range(SLOTS)])

    def run(self) -> Result:
        if not self.form():
            return self.finish()
        self.simulation.run_for(REST_S)
        for n in range(SMALL + 1, self.large + 1):
            self._step(n, n, f"to {n}", lambda: self.add_nodes(1, SITES))
        for n in range(self.large, SMALL, -1):
            leaving = self.fleet.processes[f"n{n - 1}"]
            self._step(n, n - 1, f"from {n}", leaving.stop)
        for client in self.clients:
            client.resting = True
        self.simulation.run_for(REST_S)
        self.judge_replicas()
        self.judge_history()
        self._judge_answers()
        return self.finish()

    def _step(self, n: int, left: int, what: str, change: Callable[[], None]) -> None:
        """Change the cluster, which then has `left` nodes, and wait until all is as planned."""
        before = slot_records(self.fleet)
        began_s = self.simulation.time_s
        change()
        fleet = self.fleet
        self.simulation.run_until_true(lambda: len(fleet.living()) == left, STEP_S_MAX)
        if not self.settled(STEP_S_MAX):
            self.complain(f"not settled {what}")
        took_s = self.simulation.time_s - began_s
        after = slot_records(self.fleet)
        moved = sum(after[s].primary != before[s].primary for s in before if s in after)
        changed = sum(set(after[s].nodes) != set(before[s].nodes) for s in before if s in after)
        self.result.counts[f"{what} n·primaries moved"] = round(moved * n / SLOTS, 2)
        self.result.counts[f"{what} n·members changed"] = round(changed * n / SLOTS, 2)
        self.result.counts[f"{what} seconds"] = round(took_s, 1)
        if moved > MOVED_MAX * SLOTS / n:
            self.result.problems.append(
                f"{what}: {moved} of {SLOTS} primaries moved, expected about {SLOTS / n:.0f}"
            )
        self.simulation.run_for(REST_S)

    def _judge_answers(self) -> None:
        """Every operation was answered by its deadline."""
        history = self.recorder.history()
        failed = [one for one in history.operations if one.output is UNKNOWN]
        self.result.problems += [f"not answered in time: {one}" for one in failed[:SHOWN_MAX]]
        if history.failed:
            self.result.problems.append(f"{history.failed} operations were not executed in time")
