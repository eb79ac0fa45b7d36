"""What a store must survive: bad keys and values, directories that are not what they should be, a
full disk. Each is one clear error; nothing is lost and the rest of the cluster serves."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest

import swell
from swell.cli.localcluster import LocalCluster
from swell.client.blocking import SyncDht
from swell.dht.operations import DHT_SERVICE, Operation, head
from swell.errors import InvalidKeyError, RefusedError, SwellError, TooLargeError
from swell.store.messages import Read
from tests.processes.commands import ENVIRONMENT, await_condition

NODES = 4
REPLICAS = 3
VICTIM = "a4"
"""The one that is no voter: what befalls it is the store's to survive, not the directory's."""
VALUE_BYTES_MAX = 1024 * 1024
START_S = 60.0
SERVE_S = 30.0
END_S = 30.0
SMALL_BYTES = 4 * 1024 * 1024
VALUE_BYTES = 64 * 1024
FULL = r"\[error .* (full|No space left.*)\): see to the disk, then start the node again"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("store") / "cluster"
    cluster = LocalCluster.create(path, sites=1, nodes=NODES)
    try:
        cluster.start()
        cluster.await_whole(START_S, lambda graph: None)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def table(cluster: LocalCluster) -> Iterator[SyncDht]:
    """The DHT, with values that must be there afterwards as well."""
    with client(cluster) as dht:
        for k in range(20):
            dht.put(f"kept{k}", b"%d" % k)
        yield dht
        assert_kept(dht)


@contextmanager
def client(cluster: LocalCluster) -> Iterator[SyncDht]:
    addresses = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]
    name = cluster.plan.cluster
    with swell.connect_sync(addresses, cluster=name, deadline_s=SERVE_S) as connection:
        yield connection.dht()


def assert_kept(dht: SyncDht) -> None:
    """Nothing is lost, and everything can be written again."""
    assert [dht.get(f"kept{k}") for k in range(20)] == [b"%d" % k for k in range(20)]
    for k in range(20):
        dht.put(f"kept{k}", b"%d" % k)


def start(cluster: LocalCluster, name: str) -> None:
    """Start a node again, and wait until it has joined."""
    cluster.start([[name]])
    ready = cluster.path / "logs" / f"{name}.out"
    await_condition(lambda: '"joined"' in ready.read_text(), START_S, f"{name} has joined")


def refusal(cluster: LocalCluster, name: str) -> str:
    """Start a node that must refuse to run; its last words."""
    done = subprocess.run(
        [sys.executable, "-m", "swell.cli.hosting", cluster.path / "logs" / f"{name}.json"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=END_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


# Keys and values.

BAD_KEYS = [
    (b"a\0b", "control character"),
    (b"a/../b", "segment '..'"),
    (b"..", "segment '..'"),
    (b"k" * 513, "allowed are 512"),
    ("é".encode() * 257, "allowed are 512"),
    (b"\xff\xfe", "not UTF-8"),
    (b"", "empty"),
]


@pytest.mark.parametrize(("key", "sentence"), BAD_KEYS)
def test_a_bad_key_is_not_even_sent(table: SyncDht, key: bytes, sentence: str) -> None:
    with pytest.raises(InvalidKeyError, match=re.escape(sentence)):
        table.put(key.decode(errors="surrogateescape"), b"v")
    with pytest.raises(InvalidKeyError, match=re.escape(sentence)):
        table.get(key.decode(errors="surrogateescape"))


@pytest.mark.parametrize(("key", "sentence"), BAD_KEYS)
def test_a_bad_key_from_a_careless_client_is_refused(
    cluster: LocalCluster, table: SyncDht, key: bytes, sentence: str
) -> None:
    error = careless(cluster, Operation.PUT, key, b"v")
    assert sentence in str(error)


def test_a_value_over_the_limit(cluster: LocalCluster, table: SyncDht) -> None:
    largest = os.urandom(VALUE_BYTES_MAX)
    table.put("large", largest)
    with pytest.raises(TooLargeError, match="1048577 bytes, allowed are 1048576"):
        table.put("large", largest + b"!")
    assert "allowed are 1048576" in str(careless(cluster, Operation.PUT, b"large", largest + b"!"))
    assert table.get("large") == largest


def careless(cluster: LocalCluster, operation: Operation, key: bytes, value: bytes) -> SwellError:
    """Send what the client library would not; the error that comes back."""
    addresses = [f"{spec.host}:{spec.port}" for spec in cluster.plan.nodes]

    async def send() -> None:
        async with swell.connect(addresses, cluster=cluster.plan.cluster) as connection:
            body = head.pack(operation, len(key)) + key + value
            await connection.call(DHT_SERVICE, crc32(key), Read.COMMAND, body)

    with pytest.raises(RefusedError) as caught:
        asyncio.run(send())
    return caught.value


# Directories.


def test_a_data_directory_restored_from_an_old_copy(
    cluster: LocalCluster, table: SyncDht, tmp_path: Path
) -> None:
    data, copy, newest = Path(cluster.spec(VICTIM).data), tmp_path / "copy", tmp_path / "newest"
    cluster.kill(VICTIM)
    shutil.copytree(data, copy)
    start(cluster, VICTIM)
    for k in range(20):
        table.put(f"new{k}", b"%d" % k)
    cluster.kill(VICTIM)
    data.rename(newest)
    copy.rename(data)
    for _ in range(3):
        assert "it is an old copy" in refusal(cluster, VICTIM)
    assert_kept(table)
    assert [table.get(f"new{k}") for k in range(20)] == [b"%d" % k for k in range(20)]
    shutil.rmtree(data)
    newest.rename(data)
    start(cluster, VICTIM)


def test_two_nodes_on_one_data_directory(cluster: LocalCluster, table: SyncDht) -> None:
    before = cluster.process_of(VICTIM)
    assert "is in use by another process" in refusal(cluster, VICTIM)
    assert cluster.process_of(VICTIM) == before
    assert cluster.target(VICTIM).ask("status")["joined"]


# Disks.


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A file system of its own, of `SMALL_BYTES`."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", path]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", sites=1, nodes=NODES)
    data = Path(cluster.spec(VICTIM).data)
    with small_disk(data):
        try:
            fill_and_repair(cluster, data)
        finally:
            cluster.stop()


def fill_and_repair(cluster: LocalCluster, data: Path) -> None:
    cluster.start()
    cluster.await_whole(START_S, lambda graph: None)
    log = cluster.log_of(VICTIM)
    with client(cluster) as table:
        table.put("first", b"")
        await_condition(lambda: placed(cluster), SERVE_S, "every slot has its members")
        share = store_of(cluster, VICTIM)["member_of"]
        keys = [f"key{k}" for k in range(3 * SMALL_BYTES // VALUE_BYTES)]
        for k, key in enumerate(keys):
            table.put(key, b"%4d" % k * (VALUE_BYTES // 4))
        await_condition(lambda: not runs(cluster, VICTIM), END_S, f"{VICTIM} has ended")
        assert re.search(FULL, log.read_text().splitlines()[-1])
        for k, key in enumerate(keys):
            assert table.get(key) == b"%4d" % k * (VALUE_BYTES // 4)
        subprocess.run(["mount", "-o", "remount,size=64m", data], check=True)
        start(cluster, VICTIM)
        store = store_of(cluster, VICTIM)
        assert store["lineage"] == 2, "what it wrote before the error does not count"
        await_condition(
            lambda: placed(cluster) and store_of(cluster, VICTIM)["member_of"] >= share - 1,
            2 * SERVE_S,
            "it has caught up",
        )
        cluster.kill("a3")
        for k, key in enumerate(keys):
            assert table.get(key) == b"%4d" % k * (VALUE_BYTES // 4)
        table.put(keys[0], b"written again")


def store_of(cluster: LocalCluster, name: str) -> dict[str, int]:
    """What a node says of its part of the store."""
    store: dict[str, int] = cluster.target(name).ask("status")["store"]
    return store


def placed(cluster: LocalCluster) -> bool:
    """Does every slot have as many members as it should have?"""
    stores = [store_of(cluster, spec.name) for spec in cluster.plan.nodes]
    return sum(store["member_of"] for store in stores) == REPLICAS * stores[0]["slots"] > 0


def runs(cluster: LocalCluster, name: str) -> bool:
    return any(name in process.nodes for process in cluster.running())
