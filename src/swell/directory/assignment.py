"""Which zone a newcomer joins (THOR 3.1, 3.4), as pure functions.

Newcomers that arrive together are one batch per pool; a pool is a site, or a region whose small
sites share zones. A batch that fits into the pool's zones, or is smaller than half a zone, fills
the smallest zones. Otherwise as many zones as needed are created and all end equally large.
Within those sizes the policy decides by rack who goes where.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OVERFULL_FACTOR = 2
"""A zone never grows beyond this many times its optimal size by single arrivals."""


class Arrival(NamedTuple):
    """What the plan needs to know of a newcomer."""

    name: str
    rack: str


def pool_of(site: str, region: str, arriving: int, pools: Mapping[str, int], zone_size: int) -> str:
    """The pool of a site: its own if it has zones or is large enough for one; else its region's,
    if it names one."""
    if site in pools or not region or 2 * arriving >= zone_size:
        return site
    return f"region:{region}"


def zones_to_create(sizes: Sequence[int], arriving: int, zone_size: int) -> int:
    """How many zones a batch adds to a pool with zones of these sizes."""
    room = sum(max(0, zone_size - size) for size in sizes)
    overfull = bool(sizes) and min(sizes) >= OVERFULL_FACTOR * zone_size
    if sizes and not overfull and (arriving <= room or 2 * arriving < zone_size):
        return 0
    return max(1, -(-(arriving - room) // zone_size))


def fill(sizes: Mapping[int, int], arriving: int) -> dict[int, int]:
    """Zone → how many newcomers it gets, so that sizes end as equal as they can."""
    heap = [(size, zone) for zone, size in sizes.items()]
    heapq.heapify(heap)
    gets = dict.fromkeys(sizes, 0)
    for _ in range(arriving):
        size, zone = heap[0]
        heapq.heapreplace(heap, (size + 1, zone))
        gets[zone] += 1
    return gets


def assign(
    arrivals: Sequence[Arrival],
    gets: Mapping[int, int],
    racks: Mapping[int, Counter[str]],
    policy: str,
) -> dict[str, int]:
    """Name → zone, within the numbers that `fill` gave, by policy."""
    left = dict(gets)
    counts = {zone: Counter(racks.get(zone, Counter())) for zone in gets}
    chosen: dict[str, int] = {}
    ordered = sorted(arrivals, key=lambda a: a.rack) if policy == "rack-local" else arrivals
    for arrival in ordered:
        zones = [zone for zone in left if left[zone] > 0]
        if policy == "rack-local":
            zone = max(zones, key=lambda z: (counts[z][arrival.rack], left[z], -z))
        elif policy == "rack-spread":
            zone = min(zones, key=lambda z: (counts[z][arrival.rack], -left[z], z))
        else:
            zone = max(zones, key=lambda z: (left[z], -z))
        left[zone] -= 1
        counts[zone][arrival.rack] += 1
        chosen[arrival.name] = zone
    return chosen


def partition(zones: Sequence[int], members: Sequence[int]) -> dict[int, list[int]]:
    """Member → the zones it connects to: an even partition of the other zones."""
    dealt: dict[int, list[int]] = {member: [] for member in members}
    for k, zone in enumerate(zones):
        dealt[members[k % len(members)]].append(zone)
    return dealt
