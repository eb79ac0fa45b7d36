"""Local clusters without starting one: addresses, ports, processes, plans."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from swell.cli.hosting import NodeSpec
from swell.cli.local import _find_or_create
from swell.cli.localcluster import LocalCluster, spread
from swell.cli.node import load_settings, parse_voters
from swell.cli.processes import Process, is_running, start_ticks
from swell.cli.target import certificates_in, parse_address, parse_addresses
from swell.directory.messages import Voter
from swell.errors import ConfigurationError, UnavailableError
from swell.runtime.ports import free_ports
from swell.settings import Settings
from swell.world import Address

NO_SHAPE: dict[str, int | None] = dict.fromkeys(("sites", "nodes", "per_process", "connections"))


def test_addresses() -> None:
    assert parse_address("127.0.0.1:80") == Address("127.0.0.1", 80)
    assert parse_address("[::1]:80") == Address("::1", 80)
    assert parse_address("host:0", port_min=0) == Address("host", 0)
    assert parse_addresses("a:1, b:2") == [Address("a", 1), Address("b", 2)]


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:port", "host:0", "host:65536"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_address(text)


def test_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", ports[0])):
        pass


def test_a_process_is_known_by_number_and_start() -> None:
    mine = Process(os.getpid(), start_ticks(os.getpid()), ())
    assert is_running(mine)
    assert not is_running(Process(mine.pid, mine.started + 1, ()))
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    process = Process(child.pid, start_ticks(child.pid), ())
    child.wait()
    assert not is_running(process)


def test_plan_spreads_nodes_over_sites_and_survives(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 2, 5, connections=7)
    plan = LocalCluster.load(tmp_path).plan
    assert plan == made.plan
    assert [spec.name for spec in plan.nodes] == ["a1", "a2", "a3", "b1", "b2"]
    (voters,) = {spec.voters for spec in plan.nodes}
    ports = {spec.name: spec.port for spec in plan.nodes}
    assert voters == tuple(Voter(name, "127.0.0.1", ports[name]) for name in ("a1", "b1", "a2"))
    assert plan.nodes[0].settings == Settings.local(7)
    with pytest.raises(UnavailableError, match="does not run"):
        made.target()


@pytest.mark.parametrize(
    ("sites", "per_process", "places"),
    [
        ("a", 1, [0]),
        ("aa", 1, [0]),
        ("aaa", 1, [0, 1, 2]),
        ("aabbcc", 1, [0, 2, 4]),
        ("aaaaaaaa", 4, [0, 4, 1]),
        ("aaabbb", 2, [0, 3, 4]),
    ],
)
def test_voters_are_spread_over_sites_then_processes(
    sites: str, per_process: int, places: list[int]
) -> None:
    assert spread(sites, per_process) == places


def test_authority_of_a_plan_with_tls(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, 1, 1, tls=True)
    target = cluster.target("a1")
    assert target.tls is not None
    assert target.tls.node == "operator"
    assert target.cluster == cluster.plan.cluster
    assert certificates_in(cluster.plan.nodes[0].certificates)


@pytest.mark.parametrize(
    ("shape", "tls", "fits"),
    [
        ({}, False, True),
        ({"nodes": 3}, False, True),
        ({"nodes": 4}, False, False),
        ({"sites": 2}, False, False),
        ({"connections": 9}, False, False),
        ({"per_process": 3}, False, True),
        ({}, True, False),
    ],
)
def test_a_stopped_cluster_keeps_its_shape(
    tmp_path: Path, shape: dict[str, int | None], tls: bool, fits: bool
) -> None:
    cluster = LocalCluster.create(tmp_path, 1, 3)
    if fits:
        again = _find_or_create(tmp_path, {**NO_SHAPE, **shape}, tls)
        assert again.plan.cluster == cluster.plan.cluster
        assert again.plan.per_process == shape.get("per_process", 1)
    else:
        with pytest.raises(ConfigurationError, match="holds a cluster of 3 nodes"):
            _find_or_create(tmp_path, {**NO_SHAPE, **shape}, tls)


def test_purge_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    LocalCluster.create(path, 1, 1)
    (path / "notes").write_text("keep")
    LocalCluster.load(path).purge()
    assert [file.name for file in path.iterdir()] == ["notes"]


def test_settings_from_presets_and_files(tmp_path: Path) -> None:
    assert load_settings("local") == Settings.local()
    assert load_settings("wide-area") == Settings.wide_area()
    for replicas, min_replicas in ((1, 1), (2, 2), (3, 2), (5, 2)):
        store = load_settings("local", replicas).store
        assert (store.replicas, store.min_replicas) == (replicas, min_replicas)
    file = tmp_path / "settings.toml"
    file.write_text("[overlay]\nconnections = 11\n")
    assert load_settings(str(file)).overlay.connections == 11
    assert load_settings(str(file)).membership == Settings().membership
    file.write_text("[overlay]\nconections = 11\n")
    with pytest.raises(ConfigurationError, match="conections"):
        load_settings(str(file))
    file.write_text("[overlay]\nconnections = 'many'\n")
    with pytest.raises(ConfigurationError, match="connections"):
        load_settings(str(file))
    with pytest.raises(ConfigurationError, match="neither a file"):
        load_settings("nonsense")


def test_cluster_is_an_id_or_a_directory_of_certificates(tmp_path: Path) -> None:
    assert certificates_in("my-cluster") == ""
    assert certificates_in("") == ""
    with pytest.raises(ConfigurationError, match="swell cluster issue"):
        certificates_in(str(tmp_path))


def test_unknown_node_names_the_known_ones(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, 1, 2)
    assert isinstance(cluster.spec("a2"), NodeSpec)
    with pytest.raises(ConfigurationError, match="a1, a2"):
        cluster.spec("b1")


def test_voters_are_given_by_address_and_by_name_if_this_node_is_one() -> None:
    assert parse_voters("10.0.0.1:7", "x") == (Voter("", "10.0.0.1", 7),)
    three = "a=10.0.0.1:7, b=10.0.0.2:7,c=10.0.0.3:8"
    assert parse_voters(three, "a") == (
        Voter("a", "10.0.0.1", 7),
        Voter("b", "10.0.0.2", 7),
        Voter("c", "10.0.0.3", 8),
    )
    with pytest.raises(ConfigurationError, match="the name of every voter"):
        parse_voters("a=10.0.0.1:7,10.0.0.2:7", "a")
    with pytest.raises(ConfigurationError, match="twice"):
        parse_voters("a=10.0.0.1:7,a=10.0.0.2:7", "x")
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_voters("a=", "x")


def test_as_many_replicas_as_there_are_nodes(tmp_path: Path) -> None:
    for nodes, replicas, min_replicas in ((1, 1, 1), (2, 2, 2), (3, 3, 2), (8, 3, 2)):
        cluster = LocalCluster.create(tmp_path / str(nodes), sites=1, nodes=nodes)
        stores = {
            (s.settings.store.replicas, s.settings.store.min_replicas) for s in cluster.plan.nodes
        }
        assert stores == {(replicas, min_replicas)}


def test_replicas_that_contradict_each_other(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[store]\nreplicas = 1\n")
    with pytest.raises(ConfigurationError, match="says 1 and 2"):
        load_settings(str(file))
    assert load_settings(str(file), 1).store.min_replicas == 1
