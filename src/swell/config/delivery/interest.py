"""Interests: which configurations of an application a container wants.

An interest is a sorted tuple of names and of prefixes (`pay/*`); the empty one stands for all.
What is reserved (`@instances`) must be asked for: by its name, or a prefix that begins with `@`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from swell.config.names import RESERVED

Interest = tuple[str, ...]
Matches = Callable[[str], bool]

INTEREST_BYTES_MAX = 64 * 1024
"""Of all names and prefixes of one interest together."""

WILDCARD = "*"


def size_of(interest: Interest) -> int:
    return sum(map(len, interest))


def problem(interest: Interest) -> str:
    """A sentence that says what is wrong with an interest; empty if nothing is."""
    size = size_of(interest)
    if size > INTEREST_BYTES_MAX:
        return f"the interest has {size} characters, allowed are {INTEREST_BYTES_MAX}: use prefixes"
    if any(a >= b for a, b in pairwise(interest)):
        return "the names of an interest come in order and once each: sort them"
    for name in interest:
        if WILDCARD in name[:-1]:
            return f"{name!r} has a '*' that is not its end: only prefixes can be asked for"
    return ""


def matcher(interest: Interest) -> Matches:
    """Whether a name is of interest."""
    if interest in ((), (WILDCARD,)):
        return _everything
    names = frozenset(name for name in interest if not name.endswith(WILDCARD))
    prefixes = tuple(name[:-1] for name in interest if name.endswith(WILDCARD))
    if not prefixes:
        return names.__contains__
    reserved = tuple(prefix for prefix in prefixes if prefix.startswith(RESERVED))

    def matches(name: str) -> bool:
        return name in names or name.startswith(reserved if name.startswith(RESERVED) else prefixes)

    return matches


def _everything(name: str) -> bool:
    return not name.startswith(RESERVED)
