"""Graphs that experiments measure: THOR's, and the ones its paper compares it with.

A graph is its number of nodes and an (E, 2) array of undirected links. THOR's graph (2.1) has
V = i·m + 1 zones of m = c − i + 1 nodes; `gates[a, b]` is the member of zone a (0 … m−1) that holds
the link to zone b. Links are spread evenly: every node is the gate to exactly i zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Links = NDArray[np.int64]


@dataclass(frozen=True)
class Thor:
    """An optimal THOR overlay of c connections per node."""

    connections: int
    between: int
    """i: links of one node that lead to other zones."""
    gates: NDArray[np.int32]

    @property
    def zone_size(self) -> int:
        return self.connections - self.between + 1

    @property
    def zones(self) -> int:
        return len(self.gates)

    @property
    def nodes(self) -> int:
        return self.zones * self.zone_size

    @cached_property
    def gate_nodes(self) -> NDArray[np.int32]:
        """As `gates`, but node numbers of the whole graph: zone · m + member."""
        first = np.arange(self.zones, dtype=np.int32)[:, None] * np.int32(self.zone_size)
        return self.gates + first

    def links(self) -> Links:
        """Every link once: cliques first, then one link per pair of zones."""
        low, high = np.triu_indices(self.zone_size, 1)
        base = np.arange(self.zones)[:, None] * self.zone_size
        cliques = np.stack([(base + low).ravel(), (base + high).ravel()], axis=1)
        gate = self.gate_nodes
        a, b = np.triu_indices(self.zones, 1)
        return np.concatenate([cliques, np.stack([gate[a, b], gate[b, a]], axis=1)])


def with_missing(overlay: Thor, missing: int) -> tuple[Links, int]:
    """The links when zone 0 lacks `missing` nodes and its links to other zones are spread evenly
    over the rest (THOR 2.2), and how many of its nodes are left: those are numbered from 0."""
    left = overlay.zone_size - missing
    gates = overlay.gates.copy()
    gates[0, 1:] = np.arange(overlay.zones - 1) % left
    links = Thor(overlay.connections, overlay.between, gates).links()
    gone = (links >= left) & (links < overlay.zone_size)
    return links[~gone.any(axis=1)], left


def links_between_zones(connections: int) -> int:
    """The paper's choice i = ⌊(c+1)/3⌋."""
    return (connections + 1) // 3


def overlay_size(connections: int, between: int) -> int:
    """N = (c − i + 1)(i(c − i + 1) + 1)."""
    zone_size = connections - between + 1
    return zone_size * (between * zone_size + 1)


def thor(connections: int, rng: np.random.Generator) -> Thor:
    """Build the optimal overlay; which member is the gate to which zone is drawn at random."""
    between = links_between_zones(connections)
    zone_size = connections - between + 1
    zones = between * zone_size + 1
    even = np.tile(np.repeat(np.arange(zone_size, dtype=np.int32), between), (zones, 1))
    others = rng.permuted(even, axis=1)
    gates = np.zeros((zones, zones), dtype=np.int32)
    gates[~np.eye(zones, dtype=bool)] = others.ravel()
    return Thor(connections, between, gates)


def ring(nodes: int) -> Links:
    here = np.arange(nodes)
    return np.stack([here, (here + 1) % nodes], axis=1)


def torus(side: int) -> Links:
    """Two dimensions, side × side nodes."""
    here = np.arange(side * side).reshape(side, side)
    across = np.stack([here, np.roll(here, -1, axis=1)], axis=-1)
    down = np.stack([here, np.roll(here, -1, axis=0)], axis=-1)
    return np.concatenate([across.reshape(-1, 2), down.reshape(-1, 2)])


def tree(degree: int, nodes: int) -> Links:
    """The first `nodes` nodes, level by level, of the tree whose inner nodes have `degree`
    links: the root as many children, all others one less."""
    child = np.arange(1, nodes)
    parent = np.where(child <= degree, 0, (child - degree - 1) // (degree - 1) + 1)
    return np.stack([parent, child], axis=1)


def preorder(links: Links) -> NDArray[np.int64]:
    """The nodes of a `tree`, each before those below it: every prefix cuts few links."""
    children: dict[int, list[int]] = {}
    for parent, child in links.tolist():
        children.setdefault(parent, []).append(child)
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        stack.extend(children.get(order[-1], ()))
    return np.array(order)


def hypercube(dimensions: int) -> Links:
    here = np.arange(1 << dimensions)
    pairs = [
        np.stack([low, low | bit], axis=1)
        for bit in (1 << d for d in range(dimensions))
        for low in [here[(here & bit) == 0]]
    ]
    return np.concatenate(pairs)
