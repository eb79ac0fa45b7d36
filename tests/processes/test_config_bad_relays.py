"""Relays in bad faith over real sockets: they alter, forge, drop, delay or replay what they should
pass on, or claim receipts that nobody gave. Nothing wrong is applied, everybody gets everything,
and the relay is reported and avoided."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

import swell
from swell.cli.localcluster import LocalCluster
from swell.client.connection import Connection
from swell.config.reports import Awaited, StatusReport
from swell.settings import ConfigSettings
from swell.simulation.malice import DEEDS, REPLAY
from swell.world import Address
from tests.processes.config_load import Checker, Publisher, laid_out, read_chain
from tests.processes.container_process import ContainerProcess, Hosted, Plan

CONTAINERS = 6
START_S = 60.0
WITHIN_S = 40.0
STEPS_PER_S = 20.0
STEPS_MIN = 30
SETTINGS = ConfigSettings(receipt_wait_s=0.4, repair_s=0.5)

pytestmark = pytest.mark.slow


def crook(deed: str) -> str:
    """The first by name is picked as the relay while all scores are alike."""
    return f"{deed}0"


@dataclass
class Outcome:
    """What became of one application's updates."""

    publisher: Publisher
    checker: Checker
    report: Awaited
    status: StatusReport


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = laid_out(tmp_path_factory.mktemp("relays") / "cluster", 3, SETTINGS)
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def fleet(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ContainerProcess]:
    """For every deed an application with containers, one of which does it."""
    hosted = tuple(
        Hosted(f"{deed}{k}", deed, (deed,), deed=deed if f"{deed}{k}" == crook(deed) else "")
        for deed in DEEDS
        for k in range(CONTAINERS)
    )
    addresses = tuple(Address(spec.host, spec.port) for spec in cluster.plan.nodes)
    path = tmp_path_factory.mktemp("fleet")
    process = ContainerProcess(
        Plan(cluster.plan.cluster, addresses, SETTINGS, hosted, str(path)), "fleet"
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def outcomes(cluster: LocalCluster, fleet: ContainerProcess) -> dict[str, Outcome]:
    return asyncio.run(relay_badly(cluster))


async def relay_badly(cluster: LocalCluster) -> dict[str, Outcome]:
    addresses = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]
    async with swell.connect(addresses, cluster=cluster.plan.cluster) as client:
        async with asyncio.timeout(WITHIN_S):
            found = await asyncio.gather(*(publish(client, deed) for deed in DEEDS))
    return dict(zip(DEEDS, found, strict=True))


async def publish(client: Connection, deed: str) -> Outcome:
    """Until the relay is avoided."""
    configs = client.configs(deed)
    publisher = Publisher(configs, STEPS_PER_S, Random(deed))
    await publisher.begin()
    while len((await configs.status()).rows) < CONTAINERS:
        await asyncio.sleep(0.05)
    found_out = deed == REPLAY
    while len(publisher.acknowledged) < STEPS_MIN or not found_out:
        await publisher.publish()
        await asyncio.sleep(1 / STEPS_PER_S)
        found_out = found_out or any(row.avoided for row in (await configs.status()).rows)
    made = await publisher.publish()
    assert made is not None
    report = await configs.wait(made.step, deadline_s=WITHIN_S)
    chain = await read_chain(configs)
    return Outcome(publisher, Checker({deed: chain}), report, await configs.status())


@pytest.mark.parametrize("deed", DEEDS)
def test_nothing_wrong_is_applied(
    outcomes: dict[str, Outcome], fleet: ContainerProcess, deed: str
) -> None:
    outcome = outcomes[deed]
    outcome.checker.check_published(deed, outcome.publisher.acknowledged)
    for hosted in fleet.containers:
        if hosted.owner == deed:
            outcome.checker.check_container(hosted.name, fleet.record(hosted.name), keeps=False)
    assert outcome.report.complete
    assert outcome.report.applied.count == CONTAINERS


@pytest.mark.parametrize("deed", DEEDS)
def test_the_relay_is_reported_and_avoided(outcomes: dict[str, Outcome], deed: str) -> None:
    rows = outcomes[deed].status.rows
    avoided = [row.container for row in rows if row.avoided]
    relays = {row.relay for row in rows} - {""}
    if deed == REPLAY:
        # What is played again is known already: it does no harm and cannot be told from a retry.
        assert avoided == []
        assert relays == {crook(deed)}
    else:
        assert avoided == [crook(deed)]
        assert crook(deed) not in relays
