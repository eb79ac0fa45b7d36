"""A settled overlay loses 30 % of its nodes at one instant, or one zone is cut off and returns.

Outage: broadcasts that begin once the loss of links has been seen lose nothing between nodes
that a detour through one zone connects, although a good part of the links between zones is gone;
after recovery the overlay is complete and even again. Split: one zone is partitioned from the
rest for a while; afterwards everything converges.
"""

from __future__ import annotations

from swell.overlay.matchers import BROADCAST
from swell.simulation.checkers.topology import problems
from swell.simulation.fleet import Fleet
from swell.simulation.workloads.formation import PORT, Formation
from swell.simulation.workloads.result import Result

SHARE = 0.3
BROADCASTS = 40
SPLIT_S = 45.0


def connected_by_one_zone(fleet: Fleet) -> dict[int, list[int]]:
    """Zone → zones that it reaches directly or through one zone, by the links that exist now."""
    linked: dict[int, dict[int, None]] = {}
    living = {overlay.me.id: None for overlay in fleet.living()}
    for overlay in fleet.living():
        row = linked.setdefault(overlay.me.zone, {overlay.me.zone: None})
        row.update({k.zone: None for k in overlay.zonelinks.all() if k.peer.id in living})
    return {
        zone: sorted({far for near in row if near in linked for far in linked[near]})
        for zone, row in linked.items()
    }


class Outage(Formation):
    """Kill a share of the nodes at once: kill -9, which the links show at once, or with `power`
    the loss of machines, which only silence shows."""

    power = False

    def run(self) -> Result:
        self.result.workload = "outage"
        self.grow()
        self.settle()
        if self.result.passed:
            self._strike()
            self._await_notice()
            self._broadcast()
            self.settle()
        if self.result.passed:
            self.judge()
        return self.finish()

    def _strike(self) -> None:
        fleet = self.fleet
        rng = self.simulation.rng("outage")
        names = [name for name in fleet.processes if name != fleet.voter]
        victims = rng.sample(names, int(SHARE * len(fleet.processes)))
        fleet.crash(victims, self.power)
        self.result.counts["killed"] = len(victims)

    def _await_notice(self) -> None:
        """Until the loss of links has been seen: by the link's end, then by the zone, and by the
        neighbouring zones through the next probe."""
        membership, overlay = self.settings.membership, self.settings.overlay
        if self.power:
            bound_s = membership.detection_bound_s(overlay.zone_size)
            if not self.simulation.run_until_true(self._deaths_known, bound_s, 0.5):
                self.result.problems.append(f"deaths were not found within {bound_s:.0f} s")
        self.simulation.run_for(2.5 * overlay.link_probe_interval_s)
        pairs = sum(len(overlays[0].gaps()) for overlays in self.fleet.zones().values()) / 2
        self.result.counts["zone_pairs_lost"] = pairs

    def _deaths_known(self) -> bool:
        zones = self.fleet.zones()
        return all(
            set(overlay.alive_ids()) <= {other.me.id for other in overlays}
            and all(link.peer.id in self._living for link in overlay.zonelinks.all())
            for overlays in zones.values()
            for overlay in overlays
        )

    @property
    def _living(self) -> set[int]:
        return {overlay.me.id for overlay in self.fleet.living()}

    def _broadcast(self) -> None:
        """Broadcasts during the outage reach whatever one intermediate zone connects."""
        simulation, fleet, result = self.simulation, self.fleet, self.result
        rng = simulation.rng("outage broadcasts")
        for overlay in rng.sample(fleet.living(), BROADCASTS):
            reachable = connected_by_one_zone(fleet)[overlay.me.zone]
            expected = sorted(o.me.name for o in fleet.living() if o.me.zone in reachable)
            message = overlay.multicast.send(BROADCAST, b"", PORT, b"in the outage")
            simulation.run_for(0.2)
            reached = self.delivery.reached(message)
            missing = [name for name in expected if name not in reached]
            if missing:
                result.problems.append(f"in the outage, {message} did not reach {missing[:8]}")
        result.counts["broadcasts_in_outage"] = BROADCASTS
        result.counts["detours"] = fleet.counter("detour")
        if not self.power:
            result.require("detours", 1)


class PowerOutage(Outage):
    """The machines lose power: nobody is told."""

    power = True


class Split(Formation):
    """Cut one zone off, then heal."""

    def run(self) -> Result:
        self.result.workload = "split"
        self.grow()
        self.settle()
        if self.result.passed:
            sites = list(dict.fromkeys(p.site for p in self.fleet.processes.values()))
            cut = sites[len(sites) // 2]
            rule = self.simulation.network.partition([cut], [s for s in sites if s != cut])
            self.simulation.run_for(SPLIT_S)
            apart = problems(self.fleet)
            self.result.counts["problems_while_apart"] = len(apart)
            if not apart:
                self.result.problems.append("vacuous: the partition changed nothing")
            self.simulation.network.remove(rule)
            self.settle()
        if self.result.passed:
            self.judge()
        return self.finish()
