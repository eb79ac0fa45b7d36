"""Trees of one group: who relays, and to whom (RIP-7, RIP-8; Ripple 4.3). Pure functions.

A group of n gets ⌈n / (relay_fanout + 1)⌉ relays: those of the smallest ranks, ties by name. The
others are dealt out to them evenly, in order of their names; whoever was with a relay before stays
with it, so that few lists change when somebody comes or goes. Where a group may have fewer relays
at the first level than it needs, those pass on to further relays.

Invariants: everybody is in a tree once; no list is longer than `relay_fanout`; no path from the
server has more than three hops; the same input gives the same tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

SMALL_GROUP = 2
"""Up to so many are served directly."""

SHARE_PERCENT_MAX = 25
"""Beyond its fair share, a relay keeps so many more of those it had."""

_NOWHERE: Mapping[int, int] = MappingProxyType({})


class Candidate(NamedTuple):
    """One container of a group. `relays`: it may be picked; `reachable`: siblings can dial it."""

    rank: int
    relays: bool
    reachable: bool


class Bough(NamedTuple):
    """A relay and its list: relays below it, and leaves. All are places in the group."""

    relay: int
    boughs: tuple[Bough, ...]
    leaves: tuple[int, ...]


class Tree(NamedTuple):
    boughs: tuple[Bough, ...]
    direct: tuple[int, ...]


def relays_needed(size: int, relay_fanout: int) -> int:
    return 0 if size <= SMALL_GROUP else -(-size // (relay_fanout + 1))


def shares(sizes: Sequence[int], relay_fanout: int, server_fanout: int) -> list[int]:
    """How many relays of each group the server serves itself, given the groups' sizes. More than
    `server_fanout` together only where three hops would not do otherwise."""
    needed = [relays_needed(size, relay_fanout) for size in sizes]
    total = sum(needed)
    if total <= server_fanout:
        return needed
    below_one = 1 + relay_fanout * (relay_fanout + 1)
    return [
        min(count, max(1, count * server_fanout // total, -(-size // below_one)))
        for size, count in zip(sizes, needed, strict=True)
    ]


def grow(
    group: Sequence[Candidate],
    relay_fanout: int,
    share: int,
    homes: Mapping[int, int] = _NOWHERE,
) -> Tree:
    """The tree of a group that is in the order of its names, with `share` first-level relays.
    `homes`: who was behind which relay before."""
    reachable = [place for place, one in enumerate(group) if one.reachable]
    size = len(reachable)
    willing = [place for place in reachable if group[place].relays]
    willing.sort(key=lambda place: group[place].rank)  # stable: ties stay in order of names
    first = min(share, relays_needed(size, relay_fanout), len(willing))
    if not first:
        return Tree((), tuple(range(len(group))))
    missing = size - first * (relay_fanout + 1)
    second = min(max(0, -(-missing // relay_fanout)), first * relay_fanout, len(willing) - first)
    upper, lower = sorted(willing[:first]), sorted(willing[first : first + second])
    picked = frozenset(willing[: first + second])
    leaves = [place for place in reachable if place not in picked]
    below, _ = _dealt(lower, dict.fromkeys(upper, relay_fanout), homes)
    room = {relay: relay_fanout - len(below[relay]) for relay in upper}
    rows, left = _dealt(leaves, room | dict.fromkeys(lower, relay_fanout), homes)
    boughs = tuple(
        Bough(relay, tuple(Bough(r, (), tuple(rows[r])) for r in below[relay]), tuple(rows[relay]))
        for relay in upper
    )
    direct = [place for place, one in enumerate(group) if not one.reachable]
    return Tree(boughs, tuple(sorted(direct + left)))


def _dealt(
    items: Sequence[int], room: Mapping[int, int], homes: Mapping[int, int]
) -> tuple[dict[int, list[int]], list[int]]:
    """Deal items out to relays, each with so much room; what is left over. Whoever was with one of
    them stays, unless that one has many more than its share; the others fill up evenly."""
    kept_max = -(-len(items) // len(room)) * (SHARE_PERCENT_MAX + 100) // 100
    rows: dict[int, list[int]] = {relay: [] for relay in room}
    left: list[int] = []
    for item in items:
        home = homes.get(item, -1)
        row = rows.get(home)
        if row is not None and len(row) < min(room[home], kept_max):
            row.append(item)
        else:
            left.append(item)
    # The longest first: what they have too much the others need not get.
    by_length = sorted(rows, key=lambda relay: -len(rows[relay]))
    at, total = 0, len(items)
    for k, relay in enumerate(by_length):
        row = rows[relay]
        fair = -(-total // (len(by_length) - k))
        count = max(0, min(room[relay], fair) - len(row))
        row += left[at : at + count]
        at += count
        total -= len(row)
    for relay, row in rows.items():
        count = room[relay] - len(row)
        row += left[at : at + count]
        at += count
        row.sort()
    return rows, left[at:]
