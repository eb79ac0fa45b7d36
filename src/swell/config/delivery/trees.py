"""Trees of one group: who relays, and to whom (RIP-7, RIP-8; Ripple 4.3). Pure functions.

A group of n gets ⌈n / (relay_fanout + 1)⌉ relays: those of the smallest ranks, ties by name. The
others are dealt out to them evenly, in order of their names. Where a group may have fewer relays
at the first level than it needs, those pass on to further relays.

Invariants: everybody is in a tree once; no list is longer than `relay_fanout`; no path from the
server has more than three hops; the same input gives the same tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SMALL_GROUP = 2
"""Up to so many are served directly."""


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


def grow(group: Sequence[Candidate], relay_fanout: int, share: int) -> Tree:
    """The tree of a group that is in the order of its names, with `share` first-level relays."""
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
    below = _dealt(lower, [relay_fanout] * first)
    # Those with the most relays below come first, so that room grows along the rows.
    room = [relay_fanout - len(row) for row in below] + [relay_fanout] * second
    rows = _dealt(leaves, room)
    under = dict(zip(lower, rows[first:], strict=True))
    boughs = tuple(
        Bough(relay, tuple(Bough(r, (), tuple(under[r])) for r in below[k]), tuple(rows[k]))
        for k, relay in enumerate(upper)
    )
    placed = sum(len(row) for row in rows)
    direct = [place for place, one in enumerate(group) if not one.reachable]
    direct += leaves[placed:]
    return Tree(boughs, tuple(sorted(direct)))


def _dealt(items: Sequence[int], room: Sequence[int]) -> list[list[int]]:
    """Cut items into rows as evenly as the room allows, which grows from row to row. What does
    not fit is left over."""
    rows: list[list[int]] = []
    at = 0
    for k, size in enumerate(room):
        fair = -(-(len(items) - at) // (len(room) - k))
        count = min(size, fair)
        rows.append(list(items[at : at + count]))
        at += count
    return rows
