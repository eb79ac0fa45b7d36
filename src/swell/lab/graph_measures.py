"""Measures of a graph: distances, load on links when everybody talks to everybody, bisection.

The bottleneck degree is the load of the busiest link with one path per unordered pair of nodes
(THOR 2.4). Where shortest paths are not unique, a pair's unit is shared evenly among them. The
bisection width is bounded from both sides: finding it exactly is out of reach beyond toy sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import eigsh

from swell.lab.graphs import Links, Thor

DENSE_NODES_MAX = 1500


@dataclass(frozen=True)
class Paths:
    """Between all pairs of nodes: distance, and how many shortest paths there are."""

    distance: NDArray[np.int64]
    count: NDArray[np.float64]


@dataclass(frozen=True)
class Dissemination:
    """THOR's own routing (Algorithm 1) between all pairs of nodes."""

    hops_max: int
    bottleneck: int


def adjacency(links: Links, nodes: int) -> csr_array:
    both = np.concatenate([links, links[:, ::-1]])
    return csr_array(coo_array((np.ones(len(both)), (both[:, 0], both[:, 1])), (nodes, nodes)))


def shortest_paths(graph: csr_array) -> Paths:
    """Layer by layer from all nodes at once; for graphs of up to some thousand nodes."""
    nodes = graph.shape[0]
    distance = np.where(np.eye(nodes, dtype=bool), 0, -1)
    count = np.eye(nodes)
    layer, hops = count, 0
    while layer.any():
        hops += 1
        layer = np.where(distance < 0, graph @ layer, 0.0)
        distance[layer > 0] = hops
        count += layer
    return Paths(distance, count)


def bottleneck(links: Links, paths: Paths) -> float:
    """Load of the busiest link; a pair's unit is split over its shortest paths (Brandes 2001)."""
    nodes = len(paths.distance)
    graph = adjacency(links, nodes)
    behind = np.zeros((nodes, nodes))  # [v, s]: what v passes on for source s
    for hops in range(int(paths.distance.max()), 0, -1):
        at = paths.distance == hops
        flow = np.where(at, (1 + behind) / paths.count, 0.0)
        before = paths.distance == hops - 1
        behind += np.where(before, paths.count * (graph @ flow), 0.0)
    u, v = links[:, 0], links[:, 1]
    load = np.zeros(len(links))
    for near, far in ((u, v), (v, u)):
        used = paths.distance[far] == paths.distance[near] + 1
        share = paths.count[near] / paths.count[far] * (1 + behind[far])
        load += np.where(used, share, 0.0).sum(axis=1)
    return float(load.max()) / 2


def eccentricity(graph: csr_array, sources: NDArray[np.int64]) -> int:
    """The largest distance from any of the sources."""
    return int(dijkstra(graph, unweighted=True, indices=sources).max())


def dissemination(overlay: Thor) -> Dissemination:
    """Trace source → gate → gate → destination for every ordered pair, one source zone at a time,
    and count the paths on each link; both directions of a pair use the same links."""
    size, zones, gate = overlay.zone_size, overlay.zones, overlay.gate_nodes
    everybody = np.arange(overlay.nodes)
    to_zone = everybody // size
    pair_base = zones * size * size
    load = np.zeros(pair_base + zones * zones, dtype=np.int64)
    hops_max = 0

    def clique_links(u: NDArray[np.int64], v: NDArray[np.int64]) -> NDArray[np.int64]:
        low, high = np.minimum(u, v), np.maximum(u, v)
        number: NDArray[np.int64] = low // size * size * size + low % size * size + high % size
        return number

    for zone in range(zones):
        source = (zone * size + np.arange(size))[:, None]
        outside = to_zone != zone
        leave = np.where(outside, gate[zone, to_zone], everybody)
        enter = np.where(outside, gate[to_zone, zone], everybody)
        first, last = source != leave, np.broadcast_to(enter != everybody, (size, overlay.nodes))
        links = np.concatenate(
            [
                clique_links(source, leave[None, :])[first],
                np.broadcast_to(clique_links(enter, everybody), last.shape)[last],
                np.repeat(
                    pair_base
                    + np.minimum(to_zone, zone)[outside] * zones
                    + np.maximum(to_zone, zone)[outside],
                    size,
                ),
            ]
        )
        load += np.bincount(links, minlength=len(load))
        hops = first.astype(np.int8) + outside.astype(np.int8) + last.astype(np.int8)
        hops_max = max(hops_max, int(hops.max()))
    return Dissemination(hops_max, int(load.max()) // 2)


def bisection_at_least(graph: csr_array) -> float:
    """λ₂·N/4: no cut into halves has fewer links, with λ₂ the Laplacian's second eigenvalue."""
    nodes = int(graph.shape[0])
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    if nodes <= DENSE_NODES_MAX:
        laplacian = np.diag(degrees) - graph.toarray()
        second = float(np.linalg.eigvalsh(laplacian)[1])
    else:
        top = degrees.max()
        flipped = csr_array(graph + diags_array(top - degrees))
        start = np.random.default_rng(0).random(nodes)
        values = eigsh(flipped, k=2, which="LA", v0=start, return_eigenvectors=False)
        second = float(top - np.sort(values)[0])
    return second * nodes / 4


def cut(links: Links, side: NDArray[np.bool_]) -> int:
    """Links between the two sides: with equal sides, no bisection is wider than the best one."""
    return int((side[links[:, 0]] != side[links[:, 1]]).sum())
