"""What `swell overlay --json` must show of a sound overlay, checked without the product's help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any


def unsound(graph: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Everything that is wrong: other nodes than `names`, an incomplete clique, other than one
    link between two zones, a spread above one."""
    zone_of = {node["name"]: node["zone"] for node in graph["nodes"]}
    if sorted(zone_of) != sorted(names):
        return [f"nodes are {sorted(zone_of)}"]
    found = []
    pairs = Counter(tuple(sorted((link["a"], link["b"]))) for link in graph["links"])
    found += [f"link {pair} is listed {count} times" for pair, count in pairs.items() if count > 1]
    wanted = [p for p in combinations(sorted(zone_of), 2) if zone_of[p[0]] == zone_of[p[1]]]
    cliques = {p for p in pairs if zone_of[p[0]] == zone_of[p[1]]}
    found += [f"{a} and {b} are not linked" for a, b in wanted if (a, b) not in cliques]
    between = [p for p in pairs if p not in cliques]
    zone_pairs = Counter(tuple(sorted((zone_of[a], zone_of[b]))) for a, b in between)
    zones = sorted(zone["id"] for zone in graph["zones"])
    found += [
        f"zones {pair} have {zone_pairs[pair]} links"
        for pair in combinations(zones, 2)
        if zone_pairs[pair] != 1
    ]
    load = Counter(name for pair in between for name in pair)
    for zone in zones:
        loads = [load[name] for name in zone_of if zone_of[name] == zone]
        if max(loads) - min(loads) > 1:
            found.append(f"zone {zone} has loads {loads}")
    found += [f"one-sided: {link}" for link in graph["links"] if "state" in link]
    return found


def places(graph: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Name → (id, zone)."""
    return {node["name"]: (node["id"], node["zone"]) for node in graph["nodes"]}


def epochs(graph: dict[str, Any]) -> dict[str, int]:
    return {node["name"]: node["epoch"] for node in graph["nodes"]}
