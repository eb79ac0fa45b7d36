"""Arithmetic of majorities. Pure functions; a voter without an entry in a map has said nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum


class Poll(IntEnum):
    """How a vote stands."""

    OPEN = 0
    WON = 1
    LOST = 2


def majority(voters: Collection[str]) -> int:
    """Fewest voters such that any two such sets have one in common."""
    return len(voters) // 2 + 1


def is_quorum(voters: Collection[str], present: Collection[str]) -> bool:
    """Do the voters among `present` form a majority? Nobody is never a quorum."""
    return bool(voters) and sum(name in present for name in voters) >= majority(voters)


def reached(voters: Collection[str], values: Mapping[str, int]) -> int:
    """The highest value that a majority of the voters has reached (§5.3: the commit index)."""
    if not voters:
        return 0
    ordered = sorted((values.get(name, 0) for name in voters), reverse=True)
    return ordered[majority(voters) - 1]


def poll(voters: Collection[str], votes: Mapping[str, bool]) -> Poll:
    """§5.2: won with a majority of all voters; lost when that cannot be reached any more."""
    granted = sum(votes.get(name, False) for name in voters)
    refused = sum(not votes.get(name, True) for name in voters)
    if voters and granted >= majority(voters):
        return Poll.WON
    if len(voters) - refused < majority(voters):
        return Poll.LOST
    return Poll.OPEN
