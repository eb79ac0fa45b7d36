"""Fig. 2 of THOR: how much of the overlay stays in one piece when nodes fail.

Nodes fail independently. What is measured is the largest connected component as a share of the
nodes *still alive*. One run draws one number per node; at failure rate f the nodes below f are
dead, so that a run's failures grow from step to step and every step has independent failures.

A THOR zone is a clique: whoever survives in it is connected. So a zone's survivors are one vertex
weighted by their number, and two zones are joined if both gates of their link live. This gives
exactly the components of the whole graph, 333,080 nodes included, from 3,785 vertices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from swell.lab import graphs
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.graphs import Links, Thor
from swell.lab.plots import figure

SUMMARY = "THOR Fig. 2: share of living nodes in the largest component while nodes fail"

SIZES = (10, 30, 60, 90, 130)
FAILED = (*range(0, 100, 5), 97, 98, 99)
"""Per cent; at 100 nobody is left and the share is undefined."""
QUICK_FAILED = (0, 20, 40, 50, 60, 70, 80, 85, 90, 95, 97, 99)
HIGH_RATE = 90
"""Where size is compared: the smallest overlay still has 20 survivors. Beyond, its largest
component of two or three nodes counts as a large share of the few that are left."""
PRINTED = (0, 20, 50, 70, 80, 90, 95, 99)
COLOURS = {"ring": "black", "tree": "sienna", "2D torus": "dimgrey", "hypercube": "deeppink"}
SEED = 20
NOTES = (
    "A share is relative to the nodes still alive at that failure rate, not to all nodes.",
    "Nodes fail independently, links do not fail. The tree has degree 3.",
    "The paper's Fig. 2 is a drawing; its text says: no degradation up to 50 % failures, and THOR "
    "and the complete graph alone get better with size. The hypercube does too: its degree grows.",
    "At c = 10 the paper's 50 % is not quite reached: a few of the living are cut off.",
    "Better with size holds up to 90 % failures. At 95 % c = 10 (ten survivors, of whom two are a "
    "fifth) is above c = 30 again, and at 99 % every size has fallen apart.",
)

Share = Callable[[NDArray[np.bool_]], float]


def largest_share(links: Links, alive: NDArray[np.bool_]) -> float:
    """The largest component among living nodes, by way of the whole graph."""
    living = int(alive.sum())
    if living == 0:
        return 0.0
    kept = links[alive[links[:, 0]] & alive[links[:, 1]]]
    number = np.cumsum(alive) - 1
    ends = number[kept]
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), (living, living))
    _, labels = connected_components(graph, directed=False)
    return float(np.bincount(labels).max()) / living


def largest_share_of_thor(overlay: Thor, alive: NDArray[np.bool_]) -> float:
    """The same for a THOR graph, by way of its zones.

    Breadth first from zone to zone, until no zone is left or the rest cannot be larger. A row of
    the zone graph is computed only when its zone is visited: with many survivors a few rows reach
    everybody.
    """
    living = int(alive.sum())
    if living == 0:
        return 0.0
    gate = overlay.gate_nodes
    weights = alive.reshape(overlay.zones, overlay.zone_size).sum(axis=1)
    unseen = weights > 0
    rest, largest = living, 0
    for start in np.argsort(-weights, kind="stable"):
        if rest <= largest:
            break
        if not unseen[start]:
            continue
        unseen[start] = False
        found, frontier = int(weights[start]), [int(start)]
        while frontier and found < rest:
            zone = frontier.pop()
            candidates = np.flatnonzero(unseen)
            joined = candidates[alive[gate[zone, candidates]] & alive[gate[candidates, zone]]]
            unseen[joined] = False
            found += int(weights[joined].sum())
            frontier.extend(joined.tolist())
        rest -= found
        largest = max(largest, found)
    return largest / living


def curve(
    nodes: int,
    share: Share,
    failed: tuple[int, ...],
    runs: int,
    rng: np.random.Generator,
    advance: Callable[[], None],
) -> NDArray[np.float64]:
    """Mean share at each failure rate."""
    shares = np.zeros((runs, len(failed)))
    for run in range(runs):
        fate = rng.random(nodes)
        for step, rate in enumerate(failed):
            shares[run, step] = share(fate >= rate / 100)
        advance()
    mean: NDArray[np.float64] = shares.mean(axis=0)
    return mean


def topologies(quick: bool) -> list[tuple[str, str, int, Share, int]]:
    """(family, label, nodes, share of survivors, runs) of everything compared."""
    runs = 10 if quick else 50
    built: list[tuple[str, str, int, Share, int]] = []
    for connections in SIZES:
        overlay = graphs.thor(connections, np.random.default_rng(SEED))

        def collapsed(alive: NDArray[np.bool_], overlay: Thor = overlay) -> float:
            return largest_share_of_thor(overlay, alive)

        built.append(("THOR", f"THOR c={connections}", overlay.nodes, collapsed, runs))
    for dimensions, repeats in ((12, runs), (18, 1 if quick else runs)):
        nodes = 1 << dimensions
        for family, links in (
            ("ring", graphs.ring(nodes)),
            ("tree", graphs.tree(3, nodes)),
            ("2D torus", graphs.torus(1 << dimensions // 2)),
            ("hypercube", graphs.hypercube(dimensions)),
        ):

            def whole(alive: NDArray[np.bool_], links: Links = links) -> float:
                return largest_share(links, alive)

            built.append((family, f"{family} {nodes:,}", nodes, whole, repeats))
    return built


def run(lab: Lab) -> Report:
    failed = QUICK_FAILED if lab.quick else FAILED
    compared = topologies(lab.quick)
    curves: dict[str, NDArray[np.float64]] = {}
    with lab.progress("failures", sum(repeats for *_, repeats in compared)) as advance:
        for index, (_, label, nodes, share, repeats) in enumerate(compared):
            rng = np.random.default_rng([SEED, index])
            curves[label] = curve(nodes, share, failed, repeats, rng, advance)
    rows = [
        {
            "topology": family,
            "label": label,
            "nodes": nodes,
            "runs": repeats,
            "paper_50%": 1.0 if family == "THOR" else None,
            **{f"{rate}%": float(value) for rate, value in zip(failed, curves[label], strict=True)},
        }
        for family, label, nodes, _, repeats in compared
    ]
    _plot(lab, failed, curves)
    return Report(
        settings={"failed_percent": failed, "rng_seed": SEED, "high_rate_percent": HIGH_RATE},
        rows=rows,
        headline=_headline(curves, failed),
        bars=_bars(curves, failed),
        columns=["label", "nodes", "runs", "paper_50%", *(f"{r}%" for r in failed if r in PRINTED)],
        notes=NOTES,
    )


def _headline(
    curves: dict[str, NDArray[np.float64]], failed: tuple[int, ...]
) -> dict[str, int | float]:
    half, high = failed.index(50), failed.index(HIGH_RATE)
    figures: dict[str, int | float] = {}
    for connections in SIZES:
        share = curves[f"THOR c={connections}"]
        figures[f"THOR c={connections}, share at 50 %"] = float(share[half])
        figures[f"THOR c={connections}, share at {HIGH_RATE} %"] = float(share[high])
    return figures


def _bars(curves: dict[str, NDArray[np.float64]], failed: tuple[int, ...]) -> list[Bar]:
    half, high = failed.index(50), failed.index(HIGH_RATE)
    bars = [
        Bar.at_least(
            f"THOR c={c}: share in one piece at 50 % failures",
            0.999,
            float(curves[f"THOR c={c}"][half]),
        )
        for c in SIZES
        if c >= 30
    ]
    by_size = [float(curves[f"THOR c={c}"][high]) for c in SIZES]
    bars.append(
        Bar.at_least(
            f"share at {HIGH_RATE} % failures grows with size: smallest step to the next size",
            0,
            float(np.diff(by_size).min()),
        )
    )
    for connections, nodes in ((30, 1 << 12), (130, 1 << 18)):
        ours = float(curves[f"THOR c={connections}"][half])
        for family in ("ring", "tree", "2D torus", "hypercube"):
            theirs = float(curves[f"{family} {nodes:,}"][half])
            bars.append(
                Bar.at_least(
                    f"THOR c={connections} at 50 % failures, against {family} {nodes:,}",
                    theirs,
                    ours,
                )
            )
    return bars


def _plot(lab: Lab, failed: tuple[int, ...], curves: dict[str, NDArray[np.float64]]) -> None:
    with figure(
        lab,
        "thor-resilience",
        "Nodes in the largest component while nodes fail (THOR, Fig. 2)",
        "failed nodes, %",
        "largest component, % of living nodes",
    ) as axes:
        for label, share in curves.items():
            family = label.rpartition(" ")[0]
            style, width, colour = (
                ("-", 2.0, f"C{SIZES.index(int(label.partition('=')[2]))}")
                if family == "THOR"
                else (":" if label.endswith("262,144") else "--", 1.2, COLOURS[family])
            )
            axes.plot(failed, 100 * share, style, marker=".", lw=width, color=colour, label=label)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 102)
