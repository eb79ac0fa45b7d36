"""EPU-2 and EPU-4 in plain Python: centroids, worst latencies, and the moves of Algorithm 1."""

from __future__ import annotations

from random import Random

import pytest

from swell.placement.monitoring import NodeReport, TopicReport, expected_us, report
from swell.placement.planning import (
    Load,
    Move,
    PlanSettings,
    candidates,
    load_of,
    plan,
    shed,
    violated,
)
from swell.placement.space import Place, centroid, deviation_us, distance_us, place_of


def node(name: str, x_ms: float, utilization: float = 0.0) -> NodeReport:
    return NodeReport(name, place_of([x_ms, 0.0, 0.0]), utilization)


def client(x_ms: float, height_ms: float = 0.0) -> Place:
    return place_of([x_ms, 0.0, height_ms])


NODES = [node("a", 0), node("b", 50), node("c", 100)]


def topic(
    name: str, home: NodeReport, at_ms: float, rate: float = 1.0, limit_ms: int | None = 40
) -> TopicReport:
    """Its producer and its consumer are at one place."""
    places = [client(at_ms)]
    limit_us = None if limit_ms is None else limit_ms * 1000
    return report(name, home, places, places, round(rate * 1000), limit_us)


def test_epu2_centroids_deviation_and_worst_case() -> None:
    producers, consumers = [client(0, 2), client(20, 4)], [client(100, 1)]
    found = report("t", node("b", 50), producers, consumers, 5000)
    assert found.producers == ((10_000.0, 0.0), 3_000.0)
    assert found.consumers == ((100_000.0, 0.0), 1_000.0)
    assert found.deviation_us == 10_000 + 1_000
    assert found.worst_us == (50_000 + 2_000) + (50_000 + 1_000)
    assert expected_us(found, node("a", 0)) == (10_000 + 3_000) + (100_000 + 1_000) + 11_000


def test_epu2_expected_latency_is_never_below_the_true_worst_case() -> None:
    rng = Random(7)

    def anywhere() -> Place:
        return place_of([rng.uniform(-50, 50) for _ in range(3)] + [rng.uniform(0, 30)])

    for _ in range(200):
        sides = [[anywhere() for _ in range(rng.randint(1, 6))] for _ in range(2)]
        here = NodeReport("n", anywhere())
        found = report("t", here, *sides, 0)
        assert found.worst_us is not None
        assert expected_us(found, here) >= found.worst_us - 1e-6
        centre = centroid(sides[0])
        assert centre is not None
        farthest = max(deviation_us(place, centre) for place in sides[0])
        assert farthest >= -1e-9
        way = distance_us(sides[0][0], here.place)
        assert way <= deviation_us(sides[0][0], centre) + distance_us(centre, here.place) + 1e-6


def test_epu2_a_topic_that_nobody_uses_violates_nothing() -> None:
    assert centroid([]) is None
    lonely = report("t", NODES[0], [client(500)], [], 0, limit_us=1)
    assert lonely.worst_us is None
    assert not violated(lonely)
    assert plan([lonely], NODES) == []


def test_epu4_a_violated_topic_moves_to_the_best_feasible_node() -> None:
    assert plan([topic("t", NODES[0], 90)], NODES) == [Move("t", "a", "c")]
    assert plan([topic("t", NODES[2], 90)], NODES) == []
    assert plan([topic("t", NODES[0], 90, limit_ms=None)], NODES) == []


def test_epu4_only_nodes_under_the_limit_are_candidates_and_all_if_there_is_none() -> None:
    assert candidates(topic("t", NODES[0], 75, limit_ms=50), NODES).nodes == ["b", "c"]
    nowhere = candidates(topic("t", NODES[0], 75, limit_ms=10), NODES)
    assert (nowhere.feasible, nowhere.nodes) == (0, ["b", "c", "a"])


def test_epu4_the_first_that_fits_wins_and_without_any_the_topic_stays() -> None:
    settings = PlanSettings(rate_out_max=10)
    full = [topic("x", NODES[1], 50, rate=9), topic("y", NODES[2], 100, rate=9)]
    wandering = topic("t", NODES[0], 75, rate=2, limit_ms=30)
    assert plan([*full, wandering], NODES, settings) == []
    assert plan([full[0], wandering], NODES, settings) == [Move("t", "a", "c")]


def test_epu4_fewest_candidates_choose_first() -> None:
    settings = PlanSettings(rate_out_max=10)
    flexible = topic("a-flexible", NODES[0], 75, rate=6, limit_ms=60)
    bound = topic("z-bound", NODES[0], 50, rate=6, limit_ms=10)
    assert candidates(flexible, NODES).nodes == ["b", "c"]
    assert candidates(bound, NODES).nodes == ["b"]
    assert plan([flexible, bound], NODES, settings) == [
        Move("z-bound", "a", "b"),
        Move("a-flexible", "a", "c"),
    ]


def test_epu4_an_overloaded_node_sheds_its_largest_topics_until_it_is_not() -> None:
    settings = PlanSettings(rate_out_max=10)
    rates = {"t1": 3, "t2": 7, "t3": 3, "t4": 1}
    topics = [topic(name, NODES[0], 0, rate, None) for name, rate in rates.items()]
    load = load_of(topics, NODES, settings)
    assert [one.topic for one in shed("a", topics, load)] == ["t2"]
    assert plan(topics, NODES, settings) == [Move("t2", "a", "b")]
    topics.append(topic("t5", NODES[0], 0, 7, None))
    load = load_of(topics, NODES, settings)
    assert [one.topic for one in shed("a", topics, load)] == ["t2", "t5"], "equal: by name"


def test_epu4_utilization_counts_too_and_follows_the_rate() -> None:
    hot = [node("a", 0, 0.9), node("b", 50, 0.8), node("c", 100, 0.2)]
    topics = [topic("x", hot[0], 0, 1, None), topic("y", hot[0], 0, 8, None)]
    topics += [topic("z", hot[1], 50, 9, None), topic("w", hot[2], 100, 9, None)]
    assert plan(topics, hot) == [Move("y", "a", "c")], "b would be at 0.8 · 17 / 9"
    idle = [node("a", 0, 0.99), *hot[1:]]
    assert plan([topic("x", idle[0], 0, 0, None)], idle) == [], "leaving would be no relief"


def test_epu4_the_highest_rate_is_the_last_that_is_not_too_much() -> None:
    rng = Random(3)
    settings = PlanSettings(rate_out_max=1_000.0)
    for _ in range(300):
        seen, used = rng.choice([0, 1, rng.randint(1, 2_000_000)]), rng.choice([0.0, rng.random()])
        most = Load({"n": seen}, {"n": used}, settings).most_milli("n")

        def fits(rate: int, seen: int = seen, used: float = used) -> bool:
            estimated = used * (rate / seen) if seen else used
            return rate <= 1_000_000 and estimated <= settings.utilization_max

        assert not fits(most + 1)
        assert fits(most) or most == -1


def test_epu4_a_topic_whose_home_is_gone_is_placed() -> None:
    orphan = topic("t", node("gone", 0), 90)
    assert plan([orphan], NODES) == [Move("t", "gone", "c")]


def test_epu4_ties_are_broken_by_name_whatever_the_order() -> None:
    twins = [node("b", 50), node("a", 50), node("far", 500)]
    topics = [topic(name, twins[2], 50, rate=6) for name in ("u", "t")]
    settings = PlanSettings(rate_out_max=10)
    expected = [Move("t", "far", "a"), Move("u", "far", "b")]
    for order in (1, -1):
        assert plan(topics[::order], twins[::order], settings) == expected


@pytest.mark.parametrize("ms", [0.0004, 0.0005, 1.4999, -0.0005, 12.3456789])
def test_places_are_whole_microseconds(ms: float) -> None:
    assert abs(place_of([ms, 0.0]).vector_us[0] - ms * 1000) <= 0.5
