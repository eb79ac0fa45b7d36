"""kill -9 of the primary, of relays, of a third of the containers, of all servers at once, while
updates are published: what was reported stored reaches every living container in order, and whoever
is dead is named."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import swell
from swell.cli.localcluster import LocalCluster
from swell.client.configs import Configs
from swell.config.reports import Awaited, State, StatusRow
from swell.settings import ConfigSettings
from swell.world import Address
from tests.processes.config_load import Checker, Publisher, laid_out, primary_of, read_chain
from tests.processes.container_process import Begun, ContainerProcess, Hosted, Plan

NODES = 5
APPLICATIONS = ("shop", "bank")
PROCESSES = 8
PER_PROCESS = 3
UPDATES_PER_S = 25.0
"""Of each application."""
SETTINGS = ConfigSettings(relay_fanout=3)
"""Small, so that there are several relays."""
START_S = 60.0
WITHIN_S = 30.0
LOAD_S = 1.0
"""How long the load goes on between two strikes, and while somebody is dead."""
ACKNOWLEDGED_MIN = 250

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Story:
    """The cluster, its containers and its load; and what was done to them."""

    def __init__(self, cluster: LocalCluster, client: swell.Connection, path: Path) -> None:
        self.cluster = cluster
        self.rng = random.Random(os.urandom(8))
        self.said: list[str] = []
        self.publishers = {
            name: Publisher(client.configs(name), UPDATES_PER_S, self.rng) for name in APPLICATIONS
        }
        self.processes = [self._process(number, path) for number in range(PROCESSES)]
        self.floors: dict[str, list[dict[str, int]]] = {}
        """What containers had acknowledged when they were killed, in every life."""
        self._began_s = time.monotonic()

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(spec.host, spec.port) for spec in self.cluster.plan.nodes)

    def _process(self, number: int, path: Path) -> ContainerProcess:
        """Of one application; every third follows the other too. Half keep snapshots."""
        owner = APPLICATIONS[number % 2]
        names = [f"c{number * PER_PROCESS + k:02}" for k in range(PER_PROCESS)]
        hosted = tuple(
            Hosted(name, owner, APPLICATIONS if k == 1 else (owner,), keeps=number % 4 < 2)
            for k, name in enumerate(names)
        )
        plan = Plan(self.cluster.plan.cluster, self.addresses, SETTINGS, hosted, str(path))
        return ContainerProcess(plan, f"fleet{number}")

    def configs(self, application: str) -> Configs:
        return self.publishers[application].configs

    def say(self, what: str) -> None:
        self.said.append(f"{time.monotonic() - self._began_s:5.1f} s: {what}")

    def interested(
        self, application: str, among: Sequence[ContainerProcess] | None = None
    ) -> list[str]:
        processes = self.processes if among is None else among
        hosted = [one for process in processes for one in process.containers]
        return sorted(one.name for one in hosted if application in one.follows)

    # Waiting.

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < until_s, f"not within {WITHIN_S} s: {what}\n{self}"
            await asyncio.sleep(0.02)

    async def go_on(self) -> None:
        """Until every application has had acknowledgements for a while."""
        counts = {
            name: len(one.acknowledged) + LOAD_S * UPDATES_PER_S / 2
            for name, one in self.publishers.items()
        }
        await self.until(
            "updates are acknowledged",
            lambda: all(len(self.publishers[n].acknowledged) > c for n, c in counts.items()),
        )

    async def rows(self, application: str) -> list[StatusRow]:
        status = await self.configs(application).status(deadline_s=WITHIN_S)
        return list(status.rows)

    async def all_there(self) -> None:
        """Until every container is in step with everything that it follows."""
        for application in APPLICATIONS:
            wanted = self.interested(application)
            until_s = time.monotonic() + WITHIN_S
            found: list[str] = []
            while found != wanted:
                assert time.monotonic() < until_s, f"{found} of {wanted}\n{self}"
                rows = await self.rows(application)
                found = [row.container for row in rows if row.state == State.IN_STEP]
                await asyncio.sleep(0.05)

    # Strikes.

    async def kill_primary(self, application: str) -> None:
        address = self.addresses[0]
        victim = await primary_of(address, self.cluster.plan.cluster, application)
        self.say(f"kill {victim}, primary of {application}")
        await asyncio.to_thread(self.cluster.kill, victim)
        await self.go_on()
        await self.start_nodes(victim)

    async def kill_everything(self) -> None:
        self.say("kill all nodes")
        for process in self.cluster.running():
            os.kill(process.pid, signal.SIGKILL)
        await self.start_nodes(*(spec.name for spec in self.cluster.plan.nodes))
        await self.go_on()

    async def start_nodes(self, *names: str) -> None:
        def joined(name: str) -> bool:
            return b'"joined"' in (self.cluster.path / "logs" / f"{name}.out").read_bytes()

        self.cluster.start([[name] for name in names])
        await self.until(f"{names} have joined", lambda: all(map(joined, names)))
        self.say(f"{', '.join(names)} is back")

    async def relaying(self) -> list[ContainerProcess]:
        """Processes of containers that brought somebody what it has: one for each application."""
        found = []
        for application in APPLICATIONS:
            relays = {row.relay for row in await self.rows(application)}
            found.append(next(p for p in self.processes if relays & {*p.names} and p not in found))
        return found

    async def kill_containers(self, victims: Sequence[ContainerProcess]) -> None:
        """Whoever waits hears exactly who is dead; then they come back."""
        claims = {name: await self.rows(name) for name in APPLICATIONS}
        for process in victims:
            self.say(f"kill {', '.join(process.names)}")
            process.kill()
            for name in process.names:
                self.floors.setdefault(name, []).append(
                    {
                        application: row.delivered
                        for application, rows in claims.items()
                        for row in rows
                        if row.container == name
                    }
                )
        await asyncio.gather(*(self.check_named(name, victims) for name in APPLICATIONS))
        await self.go_on()
        for process in victims:
            process.start()
        await self.all_there()
        self.say("they are back")

    async def check_named(self, application: str, victims: Sequence[ContainerProcess]) -> None:
        dead = self.interested(application, victims)
        alive = sorted({*self.interested(application)} - {*dead})
        report = await self.wait_for_next(application)
        assert report.complete, f"{report}\n{self}"
        assert names_of(report, "offline") == dead, f"{report}\n{self}"
        assert names_of(report, "applied") == alive, f"{report}\n{self}"

    async def wait_for_next(self, application: str) -> Awaited:
        """Publish one more step and wait for it."""
        made = None
        while made is None:
            made = await self.publishers[application].publish()
        return await self.configs(application).wait(made.step, deadline_s=WITHIN_S)

    def __str__(self) -> str:
        errors = {name: dict(one.errors) for name, one in self.publishers.items()}
        return "\n".join([*self.said, f"errors: {errors}"])


def names_of(report: Awaited, kind: str) -> list[str]:
    return [named.container for named in getattr(report, kind).names]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = laid_out(tmp_path / "cluster", NODES, SETTINGS)
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
        yield cluster
    finally:
        cluster.stop()


@asynccontextmanager
async def under_load(cluster: LocalCluster, path: Path) -> AsyncIterator[Story]:
    """Everybody is there and updates are on their way; in the end all are killed."""
    addresses = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]
    async with swell.connect(addresses, cluster=cluster.plan.cluster) as client:
        story = Story(cluster, client, path)
        tasks: list[asyncio.Task[None]] = []
        try:
            for process in story.processes:
                process.start()
            for publisher in story.publishers.values():
                await publisher.begin()
                tasks.append(asyncio.create_task(publisher.run()))
            await story.all_there()
            await story.go_on()
            yield story
            for publisher in story.publishers.values():
                publisher.resting = True
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for process in story.processes:
                process.kill()


def test_what_is_stored_reaches_every_living_container(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    story, checker = asyncio.run(strike(cluster, tmp_path / "fleet"))
    acknowledged = [len(one.acknowledged) for one in story.publishers.values()]
    assert min(acknowledged) >= ACKNOWLEDGED_MIN, f"{acknowledged}\n{story}"
    for publisher in story.publishers.values():
        assert {*publisher.kinds} == {"set", "put", "batch"}
        checker.check_published(publisher.configs.application, publisher.acknowledged)
    for process in story.processes:
        for hosted in process.containers:
            record = process.record(hosted.name)
            checker.check_container(hosted.name, record, hosted.keeps)
            check_floors(hosted, [one for one in record if isinstance(one, Begun)], story)
    assert checker.heard >= ACKNOWLEDGED_MIN * PROCESSES * PER_PROCESS / 2, story


def check_floors(hosted: Hosted, lives: Sequence[Begun], story: Story) -> None:
    """What a container with a snapshot had acknowledged is there in its next life."""
    floors = story.floors.get(hosted.name, [])
    assert len(lives) == len(floors) + 1, f"{hosted.name}\n{story}"
    for life, floor in zip(lives[1:], floors, strict=True):
        for application, step in floor.items():
            had = life.steps[application]
            assert had >= step if hosted.keeps else had == 0, f"{hosted.name}\n{story}"


async def strike(cluster: LocalCluster, path: Path) -> tuple[Story, Checker]:
    async with under_load(cluster, path) as story:
        # A primary that is new does not know of those who died before it came, so they come first.
        await story.kill_containers(await story.relaying())
        await story.kill_containers(story.rng.sample(story.processes, PROCESSES // 3 + 1))
        await story.kill_primary("shop")
        await story.kill_everything()
        await story.all_there()
        for publisher in story.publishers.values():
            publisher.resting = True
        await asyncio.gather(*(story.check_named(name, ()) for name in APPLICATIONS))
        story.say("all have everything")
        chains = {name: await read_chain(story.configs(name)) for name in APPLICATIONS}
    return story, Checker(chains)
