"""Services with real nodes in simulation: who lives stays listed, who dies does not (RIP-23)."""

from __future__ import annotations

import pytest

from swell.config import requests
from swell.config.edits import Lines
from swell.config.names import INSTANCES
from swell.services.instances import Instance
from swell.simulation.checkers.store import weaknesses
from tests.simulation.services import SERVICE, TTL_S, Cluster

SLACK_S = 1.0


def three(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.add(name)
    cluster.until(lambda: cluster.healthy() == ["a", "b", "c"], "three instances")


def when(cluster: Cluster, id: str, healthy: bool | None) -> float:
    """When the watcher first heard this of an instance; None: it is gone."""
    for time_s, _, change in cluster.watcher.heard:
        ones = change.removed if healthy is None else change.changed
        if any(one.id == id and healthy in (None, one.healthy) for one in ones):
            return time_s
    raise AssertionError(f"{id} never was {healthy}")


def test_who_dies_is_unhealthy_after_its_ttl_and_removed_after_twice_as_much() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.run(4 * TTL_S)
    assert cluster.judged == []
    died = cluster.now()
    cluster.watcher.heard[1:] = cluster.watcher.heard[-1:]
    cluster.simulation.processes["b"].crash()
    cluster.until(lambda: "b" not in cluster.seen, "b is removed")
    assert cluster.judged == [("b", "unhealthy"), ("b", "removed")]
    unhealthy, removed = (when(cluster, "b", False) - died, when(cluster, "b", None) - died)
    assert TTL_S * 2 / 3 - SLACK_S < unhealthy < TTL_S + SLACK_S
    assert unhealthy + TTL_S - SLACK_S < removed < 2 * TTL_S + SLACK_S
    assert cluster.healthy() == ["a", "c"]
    cluster.simulation.processes["b"].start()
    cluster.until(lambda: cluster.healthy() == ["a", "b", "c"], "b is back")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_new_primary_removes_nobody_who_lives(seed: int) -> None:
    cluster = Cluster(seed)
    three(cluster)
    cluster.simulation.processes["b"].crash()
    cluster.run(TTL_S / 2)
    old = cluster.primary()
    cluster.simulation.processes[old].crash()
    cluster.until(lambda: cluster.primary() not in ("", old), "another primary")
    began = cluster.now()
    cluster.until(lambda: "b" not in cluster.seen, "b is removed", 40.0)
    assert cluster.now() - began > 2 * TTL_S - SLACK_S
    cluster.run(3 * TTL_S)
    assert {id for id, _ in cluster.judged} == {"b"}
    assert cluster.healthy() == ["a", "c"]


@pytest.mark.parametrize("seed", range(4, 10))
def test_nodes_come_and_go_and_nobody_is_taken_for_dead(seed: int) -> None:
    cluster = Cluster(seed)
    names = [f"i{n}" for n in range(6)]
    for name in names:
        cluster.add(name, ttl_s=3.0)
    cluster.until(lambda: cluster.healthy() == names, "all instances")
    rng = cluster.simulation.rng("strikes")
    for _ in range(6):
        victim = cluster.simulation.processes[rng.choice([cluster.primary(), "n3"])]
        victim.crash(power=rng.random() < 0.5)
        cluster.run(rng.uniform(0.5, 8.0))
        victim.start()
        cluster.until(lambda: not weaknesses(cluster.fleet), "the store is strong", 60.0)
    cluster.run(10.0)
    assert cluster.judged == []
    assert cluster.healthy() == names
    assert [one.healthy for one in cluster.listed()] == [True] * 6


def test_a_primary_that_stood_still_takes_nobody_for_dead() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.simulation.processes[cluster.primary()].suspend()
    cluster.run(3 * TTL_S)
    for process in cluster.simulation.processes.values():
        process.resume()
    cluster.run(3 * TTL_S)
    assert cluster.judged == []
    assert cluster.healthy() == ["a", "b", "c"]


def test_a_primary_that_was_paused_hears_before_it_judges() -> None:
    cluster = Cluster()
    cluster.add("a", ttl_s=1.0)
    cluster.until(lambda: cluster.healthy() == ["a"], "one instance")
    cluster.run(5.0)
    primary = cluster.primary()
    cluster.simulation.processes[primary].pause()
    cluster.run(1.5)
    cluster.simulation.processes[primary].resume()
    cluster.run(5.0)
    assert cluster.primary() == primary
    assert cluster.judged == []


def test_who_comes_back_in_time_is_healthy_again() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.simulation.processes["a"].pause()
    cluster.until(lambda: cluster.healthy() == ["b", "c"], "a is unhealthy")
    cluster.simulation.processes["a"].resume()
    cluster.until(lambda: cluster.healthy() == ["a", "b", "c"], "a is healthy")
    assert cluster.judged == [("a", "unhealthy"), ("a", "healthy")]


def test_who_was_removed_and_lives_registers_again() -> None:
    cluster = Cluster()
    three(cluster)
    holder = cluster.add("d")
    cluster.until(lambda: "d" in cluster.seen, "d is there")
    cluster.simulation.processes["d"].pause()
    cluster.until(lambda: "d" not in cluster.seen, "d is removed")
    cluster.simulation.processes["d"].resume()
    cluster.until(lambda: "d" in cluster.healthy(), "d is back")
    assert holder.session.store.counters["registered-again"] >= 1
    assert holder.lost == []


def test_the_later_of_two_registrations_wins_and_the_earlier_is_told() -> None:
    cluster = Cluster()
    first = cluster.add("a", id="x")
    cluster.until(lambda: "x" in cluster.seen, "the first is there")
    second = cluster.add("b", id="x", weight=2.0)
    cluster.until(lambda: cluster.seen["x"].host == "b", "the second is there")
    cluster.until(lambda: first.lost == ["replaced"], "the first is told")
    outcomes: list[object] = []
    (registration,) = first.registered
    first.registrations.deregister(registration, 5.0, outcomes.append)  # type: ignore[arg-type]
    cluster.until(lambda: bool(outcomes), "an answer")
    cluster.run(3 * TTL_S)
    assert cluster.seen["x"].host == "b"
    assert not any(change.removed for _, _, change in cluster.watcher.heard)
    assert second.lost == []
    (kept,) = second.registered
    second.registrations.deregister(kept, 5.0, outcomes.append)  # type: ignore[arg-type]
    cluster.until(lambda: not cluster.seen, "the second is gone")


def test_a_protected_list_keeps_its_instances() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.ask(requests.set_options(SERVICE, protect=0.5))
    for name in ("a", "b"):
        cluster.simulation.processes[name].crash()
    cluster.until(lambda: cluster.protected, "the list is protected")
    assert cluster.healthy() == ["c"]
    assert sorted(cluster.seen) == ["a", "b", "c"]
    cluster.simulation.processes["c"].crash()
    cluster.run(6 * TTL_S)
    assert (cluster.healthy(), sorted(cluster.seen)) == ([], ["a", "b", "c"])
    usable = cluster.listed().usable
    assert [one.id for one in usable] == ["a", "b", "c"]
    for name in ("a", "b"):
        cluster.simulation.processes[name].start()
    cluster.until(lambda: not cluster.protected, "the list is not protected any more")
    cluster.until(lambda: sorted(cluster.seen) == ["a", "b"], "c is removed")
    cluster.ask(requests.set_options(SERVICE, protect=0.9))
    cluster.simulation.processes["a"].crash()
    cluster.until(lambda: cluster.protected, "half of them are not enough")
    cluster.run(4 * TTL_S)
    assert sorted(cluster.seen) == ["a", "b"]
    cluster.ask(requests.set_options(SERVICE, protect=0.0))
    cluster.until(lambda: sorted(cluster.seen) == ["b"], "without protection a is removed")


def test_probes_make_unhealthy_and_healthy_and_never_remove() -> None:
    cluster = Cluster()
    cluster.add("a", check="tcp")
    cluster.add("b", check="http:/health")
    cluster.add("c", check="none")
    cluster.until(lambda: cluster.healthy() == ["a", "b", "c"], "three instances")
    cluster.simulation.processes["b"].pause()  # its kernel still answers
    for name in ("a", "c"):
        cluster.simulation.processes[name].crash()
    cluster.until(lambda: cluster.healthy() == ["c"], "a and b are unhealthy", 10.0)
    cluster.run(4 * TTL_S)
    assert sorted(cluster.seen) == ["a", "b", "c"]
    cluster.simulation.processes["b"].resume()
    cluster.until(lambda: cluster.healthy() == ["b", "c"], "b is healthy")
    assert sorted(cluster.judged) == [("a", "unhealthy"), ("b", "healthy"), ("b", "unhealthy")]


def test_a_long_list_goes_out_as_lines() -> None:
    """What one change costs its followers does not grow with the list."""
    cluster = Cluster()
    rows = [
        Instance(lease="0" * 16, host=f"h{n}", port=80, check="none", id=f"h{n:03}:80")
        for n in range(200)
    ]
    for one in rows:
        cluster.ask(requests.publish(SERVICE, (Lines(INSTANCES, (one.line(),)),)))
    cluster.until(lambda: len(cluster.seen) == 200, "all are there")
    history = requests.history_of(cluster.ask(requests.history(SERVICE, INSTANCES)))
    assert max(kept.change_bytes for kept in history) < 100
    assert len(cluster.listed()) == 200
