"""A run of real processes that write events: nodes and containers under load, with kill -9 of the
primary and of containers. Beside the sound containers there is one for each planted bug."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import swell
from swell.cli.localcluster import LocalCluster
from swell.client import edits
from swell.client.configs import Configs
from swell.config.reports import State
from swell.errors import OutcomeUnknownError, UnavailableError
from swell.settings import EventSettings
from swell.world import Address
from tests.pipeline.planted_bugs import BUGS
from tests.pipeline.recorded_containers import ContainerProcess, Plan
from tests.processes.config_load import primary_of

NODES = 3
SOUND = "shop"
PER_PROCESS = 4
NAMES = ("limits.json", "flags.json")
IN_A_ROW = 4
"""Updates of one name: two bursts that follow each other then have one in common."""
UPDATES_PER_S = 25.0
"""Of each application."""
WITHIN_S = 30.0
MORE = 15
"""Updates of every application between two strikes."""
QUIET_S = 3.2
"""What is stored earlier than that before the end is judged: longer than the SLA."""


class Story:
    """A cluster, its containers and its load."""

    def __init__(self, path: Path) -> None:
        created = LocalCluster.create(path / "cluster", sites=1, nodes=NODES)
        self.log = path / "events"
        events = EventSettings(directory=str(self.log), file_age_s=1.0)
        specs = [
            replace(one, settings=replace(one.settings, events=events))
            for one in created.plan.nodes
        ]
        self.cluster = LocalCluster(created.path, replace(created.plan, nodes=tuple(specs)))
        self.nodes = [f"{one.host}:{one.port}" for one in specs]
        self.stored: dict[str, int] = {}
        """Updates of every application that were acknowledged."""
        self.resting = False
        first, second = (
            {f"c{number}{letter}": SOUND for letter in "abcd"[:PER_PROCESS]} for number in (1, 2)
        )
        buggy = {f"b-{bug}": bug for bug in BUGS}
        place = self.cluster.plan.cluster, self.nodes
        self.processes = [
            ContainerProcess(Plan(*place, one, events, ["c2a", "c2b"]), path / f"{name}.json")
            for name, one in (("first", first), ("second", second), ("buggy", buggy))
        ]

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < until_s, f"not within {WITHIN_S} s: {what}"
            await asyncio.sleep(0.02)

    async def more(self) -> None:
        """Until every application has had updates for a while."""
        counts = {name: count + MORE for name, count in self.stored.items()}
        await self.until(
            "updates", lambda: all(self.stored[name] >= count for name, count in counts.items())
        )

    def has_files(self) -> bool:
        """Of what nodes wrote about subscriptions, and containers about updates."""
        kinds = ("subscribe", "apply")
        return all(any(self.log.glob(f"date=*/kind={kind}/*.parquet")) for kind in kinds)

    async def publish(self, configs: Configs, application: str) -> None:
        """One key after the other, at a steady rate, until it is to rest."""
        number = 0
        while not self.resting:
            number += 1
            name = NAMES[number // IN_A_ROW % len(NAMES)]
            change = edits.set(name, f"key{number % 7}", str(number))
            try:
                await configs.publish([change], deadline_s=WITHIN_S)
            except (OutcomeUnknownError, UnavailableError):
                continue
            self.stored[application] += 1
            await asyncio.sleep(1 / UPDATES_PER_S)

    async def all_there(self, configs: Configs, count: int) -> None:
        until_s, there = time.monotonic() + WITHIN_S, 0
        while there < count:
            assert time.monotonic() < until_s, f"{there} of {count} containers are in step"
            rows = (await configs.status(deadline_s=WITHIN_S)).rows
            there = sum(row.state == State.IN_STEP for row in rows)
            await asyncio.sleep(0.05)

    async def primary_of(self, application: str) -> str:
        spec = self.cluster.plan.nodes[0]
        place = Address(spec.host, spec.port), self.cluster.plan.cluster
        return await primary_of(*place, application)

    async def conclude(self, applications: Mapping[str, Configs]) -> None:
        """A last update of everything, and then nothing: the end of the log moves on, and with it
        what is due. Once more if a primary changed meanwhile: whom the one before served owes it
        nothing."""
        until_s, before = time.monotonic() + WITHIN_S, {}
        while before != (now := {name: await self.primary_of(name) for name in applications}):
            assert time.monotonic() < until_s, "primaries change again and again"
            before = now
            for configs in applications.values():
                await configs.publish([edits.set(NAMES[0], "last", "1")], deadline_s=WITHIN_S)
            await asyncio.sleep(QUIET_S)

    async def kill_primary(self) -> None:
        victim = await self.primary_of(SOUND)
        await asyncio.to_thread(self.cluster.kill, victim)
        await self.more()
        self.cluster.start([[victim]])

    async def kill_containers(self) -> None:
        process = self.processes[1]
        await asyncio.to_thread(process.kill)
        await self.more()
        process.start()

    def run(self) -> Path:
        """From the first start to the last stop; the log of it."""
        try:
            self.cluster.start()
            self.cluster.await_whole(WITHIN_S, lambda graph: None)
            asyncio.run(self.play())
        finally:
            self.stop()
        return self.log

    async def play(self) -> None:
        place: dict[str, Any] = {"nodes": self.nodes, "cluster": self.cluster.plan.cluster}
        async with swell.connect(**place) as client, asyncio.TaskGroup() as group:
            applications = {name: client.configs(name) for name in (SOUND, *BUGS)}
            for name, configs in applications.items():
                await configs.publish([edits.put(one, "{}") for one in NAMES])
                self.stored[name] = 0
            for process in self.processes:
                process.start()
            sound = applications[SOUND]
            await self.all_there(sound, 2 * PER_PROCESS)
            publishing = [
                group.create_task(self.publish(configs, name))
                for name, configs in applications.items()
            ]
            await self.until("the first files are complete", self.has_files)
            await self.kill_primary()
            await self.kill_containers()
            await self.more()
            self.resting = True
            await asyncio.wait(publishing)
            await self.all_there(sound, 2 * PER_PROCESS)
            await self.conclude(applications)

    def stop(self) -> None:
        for process in self.processes:
            process.stop()
        self.cluster.stop()
