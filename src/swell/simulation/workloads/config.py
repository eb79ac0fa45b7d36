"""The configurations workload: containers follow what administrators publish, while everything goes
wrong, then healed.

Safety phase: for 60 virtual seconds faults strike nodes, containers and the paths between them, all
nodes at once included; some containers relay in bad faith; where chance brought too little of
something, a little longer (`swell.simulation.workloads.config_enough`). At every moment what
machines, clients and containers have are versions of one chain per configuration. Liveness phase:
everything is healed; within `PROGRESS_S_MAX` every administrator has published in every
application, and within `REACH_S_MAX` every container has the newest step of all it follows.
"""

from __future__ import annotations

from random import Random

from swell.config.edits import Whole
from swell.settings import (
    ConfigSettings,
    DirectorySettings,
    OverlaySettings,
    Settings,
    StoreSettings,
)
from swell.simulation.checkers.publications import Outcome, Publication
from swell.simulation.simulation import Simulation, derive
from swell.simulation.swarm import Plan, Swarm
from swell.simulation.workloads.cluster import SHOWN_MAX
from swell.simulation.workloads.config_administrators import Administrator
from swell.simulation.workloads.config_containers import manner
from swell.simulation.workloads.config_enough import Enough
from swell.simulation.workloads.config_fleet import ConfigFleet, malice_of
from swell.simulation.workloads.config_profiles import ConfigProfile, profile_of
from swell.simulation.workloads.config_values import NAMES, whole
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.strikes import CRASH, POWER, Strikes
from swell.world import Resources

NODES = (6, 8)
CONTAINERS = (30, 36)
ADMINISTRATORS = (4, 5)
APPLICATIONS = ("shop", "bank", "mail", "post")
SLOTS = 8
FAULTS_S = 60.0
PROGRESS_S_MAX = 20.0
REACH_S_MAX = 30.0
ADMINISTRATOR_CRASHES_MAX = 3
INSIDE_SITE_S = 0.00025
BETWEEN_SITES_S = (0.001, 0.005, 0.02)
ARRIVE_S = 2.0
CPU_FREE = (1.0, 0.3, 0.1)
"""Of a node: on a busy one bursts wait for each other, and some ask for no receipts."""


def settings(rng: Random) -> Settings:
    """Small trees, short histories and short bursts in some runs: little is then enough to get to
    the edge of each. Whole values only, in bursts that end anywhere, belong to no step."""
    burst_bytes_max = rng.choice((300, 2000, 256 * 1024))
    receipt_wait_s = rng.choice((0.3, 0.6))
    return Settings(
        overlay=OverlaySettings(connections=6, report_interval_s=1.0),
        directory=DirectorySettings(retire_after_s=600.0),
        store=StoreSettings(
            slots=SLOTS, beat_interval_s=0.4, journal_bytes_max=rng.choice((64, 65_536)) * 1024
        ),
        config=ConfigSettings(
            relay_fanout=rng.choice((2, 3, 60)),
            server_fanout=rng.choice((1, 2, 64)),
            incremental=burst_bytes_max < 256 * 1024 or rng.random() < 0.7,
            adaptive=rng.random() < 0.8,
            list_digests=rng.random() < 0.8,
            bursts_open=rng.choice((1, 2, 4)),
            burst_bytes_max=burst_bytes_max,
            receipt_wait_s=receipt_wait_s,
            hold_bursts=rng.choice((2, 64)),
            # A relay is found out before those behind it help themselves.
            repair_s=3.0 * receipt_wait_s,
            renew_s=rng.choice((1.0, 4.0)),
            keep_versions=rng.choice((4, 64)),
            score_s=rng.choice((1.0, 5.0)),
            offline_s=rng.choice((5.0, 600.0)),
        ),
    )


GROUP = 4
"""At least so many containers of every application at each site: three need no relay."""


class ConfigRun(ConfigFleet):
    """One run of the workload."""

    def __init__(self, seed: int, nodes: int = 0, bugs: frozenset[str] = frozenset()) -> None:
        rng = self._rng = derive(seed, "config")
        self.profile: ConfigProfile = profile_of(bugs)
        between_s = rng.choice(BETWEEN_SITES_S)
        simulation = Simulation(seed, latency=lambda a, b: INSIDE_SITE_S if a == b else between_s)
        voters = rng.choice((3, 3, 3, 1))
        applications = APPLICATIONS[: rng.randint(2, len(APPLICATIONS))]
        super().__init__(
            Result("config", seed), simulation, settings(rng), voters, applications, bugs
        )
        sites = rng.choice((2, 3))
        self.add_nodes(nodes or rng.randint(*NODES), sites)
        busy = derive(seed, "busy")
        for process in self.fleet.processes.values():
            process.resources = Resources(busy.choice(CPU_FREE), 1.0, 1.0)
        self._struck: list[Strikes] = []
        places = [f"s{k}" for k in range(sites)]
        count = max(rng.randint(*CONTAINERS), GROUP * len(applications) * sites)
        crooked = rng.sample(range(count), rng.randint(*self.profile.malicious))
        for k in range(count):
            name, malice = f"c{k:02}", None
            if k in crooked:
                deed = rng.choice(self.profile.deeds)
                malice = malice_of(deed, name, simulation, rng.choice((0.5, 1.0)))
            self.add_container(name, manner(rng, self.applications, places, k), malice)
        for k in range(rng.randint(*ADMINISTRATORS)):
            self.add_administrator(places[k % sites])

    def run(self) -> Result:
        """Form, break, heal, judge."""
        if not self.form():
            return self.finish()
        simulation = self.simulation
        for container in self.containers.values():
            container.process.disk.delay_s = self.profile.disk_delay_s
            arrive_s = self._rng.uniform(0.0, ARRIVE_S)
            simulation.call_later(arrive_s, container.process.start)
        for administrator in self.administrators:
            administrator.start()
        self.look()
        plan = self._nodes_plan()
        found = [str(plan), *self._disturb(plan)]
        plan.schedule(simulation)
        simulation.run_until(plan.heal_s)
        struck = [line for strikes in self._struck for line in strikes.struck]
        enough = Enough(self, self.profile.required, derive(self.result.seed, "enough"))
        enough.go_on()
        self.result.plan = "\n".join([*found, "strikes:", *struck, *enough.struck])
        healed_s = simulation.time_s
        self._judge_progress()
        self._judge_reach(healed_s)
        self.judge()
        result = self.finish()
        if result.passed:
            for what, minimum in self.profile.required.items():
                result.require(what, minimum)
        return result

    # The faults.

    def _nodes_plan(self) -> Plan:
        begin_s = self.simulation.time_s + 1.0
        fewest, most = self.profile.node_faults
        return Swarm(
            {name: process.site for name, process in self.fleet.processes.items()},
            begin_s,
            begin_s + FAULTS_S,
            minimum=fewest,
            maximum=most,
            kinds=self.profile.node_kinds,
        ).plan(self.result.seed)

    def _containers_plan(self, heal_s: float) -> Plan:
        fewest, most = self.profile.container_faults
        return Swarm(
            {name: one.manner.site for name, one in self.containers.items()},
            heal_s - FAULTS_S + ARRIVE_S,
            heal_s,
            minimum=fewest,
            maximum=most,
            kinds=self.profile.container_kinds,
            against=tuple(self.fleet.processes),
            name="containers",
        ).plan(self.result.seed)

    def _disturb(self, plan: Plan) -> list[str]:
        """Everything beside the faults of the nodes; the lists of what will have struck."""
        begin_s, heal_s = self.simulation.time_s + 1.0, plan.heal_s
        containers = self._containers_plan(heal_s)
        containers.schedule(self.simulation)
        for _ in range(self._rng.randint(0, ADMINISTRATOR_CRASHES_MAX)):
            at_s = self._rng.uniform(begin_s, heal_s)
            self.simulation.call_at(at_s, self._rng.choice(self.administrators).crash)
        strikes, relay_strikes = self._strikes(begin_s, heal_s), self._relay_strikes(heal_s)
        strikes.schedule()
        relay_strikes.schedule()
        self._struck = [strikes, relay_strikes]
        return [str(containers)]

    def _strikes(self, begin_s: float, heal_s: float) -> Strikes:
        rng = derive(self.result.seed, "strikes")
        return Strikes(self.fleet, rng, begin_s, heal_s, rng.randint(*self.profile.strikes))

    def _relay_strikes(self, heal_s: float) -> Strikes:
        rng = derive(self.result.seed, "relay strikes")
        return Strikes(
            self.fleet,
            rng,
            heal_s - FAULTS_S + ARRIVE_S,
            heal_s,
            rng.randint(*self.profile.relay_strikes),
            (CRASH, POWER),
            what="relay",
            find=self.relays,
        )

    # Liveness.

    def _judge_progress(self) -> None:
        """Every administrator publishes in every application, in time."""
        simulation = self.simulation
        began_s = simulation.time_s
        waiting: dict[tuple[str, str], None] = {}
        for administrator in self.administrators:
            administrator.resting = True
            for application in self.applications:
                waiting[administrator.name, application] = None
                self._publish(administrator, application, waiting)
        simulation.run_until_true(lambda: not waiting, PROGRESS_S_MAX, 0.1)
        self.result.counts["progress_s"] = simulation.time_s - began_s
        self.result.problems += [
            f"{name} could not publish in {application} within {PROGRESS_S_MAX:g} s after healing"
            for name, application in list(waiting)[:SHOWN_MAX]
        ]

    def _publish(
        self,
        administrator: Administrator,
        application: str,
        waiting: dict[tuple[str, str], None],
    ) -> None:
        rng = administrator.rng
        name = rng.choice(NAMES)
        mark = f"{administrator.name} at last"
        edits = (Whole(name, whole(rng, name, mark)),)

        def ended(publication: Publication) -> None:
            if publication.outcome is not Outcome.UNKNOWN:
                del waiting[administrator.name, application]

        administrator.publish(application, edits, PROGRESS_S_MAX, ended)

    def _judge_reach(self, healed_s: float) -> None:
        """Every container has the newest step of all it follows."""
        within_s = healed_s + REACH_S_MAX - self.simulation.time_s
        if not self.simulation.run_until_true(lambda: not self.lacking(), within_s, 0.5):
            found = [f"{REACH_S_MAX:g} s after healing {one}" for one in self.lacking()]
            self.result.problems += found[:SHOWN_MAX]
        self.result.counts["reach_s"] = self.simulation.time_s - healed_s
