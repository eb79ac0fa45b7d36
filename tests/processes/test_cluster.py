"""Sixteen real processes in four zones: a crash of four, then of all."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.commands import LocalCluster, await_condition, complaint, running
from tests.processes.graphs import epochs, places, unsound

NAMES = [f"{site}{k}" for site in "ab" for k in range(1, 9)]
HEAL_S = 40.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("sixteen")
    yield from running(path, "--sites", "2", "--nodes", "16", "--connections", "4")


def victims(cluster: LocalCluster) -> list[str]:
    """Two of one zone and one each of two others; at most one of the directory's three voters."""
    graph = cluster.ask("overlay")
    zones: dict[int, list[str]] = {}
    for node in graph["nodes"]:
        zones.setdefault(node["zone"], []).append(node["name"])
    members = [[name for name in zones[zone] if name not in ("a1", "a2")] for zone in sorted(zones)]
    return [members[1][0], members[1][1], members[2][0], members[3][1]]


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def await_sound(cluster: LocalCluster, names: list[str]) -> None:
    found: list[str] = []

    def sound() -> bool:
        found[:] = unsound(cluster.ask("overlay"), names)
        return not found

    await_condition(sound, HEAL_S, f"a sound overlay ({found})")


def test_four_zones_form(cluster: LocalCluster) -> None:
    graph = cluster.ask("overlay")
    assert unsound(graph, NAMES) == []
    assert Counter(zone["size"] for zone in graph["zones"]) == {4: 4}
    assert Counter(zone["site"] for zone in graph["zones"]) == {"a": 2, "b": 2}
    kinds = Counter(link["kind"] for link in graph["links"])
    assert kinds == {"clique": 4 * 6, "inter-zone": 6}
    assert len(set(cluster.pids.values())) == 16


def test_four_killed_nodes_are_healed_around(cluster: LocalCluster) -> None:
    before = places(cluster.ask("overlay"))
    dead = victims(cluster)
    kill([cluster.pids[name] for name in dead])
    survivors = [name for name in NAMES if name not in dead]
    await_sound(cluster, survivors)
    after = places(cluster.ask("overlay"))
    assert after == {name: before[name] for name in survivors}
    reached = cluster.ask("broadcast", "anybody there?")
    assert sorted(one["name"] for one in reached["reached"]) == sorted(survivors)
    assert reached["max_hops"] <= 3
    assert "does not answer" in complaint("ping", dead[0], "--dir", cluster.path)


def test_the_whole_cluster_killed_comes_back_by_itself(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    graph = cluster.ask("overlay")
    before, starts = places(graph), epochs(graph)
    kill([cluster.pids[name] for name in before])
    assert "does not run" in complaint("overlay", "--dir", cluster.path)
    cluster.up()
    graph = cluster.ask("overlay")
    assert unsound(graph, NAMES) == []
    after = places(graph)
    assert {name: after[name] for name in before} == before
    assert all(epochs(graph)[name] == starts[name] + 1 for name in before)
