"""Files of events of real processes: what happened is in them, a kill leaves whole files, a full
disk costs rows and no service (PIP-1)."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import swell
from swell.cli.localcluster import LocalCluster
from swell.settings import EventSettings
from tests.processes.commands import await_condition, swell_json

NODES = 3
CONTAINERS = 4
UPDATES = 40
START_S = 60.0
WITHIN_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Rows = dict[str, list[dict[str, Any]]]


def rows_in(directory: Path) -> Rows:
    """By kind, in the order in which each process wrote them. Every visible file is whole."""
    found: Rows = defaultdict(list)
    for path in sorted(directory.glob("date=*/kind=*/*.parquet")):
        kind = path.parent.name.removeprefix("kind=")
        found[kind] += pq.read_table(path, partitioning=None).to_pylist()
    for rows in found.values():
        rows.sort(key=lambda row: (row["node"], row["start"], row["row"]))
    return found


def lives_of(rows: Rows) -> dict[tuple[str, int], list[int]]:
    lives: dict[tuple[str, int], list[int]] = defaultdict(list)
    for several in rows.values():
        for row in several:
            lives[row["node"], row["start"]].append(row["row"])
    return {life: sorted(numbers) for life, numbers in lives.items()}


def numbers_of(node: str, events: Path) -> dict[int, list[int]]:
    """The numbers of its rows, by its lives in their order."""
    lives = lives_of(rows_in(events))
    return {start: lives[name, start] for name, start in sorted(lives) if name == node}


def contents_of(events: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in events.rglob("*.parquet")}


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await work

    asyncio.run(within())


def started(path: Path, **settings: Any) -> LocalCluster:
    """Three nodes that write events with these settings."""
    cluster = LocalCluster.create(path / "cluster", sites=1, nodes=NODES)
    events = EventSettings(directory=str(path / "events"), **settings)
    specs = tuple(
        replace(spec, settings=replace(spec.settings, events=events)) for spec in cluster.plan.nodes
    )
    cluster = LocalCluster(cluster.path, replace(cluster.plan, nodes=specs))
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def nodes_of(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "nodes": [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes],
        "cluster": cluster.plan.cluster,
    }


async def load(cluster: LocalCluster, events: Path, updates: int) -> list[bytes]:
    """Publish to containers that write events too; the ids of all versions, the first one first."""
    place = nodes_of(cluster)
    containers = [
        swell.connect(**place, app="shop", container=f"c{n}", site="a", events=events)
        for n in range(CONTAINERS)
    ]
    async with asyncio.TaskGroup() as group:
        for container in containers:
            group.create_task(container.__aenter__())
    ids = []
    try:
        async with swell.connect(**place) as client:
            configs = client.configs("shop")
            for number in range(updates):
                published = await configs.put("limits.json", json.dumps({"n": number}).encode())
                ids.append(published.id)
            report = await configs.wait(published.step, deadline_s=WITHIN_S)
            assert report.complete, report
    finally:
        for container in containers:
            await container.__aexit__(None, None, None)
    return ids


def test_what_happened_is_in_the_files(tmp_path: Path) -> None:
    events, path = tmp_path / "events", tmp_path / "cluster"
    swell_json("up", "--dir", path, "--sites", "1", "--nodes", str(NODES), "--events", events)
    cluster = LocalCluster.load(path)
    ids: list[bytes] = []

    async def work() -> None:
        ids.extend(await load(cluster, events, UPDATES))

    try:
        run(work())
    finally:
        assert cluster.stop() == NODES
    rows = rows_in(events)
    assert list(events.rglob("*.part")) == []
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in lives_of(rows).values())
    stored = [row for row in rows["store"] if row["application"] == "shop"]
    assert [(row["sequence"], row["digest"]) for row in stored] == [*enumerate(ids, 1)]
    assert len([row for row in rows["publish"] if row["application"] == "shop"]) == UPDATES
    names = [f"c{n}" for n in range(CONTAINERS)]
    assert sorted(row["peer"] for row in rows["subscribe"]) == names
    for name in names:
        applied = [row for row in rows["apply"] if row["node"] == name]
        versions = [n for row in applied for n in range(row["first"], row["sequence"] + 1)]
        # Who had to ask for what is missing gets a value in place of several versions.
        assert versions == sorted(set(versions))
        assert versions[-1] == UPDATES
        assert all(row["digest"] == ids[row["sequence"] - 1] for row in applied)
        acks = [row["sequence"] for row in rows["ack"] if row["peer"] == name]
        assert acks == sorted(set(acks))
        assert acks[-1] == stored[-1]["step"]
    brought = sum(len(rows[kind]) for kind in ("deliver", "relay"))
    assert brought >= CONTAINERS
    kinds = {(row["role"], row["node"]) for row in rows["start"]}
    assert kinds == {("node", spec.name) for spec in cluster.plan.nodes} | {
        ("container", name) for name in names
    }
    assert {row["node"] for row in rows["stop"]} == {row["node"] for row in rows["start"]}
    assert {row["run"] for several in rows.values() for row in several} == {cluster.plan.cluster}


def test_a_kill_leaves_whole_files_and_the_next_start_removes_the_rest(tmp_path: Path) -> None:
    events = tmp_path / "events"
    cluster = started(tmp_path, file_age_s=1.0)
    victim = cluster.plan.nodes[0].name

    def complete() -> set[Path]:
        return set(events.rglob(f"{victim}-*.parquet"))

    def hidden() -> set[Path]:
        return set(events.rglob(f".{victim}-*.part"))

    try:
        await_condition(lambda: len(complete()) >= 3, WITHIN_S, "files of the victim")
        cluster.kill(victim)
        await_condition(
            lambda: any(row["peer"] == victim for row in rows_in(events)["crash-found"]),
            WITHIN_S,
            "the others find the crash",
        )
        kept, left = complete(), hidden()
        ((life, before),) = numbers_of(victim, events).items()
        assert before[0] == 1
        cluster.start([[victim]])
        await_condition(lambda: complete() > kept, WITHIN_S, "files of the second life")
        assert not left & hidden()
    finally:
        cluster.stop()
    lives = numbers_of(victim, events)
    assert list(lives) == [life, life + 1]
    assert lives[life] == before
    assert lives[life + 1] == list(range(1, len(lives[life + 1]) + 1))


def test_nodes_that_lost_their_data_write_beside_what_is_there(tmp_path: Path) -> None:
    events = tmp_path / "events"
    cluster = started(tmp_path)
    cluster.stop()
    names = [spec.name for spec in cluster.plan.nodes]
    before, files = lives_of(rows_in(events)), contents_of(events)
    assert {name for name, _ in before} == {*names}
    shutil.rmtree(cluster.path / "nodes")
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
    finally:
        cluster.stop()
    assert {path: data for path, data in contents_of(events).items() if path in files} == files
    for name in names:
        first, second = numbers_of(name, events).items()
        assert first[1] == before[name, first[0]]
        assert second[1] == list(range(1, len(second[1]) + 1))
        at = [row["at"] for row in rows_in(events)["start"] if row["node"] == name]
        assert at == sorted(at)


def test_a_disk_that_takes_nothing_costs_rows_and_no_service(tmp_path: Path) -> None:
    events = tmp_path / "events"
    cluster = started(tmp_path, file_age_s=0.5, retry_s=1.0)
    try:
        for path in list(events.glob("date=*")):
            path.rename(path.with_name(f"was-{path.name}"))
            path.touch()  # where a directory should be
        ids: list[bytes] = []

        async def work() -> None:
            ids.extend(await load(cluster, tmp_path / "others", UPDATES))

        run(work())
        assert len(ids) == UPDATES

        def lost() -> int:
            counters = [
                cluster.target(spec.name).ask("status", 5.0)["counters"]
                for spec in cluster.plan.nodes
            ]
            return sum(
                count
                for one in counters
                for name, count in one.items()
                if name.startswith("events-lost-")
            )

        await_condition(lambda: lost() >= UPDATES, WITHIN_S, "rows are lost and counted")
    finally:
        cluster.stop()
    applied = [row for row in rows_in(tmp_path / "others")["apply"] if row["node"] == "c0"]
    assert applied[-1]["sequence"] == UPDATES
