"""The mathematics behind the THOR experiments, on graphs small enough to check by other means."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from swell.lab import graphs, thor_hashing, thor_topology
from swell.lab.graph_measures import (
    adjacency,
    bisection_at_least,
    bottleneck,
    cut,
    dissemination,
    shortest_paths,
)
from swell.lab.thor_resilience import largest_share, largest_share_of_thor
from swell.rings import Ring, Tier


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("connections", [3, 7, 10])
def test_thr1_built_graph_is_regular_and_complete_at_both_levels(connections: int) -> None:
    overlay = graphs.thor(connections, rng())
    links = overlay.links()
    assert overlay.nodes == graphs.overlay_size(connections, overlay.between)
    assert set(np.bincount(links.ravel()).tolist()) == {connections}
    zones = np.sort(links // overlay.zone_size, axis=1)
    inside = zones[zones[:, 0] == zones[:, 1]]
    between = {(a, b) for a, b in zones.tolist() if a != b}
    assert len(inside) == overlay.zones * overlay.zone_size * (overlay.zone_size - 1) // 2
    assert between == set(combinations(range(overlay.zones), 2))
    assert len(links) - len(inside) == len(between), "one link per pair of zones"
    assert shortest_paths(adjacency(links, overlay.nodes)).distance.max() == 3


def test_thr1_table_1_and_the_true_optimum() -> None:
    rows = {c: thor_topology.size_row(c) for c in thor_topology.PAPER_SIZES}
    assert all(row["N"] == row["paper_N"] for row in rows.values())
    assert (rows[10]["best_i"], rows[10]["best_N"]) == (4, 203)
    assert all(round(row["right_root"]) == row["best_i"] for row in rows.values())


@pytest.mark.parametrize("missing", [0, 1, 3, 4, 6])
def test_thr2_cost_of_a_zone_that_is_not_full(missing: int) -> None:
    row = thor_topology.cost_row(10, missing)
    assert row["extra_links"] == row["paper_cost"]
    links, left = graphs.with_missing(graphs.thor(10, rng()), missing)
    degrees = np.bincount(links.ravel(), minlength=200)
    assert degrees[:left].max() - degrees[:left].min() <= 1, "spread evenly"
    assert set(degrees[left:8].tolist()) <= {0}
    assert set(degrees[8:].tolist()) == {10}, "other zones keep their links"


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.1])
def test_thr12_collapsed_zones_give_the_components_of_the_whole_graph(rate: float) -> None:
    for seed in range(10):
        overlay = graphs.thor(10, rng(seed))
        alive = rng(seed + 100).random(overlay.nodes) >= rate
        assert largest_share_of_thor(overlay, alive) == largest_share(overlay.links(), alive)


def test_thr12_share_is_of_the_living() -> None:
    alive = np.array([True, True, False, True, False, False])
    assert largest_share(graphs.ring(6), alive) == pytest.approx(2 / 3)


def test_thr12_bottleneck_of_dissemination_paths_against_a_walk_over_all_pairs() -> None:
    overlay = graphs.thor(5, rng())
    size, gate = overlay.zone_size, overlay.gate_nodes
    load: dict[tuple[int, int], int] = {}
    longest = 0
    for s, t in combinations(range(overlay.nodes), 2):
        a, b = s // size, t // size
        stops = [s, t] if a == b else [s, int(gate[a, b]), int(gate[b, a]), t]
        hops = [(u, v) for u, v in pairwise(stops) if u != v]
        longest = max(longest, len(hops))
        for u, v in hops:
            load[min(u, v), max(u, v)] = load.get((min(u, v), max(u, v)), 0) + 1
    known = {(min(u, v), max(u, v)) for u, v in overlay.links().tolist()}
    assert set(load) == known
    found = dissemination(overlay)
    assert (found.bottleneck, found.hops_max) == (max(load.values()), longest)
    assert found.bottleneck == thor_topology.exact_bottleneck(5)


@pytest.mark.parametrize(
    ("links", "diameter", "load"),
    [
        (graphs.ring(8), 4, 8),
        (graphs.torus(4), 4, 8),
        (graphs.hypercube(4), 4, 8),
        (graphs.tree(3, 10), 4, 21),
    ],
)
def test_thr12_measures_of_graphs_whose_values_are_known(
    links: graphs.Links, diameter: int, load: float
) -> None:
    nodes = int(links.max()) + 1
    paths = shortest_paths(adjacency(links, nodes))
    assert paths.distance.max() == diameter
    assert bottleneck(links, paths) == pytest.approx(load)


@pytest.mark.parametrize(
    "links", [graphs.ring(12), graphs.hypercube(3), graphs.thor(3, rng()).links()]
)
def test_thr12_bisection_is_bracketed(links: graphs.Links) -> None:
    nodes = int(links.max()) + 1
    exact = min(
        cut(links, np.isin(np.arange(nodes), half))
        for half in combinations(range(nodes), nodes // 2)
    )
    assert bisection_at_least(adjacency(links, nodes)) <= exact + 1e-9
    assert cut(links, np.arange(nodes) < nodes // 2) >= exact


def test_thr12_spectral_bound_is_tight_on_the_hypercube() -> None:
    assert bisection_at_least(adjacency(graphs.hypercube(5), 32)) == pytest.approx(16)


def test_thr10_shares_are_those_of_the_rings_the_protocol_uses() -> None:
    scheme = thor_hashing.Scheme(4, 5, 2, (0, 0, 0), 0, 0)
    found = thor_hashing.two_level(scheme, salt=7, hashed=True)
    upper = Ring([f"7/z{z}" for z in range(scheme.zones)], 5, Tier.UPPER).shares()
    expected = []
    for zone in range(scheme.zones):
        nodes = range(zone * scheme.zone_size, (zone + 1) * scheme.zone_size)
        inside = Ring([f"7/n{n}" for n in nodes], 5, Tier.ZONE).shares()
        expected += [upper[f"7/z{zone}"] * inside[f"7/n{n}"] for n in nodes]
    assert found == pytest.approx(expected)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("hashed", [True, False])
def test_thr10_spread_follows_theory_by_sha1_and_by_generator(hashed: bool) -> None:
    scheme = thor_hashing.TABLE[1]
    assert (scheme.zones, scheme.zone_size, scheme.total_points) == (211, 21, 8816)
    small = thor_hashing.Scheme(15, 8, 2, (0, 0, 0), 0, 0)
    found = [thor_hashing.two_level(small, salt, hashed).std() for salt in range(8)]
    assert np.mean(found) == pytest.approx(thor_hashing.expected_std(small), rel=0.08)
