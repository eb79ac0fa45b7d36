"""`swell dht` on a cluster of real processes, and the client library against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import swell as library
from tests.processes.commands import (
    ENVIRONMENT,
    LocalCluster,
    NodeProcess,
    complaint,
    running,
    swell,
    swell_json,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from running(tmp_path_factory.mktemp("dht"), "--nodes", "3", "--sites", "1")


def dht(cluster: LocalCluster, *words: str | Path) -> Any:
    return swell_json("dht", *words, "--dir", cluster.path)


def test_every_operation(cluster: LocalCluster) -> None:
    assert dht(cluster, "put", "a", "1") == {"key": "a", "bytes": 1}
    assert dht(cluster, "get", "a") == {"key": "a", "value": "1", "stale": False}
    assert dht(cluster, "get", "a", "--stale")["value"] == "1"
    assert dht(cluster, "contains", "a")["contains"] is True
    assert dht(cluster, "put-if-absent", "a", "2")["put"] is False
    assert dht(cluster, "put-and-retrieve", "a", "2")["value"] == "1"
    assert dht(cluster, "replace", "a", "3") == {"key": "a", "replaced": True, "value": "2"}
    assert dht(cluster, "replace", "a", "4", "--if", "2")["replaced"] is False
    assert dht(cluster, "replace", "a", "4", "--if", "3")["replaced"] is True
    assert dht(cluster, "remove", "a", "--if", "3")["removed"] is False
    assert dht(cluster, "remove", "a")["removed"] is True
    assert dht(cluster, "replace", "a", "5") == {"key": "a", "replaced": False, "value": None}


def test_values_are_written_as_they_are(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(os.urandom(1024 * 1024))
    assert dht(cluster, "put", "big", "--file", file)["bytes"] == 1024 * 1024
    got = subprocess.run(
        [sys.executable, "-m", "swell", "dht", "get", "big", "--dir", str(cluster.path)],
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert got.stdout == file.read_bytes()


def test_a_key_without_a_value(cluster: LocalCluster) -> None:
    assert complaint("dht", "get", "nothing", "--dir", cluster.path) == (
        "error: no value under nothing"
    )
    done = swell("dht", "remove", "nothing", "--dir", cluster.path)
    assert (done.returncode, done.stdout) == (0, "no value under nothing\n")


def test_bad_input_gets_one_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(1024 * 1024 + 1))
    to = ("--dir", cluster.path)
    assert "segment '..'" in complaint("dht", "put", "a/../b", "v", *to)
    assert "not UTF-8" in complaint("dht", "get", os.fsdecode(b"\xff"), *to)
    assert "1048577 bytes" in complaint("dht", "put", "a", "--file", large, *to)
    assert "cannot read" in complaint("dht", "put", "a", "--file", tmp_path / "missing", *to)
    assert "give one value" in complaint("dht", "put", "a", *to)
    assert "give one value" in complaint("dht", "put", "a", "v", "--file", large, *to)
    assert "no node answers" in complaint("dht", "get", "a", "--connect", "127.0.0.1:1")


def test_the_library_uses_the_cluster(cluster: LocalCluster) -> None:
    nodes = [cluster.address(name) for name in ("a1", "a2")]
    with library.connect_sync(nodes, cluster=cluster.facts["cluster"]) as client:
        table = client.dht()
        for k in range(50):
            table.put(f"k{k}", b"%d" % k)
        assert [table.get(f"k{k}") for k in range(50)] == [b"%d" % k for k in range(50)]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_small_clusters_keep_what_they_were_given(tmp_path: Path, nodes: str) -> None:
    for small in running(tmp_path / "small", "--nodes", nodes, "--sites", "1"):
        dht(small, "put", "a", "1")
        assert swell("down", "--dir", small.path).returncode == 0
        small.up()
        assert dht(small, "get", "a")["value"] == "1"


@pytest.mark.slow
def test_a_node_alone(tmp_path: Path) -> None:
    where = ("--name", "n", "--site", "s", "--data", tmp_path / "n", "--settings", "local")
    with NodeProcess(*where) as node:
        to = ("--connect", node.ready("listening")["address"])
        node.ready("joined")
        error = complaint("dht", "put", "a", "1", *to, "--deadline", "2")
        assert "it waits for its directory, or for more nodes" in error
    where = ("--name", "n", "--site", "s", "--data", tmp_path / "m", "--settings", "local")
    with NodeProcess(*where, "--replicas", "1") as node:
        to = ("--connect", node.ready("listening")["address"])
        node.ready("joined")
        assert swell_json("dht", "put", "a", "1", *to)["bytes"] == 1
        assert swell_json("dht", "get", "a", *to)["value"] == "1"
