"""Nodes that must not get in: one clear line, exit code 1, and no harm to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.commands import LocalCluster, complaint, running, swell, swell_json
from tests.processes.graphs import places, unsound

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("plain")
    yield from running(path, "--sites", "1", "--nodes", "3", "--per-process", "3")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("secure")
    yield from running(path, "--sites", "1", "--nodes", "3", "--tls")


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does, the cluster it does it to stays as it was."""
    name = "secure" if "secure" in request.fixturenames else "cluster"
    cluster: LocalCluster = request.getfixturevalue(name)
    yield
    graph = cluster.graph()
    assert places(graph) == places(cluster.facts)
    assert unsound(graph, cluster.pids) == []


def words(cluster: LocalCluster, name: str, data: Path, /, **options: str) -> list[str]:
    options = {
        "name": name,
        "site": "a",
        "data": str(data),
        "directory": cluster.address("a1"),
        "cluster": cluster.facts["cluster"],
        "settings": "local",
        **options,
    }
    return ["node", *(word for key, value in options.items() for word in (f"--{key}", value))]


def test_name_in_use(cluster: LocalCluster, tmp_path: Path) -> None:
    error = complaint(*words(cluster, "a2", tmp_path))
    assert "a living node" in error
    assert "is called a2" in error


def test_port_in_use(cluster: LocalCluster, tmp_path: Path) -> None:
    error = complaint(*words(cluster, "new", tmp_path, listen=cluster.address("a2")))
    assert "in use" in error
    assert cluster.address("a2").split(":")[1] in error


def test_data_directory_of_another_node(cluster: LocalCluster, tmp_path: Path) -> None:
    complaint(*words(cluster, "a2", tmp_path))
    error = complaint(*words(cluster, "new", tmp_path))
    assert "belongs to node 'a2'" in error


def test_data_directory_of_a_running_node(cluster: LocalCluster) -> None:
    error = complaint(*words(cluster, "a2", cluster.path / "nodes" / "a2"))
    assert "in use by another process" in error


def test_node_of_another_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    error = complaint(*words(cluster, "new", tmp_path, cluster="another"))
    assert "not another" in error


def test_plain_tcp_beyond_loopback(cluster: LocalCluster, tmp_path: Path) -> None:
    error = complaint(*words(cluster, "new", tmp_path, listen="0.0.0.0:0"))
    assert "without TLS" in error


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "Bad Name"}, "is not valid"),
        ({"listen": "nowhere"}, "is not an address"),
        ({"settings": "nonsense"}, "neither a file nor"),
        ({"cluster": "/nonexistent/dir"}, "is not a directory"),
    ],
)
def test_bad_options(
    cluster: LocalCluster, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    assert sentence in complaint(*words(cluster, "new", tmp_path, **options))


def test_cluster_with_tls_works(secure: LocalCluster) -> None:
    graph = secure.ask("overlay")
    assert unsound(graph, ["a1", "a2", "a3"]) == []
    assert secure.ask("ping", "a3", "--from", "a2")["pings"][0]["path"] == ["a2", "a3"]
    assert len(secure.ask("broadcast", "hello")["reached"]) == 3


def test_certificate_of_another_authority(secure: LocalCluster, tmp_path: Path) -> None:
    swell_json("cluster", "create", tmp_path / "authority", "--name", "other")
    keys = tmp_path / "keys"
    made = swell("cluster", "issue", "new", "--dir", tmp_path / "authority", "--out", keys)
    assert made.returncode == 0, made.stderr
    error = complaint(*words(secure, "new", tmp_path / "data", cluster=str(keys)))
    assert "another authority" in error
    error = complaint("members", "--connect", secure.address("a1"), "--cluster", keys)
    assert "another authority" in error


def test_certificate_of_another_node(secure: LocalCluster, tmp_path: Path) -> None:
    for holder, sentence in (("a1", "is for node 'a1'"), ("operator", "has the role admin")):
        keys = secure.path / "certificates" / holder
        error = complaint(*words(secure, "new", tmp_path / "data", cluster=str(keys)))
        assert sentence in error


def test_plain_client_of_a_secure_cluster(secure: LocalCluster) -> None:
    error = complaint("members", "--connect", secure.address("a1"))
    assert "no node answers" in error
