"""What people type: a cluster of eight nodes in two processes, asked in every way."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.commands import (
    LocalCluster,
    NodeProcess,
    await_condition,
    complaint,
    running,
    swell,
    swell_json,
)
from tests.processes.graphs import unsound

NAMES = [f"{site}{k}" for site in "ab" for k in range(1, 5)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("eight")
    yield from running(path, "--sites", "2", "--nodes", "8", "--per-process", "4")


def test_several_nodes_share_a_process(cluster: LocalCluster) -> None:
    assert sorted(cluster.pids) == NAMES
    assert len(set(cluster.pids.values())) == 2


def test_members(cluster: LocalCluster) -> None:
    answer = cluster.ask("members", "--node", "b2")
    assert sorted(member["name"] for member in answer["members"]) == NAMES[4:]
    assert {member["state"] for member in answer["members"]} == {"alive"}
    shown = swell("members", "--node", "b2", "--dir", cluster.path).stdout
    assert all(name in shown for name in NAMES[4:])
    assert "delegate" in shown


def test_overlay(cluster: LocalCluster) -> None:
    graph = cluster.ask("overlay")
    assert unsound(graph, NAMES) == []
    assert {"name", "id", "site", "zone"} <= set(graph["nodes"][0])
    assert {"a", "b", "kind"} <= set(graph["links"][0])
    assert {"id", "site", "size", "delegate"} <= set(graph["zones"][0])
    assert "complete" in swell("overlay", "--dir", cluster.path).stdout


def test_ping_across_zones(cluster: LocalCluster) -> None:
    answer = cluster.ask("ping", "b3", "--from", "a2", "--count", "3")
    assert len(answer["pings"]) == 3
    for ping in answer["pings"]:
        assert ping["hops"] <= 3
        assert ping["path"][0] == "a2"
        assert ping["path"][-1] == "b3"
        assert all(name in NAMES for name in ping["path"])
        assert 0 < ping["rtt_ms"] < 2000
    shown = swell("ping", "b3", "--from", "a2", "--dir", cluster.path).stdout
    assert "→ b3" in shown


@pytest.mark.parametrize("source", ["a1", "b4"])
def test_broadcast_reaches_all_in_three_hops(cluster: LocalCluster, source: str) -> None:
    answer = cluster.ask("broadcast", "hello", "--from", source)
    assert sorted(one["name"] for one in answer["reached"]) == NAMES
    assert answer["unreached"] == []
    assert answer["duplicates"] == 0
    assert answer["max_hops"] <= 3
    shown = swell("broadcast", "hello", "--from", source, "--dir", cluster.path).stdout
    assert "reached 8 nodes" in shown


def test_status(cluster: LocalCluster) -> None:
    answer = cluster.ask("status", "--node", "a1")
    assert answer["name"] == "a1"
    assert answer["directory"]["up"] == 8
    assert answer["counters"].get("handler-error", 0) == 0


def test_asking_by_address(cluster: LocalCluster) -> None:
    words = ("--connect", cluster.address("b1"), "--cluster", cluster.facts["cluster"])
    assert swell_json("status", *words)["name"] == "b1"
    # The first address that answers is enough.
    nobody = "127.0.0.1:1," + cluster.address("b1")
    words = ("--connect", nobody, "--cluster", cluster.facts["cluster"])
    assert swell_json("status", *words)["name"] == "b1"


def test_up_twice_is_refused(cluster: LocalCluster) -> None:
    assert "is up already" in complaint("up", "--dir", cluster.path)
    assert unsound(cluster.graph(), NAMES) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("overlay", "--dir", "/nonexistent"), "there is no local cluster"),
        (("overlay", "--connect", "nonsense"), "is not an address"),
        (("overlay", "--connect", "127.0.0.1:1"), "no node answers"),
        (("up", "--sites", "0"), "--sites must be"),
        (("up", "--nodes", "1"), "--nodes must be"),
    ],
)
def test_mistakes_get_one_clear_line(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    if "--dir" not in words:
        words = (*words, "--dir", str(tmp_path))
    assert sentence in complaint(*words)


def test_unknown_names_get_one_clear_line(cluster: LocalCluster) -> None:
    assert "no node is called nobody" in complaint("ping", "nobody", "--dir", cluster.path)
    assert "is called nobody" in complaint("members", "--node", "nobody", "--dir", cluster.path)


def test_client_of_another_cluster_is_refused(cluster: LocalCluster) -> None:
    error = complaint("status", "--connect", cluster.address("a1"), "--cluster", "another")
    assert "refuses" in error


def test_garbage_harms_nobody(cluster: LocalCluster) -> None:
    host, port = cluster.address("b2").split(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"SWELL\x001\n\xff\xff\xff\xff", b""):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert unsound(cluster.graph(), NAMES) == []
    assert cluster.ask("status", "--node", "b2")["counters"]["wrong-magic"] == 1


def test_down_is_idempotent(tmp_path: Path) -> None:
    assert swell_json("down", "--dir", tmp_path)["stopped"] == 0


def test_node_says_when_it_is_ready_and_leaves_politely(tmp_path: Path) -> None:
    def words(name: str) -> tuple[str, ...]:
        data = str(tmp_path / name)
        return ("--name", name, "--site", "x", "--data", data, "--settings", "local")

    with NodeProcess(*words("n1")) as first:
        address = first.ready("listening")["address"]
        assert first.ready("joined")["id"] == 1
        with NodeProcess(*words("n2"), "--directory", address) as second:
            second.ready("listening")
            assert second.ready("joined")["zone"] == 1

            def seen(state: str) -> bool:
                members = swell_json("members", "--connect", address)["members"]
                return {m["name"]: m["state"] for m in members} == {"n1": "alive", "n2": state}

            await_condition(lambda: seen("alive"), 10.0, "n1 sees n2")
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(timeout=10) == 0
            await_condition(lambda: seen("left"), 10.0, "n2 has left")
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(timeout=10) == 0
        assert first.process.stderr is not None
        log = first.process.stderr.read()
        assert "Traceback" not in log
        assert all(json.loads(line)["level"] != "error" for line in log.splitlines())
