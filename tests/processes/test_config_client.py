"""The client library for configurations against a real cluster of three nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from queue import Queue
from random import Random
from threading import Thread
from typing import Any

import pytest

import swell
from swell.client.connection import Connection
from swell.client.containers import UNJUDGED
from swell.config.reports import State, StatusReport
from swell.errors import RefusedError, StaleVersionError, UnavailableError
from tests.processes.commands import ENVIRONMENT, LocalCluster, running

WITHIN_S = 30.0
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from running(tmp_path_factory.mktemp("config"), "--nodes", "3", "--sites", "1")


def place(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "nodes": [*cluster.facts["addresses"].values()],
        "cluster": cluster.facts["cluster"],
    }


def client_of(cluster: LocalCluster, **options: Any) -> Connection:
    return swell.connect(**place(cluster), **options)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await work

    asyncio.run(within())


async def until(condition: Callable[[StatusReport], bool], configs: Any, name: str) -> StatusReport:
    """The first status that is as it should be."""
    while True:
        status: StatusReport = await configs.status(name)
        if condition(status):
            return status
        await asyncio.sleep(0.02)


def test_publishing_and_reading(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with client_of(cluster) as client:
            configs = client.configs("admin")
            first = await configs.put("db.json", '{"pool": {"size": 10}}\n', author="ann")
            second = await configs.set("db.json", "pool.size", "20", condition=first.id)
            assert (second.step, second.version) == (2, 2)
            with pytest.raises(StaleVersionError) as caught:
                await configs.unset("db.json", "pool.size", condition=first.id)
            assert (caught.value.version, caught.value.id) == (2, second.id)
            with pytest.raises(RefusedError, match="line 1, column 2"):
                await configs.put("db.json", "{")
            with pytest.raises(StaleVersionError):
                await configs.publish(
                    [
                        swell.edits.put("a", "1"),
                        swell.edits.put("db.json", "{}", condition=swell.ABSENT),
                    ]
                )
            made = await configs.publish(
                [swell.edits.put("a", "1"), swell.edits.set("db.json", "pool.max", "9")]
            )
            assert [one.step for one in made] == [3, 3]
            found = await configs.get("db.json")
            assert found is not None
            assert await found.json() == {"pool": {"size": 20, "max": 9}}
            assert [row.name for row in await configs.list()] == ["a", "db.json"]
            history = await configs.history("db.json")
            assert [(past.version, past.author) for past in history] == [
                (1, "ann"),
                (2, ""),
                (3, ""),
            ]
            lines = [line async for line in configs.diff("db.json", 1, 3)]
            assert lines[-1] == '+{"pool": {"size": 20, "max": 9}}'
            back = await configs.rollback("db.json", 1)
            assert (back.version, back.changed) == (4, True)
            assert not (await configs.put("db.json", '{"pool": {"size": 10}}\n')).changed
            await configs.delete("a")
            gone = await configs.get("a")
            assert gone is not None
            assert gone.deleted
            assert (await configs.options(versions_kept=5)).versions_kept == 5
            applications = {row.name: row for row in await client.applications()}
            assert (applications["admin"].step, applications["admin"].configurations) == (5, 1)

    run(scenario())


def test_a_long_value(cluster: LocalCluster) -> None:
    data = Random(1).randbytes(5 * 1024 * 1024)
    edited = data[:1_000_000] + b"something new" + data[1_000_100:]

    async def scenario() -> None:
        async with (
            client_of(cluster, app="long", container="c1") as container,
            client_of(cluster) as client,
        ):
            configs, seen = client.configs("long"), []
            await configs.put("big", data, progress=lambda *now: seen.append(now))
            assert seen[-1] == (len(data), len(data))
            made = await client.configs("long").put("big", edited)
            assert made.version == 2
            history = await configs.history("big")
            assert [past.change_bytes for past in history][1] < 100
            for version, expected in ((1, data), (2, edited)):
                found = await configs.get("big", version)
                assert found is not None
                assert await found.bytes() == expected
            assert (await configs.wait(made.step)).applied.count == 1
            document = await container.config("big")
            assert document is not None
            assert document.version == 2
            assert document.bytes() == edited
            assert document.read(1_000_000, 13) == b"something new"

    run(scenario())


@contextlib.asynccontextmanager
async def shop(
    cluster: LocalCluster, app: str
) -> AsyncIterator[tuple[Connection, Connection, Connection]]:
    """An administrator and two containers of an application."""
    async with (
        client_of(cluster) as admin,
        client_of(cluster, app=app, site="a", container="c1") as one,
        client_of(cluster, app=app, site="a", container="c2") as two,
    ):
        yield admin, one, two


def test_containers_follow_and_say_so(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with shop(cluster, "follow") as (admin, one, two):
            configs = admin.configs("follow")
            await configs.put("db.json", '{"size": 1}')
            watch = one.watch("db.json", manual=True)
            update = await anext(watch)
            assert update.document.json() == {"size": 1}
            await update.applied()
            heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

            def take(update: swell.Update) -> None:
                heard.put_nowait((update.name, update.version))
                if update.document.json()["size"] > 2:
                    raise ValueError("too large for this machine")

            stop = two.on_update("*", take)
            step = (await configs.set("db.json", "size", "2")).step
            update = await anext(watch)
            report = await configs.wait(step, level="delivered")
            assert report.complete
            assert [named.container for named in report.delivered.names] == ["c1"]
            assert [named.container for named in report.applied.names] == ["c2"]
            await update.applied()
            assert (await configs.wait(step)).applied.count == 2

            step = (await configs.set("db.json", "size", "3")).step
            update = await anext(watch)
            await update.rejected("no room")
            report = await configs.wait(step)
            reasons = {named.container: named.reason for named in report.rejected.names}
            assert reasons == {
                "c1": "db.json: no room",
                "c2": "db.json: too large for this machine",
            }
            stop()
            step = (await configs.set("db.json", "size", "4")).step
            await (await anext(watch)).applied()
            assert (await configs.wait(step)).applied.count == 2, "nobody watches at c2 any more"
            status = await configs.status("db.json")
            assert [(row.container, row.version, row.state) for row in status.rows] == [
                ("c1", 4, State.IN_STEP),
                ("c2", 4, State.IN_STEP),
            ]
            assert [heard.get_nowait()[1] for _ in range(heard.qsize())] == [1, 2, 3]

    run(scenario())


def test_what_is_there_at_the_start_waits_for_its_reader(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with client_of(cluster) as admin:
            configs = admin.configs("start")
            await configs.put("a", "1")
            step = (await configs.put("b", "2")).step
            async with client_of(cluster, app="start", container="c1") as container:
                await until(lambda status: bool(status.rows), configs, "a")
                await container.config("b")
                watch = container.watch("a", manual=True)
                await (await anext(watch)).rejected("not this one")
                status = await until(lambda status: bool(status.rows[0].reason), configs, "a")
                assert status.rows[0].reason == "rejected a: not this one"
                assert status.rows[0].delivered == step

    run(scenario())


def test_several_readers_of_one_name(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with shop(cluster, "readers") as (admin, one, _):
            configs = admin.configs("readers")
            step = (await configs.put("a", "1")).step
            first, second = one.watch("a", manual=True), one.watch(manual=True)
            for watch in (first, second):
                await (await anext(watch)).applied()
            assert (await configs.wait(step)).applied.count == 2
            step = (await configs.put("a", "2")).step
            update, other = await anext(first), await anext(second)
            await update.applied()
            report = await configs.wait(step, deadline_s=1.0)
            assert not report.complete
            assert [named.container for named in report.delivered.names] == ["c1"]
            await other.applied()
            assert (await configs.wait(step)).applied.count == 2
            step = (await configs.put("a", "3")).step
            await (await anext(first)).applied()
            await anext(second)
            await second.aclose()
            report = await configs.wait(step)
            assert [named.reason for named in report.rejected.names] == [f"a: {UNJUDGED}"]
            step = (await configs.put("a", "4")).step
            await (await anext(first)).applied()
            assert (await configs.wait(step)).applied.count == 2

    run(scenario())


def test_deletions_other_applications_and_names_that_are_not_there(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with shop(cluster, "own") as (admin, one, two):
            assert await one.config("nothing") is None
            other = admin.configs("other")
            await other.put("x/1.json", "1")
            await other.put("y.json", "2")
            document = await one.config("x/1.json", application="other")
            assert document is not None
            assert document.json() == 1
            watch = two.watch("x/*", application="other")
            assert (await anext(watch)).name == "x/1.json"
            await other.put("y.json", "3")
            await other.delete("x/1.json")
            update = await anext(watch)
            assert (update.name, update.version, update.deleted) == ("x/1.json", 2, True)
            await until(lambda status: status.rows[0].applied == 4, other, "x/1.json")
            assert await one.config("x/1.json", application="other") is None

    run(scenario())


def test_a_container_starts_from_its_snapshot(cluster: LocalCluster, tmp_path: Path) -> None:
    me = {"app": "snap", "container": "c1", "snapshot": tmp_path / "c1"}

    async def scenario() -> None:
        async with client_of(cluster, **me) as container, client_of(cluster) as admin:
            configs = admin.configs("snap")
            made = await configs.put("db.json", "[1]")
            assert (await configs.wait(made.step)).applied.count == 1
            document = await container.config("db.json")
            assert document is not None
            assert not document.from_snapshot
        named = cluster.facts["cluster"]
        async with swell.connect(NOBODY, cluster=named, **me) as container:
            document = await container.config("db.json")
            assert document is not None
            assert document.from_snapshot
            assert document.json() == [1]
            update = await anext(container.watch("*"))
            assert update.document.from_snapshot
            with pytest.raises(UnavailableError, match="no snapshot of it"):
                await container.config("other.json", deadline_s=0.2)
        with pytest.raises(UnavailableError, match="no node answers"):
            async with swell.connect(NOBODY, cluster=named, app="snap", container="c2"):
                pass
        async with client_of(cluster, **me) as container:
            document = await container.config("db.json")
            assert document is not None
            assert document.version == 1

    run(scenario())


def test_without_a_loop(cluster: LocalCluster) -> None:
    with (
        swell.connect_sync(**place(cluster)) as admin,
        swell.connect_sync(**place(cluster), app="sync", container="c1") as one,
        swell.connect_sync(**place(cluster), app="sync", container="c2") as two,
    ):
        configs = admin.configs("sync")
        made = configs.put("db.json", '{"size": 1}\n', condition=swell.ABSENT)
        with pytest.raises(StaleVersionError):
            configs.put("db.json", "{}", condition=swell.ABSENT)
        configs.wait(made.step, deadline_s=WITHIN_S)
        document = one.config("db.json")
        assert document is not None
        assert document.json() == {"size": 1}
        heard: Queue[int] = Queue()
        stop = two.on_update("db.json", lambda update: heard.put(update.version))
        assert heard.get(timeout=WITHIN_S) == 1
        step = 0
        for update in one.watch("db.json", manual=True):
            if update.version == 1:
                update.applied()
                step = configs.set("db.json", "size", "2").step
            else:
                update.rejected("no room")
                break
        assert heard.get(timeout=WITHIN_S) == 2
        report = configs.wait(step, deadline_s=WITHIN_S)
        assert [named.reason for named in report.rejected.names] == ["db.json: no room"]
        assert [named.container for named in report.applied.names] == ["c2"]
        stop()
        found = configs.get("db.json")
        assert found is not None
        assert found.json() == {"size": 2}
        assert [*configs.diff("db.json", 1)][-1] == '+{"size": 2}'
        assert [past.version for past in configs.history("db.json")] == [1, 2]
        assert configs.rollback("db.json", 1).version == 3
        assert configs.unset("db.json", "size").version == 4
        assert configs.delete("db.json").length == 0
        assert [row.name for row in configs.list()] == []
        assert {row.container for row in configs.status().rows} == {"c1", "c2"}
        assert "sync" in [row.name for row in admin.applications()]
        edits = [swell.edits.put("a", "1"), swell.edits.put("b", "2")]
        assert len(configs.publish(edits)) == 2
        assert configs.options(relaying=False).relaying is False


def test_closing_ends_readers_on_other_threads(cluster: LocalCluster) -> None:
    ended: Queue[int] = Queue()
    with swell.connect_sync(**place(cluster), app="closing") as client:
        seen: Queue[int] = Queue()
        client.configs("closing").put("a", "1")

        def read() -> None:
            count = 0
            for update in client.watch("a"):
                seen.put(update.version)
                count += 1
            ended.put(count)

        thread = Thread(target=read)
        thread.start()
        assert seen.get(timeout=WITHIN_S) == 1
    assert ended.get(timeout=WITHIN_S) == 1
    thread.join()
    with pytest.raises(UnavailableError, match="not connected"):
        client.config("a")


def test_the_examples_of_the_manual(cluster: LocalCluster) -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text()
    section = manual[manual.index("## Configurations") : manual.index("## How an operation")]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    where = '"127.0.0.1:7000,127.0.0.1:7001", cluster="local"'
    real = f'"{",".join(place(cluster)["nodes"])}", cluster="{cluster.facts["cluster"]}"'
    printed = []
    for example in examples:
        assert where in example
        done = subprocess.run(
            [sys.executable, "-c", example.replace(where, real)],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=WITHIN_S * 2,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        printed.append(done.stdout.splitlines())
    publishing, container, blocking, services = printed
    assert publishing[:2] == ["2", "3 {'pool': {'size': 20, 'max': 40}}"]
    assert publishing[-1] == "0 () ()"
    assert container == ["4 {'pool': {'size': 10}}", "now {'pool': {'size': 10}}"]
    assert blocking[-1] == "True"
    assert services == ["10.0.0.7 8080", "['10.0.0.7:8080']"]
    # The callback prints from a thread of its own: its pieces may stand apart.
    told = " ".join(blocking)
    assert "now" in told
    assert "{'pool': {'size': 10}}" in told


def test_a_node_dies_under_readers(cluster: LocalCluster) -> None:
    """Of so many applications it serves some."""
    names = [f"fail{number}" for number in range(12)]

    async def scenario() -> None:
        async with (
            client_of(cluster, deadline_s=WITHIN_S) as admin,
            client_of(cluster, app="fail", container="c1") as container,
        ):
            watches = {name: container.watch("a", application=name) for name in names}
            for name, watch in watches.items():
                await admin.configs(name).put("a", "before")
                assert (await anext(watch)).version == 1
            os.kill(cluster.pids["a2"], signal.SIGKILL)
            for name, watch in watches.items():
                made = await admin.configs(name).put("a", "after")
                update = await anext(watch)
                assert (update.version, update.document.bytes()) == (2, b"after")
                report = await admin.configs(name).wait(made.step, deadline_s=WITHIN_S)
                assert (report.complete, report.applied.count) == (True, 1)

    run(scenario())
