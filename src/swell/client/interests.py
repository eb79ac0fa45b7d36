"""Which configurations a program asks for: names, and prefixes with a `*` at their end."""

from __future__ import annotations

from collections.abc import Iterable

from swell.config.delivery.interest import WILDCARD, Interest, problem
from swell.config.names import RESERVED, check_configuration
from swell.errors import InvalidNameError


def check_names(names: str | Iterable[str]) -> Interest:
    """Sorted, and empty for everything; `InvalidNameError` says what is wrong."""
    wanted = tuple(sorted({names} if isinstance(names, str) else set(names)))
    for name in wanted:
        prefix = name.removesuffix(WILDCARD).rstrip("/")
        if prefix or not name.endswith(WILDCARD):
            check_configuration(prefix, reserved=True)
    sentence = problem(wanted)
    if sentence:
        raise InvalidNameError(sentence)
    reserved = tuple(name for name in wanted if name.startswith(RESERVED))
    if WILDCARD not in wanted:
        return wanted
    return (WILDCARD, *reserved) if reserved else ()


def covers(interest: Interest, names: Interest) -> bool:
    """Whether all of these names are in an interest."""
    entries = interest or (WILDCARD,)
    prefixes = tuple(entry[:-1] for entry in entries if entry.endswith(WILDCARD))
    reserved = tuple(prefix for prefix in prefixes if prefix.startswith(RESERVED))
    return all(
        name in entries
        or name.removesuffix(WILDCARD).startswith(
            reserved if name.startswith(RESERVED) else prefixes
        )
        for name in names or (WILDCARD,)
    )
