"""The store on real processes, under kill -9 and SIGSTOP of nodes and of all of them at once."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.cli.localcluster import LocalCluster
from swell.simulation.checkers.dht_model import DhtModel
from swell.simulation.checkers.history import merge
from swell.simulation.checkers.linearizability import check
from tests.processes.store_load import LoadClient, Strikes

ROUNDS = int(os.environ.get("SWELL_ROUNDS", "20"))
"""More for longer runs."""
SECONDS_PER_ROUND = 6.0
NODES = 5
KEYS = [f"key{k}" for k in range(12)]
CLIENTS = 4
START_S = 60.0
AFTER_S = 2.0
ACKNOWLEDGED_MIN_PER_ROUND = 50
WARM = 50
"""Operations of every client before the first strike."""
WARM_S = 30.0
LATE_S_MAX = 1.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120.0 + ROUNDS * SECONDS_PER_ROUND)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Five processes, three of them voters of the directory, in two zones."""
    cluster = LocalCluster.create(tmp_path / "cluster", sites=1, nodes=NODES)
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
        yield cluster
    finally:
        cluster.stop()


def test_no_acknowledged_write_is_lost(cluster: LocalCluster) -> None:
    seed = random.randrange(2**32)
    clients, strikes = asyncio.run(storm(cluster, seed))
    story = "\n".join([f"seed {seed}", *strikes.done])
    history = merge(client.recorder.history() for client in clients)
    verdict = check(history, DhtModel())
    assert verdict.ok, f"{verdict}\n{story}"
    acknowledged = sum((client.acknowledged for client in clients), Counter())
    assert len(acknowledged) == 9, acknowledged
    errors = sum((client.errors for client in clients), Counter())
    assert acknowledged.total() >= ROUNDS * ACKNOWLEDGED_MIN_PER_ROUND, f"{errors}\n{story}"
    assert strikes.leaders >= ROUNDS // 10, story
    assert max(client.late_s for client in clients) < LATE_S_MAX


async def storm(cluster: LocalCluster, seed: int) -> tuple[list[LoadClient], Strikes]:
    """Load under strikes; in the end every client has written and read every key."""
    rng = random.Random(seed)
    addresses = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]
    clients = [LoadClient(number, KEYS, random.Random(rng.random())) for number in range(CLIENTS)]
    strikes = Strikes(cluster, rng)
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(addresses, cluster.plan.cluster))
        await warm(clients)
        await strikes.run(ROUNDS)
        await strikes.all_at_once()
        await asyncio.sleep(AFTER_S)
        for client in clients:
            client.resting = True
    return clients, strikes


async def warm(clients: list[LoadClient]) -> None:
    """Wait until the load is under way: strikes at an idle cluster prove nothing."""
    async with asyncio.timeout(WARM_S):
        while min(client.acknowledged.total() for client in clients) < WARM:
            await asyncio.sleep(0.05)
