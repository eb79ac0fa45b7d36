"""The mixed workload: an overlay under traffic while everything goes wrong, then healed.

Safety phase: faults of a swarm-chosen mixture strike while nodes multicast. At every moment
messages have integrity, are delivered at most once, and no link is handed over from both ends.
Liveness phase: everything is healed; within a bound the overlay is complete and even again, and
every broadcast then reaches every node exactly once along a tree, without a duplicate frame.
"""

from __future__ import annotations

from random import Random

from swell.directory.raft.events import LeaderElected
from swell.events import Event
from swell.node import Node
from swell.overlay.matchers import ADDRESS, BROADCAST, KEY, TOPIC
from swell.overlay.overlay import Overlay
from swell.settings import (
    DirectorySettings,
    OverlaySettings,
    RaftSettings,
    Settings,
    StoreSettings,
)
from swell.simulation.checkers.delivery import DeliveryChecker
from swell.simulation.checkers.migration import MigrationChecker
from swell.simulation.checkers.topology import diameter, problems
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation, derive
from swell.simulation.swarm import Plan, Swarm
from swell.simulation.workloads.result import Result

PORT = 20
CONNECTIONS = 4
FORM_S_MAX = 60.0
FAULTS_S = 60.0
SETTLE_S_MAX = 120.0
"""Everything must be in order again within this time after the healing: the longest suspicion,
a whole round of reports, and a few rounds of recovery and rebalancing."""
IN_FLIGHT_S = 2.0
TRAFFIC_EVERY_S = 0.15
INSIDE_SITE_S = 0.00025
BETWEEN_SITES_S = (0.001, 0.02, 0.08, 0.2)
"""One-way latencies to choose from: from neighbouring halls to other continents. The longer a
step takes, the more steps of others fall into it."""
TOPICS = (b"alpha", b"beta", b"gamma")


def settings(rng: Random) -> Settings:
    """Small zones, and no store. In some runs zones retire hastily, so
    that nodes move as well; in some the directory's log is cut short often."""
    return Settings(
        overlay=OverlaySettings(connections=CONNECTIONS, report_interval_s=2.0),
        directory=DirectorySettings(
            retire_after_s=rng.choice((5.0, 60.0)),
            raft=RaftSettings(snapshot_entries=rng.choice((20, 10_000))),
        ),
        store=StoreSettings(slots=0),
    )


class Mixed:
    """One run of the workload."""

    def __init__(self, seed: int, nodes: int = 0, bugs: frozenset[str] = frozenset()) -> None:
        self.result = Result("mixed", seed)
        self._rng = derive(seed, "mixed")
        between_sites_s = self._rng.choice(BETWEEN_SITES_S)
        self.simulation = Simulation(
            seed, latency=lambda a, b: INSIDE_SITE_S if a == b else between_sites_s
        )
        voters = self._rng.choice((1, 3, 3))
        self.fleet = Fleet(self.simulation, settings(self._rng), bugs, voters)
        self.fleet.on_start = self._on_start
        self.delivery = DeliveryChecker(self.simulation)
        self.migration = MigrationChecker(self.simulation)
        self._backup: dict[str, bytes] = {}
        self._leaders = 0
        self.simulation.on_event(self._on_event)
        zones = self._rng.randint(3, 5)
        for k in range(nodes or zones * 4 + self._rng.randint(0, zones)):
            self.fleet.add(f"n{k}", f"s{k % zones}", rack=f"r{k % 3}")

    def run(self) -> Result:
        """Form, break, heal, judge."""
        simulation, fleet, result = self.simulation, self.fleet, self.result
        if not simulation.run_until_true(lambda: not problems(fleet), FORM_S_MAX, 1.0):
            result.problems += [f"never formed: {p}" for p in problems(fleet)[:5]]
            return self._finish()
        plan = self._plan()
        result.plan = str(plan)
        plan.schedule(simulation)
        simulation.call_later(0.0, self._traffic)
        simulation.run_until(plan.heal_s)
        simulation.call_later(2.0, self._restore_directory)
        settled = self._settle()
        result.counts["settle_s"] = simulation.time_s - plan.heal_s
        if not settled:
            result.problems += [f"not settled: {p}" for p in problems(fleet)[:5]]
        else:
            self._judge_broadcasts()
        return self._finish()

    def _settle(self) -> bool:
        """Until the overlay is in order and what was under way before has arrived."""
        deadline_s = self.simulation.time_s + SETTLE_S_MAX
        while self.simulation.time_s < deadline_s:
            within_s = deadline_s - self.simulation.time_s
            self.simulation.run_until_true(lambda: not problems(self.fleet), within_s, 1.0)
            self.simulation.run_for(IN_FLIGHT_S)
            if not problems(self.fleet):
                return True
        return False

    def _plan(self) -> Plan:
        begin_s = self.simulation.time_s + 1.0
        sites = {name: process.site for name, process in self.fleet.processes.items()}
        voters = self.fleet.voters
        # One of three may lose its disk or die for good: two that do are beyond repair.
        weak = self._rng.choice(voters)
        swarm = Swarm(
            sites,
            begin_s,
            begin_s + FAULTS_S,
            minimum=8,
            returning=frozenset(v for v in voters if v != weak or len(voters) == 1),
            disks=(weak,),
            deaths_max=self._rng.randint(0, 2),
        )
        plan = swarm.plan(self.result.seed)
        for planned in plan.faults:
            if planned.fault.kind == "disk-flip":
                self.simulation.call_at(planned.begin_s - 1e-6, self._back_up_directory)
        return plan

    # The operator: a directory of one voter whose disk is damaged is restored from its last copy.

    def _back_up_directory(self) -> None:
        process = self.fleet.processes[self.fleet.voter]
        if process.alive:
            self._backup = process.disk.snapshot()

    def _restore_directory(self) -> None:
        process = self.fleet.processes[self.fleet.voter]
        if not process.alive and "damaged" in process.ended:
            process.disk.restore(self._backup)
            process.start()
            self.result.counts["restored"] = 1

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        self._leaders += isinstance(event, LeaderElected)

    # Traffic.

    def _on_start(self, node: Node) -> None:
        def joined() -> None:
            overlay = node.overlay
            assert overlay is not None
            overlay.multicast.listen(PORT, lambda message: None)
            address = b"a:" + node.config.name.encode()
            if not overlay.interest.wanted_here(address):
                overlay.interest.subscribe(address)
                overlay.interest.subscribe(b"t:" + TOPICS[overlay.me.id % len(TOPICS)])

        node.on_joined = joined

    def _traffic(self) -> None:
        """A random running node sends something."""
        living = [p for p in self.fleet.processes.values() if p.alive and not p.paused]
        overlays = [
            node.overlay
            for process in living
            if (node := self.fleet.node(process.name)) is not None and node.overlay is not None
        ]
        if overlays:
            _send(self._rng.choice(overlays), self._rng, list(self.fleet.processes))
        self.simulation.call_later(TRAFFIC_EVERY_S, self._traffic)

    # The verdict.

    def _judge_broadcasts(self) -> None:
        """In order again: one broadcast from every node reaches all, over a tree."""
        fleet, simulation, result = self.fleet, self.simulation, self.result
        if diameter(fleet) > 3:
            result.problems.append(f"diameter {diameter(fleet)}")
        before = fleet.counter("duplicate") + fleet.counter("duplicate-own")
        names = sorted(overlay.me.name for overlay in fleet.living())
        sent = [o.multicast.send(BROADCAST, b"", PORT, b"all") for o in fleet.living()]
        simulation.run_for(3.0)
        for message in sent:
            reached = self.delivery.reached(message)
            if sorted(reached) != names:
                missing = [name for name in names if name not in reached]
                result.problems.append(f"settled, but {message} did not reach {missing}")
        result.counts["settled_broadcasts"] = len(sent)
        extra = fleet.counter("duplicate") + fleet.counter("duplicate-own") - before
        if extra:
            result.problems.append(f"settled, but {extra} duplicate frames were sent")

    def _finish(self) -> Result:
        simulation, result = self.simulation, self.result
        result.problems += self.delivery.violations[:5] + self.migration.violations[:5]
        result.faults = dict(simulation.counters)
        struck = [n for kind, n in simulation.counters.items() if kind.startswith("fault ")]
        result.counts |= {
            "faults": sum(struck),
            "multicasts": self.delivery.sent,
            "deliveries": self.delivery.delivered,
            "handovers": self.migration.done,
            "voters": len(self.fleet.voters),
            "leaders": self._leaders,
            "virtual_s": simulation.time_s,
        }
        if result.passed:
            result.require("faults", 5)
            result.require("multicasts", 100)
            result.require("deliveries", 500)
            result.require("virtual_s", 60)
            result.require("settled_broadcasts", 8)
        result.digest = simulation.trace.digest()
        result.virtual_s = simulation.time_s
        result.events = simulation.events
        return result


def _send(overlay: Overlay, rng: Random, names: list[str]) -> None:
    kind = rng.choice((BROADCAST, BROADCAST, BROADCAST, TOPIC, ADDRESS, KEY))
    target = {
        BROADCAST: b"",
        TOPIC: rng.choice(TOPICS),
        ADDRESS: rng.choice(names).encode(),
        KEY: rng.randbytes(8),
    }[kind]
    overlay.multicast.send(kind, target, PORT, b"payload")


def run(seed: int, nodes: int = 0, bugs: frozenset[str] = frozenset()) -> Result:
    """Run the mixed workload once."""
    return Mixed(seed, nodes, bugs).run()
