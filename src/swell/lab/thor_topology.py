"""Tables 1 and 2 of THOR, and the cost of zones that are not full (2.2), on built graphs.

Table 1 gives the overlay's size for i = ⌊(c+1)/3⌋ links between zones per node. The exact best i
comes from ∂N/∂i = 3i² − 4(c+1)i + (c+1)² − 1 = 0; the root that the paper prints is another one.

Table 2 compares diameter, bisection width and bottleneck degree. Here they are measured: the
diameter by breadth-first search, the bottleneck by tracing the dissemination path of every pair,
the bisection between the spectral lower bound and the best cut known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from swell.lab import graphs
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.graph_measures import (
    adjacency,
    bisection_at_least,
    bottleneck,
    cut,
    dissemination,
    eccentricity,
    shortest_paths,
)
from swell.lab.graphs import Links, links_between_zones, overlay_size

SUMMARY = "THOR Tables 1 and 2: overlay sizes; diameter, bisection, bottleneck of built graphs"

PAPER_SIZES = {
    10: 200, 20: 1_386, 30: 4_431, 40: 10_220, 50: 19_686, 60: 33_661, 70: 53_040, 80: 78_786,
    90: 111_691, 100: 152_660, 110: 202_686, 120: 262_521, 130: 333_080,
}  # fmt: skip
BUILT = (10, 20, 30, 40, 60)
BUILT_QUICK = (10, 20, 30)
ALL_PAIRS_NODES_MAX = 1_500
BFS_SOURCES = 200
MISSING = (30, (0, 1, 5, 10, 11, 12, 15))
"""c, and how many nodes the zone lacks."""
RNG_SEED = 1

Row = Mapping[str, Any]


def best_between(connections: int) -> int:
    """The i with the largest overlay, by trying all."""
    return max(range(connections + 1), key=lambda i: overlay_size(connections, i))


def right_root(connections: int) -> float:
    """Where ∂N/∂i = 0."""
    return (4 * (connections + 1) - math.sqrt(4 * connections**2 + 8 * connections + 16)) / 6


def printed_root(connections: int) -> float:
    """What THOR 2.1 prints in its place."""
    return (4 * (connections + 1) - math.sqrt(4 * connections**2 + 32 * connections - 8)) / 6


def size_row(connections: int) -> Row:
    between, best = links_between_zones(connections), best_between(connections)
    return {
        "part": "Table 1, overlay size",
        "c": connections,
        "i": between,
        "zone_size": connections - between + 1,
        "zones": between * (connections - between + 1) + 1,
        "N": overlay_size(connections, between),
        "paper_N": PAPER_SIZES[connections],
        "best_i": best,
        "best_N": overlay_size(connections, best),
        "right_root": right_root(connections),
        "printed_root": printed_root(connections),
    }


def thor_row(connections: int) -> Row:
    overlay = graphs.thor(connections, np.random.default_rng(RNG_SEED))
    nodes, links = overlay.nodes, overlay.links()
    graph = adjacency(links, nodes)
    degrees = np.bincount(links.ravel(), minlength=nodes)
    routed = dissemination(overlay)
    row = {
        "part": "Table 2, THOR",
        "c": connections,
        "N": nodes,
        "degree_min": int(degrees.min()),
        "degree_max": int(degrees.max()),
        "paper_degree_above": (27 * nodes / 5) ** (1 / 3),
        "paper_degree_below": (27 * nodes / 4) ** (1 / 3),
        "hops_max": routed.hops_max,
        "paper_diameter": 3,
        "bottleneck": routed.bottleneck,
        "exact_bottleneck": exact_bottleneck(connections),
        "paper_bottleneck": 4 / 9 * (27 * nodes / 4) ** (2 / 3),
        "bisection_min": bisection_at_least(graph),
        "bisection_max": cut(links, np.arange(nodes) < nodes // 2),
        "paper_bisection": (27 * nodes / 5) ** (4 / 3) / 81,
    }
    if nodes > ALL_PAIRS_NODES_MAX:
        sources = np.linspace(0, nodes - 1, BFS_SOURCES).astype(np.int64)
        return {**row, "diameter": eccentricity(graph, sources)}
    paths = shortest_paths(graph)
    return {
        **row,
        "diameter": int(paths.distance.max()),
        "pairs_with_several_paths": float((paths.count > 1).sum() / (nodes * (nodes - 1))),
        "bottleneck_any_path": bottleneck(links, paths),
    }


def exact_bottleneck(connections: int) -> int:
    """A link between zones carries all m² pairs of its zones; a link u–v in a zone carries u's
    paths to the i·m nodes behind v, v's to those behind u, and the pair itself."""
    between = links_between_zones(connections)
    size = connections - between + 1
    return max(size * size, 2 * between * size + 1)


def other_row(name: str, links: Links, side: np.ndarray[Any, Any], paper: Row) -> Row:
    nodes = int(links.max()) + 1
    graph = adjacency(links, nodes)
    paths = shortest_paths(graph)
    degrees = np.bincount(links.ravel(), minlength=nodes)
    return {
        "part": "Table 2, other graphs",
        "graph": name,
        "N": nodes,
        "degree_max": int(degrees.max()),
        "diameter": int(paths.distance.max()),
        "bottleneck": bottleneck(links, paths),
        "bisection_min": bisection_at_least(graph),
        "bisection_max": cut(links, side),
        **paper,
    }


def other_rows() -> list[Row]:
    nodes, side, degree = 256, 16, 3
    half = np.arange(nodes) < nodes // 2
    tree = graphs.tree(degree, 382)  # seven full levels below the root
    tree_half = np.zeros(382, dtype=bool)
    tree_half[graphs.preorder(tree)[:191]] = True

    def paper(diameter: float, bottleneck: float, bisection: float) -> Row:
        return {
            "paper_diameter": diameter,
            "paper_bottleneck": bottleneck,
            "paper_bisection": bisection,
        }

    return [
        other_row("ring", graphs.ring(nodes), half, paper(nodes / 2, nodes**2 / 8, 2)),
        other_row(
            "2D torus", graphs.torus(side), half, paper(side - 1, nodes * side / 8, 2 * side)
        ),
        other_row(
            "tree, d=3",
            tree,
            tree_half,
            paper(2 * math.log(382, degree - 1), 382**2 * (degree - 1) / degree**2, 1),
        ),
        other_row("hypercube", graphs.hypercube(8), half, paper(8, nodes / 2, nodes / 2)),
    ]


def cost_row(connections: int, missing: int) -> Row:
    """Connections of a zone beyond c per node, counted, against the formula of 2.2."""
    overlay = graphs.thor(connections, np.random.default_rng(RNG_SEED))
    links, left = graphs.with_missing(overlay, missing)
    degrees = np.bincount(links.ravel(), minlength=overlay.nodes)[:left]
    between, size = overlay.between, overlay.zone_size
    return {
        "part": "2.2, cost of a zone that is not full",
        "c": connections,
        "missing": missing,
        "left": left,
        "busiest_node": int(degrees.max()),
        "extra_links": int(degrees.sum()) - connections * left,
        "paper_cost": between * size - (between + missing) * (size - missing),
    }


def run(lab: Lab) -> Report:
    built = BUILT_QUICK if lab.quick else BUILT
    connections, missing = MISSING
    steps: list[Callable[[], list[Row]]] = [
        lambda: [size_row(c) for c in PAPER_SIZES],
        *((lambda c=c: [thor_row(c)]) for c in built),
        other_rows,
        *((lambda f=f: [cost_row(connections, f)]) for f in missing),
    ]
    rows: list[Row] = []
    with lab.progress("graphs", len(steps)) as advance:
        for step in steps:
            rows.extend(step())
            advance()
    thor = [row for row in rows if row["part"] == "Table 2, THOR"]
    return Report(
        settings={"built": built, "rng_seed": RNG_SEED, "bfs_sources": BFS_SOURCES},
        rows=rows,
        headline={
            "nodes at c = 130": overlay_size(130, links_between_zones(130)),
            "largest overlay at c = 10": overlay_size(10, best_between(10)),
            "diameter": max(row["diameter"] for row in thor),
            "bottleneck at c = 30": next(r["bottleneck"] for r in thor if r["c"] == 30),
        },
        bars=_bars(rows, thor),
        columns=COLUMNS,
        notes=NOTES,
    )


COLUMNS = (
    *("graph", "c", "i", "zone_size", "zones", "N", "paper_N", "best_i", "best_N"),
    *("right_root", "printed_root", "degree_max", "paper_degree_above"),
    *("diameter", "paper_diameter", "bottleneck"),
    *("paper_bottleneck", "bottleneck_any_path", "pairs_with_several_paths"),
    *("bisection_min", "bisection_max", "paper_bisection"),
    *("missing", "left", "busiest_node", "extra_links", "paper_cost"),
)
NOTES = (
    "Table 1: i = ⌊(c+1)/3⌋ is near the best, not at it; the right root is "
    "(4(c+1) − √(4c²+8c+16))/6, the printed one has another square root.",
    "Degree: the paper's lower limit for c needs c ≥ 15.",
    "Bottleneck: exactly max(m², 2im+1) paths, m the zone size. The paper's bound is too low: 428 "
    "at c = 30, where 441 paths share a link.",
    "The paper calls the shortest path between two nodes unique. It is not: three hops also lead "
    "through a third zone. Dissemination paths are, and they load the busiest link less "
    "(bottleneck) than shortest paths shared evenly (bottleneck any path).",
    "Bisection: at least λ₂N/4 (second eigenvalue of the Laplacian), at most the cut between two "
    "halves in node order (zones; branches of the tree). The extract prints Ω(N^1/3) for the "
    "paper's own bound (27N/5)^(4/3)/81, which is Ω(N^4/3).",
    "Other graphs: the torus' diameter is √N, not √N − 1; halves of a tree cost more than 1 link.",
    "Diameters above 1,500 nodes: from 200 sources; no path of Algorithm 1 has more than 3 hops.",
)


def _bars(rows: list[Row], thor: list[Row]) -> list[Bar]:
    sizes = [row for row in rows if row["part"].startswith("Table 1")]
    costs = [row for row in rows if row["part"].startswith("2.2")]
    exact = sum(row["N"] == row["paper_N"] for row in sizes)
    return [
        Bar.at_least("sizes of Table 1 that are exact", len(PAPER_SIZES), exact),
        Bar.at_least(
            "sizes where the right root, rounded, is the best i",
            len(sizes),
            sum(round(row["right_root"]) == row["best_i"] for row in sizes),
        ),
        *(
            Bar(
                f"c={row['c']}: diameter, and hops of the longest path",
                3,
                row["diameter"],
                row["diameter"] == row["hops_max"] == 3,
            )
            for row in thor
        ),
        *(
            Bar(
                f"c={row['c']}: links of every node",
                row["c"],
                row["degree_max"],
                row["degree_min"] == row["degree_max"] == row["c"],
            )
            for row in thor
        ),
        *(
            Bar(
                f"c={row['c']}: bottleneck is max(m², 2im+1)",
                row["exact_bottleneck"],
                row["bottleneck"],
                row["bottleneck"] == row["exact_bottleneck"],
            )
            for row in thor
        ),
        *(
            Bar.at_least(
                f"c={row['c']}: bisection is proven above the paper's bound",
                row["paper_bisection"],
                row["bisection_min"],
            )
            for row in thor
            if row["c"] >= 20
        ),
        Bar.at_least(
            "zones that are not full: extra links as the formula of 2.2 says",
            len(costs),
            sum(row["extra_links"] == row["paper_cost"] for row in costs),
        ),
    ]
