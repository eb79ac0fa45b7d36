"""Growing an overlay to its full size: by batches, then by single arrivals (THOR 3.4).

Each zone has a site of its own. The first half of every zone arrives in batches that bring
several zones at once, the second half node by node. Then the overlay must be what THOR promises:
complete cliques, a complete graph of zones, three hops, even links, and broadcasts that reach
every node exactly once.
"""

from __future__ import annotations

from swell.node import Node
from swell.overlay.matchers import BROADCAST
from swell.settings import OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.delivery import DeliveryChecker
from swell.simulation.checkers.topology import diameter, problems
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.result import Result

PORT = 20
ZONES_PER_BATCH = 8
BATCH_EVERY_S = 2.0
ARRIVAL_EVERY_S = 0.02
SETTLE_S_MAX = 180.0
BROADCASTS = 20


class Formation:
    """An overlay of full size for `connections` links per node."""

    def __init__(
        self, seed: int, connections: int = 10, bugs: frozenset[str] = frozenset()
    ) -> None:
        self.result = Result("formation", seed)
        self.settings = Settings(
            overlay=OverlaySettings(connections=connections), store=StoreSettings(slots=0)
        )
        self.simulation = Simulation(seed)
        self.fleet = Fleet(self.simulation, self.settings, bugs)
        self.fleet.on_start = self._on_start
        self.delivery = DeliveryChecker(self.simulation)

    def _on_start(self, node: Node) -> None:
        def joined() -> None:
            assert node.overlay is not None
            node.overlay.multicast.listen(PORT, lambda message: None)

        node.on_joined = joined

    def run(self) -> Result:
        """Grow, settle, judge."""
        self.grow()
        self.settle()
        if self.result.passed:
            self.judge()
        return self.finish()

    def grow(self) -> None:
        """All arrivals of all zones."""
        size = self.settings.overlay.zone_size
        zones = self.settings.overlay.links_between_zones * size + 1
        number = 0
        for first in range(0, zones, ZONES_PER_BATCH):
            for site in range(first, min(zones, first + ZONES_PER_BATCH)):
                for _ in range(size // 2):
                    self.fleet.add(f"n{number}", f"s{site}", rack=f"r{number % 4}")
                    number += 1
            self.simulation.run_for(BATCH_EVERY_S)
        for _ in range(size - size // 2):
            for site in range(zones):
                self.fleet.add(f"n{number}", f"s{site}", rack=f"r{number % 4}")
                number += 1
                self.simulation.run_for(ARRIVAL_EVERY_S)
        self.result.counts["nodes"] = number
        self.result.counts["zones"] = zones

    def settle(self, within_s: float = SETTLE_S_MAX) -> None:
        """Run until the overlay is complete and even."""
        begun_s = self.simulation.time_s
        settled = self.simulation.run_until_true(lambda: not problems(self.fleet), within_s, 2.0)
        self.result.counts["settle_s"] = self.simulation.time_s - begun_s
        if not settled:
            self.result.problems += [f"not settled: {p}" for p in problems(self.fleet)[:5]]

    def judge(self, broadcasts: int = BROADCASTS) -> None:
        """Three hops between all, and broadcasts over trees."""
        fleet, simulation, result = self.fleet, self.simulation, self.result
        longest = diameter(fleet)
        result.counts["diameter"] = longest
        if longest != 3:
            result.problems.append(f"diameter {longest}")
        overlays = fleet.living()
        names = sorted(overlay.me.name for overlay in overlays)
        before = fleet.counter("duplicate") + fleet.counter("duplicate-own")
        for overlay in overlays[:: max(1, len(overlays) // broadcasts)]:
            message = overlay.multicast.send(BROADCAST, b"", PORT, b"hello")
            simulation.run_for(0.5)
            reached = sorted(self.delivery.reached(message))
            result.counts["broadcasts"] = result.counts.get("broadcasts", 0) + 1
            if reached != names:
                result.problems.append(f"{message} reached {len(reached)} of {len(names)}")
        extra = fleet.counter("duplicate") + fleet.counter("duplicate-own") - before
        result.counts["duplicates"] = extra
        if extra:
            result.problems.append(f"{extra} duplicate frames in a settled overlay")

    def finish(self) -> Result:
        """Close the books."""
        result = self.result
        result.problems += self.delivery.violations[:5]
        if result.passed:
            result.require("nodes", 8)
            result.require("broadcasts", min(BROADCASTS, result.counts["nodes"]))
        result.digest = self.simulation.trace.digest()
        result.virtual_s = self.simulation.time_s
        result.events = self.simulation.events
        return result


def run(seed: int, connections: int = 10, bugs: frozenset[str] = frozenset()) -> Result:
    """Run the formation workload once."""
    return Formation(seed, connections, bugs).run()
