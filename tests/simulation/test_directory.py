"""The directory's voters under a storm of their own, while nodes come and go.

Voters are killed, paused, cut off, lose power, one at a time loses its whole disk; other nodes
start again and again. At every moment all voters that applied as much have applied the same; no id
is ever given to two names; in the end everybody is in, all voters vote, and their states are equal.
"""

from __future__ import annotations

import os

import pytest

from swell.directory.records import Record, encode
from swell.directory.service import DirectoryService
from swell.node import Node
from swell.settings import (
    DirectorySettings,
    OverlaySettings,
    RaftSettings,
    Settings,
    StoreSettings,
)
from swell.simulation.checkers.topology import problems
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation

STORM_S = 60.0
STRIKE_S = 3.0
RESTART_S = 1.7
SETTLE_S = 90.0


class Storm:
    """One run."""

    def __init__(self, seed: int, voters: int) -> None:
        self.simulation = Simulation(seed)
        self.fleet = Fleet(
            self.simulation,
            Settings(
                overlay=OverlaySettings(connections=4, report_interval_s=2.0),
                directory=DirectorySettings(raft=RaftSettings(snapshot_entries=15)),
                store=StoreSettings(slots=4),
            ),
            voters=voters,
        )
        self.fleet.on_start = self._watch
        self.rng = self.simulation.rng("storm")
        self.names: dict[int, str] = {}
        """Id → the name it was given to."""
        self.states: dict[int, bytes] = {}
        """Index → the state of the first voter that applied it."""
        self.wrong: list[str] = []
        self.strikes: dict[str, int] = {}
        for k in range(9):
            self.fleet.add(f"n{k}", f"s{k % 3}")

    def services(self) -> list[DirectoryService]:
        nodes = (self.fleet.node(name) for name in self.fleet.voters)
        return [node.service for node in nodes if node is not None and node.service is not None]

    def _watch(self, node: Node) -> None:
        service = node.service
        if service is None:
            return

        def applied(record: Record) -> None:
            for number, entry in service.state.nodes.items():
                known = self.names.setdefault(number, entry.contact.name)
                if known != entry.contact.name:
                    self.wrong.append(f"id {number} was given to {known} and {entry.contact.name}")

        service.on_applied.append(applied)

    def compare(self) -> None:
        """Voters that applied as much know the same."""
        for service in self.services():
            core = None if service.raft is None else service.raft.core
            if core is not None and core.log.applied:
                state = encode(list(service.state.snapshot()))
                if self.states.setdefault(core.log.applied, state) != state:
                    self.wrong.append(f"two states after {core.log.applied} entries")

    def sound(self) -> bool:
        """Do all voters run and vote?"""
        facts = [service.statistics() for service in self.services()]
        return len(facts) == len(self.fleet.voters) and all(
            fact.get("voters") == sorted(self.fleet.voters) and not fact["unclean"]
            for fact in facts
        )

    def equal(self) -> bool:
        """Do all voters know the same now?"""
        return len({encode(list(service.state.snapshot())) for service in self.services()}) == 1

    def run(self) -> None:
        end_s = self.simulation.time_s + STORM_S
        strike_at = restart_at = self.simulation.time_s
        while self.simulation.time_s < end_s:
            if self.simulation.time_s >= strike_at:
                strike_at += STRIKE_S * self.rng.uniform(0.5, 1.5)
                self._strike()
            if self.simulation.time_s >= restart_at:
                restart_at += RESTART_S
                self._restart()
            self.simulation.run_for(0.1)
            self.compare()
        self.simulation.heal(())

    def _strike(self) -> None:
        """Often the leader, else any voter."""
        leader = self.fleet.leader()
        name = self.rng.choice(self.fleet.voters)
        if leader is not None and self.rng.random() < 0.6:
            name = leader.config.name
        kinds = ["kill", "power", "pause", "cut"] + (["wipe"] if self.sound() else [])
        kind = self.rng.choice(kinds)
        self.strikes[kind] = self.strikes.get(kind, 0) + 1
        process, later = self.fleet.processes[name], self.simulation.call_later
        lasts_s = self.rng.uniform(0.2, 5.0)
        match kind:
            case "kill" | "power" | "wipe":
                process.crash(power=kind == "power")
                if kind == "wipe":
                    process.disk.restore({})
                later(lasts_s, process.start)
            case "pause":
                process.pause()
                later(lasts_s, process.resume)
            case "cut":
                rest = [other for other in self.fleet.processes if other != name]
                rule = self.simulation.network.partition([name], rest)
                later(lasts_s, lambda: self.simulation.network.remove(rule))

    def _restart(self) -> None:
        others = [name for name in self.fleet.processes if name not in self.fleet.voters]
        process = self.fleet.processes[self.rng.choice(others)]
        process.crash()
        self.simulation.call_later(0.5, process.start)


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("seed", range(int(os.environ.get("SWELL_DIRECTORY", "3"))))
def test_voters_agree_through_a_storm(seed: int, voters: int) -> None:
    storm = Storm(seed, voters)
    simulation, fleet = storm.simulation, storm.fleet
    assert simulation.run_until_true(lambda: not problems(fleet), 60.0, 1.0)
    storm.run()
    settled = simulation.run_until_true(
        lambda: storm.sound() and not problems(fleet), SETTLE_S, 0.5
    )
    assert settled, (problems(fleet)[:3], [s.statistics() for s in storm.services()])
    assert simulation.run_until_true(storm.equal, 10.0, 0.05)
    storm.compare()
    assert storm.wrong == []
    assert sum(storm.strikes.values()) >= 10
    assert max(s.statistics()["term"] for s in storm.services()) >= 4, "too few elections"
