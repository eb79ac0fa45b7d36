"""Bad input to configurations on real processes: each is one clear error for whoever did it;
nothing is lost, and nobody else is slowed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any
from zlib import crc32

import pytest

import swell
from swell.cli.localcluster import LocalCluster
from swell.client.configs import Configs
from swell.client.connection import Connection
from swell.config import edits, operations
from swell.config.delivery.subscribing import APPLICATION_FEEDS_MAX
from swell.config.messages import Answer, Subscribed
from swell.config.names import place
from swell.config.operations import CONFIG_SERVICE
from swell.config.reports import State
from swell.config.splices import Splice, encode
from swell.errors import InvalidNameError, RefusedError, StaleVersionError, SwellError
from swell.lab.server_process import memory_mib
from swell.settings import ConfigSettings
from swell.store.messages import Read
from swell.world import Address
from tests.processes import commands
from tests.processes.config_load import laid_out, primary_of
from tests.processes.raw_container import raw_container

VALUE_BYTES_MAX = 1024 * 1024
SETTINGS = ConfigSettings(value_bytes_max=VALUE_BYTES_MAX)
START_S = 60.0
WITHIN_S = 60.0
SOON_S = 10.0
SUBSCRIPTIONS = 10_000
UPDATES = 500
UPDATE_BYTES = 10_240
WINDOW = 16
UPDATES_UNREAD = 6_000
GROWTH_MIB_MAX = 30.0
"""Up to 16 were seen, whether 1,000 updates were unread or 8,000. These have 60 MiB together."""
SLOWER_MAX = 3.0
SLOWER_S = 0.05
"""On a machine that does other things too."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = laid_out(tmp_path_factory.mktemp("config") / "cluster", 3, SETTINGS)
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
        yield cluster
    finally:
        cluster.stop()


def client_of(cluster: LocalCluster, **options: Any) -> Connection:
    nodes = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]
    return swell.connect(nodes, cluster=cluster.plan.cluster, **options)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await work

    asyncio.run(within())


@contextlib.asynccontextmanager
async def unharmed(cluster: LocalCluster, application: str) -> AsyncIterator[Configs]:
    """Whatever happens inside: what was published is there afterwards, nothing else is, and a
    container that follows the application goes on."""
    async with (
        client_of(cluster) as admin,
        client_of(cluster, app=application, container="witness") as witness,
    ):
        configs = admin.configs(application)
        made = await configs.put("kept.json", '{"a": 1}')
        updates = witness.watch("kept.json")
        assert (await anext(updates)).version == 1
        yield configs
        rows = {row.name: row.id for row in await configs.list()}
        assert rows["kept.json"] == made.id
        made = await configs.set("kept.json", "a", "2")
        update = await anext(updates)
        assert (update.version, update.document.json()) == (2, {"a": 2})
        report = await configs.wait(made.step, deadline_s=SOON_S)
        assert "witness" in [named.container for named in report.applied.names]


async def until_followed(configs: Configs, container: str) -> None:
    """Until a container follows the application."""
    while container not in [row.container for row in (await configs.status()).rows]:
        await asyncio.sleep(0.02)


async def send(cluster: LocalCluster, application: str, edit: edits.Edit) -> None:
    """One edit as it is, without the library's opinion."""
    body = operations.encode(operations.Publish(application, (edit,), "", 0))
    async with client_of(cluster) as client:
        await client.call(CONFIG_SERVICE, place(application), Read.COMMAND, body)


# What is published.


def test_a_stale_base(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with unharmed(cluster, "stale") as configs:
            first = await configs.put("a", "1")
            second = await configs.put("a", "2", condition=first.id)
            with pytest.raises(StaleVersionError, match="a of stale is at version 2") as caught:
                await configs.put("a", "3", condition=first.id)
            assert (caught.value.version, caught.value.id) == (2, second.id)
            delta = encode((Splice(0, 1, b"4"),))
            with pytest.raises(RefusedError, match="a of stale is at version 2"):
                await send(cluster, "stale", edits.Splices("a", delta, first.id))
            found = await configs.get("a")
            assert found is not None
            assert (found.version, await found.text()) == (2, "2")

    run(scenario())


@pytest.mark.parametrize(
    ("delta", "sentence"),
    [
        (encode((Splice(7, 4, b"x"),)), "reaches byte 11 of a base of 8 bytes"),
        (b"\xff", "delta"),
        (encode((Splice(0, 1, b""),)), "not valid json, line 1, column 4"),
    ],
)
def test_a_delta_that_does_not_apply(cluster: LocalCluster, delta: bytes, sentence: str) -> None:
    async def scenario() -> None:
        application = f"delta{crc32(delta)}"
        async with unharmed(cluster, application) as configs:
            base = await configs.get("kept.json")
            assert base is not None
            with pytest.raises(RefusedError, match=sentence):
                await send(cluster, application, edits.Splices("kept.json", delta, base.id))

    run(scenario())


def test_invalid_json_is_refused_with_line_and_column(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with unharmed(cluster, "invalid") as configs:
            with pytest.raises(RefusedError, match="line 2, column 9"):
                await configs.put("bad.json", '{\n "a": 1 "b": 2\n}')
            batch = [swell.edits.put("good.txt", "good"), swell.edits.put("kept.json", "{")]
            with pytest.raises(RefusedError, match="line 1, column 2"):
                await configs.publish(batch)
            assert [row.name for row in await configs.list()] == ["kept.json"]

    run(scenario())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "empty"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("../b", "segment '..'"),
        ("a/", "ends with '/'"),
        ("@instances", "reserved"),
        ("e\u0301", "normal form NFC"),
        ("n" * 513, "allowed are 512"),
    ],
)
def test_names_with_odd_characters(cluster: LocalCluster, name: str, sentence: str) -> None:
    async def scenario() -> None:
        application = f"names{crc32(name.encode())}"
        async with unharmed(cluster, application) as configs:
            with pytest.raises(InvalidNameError, match=sentence):
                await configs.put(name, "1")
            with pytest.raises(RefusedError, match=sentence):
                await send(cluster, application, edits.Whole(name, b"1"))

    run(scenario())


def test_names_that_are_only_unusual(cluster: LocalCluster) -> None:
    names = ["a b", "%2e", "[bold]", "ключ/値.json", "-x", "'; drop", "é"]

    async def scenario() -> None:
        async with unharmed(cluster, "unusual") as configs:
            for name in names:
                await configs.put(name, "1")
            rows = [row.name for row in await configs.list()]
            assert rows == sorted([*names, "kept.json"])

    run(scenario())


def test_an_empty_value(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with (
            unharmed(cluster, "empty") as configs,
            client_of(cluster, app="empty", container="c1") as container,
        ):
            made = await configs.put("a.txt", "")
            await until_followed(configs, "c1")
            assert (await configs.wait(made.step, deadline_s=SOON_S)).applied.count == 2
            document = await container.config("a.txt")
            assert document is not None
            assert (document.version, document.bytes(), document.deleted) == (1, b"", False)
            found = await configs.get("a.txt")
            assert found is not None
            assert (await found.bytes(), found.deleted) == (b"", False)
            with pytest.raises(RefusedError, match="line 1, column 1"):
                await configs.put("a.json", "")

    run(scenario())


def test_a_value_at_the_limit_and_over_it(cluster: LocalCluster) -> None:
    largest = os.urandom(VALUE_BYTES_MAX)

    async def scenario() -> None:
        async with (
            unharmed(cluster, "large") as configs,
            client_of(cluster, app="large", container="c1") as container,
        ):
            await until_followed(configs, "c1")
            made = await configs.put("big", largest)
            for data in (largest + b"!", os.urandom(VALUE_BYTES_MAX + 1)):
                with pytest.raises(SwellError, match=r"1048577 bytes.*, allowed are 1048576"):
                    await configs.put("big", data)
            report = await configs.wait(made.step, deadline_s=SOON_S)
            assert report.applied.count == 2
            document = await container.config("big")
            assert document is not None
            assert (document.version, document.bytes() == largest) == (1, True)

    run(scenario())


# Containers.


def test_a_container_that_rejects_everything(cluster: LocalCluster) -> None:
    def refuse(update: swell.Update) -> None:
        raise ValueError(f"{update.document.json()['a']} is too much")

    async def scenario() -> None:
        async with (
            unharmed(cluster, "reject") as configs,
            client_of(cluster, app="reject", container="c1") as container,
        ):
            container.on_update("limits.json", refuse)
            await until_followed(configs, "c1")
            for value in range(1, 4):
                made = await configs.set("limits.json", "a", str(value))
                report = await configs.wait(made.step, deadline_s=SOON_S)
                (named,) = report.rejected.names
                assert (named.container, named.reason) == (
                    "c1",
                    f"limits.json: {value} is too much",
                )
            step = (await configs.put("other", "1")).step
            assert (await configs.wait(step, deadline_s=SOON_S)).applied.count == 2
            rows = {row.container: row for row in (await configs.status("limits.json")).rows}
            assert rows["c1"].reason == "rejected limits.json: 3 is too much"
            assert (rows["c1"].version, rows["witness"].version) == (0, 3)

    run(scenario())


def test_a_token_of_another_application(cluster: LocalCluster) -> None:
    token = commands.swell("token", "create", "--read", "mine", "--dir", cluster.path).stdout

    async def scenario() -> None:
        async with (
            unharmed(cluster, "theirs") as configs,
            client_of(cluster, token=token.strip(), app="mine", container="c1") as container,
        ):
            for work in (
                container.configs("theirs").put("kept.json", "{}"),
                container.configs("theirs").get("kept.json"),
                container.configs("theirs").status(),
                anext(container.watch("kept.json", application="theirs")),
                container.config("kept.json", application="theirs"),
                container.configs("mine").put("a", "1"),
            ):
                with pytest.raises(RefusedError, match="this token may not"):
                    await work
            assert await container.config("a") is None
            rows = (await configs.status("kept.json")).rows
            assert [row.container for row in rows] == ["witness"]

    run(scenario())


def test_ten_thousand_subscriptions(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with unharmed(cluster, "many0") as configs:
            address = await address_of_primary(cluster, "many0")
            names = await applications_at(cluster, address, SUBSCRIPTIONS // APPLICATION_FEEDS_MAX)
            async with raw_container(address, cluster.plan.cluster, "greedy") as greedy:
                asked = asyncio.create_task(ask_for(greedy, names))
                answers = [await subscribed(greedy) for _ in range(SUBSCRIPTIONS)]
                await asked
                refused = [one for one in answers if one.answer != Answer.SERVING]
                assert len(refused) == SUBSCRIPTIONS - SETTINGS.subscriptions_max
                assert {one.sentence for one in refused} == {
                    "greedy has 4096 subscriptions, allowed are 4096"
                }
                # Those that it has go on.
                before = greedy.deliveries
                await configs.put("n0", "1")
                reading = asyncio.create_task(greedy.hear())
                while greedy.deliveries == before:
                    await asyncio.sleep(0.01)
                reading.cancel()

    run(scenario())


async def ask_for(container: Any, names: list[str]) -> None:
    for k in range(SUBSCRIPTIONS):
        await container.subscribe(names[k // APPLICATION_FEEDS_MAX], (f"n{k}",))


async def subscribed(container: Any) -> Subscribed:
    while not isinstance(message := await container.hear(), Subscribed):
        pass
    return message


async def address_of_primary(cluster: LocalCluster, application: str) -> Address:
    first = cluster.plan.nodes[0]
    address = Address(first.host, first.port)
    spec = cluster.spec(await primary_of(address, cluster.plan.cluster, application))
    return Address(spec.host, spec.port)


def test_a_subscriber_that_never_reads(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with (
            unharmed(cluster, "slow") as configs,
            client_of(cluster, app="slow", container="c1") as container,
        ):
            await flow(configs, container, UPDATES)
            alone = await flow(configs, container, UPDATES)
            while (cost := await cost_of_unread(cluster, configs, container)) is None:
                pass
            growth_mib, beside = cost
            assert growth_mib < GROWTH_MIB_MAX
            assert beside < SLOWER_MAX * alone + SLOWER_S

    run(scenario())


async def cost_of_unread(
    cluster: LocalCluster, configs: Configs, container: Connection
) -> tuple[float, float] | None:
    """By how many MiB the primary grows while somebody does not read, and the seconds that an
    update takes meanwhile; None where another node has become primary (a young cluster still
    spreads them)."""
    address = await address_of_primary(cluster, "slow")
    name = await primary_of(address, cluster.plan.cluster, "slow")
    pid = cluster.process_of(name).pid
    async with raw_container(address, cluster.plan.cluster, "stuck") as stuck:
        await stuck.subscribe("slow")
        answer = (await subscribed(stuck)).answer
        stuck.stop_reading()
        before = memory_mib(pid).resident
        beside = await flow(configs, container, UPDATES_UNREAD)
        growth_mib = memory_mib(pid).resident - before
        rows = {row.container: row for row in (await configs.status()).rows}
        made = await configs.put("last", "1")
        report = await configs.wait(made.step, deadline_s=WITHIN_S)
        if await primary_of(address, cluster.plan.cluster, "slow") != name:
            return None
        assert answer == Answer.SERVING
        assert rows["stuck"].state != State.IN_STEP == rows["c1"].state
        assert report.complete
        (failed,) = report.failed.names
        assert failed.container == "stuck"
        assert failed.reason in ("silent", "link full")
    return growth_mib, beside


async def flow(configs: Configs, container: Connection, count: int) -> float:
    """So many updates, some at a time, until a container has the last of every name; the median of
    the seconds that one took. Where it falls behind, newer values stand for older ones."""
    begun: dict[str, float] = {}
    last: dict[str, str] = {}
    taken: list[float] = []
    free = asyncio.Semaphore(WINDOW)

    async def publish(number: int) -> None:
        name, value = f"name{number % WINDOW}", f"{number} {os.urandom(UPDATE_BYTES // 2).hex()}"
        begun[value], last[name] = time.monotonic(), value
        await configs.put(name, value)
        free.release()

    def hear(update: swell.Update) -> None:
        value = update.document.text()
        if value in begun:
            taken.append(time.monotonic() - begun[value])
        if last.get(update.name) == value:
            del last[update.name]

    stop = container.on_update("name*", hear)
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await free.acquire()
            group.create_task(publish(number))
    async with asyncio.timeout(SOON_S):
        while last:
            await asyncio.sleep(0.01)
    stop()
    assert len(taken) > count / 10
    return statistics.median(taken)


async def applications_at(cluster: LocalCluster, address: Address, count: int) -> list[str]:
    """Names of applications that one node serves."""
    found = ["many0"]
    number = 0
    wanted = await primary_of(address, cluster.plan.cluster, "many0")
    while len(found) <= count:
        number += 1
        name = f"many{number}"
        if await primary_of(address, cluster.plan.cluster, name) == wanted:
            found.append(name)
    return found
