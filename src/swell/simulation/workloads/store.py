"""The store workload: clients of a cluster in which everything goes wrong, then healed.

Safety phase: faults of a swarm-chosen mixture strike for 60 virtual seconds, all nodes at once
included, losses of single copies of the data among them, while clients run all nine operations.
At every moment at most one node serves a slot in an epoch; in the end the history of every key is
linearizable: no acknowledged write is lost, none is applied twice, no read is stale. Liveness
phase: everything is healed; within `PROGRESS_S_MAX` every client has written and read every key,
and within `SETTLE_S_MAX` every slot is at full strength and its members hold the same.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from swell.settings import (
    DirectorySettings,
    OverlaySettings,
    RaftSettings,
    Settings,
    StoreSettings,
)
from swell.simulation.checkers.store import weaknesses
from swell.simulation.simulation import Simulation, derive
from swell.simulation.swarm import Plan, Swarm
from swell.simulation.workloads.cluster import SHOWN_MAX
from swell.simulation.workloads.result import Result
from swell.simulation.workloads.store_clients import CHAIN, StoreClient
from swell.simulation.workloads.store_cluster import StoreCluster
from swell.simulation.workloads.store_duel import Duel
from swell.simulation.workloads.store_losses import Losses
from swell.simulation.workloads.store_profiles import Profile, profile_of
from swell.simulation.workloads.strikes import Strikes

ZONES = 3
NODES = (9, 12)
CLIENTS = (6, 8)
KEYS = 14
CHAINS = 2
SLOTS = 8
FAULTS_S = 60.0
PROGRESS_S_MAX = 20.0
SETTLE_S_MAX = 60.0
CLIENT_CRASHES_MAX = 4
INSIDE_SITE_S = 0.00025
BETWEEN_SITES_S = (0.001, 0.005, 0.02)


def settings(rng: Random, profile: Profile) -> Settings:
    """Few slots, so that much happens to each; snapshots and copies of states in half the runs."""
    snapshot_entries = rng.choice((50, 10_000))
    store = StoreSettings(
        slots=SLOTS,
        beat_interval_s=0.4,
        keep_entries=rng.choice((8, 256)),
        journal_bytes_max=rng.choice((32 * 1024, 64 * 1024 * 1024)),
    )
    raft = RaftSettings(snapshot_entries=snapshot_entries)
    if profile.duel:
        raft = RaftSettings(tick_s=0.03, election_ticks=4, snapshot_entries=snapshot_entries)
    return Settings(
        overlay=OverlaySettings(connections=6, report_interval_s=1.0),
        directory=DirectorySettings(retire_after_s=600.0, raft=raft),
        store=replace(store, lease_s=profile.lease_s) if profile.lease_s else store,
    )


class StoreRun(StoreCluster):
    """One run of the workload."""

    def __init__(self, seed: int, nodes: int = 0, bugs: frozenset[str] = frozenset()) -> None:
        rng = self._rng = derive(seed, "store")
        self.profile = profile_of(bugs)
        between_s = rng.choice(BETWEEN_SITES_S)
        simulation = Simulation(seed, latency=lambda a, b: INSIDE_SITE_S if a == b else between_s)
        voters = self.profile.voters or rng.choice((3, 3, 3, 1))
        super().__init__(
            Result("store", seed), simulation, settings(rng, self.profile), voters, bugs
        )
        self.add_nodes(nodes or rng.randint(*NODES), ZONES)
        self.keys = [f"key{k}" for k in range(KEYS)] + [f"{CHAIN}{k}" for k in range(CHAINS)]
        self.add_clients(rng.randint(*CLIENTS), ZONES, self.keys)

    def run(self) -> Result:
        """Form, break, heal, judge."""
        if not self.form():
            return self.finish()
        for process in self.fleet.processes.values():
            process.disk.delay_s = self.profile.disk_delay_s
        plan = self._plan()
        losses, strikes = self._losses(plan), self._strikes(plan)
        losses.schedule()
        strikes.schedule()
        self._schedule_client_crashes(plan)
        if self.profile.duel:
            Duel(self.fleet, derive(self.result.seed, "duel"), plan.heal_s).begin()
        plan.schedule(self.simulation)
        self.simulation.run_until(plan.heal_s)
        found = [str(plan), "losses and newcomers:", *losses.struck, "strikes:", *strikes.struck]
        self.result.plan = "\n".join(found)
        self._judge_progress()
        if self.profile.lively:
            self._judge_repair(plan.heal_s)
        self.judge_history()
        result = self.finish()
        if result.passed:
            for what, minimum in self.profile.required.items():
                result.require(what, minimum)
        return result

    # The faults.

    def _plan(self) -> Plan:
        begin_s = self.simulation.time_s + 1.0
        swarm = Swarm(
            {name: process.site for name, process in self.fleet.processes.items()},
            begin_s,
            begin_s + FAULTS_S,
            minimum=self.profile.minimum,
            maximum=self.profile.maximum,
            kinds=self.profile.kinds,
        )
        return swarm.plan(self.result.seed)

    def _losses(self, plan: Plan) -> Losses:
        return Losses(
            self.fleet,
            derive(self.result.seed, "losses"),
            self.simulation.time_s + 1.0,
            plan.heal_s,
            lambda: not weaknesses(self.fleet),
            self.fleet.voters,
            self.profile.losses,
            self.profile.losses_max,
        )

    def _strikes(self, plan: Plan) -> Strikes:
        rng = derive(self.result.seed, "strikes")
        return Strikes(
            self.fleet,
            rng,
            self.simulation.time_s + 1.0,
            plan.heal_s,
            rng.randint(*self.profile.strikes),
            self.profile.strike_kinds,
        )

    def _schedule_client_crashes(self, plan: Plan) -> None:
        for _ in range(self._rng.randint(0, CLIENT_CRASHES_MAX)):
            at_s = self._rng.uniform(self.simulation.time_s + 1.0, plan.heal_s)
            self.simulation.call_at(at_s, self._rng.choice(self.clients).crash)

    # Liveness.

    def _judge_repair(self, healed_s: float) -> None:
        """Every slot is where it should be, whole and the same at all members."""
        if not self.settled(healed_s + SETTLE_S_MAX - self.simulation.time_s):
            self.complain("not repaired")
        self.result.counts["settle_s"] = self.simulation.time_s - healed_s
        self.read_chains([key for key in self.keys if key.startswith(CHAIN)])
        self.judge_replicas()

    def _judge_progress(self) -> None:
        """Every client writes and reads every key, in time."""
        simulation = self.simulation
        began_s = simulation.time_s
        waiting: dict[tuple[str, str], None] = {}
        for client in self.clients:
            client.resting = True
            for key in self.keys:
                waiting[key, client.name] = None
                self._write_and_read(client, key, waiting)
        simulation.run_until_true(lambda: not waiting, PROGRESS_S_MAX, 0.1)
        self.result.counts["progress_s"] = simulation.time_s - began_s
        stuck: dict[str, int] = {}
        for key, _ in waiting:
            stuck[key] = stuck.get(key, 0) + 1
        if self.profile.lively:
            self.result.problems += [
                f"no progress within {PROGRESS_S_MAX:g} s after healing: {key} for {count} clients"
                for key, count in list(stuck.items())[:SHOWN_MAX]
            ]

    def _write_and_read(
        self, client: StoreClient, key: str, waiting: dict[tuple[str, str], None]
    ) -> None:
        due_s = self.simulation.time_s + PROGRESS_S_MAX

        def read(known: bool) -> None:
            left_s = due_s - self.simulation.time_s
            if known and left_s > 0.0:
                client.execute(key, ("get",), left_s, end)

        def end(known: bool) -> None:
            if known:
                del waiting[key, client.name]

        if key.startswith(CHAIN):
            read(True)
        else:
            client.execute(key, ("put", client.new_value()), PROGRESS_S_MAX, read)
