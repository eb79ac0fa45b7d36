"""The overlay in simulation: what THOR promises, grown, struck and healed (THR-1 to THR-11)."""

from __future__ import annotations

import os
import resource
import time

import pytest

from swell.ids import MessageId
from swell.overlay.matchers import ADDRESS
from swell.overlay.overlay import Overlay
from swell.settings import OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.topology import problems
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.catalogue import BUGS, run
from swell.simulation.workloads.formation import PORT, Formation
from tests.simulation.seeds import digests, failures, seeds_to_catch

MIXED_SEEDS = int(os.environ.get("SWELL_SEEDS", "50"))


def test_thr_1_200_nodes_grow_into_three_hops() -> None:
    result = run("formation", seed=1, size=10)
    assert result.problems == []
    assert (result.counts["nodes"], result.counts["zones"]) == (200, 25)
    assert result.counts["diameter"] == 3


@pytest.mark.skipif("SWELL_LARGE" not in os.environ, reason="a minute long: make simulate")
def test_thr_1_1386_nodes_form_in_two_minutes_and_one_gibibyte() -> None:
    begun = time.perf_counter()
    result = run("formation", seed=1, size=20)
    wall_s = time.perf_counter() - begun
    assert result.problems == []
    assert (result.counts["nodes"], result.counts["zones"]) == (1386, 99)
    assert wall_s < 120.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1024 * 1024


@pytest.mark.parametrize("workload", ["outage", "power-outage"])
def test_thr_11_an_outage_of_30_percent_loses_nothing_that_a_detour_connects(workload: str) -> None:
    result = run(workload, seed=2, size=10)
    assert result.problems == []
    assert result.counts["killed"] == 60


def test_a_zone_that_was_cut_off_converges() -> None:
    assert run("split", seed=3, size=10).problems == []


@pytest.mark.timeout(120 + 2 * MIXED_SEEDS)
def test_mixed_faults() -> None:
    assert failures("mixed", MIXED_SEEDS) == []


def test_planted_bugs_are_caught() -> None:
    missed = [bug for bug, seeds in seeds_to_catch("mixed", BUGS).items() if not seeds]
    assert missed == []


def test_a_run_without_faults_is_vacuous() -> None:
    result = run("mixed", seed=0)
    result.counts["faults"] = 2
    result.require("faults", 5)
    assert result.problems == ["vacuous: faults is 2, at least 5 needed"]


def test_a_seed_replays_exactly_under_another_hash_seed() -> None:
    assert len(digests("mixed", 4)) == 1


def _between(source: Overlay, target: Overlay, way: int, entry: int, fleet: Fleet) -> list[int]:
    """The nodes of one path of a mesh that are neither its source nor its target."""
    hop = source.zonelinks.holders[way][0]
    nodes = [hop, entry]
    if way != target.me.zone:
        exits = [o for o in fleet.zones()[way] if target.me.zone in o.zonelinks.mine]
        nodes += [overlay.me.id for overlay in exits]
    return [node for node in nodes if node not in (source.me.id, target.me.id)]


def test_thr_11_mesh_survives_a_failure_on_every_path_but_one() -> None:
    """One machine in the middle of all disjoint paths but one loses power; the message, sent
    before anybody can know, still arrives, once."""
    formation = Formation(seed=5, connections=10)
    formation.grow()
    formation.settle()
    assert formation.result.problems == []
    fleet, simulation = formation.fleet, formation.simulation
    rng = simulation.rng("mesh")
    paths_seen = []
    for _ in range(3):
        living = {overlay.me.id: overlay for overlay in fleet.living()}
        source, target = rng.sample(list(living.values()), 2)
        if source.me.zone == target.me.zone:
            continue
        place = (target.me.zone, target.me.id)
        sent: list[tuple[MessageId, int]] = []
        source.mesh.send(*place, PORT, b"first", lambda *result, got=sent: got.append(result))
        simulation.run_for(1.0)
        paths_seen.append(sent[0][1])
        assert target.me.name in formation.delivery.reached(sent[0][0])

        entries = source.mesh._tables[target.me.zone][1]
        ways = source.mesh.ways(*place, entries)
        ways.remove(rng.choice(ways))
        for way in ways:
            entry = entries.get(way, 0) if way != target.me.zone else 0
            between = [node for node in _between(source, target, way, entry, fleet) if node]
            if between:
                fleet.crash([living[rng.choice(between)].me.name], power=True)
        source.mesh.send(*place, PORT, b"second", lambda *result, got=sent: got.append(result))
        simulation.run_for(1.0)
        assert sent[1][1] == len(ways) + 1
        assert target.me.name in formation.delivery.reached(sent[1][0])
        if not fleet.processes[fleet.voter].alive:
            fleet.processes[fleet.voter].start()
        formation.settle()
    assert formation.delivery.violations == []
    assert max(paths_seen) >= 7, paths_seen


def test_spi_1_a_zone_cut_off_from_the_directory_is_supervised_by_another() -> None:
    simulation = Simulation(seed=1)
    fleet = Fleet(
        simulation, Settings(overlay=OverlaySettings(connections=4), store=StoreSettings(slots=0))
    )
    for k in range(12):
        fleet.add(f"n{k}", f"s{k % 3}")
    assert simulation.run_until_true(lambda: not problems(fleet), 60.0, 1.0)
    far = [name for name, process in fleet.processes.items() if process.site == "s2"]
    simulation.network.partition([fleet.voter], far)
    simulation.run_for(90.0)
    fleet.add("late", "s1")
    simulation.run_for(60.0)

    voter = fleet.node(fleet.voter)
    assert voter is not None
    assert voter.service is not None
    state = voter.service.state
    assert all(state.nodes[state.names[name]].up for name in far)
    assert fleet.counter("supervised") > 0
    views = {overlay.me.zone: overlay.view.epoch for overlay in fleet.living()}
    assert set(views.values()) == {state.epoch}


def test_thr_9_a_client_is_reached_at_its_address_after_its_node_moved() -> None:
    simulation = Simulation(seed=2)
    fleet = Fleet(
        simulation, Settings(overlay=OverlaySettings(connections=4), store=StoreSettings(slots=0))
    )
    for k in range(12):
        fleet.add(f"n{k}", f"s{k % 2}")
    assert simulation.run_until_true(lambda: not problems(fleet), 60.0, 1.0)
    mover, sender = fleet.node("n3"), fleet.node("n4")
    assert mover is not None
    assert mover.overlay is not None
    assert sender is not None
    assert sender.overlay is not None
    got: list[bytes] = []

    def listen() -> None:
        assert mover.overlay is not None
        mover.overlay.multicast.listen(PORT, lambda message: got.append(message.payload))

    mover.on_joined = listen
    listen()
    mover.overlay.interest.subscribe(b"a:client-7")
    simulation.run_for(2.0)
    sender.overlay.multicast.send(ADDRESS, b"client-7", PORT, b"before")
    simulation.run_for(1.0)
    before = mover.overlay.me
    mover.move()
    assert simulation.run_until_true(lambda: not problems(fleet), 120.0, 1.0)
    simulation.run_for(2.0)
    sender.overlay.multicast.send(ADDRESS, b"client-7", PORT, b"after")
    simulation.run_for(1.0)
    assert mover.overlay.me.epoch > before.epoch
    assert got == [b"before", b"after"]
