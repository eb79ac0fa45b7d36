"""Names and numbers of things.

A *name* is chosen by people: lower-case letters, digits, `.`, `_`, `-`; 1 to 63 characters;
starting with a letter or digit. A *number* is given out by the directory: node ids and zone ids
are small positive integers, never reused for another name. Zone priority follows the zone id:
the smaller id has the higher priority. Keys, applications and configurations have freer names:
text in the manner of a path, see `check_path`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swell.errors import InvalidNameError, SwellError

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


_control = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]").search
"""The control characters of Unicode, as UTF-8 has them."""


def check_path(data: bytes, what: str, bytes_max: int, error: type[SwellError]) -> None:
    """Raise `error` unless these bytes are UTF-8 that can stand in a path or a URL without meaning
    another one: not empty, no control characters, neither beginning nor ending with a slash, no
    segment `..`."""
    if not data:
        raise error(f"the {what} is empty: a {what} has 1 to {bytes_max} bytes")
    if len(data) > bytes_max:
        raise error(f"the {what} has {len(data)} bytes of UTF-8, allowed are {bytes_max}")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise error(f"the {what} {data!r} is not UTF-8: write it in UTF-8") from None
    if _control(data):
        raise error(f"the {what} {data.decode()!r} contains a control character: leave it out")
    if data.startswith(b"/") or data.endswith(b"/"):
        raise error(f"the {what} {data.decode()!r} begins or ends with '/': leave it out")
    if b".." in data and b".." in data.split(b"/"):
        raise error(f"the {what} {data.decode()!r} contains a segment '..': leave it out")


MOVES_PER_START = 1 << 10


def epoch_of(start: int, moves: int) -> int:
    """The number of one stay of a process in one zone. It grows with every start of the process
    (whose count is durable) and with every move to another zone, so that what is said about an
    earlier stay never overrides what is said about a later one."""
    return start * MOVES_PER_START + min(moves, MOVES_PER_START - 1)


LIVES_PER_DIRECTORY = 1_000_000


def life_of(made_s: int, start: int) -> int:
    """The number that events give a start of a node. Those of one data directory are consecutive,
    which shows if one is missing; those of a directory that was made later are higher, though it
    counts from 1 again."""
    return made_s * LIVES_PER_DIRECTORY + start


class MessageId(NamedTuple):
    """Identity of one multicast: unique for ever, since `epoch` grows with every process start."""

    source: int
    epoch: int
    sequence: int
