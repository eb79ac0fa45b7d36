"""Faults of a cluster that replicates: many at once, one purpose of links, old copies of disks."""

from __future__ import annotations

import pytest

from swell.simulation import Swarm
from swell.simulation.faults import (
    CLUSTER_KINDS,
    CrashAll,
    CrashMany,
    ReplicationClog,
    ReplicationCut,
)
from swell.world import Address, DiskError
from tests.unit.simulation_toys import Pair

SITES = {f"n{number}": f"site-{number % 3}" for number in range(12)}


class TwoLinks(Pair):
    """A second link from `a` to `b`, which is for the store."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation.network.purpose = lambda link: link.session or ""
        self.store = self.dial("STORE")
        self.simulation.run_for(1.0)
        self.store_b = self.b.links["a"]

    def dial(self, purpose: str) -> object:
        link = self.a.world.dial(Address("b", 0), "b")
        link.session = purpose
        return link

    def send(self) -> None:
        self.link_a.send(b"gossip")
        self.store.send(b"entry")
        self.link_b.send(b"gossip back")
        self.store_b.send(b"entry back")


def test_replication_is_cut_beside_living_gossip() -> None:
    pair = TwoLinks()
    fault = ReplicationCut(("east",), ("west",))
    assert fault.begin(pair.simulation)
    pair.send()
    late = pair.dial("STORE")
    pair.simulation.run_for(1.0)
    assert (pair.b.frames(), pair.a.frames()) == ([b"gossip"], [b"gossip back"])
    assert not late.send(b"never up")
    fault.end(pair.simulation)
    pair.simulation.run_for(1.0)
    assert pair.b.frames() == [b"gossip", b"entry"]
    assert pair.a.frames() == [b"gossip back", b"entry back"]
    assert late.send(b"up")


def test_replication_is_cut_one_way() -> None:
    pair = TwoLinks()
    assert ReplicationCut(("a",), ("b",), one_way=True).begin(pair.simulation)
    pair.send()
    pair.simulation.run_for(1.0)
    assert pair.b.frames() == [b"gossip"]
    assert pair.a.frames() == [b"gossip back", b"entry back"]


def test_replication_is_clogged_beside_living_gossip() -> None:
    pair = TwoLinks()
    assert ReplicationClog(("a",), ("b",), clog_s=2.0).begin(pair.simulation)
    for _ in range(10):
        pair.send()
    pair.simulation.run_for(1.0)
    assert pair.b.frames().count(b"gossip") == 10
    assert pair.b.frames().count(b"entry") < 5


@pytest.mark.parametrize("power", [False, True])
def test_many_crash_at_one_instant_and_come_back(power: bool) -> None:
    pair = Pair()
    fault = CrashMany(("a", "b"), power=power)
    assert fault.begin(pair.simulation)
    assert not pair.process_a.alive
    assert not pair.process_b.alive
    assert pair.process_a.powered != power
    assert not fault.begin(pair.simulation)
    pair.process_b.destroy()
    fault.end(pair.simulation)
    assert pair.process_a.alive
    assert not pair.process_b.alive


def test_an_old_copy_tells_an_old_number_of_starts() -> None:
    pair = Pair()
    process, disk = pair.process_a, pair.process_a.disk
    assert not process.go_back()
    disk.append("file", b"old")
    disk.sync("file", lambda error: None)
    pair.simulation.run_for(1.0)
    process.back_up()
    disk.append("file", b" and new")
    disk.sync("file", lambda error: None)
    pair.simulation.run_for(1.0)
    process.crash()
    process.start()
    assert process.counted_starts == 2
    process.crash()
    assert process.go_back()
    process.start()
    assert (process.counted_starts, process.starts) == (2, 3)
    read: list[bytes | DiskError] = []
    disk.read("file", 0, 100, read.append)
    pair.simulation.run_for(1.0)
    assert read == [b"old"]


def test_a_swarm_draws_the_kinds_of_a_cluster() -> None:
    kinds = ("crash-many", "crash-all", "replication-cut", "replication-clog")
    assert set(kinds) <= set(CLUSTER_KINDS)
    seen: set[str] = set()
    for seed in range(10):
        plan = Swarm(SITES, 1.0, 60.0, kinds=kinds).plan(seed)
        seen.update(plan.kinds())
        for planned in plan.faults:
            if isinstance(planned.fault, CrashAll):
                assert planned.fault.victims == tuple(SITES)
            elif isinstance(planned.fault, CrashMany):
                assert 2 <= len(planned.fault.victims) <= 8
    assert seen == set(kinds)
