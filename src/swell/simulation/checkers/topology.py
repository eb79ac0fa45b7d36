"""Is the overlay what THOR says it is? Each function returns what is wrong, one line each."""

from __future__ import annotations

from collections import deque

from swell.overlay.overlay import Overlay
from swell.simulation.fleet import Fleet

PROBLEMS_MAX = 20


def problems(fleet: Fleet, spread_max: int = 1) -> list[str]:
    """Everything that keeps the overlay from being complete, even and consistent; empty if it is
    settled."""
    zones = fleet.zones()
    found: list[str] = []
    for check in (_unjoined, _cliques, _views, _zone_graph):
        found += check(fleet, zones)[:PROBLEMS_MAX]
    found += _spread(zones, spread_max)
    found += _busy(zones)
    return found


def _unjoined(fleet: Fleet, zones: dict[int, list[Overlay]]) -> list[str]:
    return [
        f"{name} runs but has not joined"
        for name, process in fleet.processes.items()
        if process.alive and ((node := fleet.node(name)) is None or node.overlay is None)
    ]


def _cliques(fleet: Fleet, zones: dict[int, list[Overlay]]) -> list[str]:
    """Complete graph inside every zone, and equal views of it."""
    found = []
    for zone, overlays in zones.items():
        ids = [overlay.me.id for overlay in overlays]
        for overlay in overlays:
            if overlay.alive_ids() != ids:
                found.append(
                    f"zone {zone}: {overlay.me.name} sees {overlay.alive_ids()}, not {ids}"
                )
            linked = sorted([*overlay.clique.up, overlay.me.id])
            if linked != ids:
                found.append(f"zone {zone}: {overlay.me.name} is linked to {linked}, not {ids}")
    return found


def _views(fleet: Fleet, zones: dict[int, list[Overlay]]) -> list[str]:
    """Every node knows all zones, and knows its zone's links as they are."""
    found = []
    everybody = sorted(zones)
    for zone, overlays in zones.items():
        held: dict[int, list[int]] = {}
        for overlay in overlays:
            for other in overlay.zonelinks.mine:
                held.setdefault(other, []).append(overlay.me.id)
        for overlay in overlays:
            known = sorted([*overlay.other_zones(), zone])
            if known != everybody:
                found.append(f"zone {zone}: {overlay.me.name} knows zones {known}")
            seen = {z: list(members) for z, members in overlay.zonelinks.holders.items()}
            if seen != held:
                found.append(f"zone {zone}: {overlay.me.name} has another table of holders")
    return found


def _zone_graph(fleet: Fleet, zones: dict[int, list[Overlay]]) -> list[str]:
    """Exactly one link between every two zones, known to both ends."""
    ends: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for zone, overlays in zones.items():
        for overlay in overlays:
            for link in overlay.zonelinks.all():
                ends.setdefault((zone, link.zone), []).append((overlay.me.id, link.peer.id))
    found = []
    for a in zones:
        for b in zones:
            if a < b:
                here = sorted(ends.get((a, b), []))
                there = sorted((y, x) for x, y in ends.get((b, a), []))
                if len(here) != 1 or here != there:
                    found.append(f"zones {a} and {b}: links {here} seen from {a}, {there} from {b}")
    return found


def _spread(zones: dict[int, list[Overlay]], spread_max: int) -> list[str]:
    """Links between zones lie evenly on the members."""
    found = []
    for zone, overlays in zones.items():
        loads = [overlay.zonelinks.load() for overlay in overlays]
        if max(loads) - min(loads) > spread_max:
            found.append(f"zone {zone}: links per node {sorted(loads)}")
    return found


def _busy(zones: dict[int, list[Overlay]]) -> list[str]:
    """What is still under way may yet change the links."""
    return [
        f"{overlay.me.name} is still opening or draining a link"
        for overlays in zones.values()
        for overlay in overlays
        if overlay.zonelinks.drains or overlay.openings.busy
    ]


def diameter(fleet: Fleet) -> int:
    """The longest shortest path between any two living nodes, over links that are up; -1 if some
    pair is not connected."""
    overlays = {overlay.me.id: overlay for overlay in fleet.living()}
    neighbours = {
        node: [
            *(m for m in overlay.clique.up if m in overlays),
            *(link.peer.id for link in overlay.zonelinks.all() if link.peer.id in overlays),
        ]
        for node, overlay in overlays.items()
    }
    longest = 0
    for start in overlays:
        distance = {start: 0}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for other in neighbours[node]:
                if other not in distance:
                    distance[other] = distance[node] + 1
                    queue.append(other)
        if len(distance) < len(overlays):
            return -1
        longest = max(longest, *distance.values())
    return longest
