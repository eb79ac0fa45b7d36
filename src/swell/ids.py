"""Names and numbers of things.

A *name* is chosen by people: lower-case letters, digits, `.`, `_`, `-`; 1 to 63 characters;
starting with a letter or digit. A *number* is given out by the directory: node ids and zone ids
are small positive integers, never reused for another name. Zone priority follows the zone id:
the smaller id has the higher priority.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swell.errors import InvalidNameError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")

NAME_LENGTH_MAX = 63


def check_name(name: str, what: str = "name") -> str:
    """Return `name` if it is well formed, else raise an error that says what to write."""
    if not isinstance(name, str) or _NAME.match(name) is None or ".." in name:
        raise InvalidNameError(
            f"{what} {name!r} is not valid: use 1 to {NAME_LENGTH_MAX} of a-z 0-9 . _ - , "
            "starting with a letter or digit, without '..'"
        )
    return name


MOVES_PER_START = 1 << 10


def epoch_of(start: int, moves: int) -> int:
    """The number of one stay of a process in one zone. It grows with every start of the process
    (whose count is durable) and with every move to another zone, so that what is said about an
    earlier stay never overrides what is said about a later one."""
    return start * MOVES_PER_START + min(moves, MOVES_PER_START - 1)


class MessageId(NamedTuple):
    """Identity of one multicast: unique for ever, since `epoch` grows with every process start."""

    source: int
    epoch: int
    sequence: int
