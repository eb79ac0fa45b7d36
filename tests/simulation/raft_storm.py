"""A storm: elections without end, for the bugs that a few elections in a run do not show.

Short time-outs, slow disks and one entry per frame; new leaders that are ambushed (cut off with a
tail of their own, or killed with a voter of theirs), pairs that do not hear each other, and power
lost everywhere at once.
"""

from __future__ import annotations

from collections.abc import Callable

from swell.directory.raft.events import LeaderElected
from swell.events import Event
from swell.settings import RaftSettings
from swell.simulation import Process, SimulationFailure
from tests.simulation.raft_group import Group

STORM = RaftSettings(
    tick_s=0.03,
    election_ticks=4,
    append_entries_max=1,
    inflight_max=1,
    snapshot_entries=200,
    keep_entries=50,
)
STORM_S = 20.0
CALM_S = 8.0


class Storm:
    """One seed of it; `problems` is empty if everything held."""

    def __init__(self, seed: int, size: int, bugs: frozenset[str] = frozenset()) -> None:
        self.group = Group(seed, size, bugs=bugs, settings=STORM)
        self.rng = self.group.simulation.rng("storm")
        self.problems = self.group.checker.problems
        for process in self.group.processes:
            process.disk.delay_s = self.rng.choice((0.0, 0.005, 0.02))
        self.group.simulation.on_event(self.on_event)
        self.actions: tuple[Callable[[], None], ...] = (
            self.crash_one,
            self.crash_one,
            self.crash_leader,
            self.isolate_leader,
            self.isolate_leader,
            self.cut_pair,
            self.cut_pair,
            self.black_out,
        )

    def run(self) -> list[str]:
        simulation, group = self.group.simulation, self.group
        try:
            self.blow()
            simulation.run_until(STORM_S)
            simulation.heal()
            simulation.run_for(1.0)
            beyond = max(group.checker.commands, default=0)
            if not simulation.run_until_true(lambda: group.agree(beyond, group.names), CALM_S):
                self.problems.append(f"liveness: not everybody goes on {CALM_S} s after the storm")
        except SimulationFailure as failure:
            self.problems.append(str(failure))
        return self.problems

    def blow(self) -> None:
        simulation = self.group.simulation
        if simulation.time_s < STORM_S - 2.0:
            self.rng.choice(self.actions)()
            simulation.call_later(self.rng.uniform(0.05, 0.7), self.blow)

    def on_event(self, time_s: float, process: str, event: Event) -> None:
        """Ambush new leaders, before or while they bring their followers up to date."""
        if not isinstance(event, LeaderElected) or time_s > STORM_S - 2.0:
            return
        others = [name for name in self.group.names if name != process]
        chance = self.rng.random()
        later = self.group.simulation.call_later
        if chance < 0.35:
            later(self.rng.uniform(0.0, 0.02), lambda: self.cut([process], others))
        elif chance < 0.5:
            victim = self.group.simulation.processes[process]
            later(self.rng.uniform(0.02, 0.3), lambda: self.crash(victim))
        elif chance < 0.75:
            voter = self.group.simulation.processes[self.rng.choice(others)]
            later(self.rng.uniform(0.0, 0.005), lambda: self.crash(voter))
            later(0.0, lambda: self.cut([process], others))

    def crash(self, process: Process) -> None:
        process.crash(power=self.rng.random() < 0.3)
        self.group.simulation.call_later(self.rng.uniform(0.01, 0.5), process.start)

    def crash_one(self) -> None:
        self.crash(self.rng.choice(self.group.processes))

    def crash_leader(self) -> None:
        leader = self.group.leader()
        if leader is not None:
            self.crash(self.group.simulation.processes[leader.name])

    def isolate_leader(self) -> None:
        """Alone, or with one follower."""
        leader = self.group.leader()
        if leader is None:
            return
        others = [name for name in self.group.names if name != leader.name]
        self.rng.shuffle(others)
        company = others[: self.rng.choice((0, 0, 1))]
        self.cut([leader.name, *company], [name for name in others if name not in company])

    def cut_pair(self) -> None:
        left, right = self.rng.sample(self.group.names, 2)
        self.cut([left], [right])

    def cut(self, left: list[str], right: list[str]) -> None:
        network = self.group.simulation.network
        rule = network.partition(left, right)
        self.group.simulation.call_later(self.rng.uniform(0.1, 1.2), lambda: network.remove(rule))

    def black_out(self) -> None:
        if self.rng.random() < 0.3:
            for process in self.group.processes:
                process.crash(power=True)
                self.group.simulation.call_later(self.rng.uniform(0.01, 0.3), process.start)


class Duel(Storm):
    """Three voters, two of which never hear each other: both stand in every election, and the
    third dies as soon as it has made one of them the leader, to be back at once."""

    def __init__(self, seed: int, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(seed, 3, bugs)
        self.actions = (self.crash_judge, self.isolate_leader)
        names = self.rng.sample(self.group.names, 3)
        self.judge = names.pop()
        self.rivals = names
        self.group.simulation.processes[self.judge].disk.delay_s = 0.0
        self.group.simulation.network.partition(names[:1], names[1:])

    def crash_judge(self) -> None:
        process = self.group.simulation.processes[self.judge]
        process.crash()
        self.group.simulation.call_later(self.rng.uniform(0.001, 0.02), process.start)

    def on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, LeaderElected) and process in self.rivals and time_s < STORM_S - 2.0:
            self.crash_judge()
            self.cut([process], [self.judge])
