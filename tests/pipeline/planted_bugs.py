"""Bugs of containers that show in what they apply: for the audit to find.

Each takes the place of `Feed.take` and does one thing wrong now and then, in every container of the
process. What it does not spoil stays as it is: the container goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from swell.config.bursts import Burst
from swell.container.documents import Document
from swell.container.feed import Feed

Take = Callable[[Feed, Burst, bytes], bool]

FROM_STEP = 20
"""Until then all is well."""
EVERY = 3
"""Of the bursts, one in so many is treated badly."""

_take: Take = Feed.take


def lose(feed: Feed, burst: Burst, data: bytes) -> bool:
    """From some step on it claims to have everything, and applies nothing."""
    if burst.upto <= max(feed.at, FROM_STEP):
        return _take(feed, burst, data)
    feed.at = burst.upto
    return True


def repeat(feed: Feed, burst: Burst, data: bytes) -> bool:
    """What it has applied it applies once more, to what it had before."""
    if not _turn(feed, burst):
        return _take(feed, burst, data)
    before = feed.at, dict(feed.documents)
    _take(feed, burst, data)
    feed.at, feed.documents = before
    return _take(feed, burst, data)


def swap(feed: Feed, burst: Burst, data: bytes) -> bool:
    """It applies a burst after the next one."""
    held = _held.pop(feed, None)
    if held is None and _turn(feed, burst):
        _held[feed] = burst, data, feed.at, dict(feed.documents)
        recording, feed.recording = feed.recording, None
        taken = _take(feed, burst, data)
        feed.recording = recording
        return taken
    taken = _take(feed, burst, data)
    if held is not None:
        after = feed.at, feed.documents
        older, its_data, feed.at, feed.documents = held
        _take(feed, older, its_data)
        feed.at, feed.documents = after
    return taken


def alter(feed: Feed, burst: Burst, data: bytes) -> bool:
    """It takes a delta to something else than what that was made from."""
    if not _turn(feed, burst):
        return _take(feed, burst, data)
    for name, one in feed.documents.items():
        id = bytes(reversed(one.id))
        feed.documents[name] = Document(name, one.version, id, one.step, one.content, one.deleted)
    feed._bugs |= {"no-base-check"}
    return _take(feed, burst, data)


_held: dict[Feed, tuple[Burst, bytes, int, dict[str, Document]]] = {}
_turns: Counter[Feed] = Counter()


def _turn(feed: Feed, burst: Burst) -> bool:
    """Whether it is time, and the burst joins on."""
    if burst.upto <= FROM_STEP or not burst.after <= feed.at < burst.upto:
        return False
    _turns[feed] += 1
    return _turns[feed] % EVERY == 0


BUGS: dict[str, tuple[Take, str]] = {
    "lose": (lose, "missing"),
    "repeat": (repeat, "duplicate"),
    "swap": (swap, "out-of-order"),
    "alter": (alter, "wrong-content"),
}
"""By name: what it does, and the verdict that must be found."""


@contextmanager
def planted(bugs: Mapping[str, str]) -> Iterator[None]:
    """Inside, feeds have the bugs of their applications."""

    def take(feed: Feed, burst: Burst, data: bytes) -> bool:
        bug = bugs.get(feed.application)
        return (BUGS[bug][0] if bug else _take)(feed, burst, data)

    Feed.take = take  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Feed.take = _take  # type: ignore[assignment, method-assign]
