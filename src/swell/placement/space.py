"""Places and distances for planning, in whole microseconds so that every engine agrees.

A place is a network coordinate: a vector and a height, the way every path to it begins with
(Vivaldi, ePulsar 3.2). Sums of whole numbers do not depend on their order, so a centroid is the
same whoever adds it up; distances are written out term by term, so that they are the same in every
implementation down to the last bit.

How far a client lies from its centroid is `deviation_us`: never less than what the client is
further away from anything than the centroid is. Where heights are zero it is the paper's distance;
with heights, that distance would count a client's own access link three times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, sqrt
from typing import NamedTuple

US_PER_MS = 1000


class Place(NamedTuple):
    """Where a node or a client is."""

    vector_us: tuple[int, ...]
    height_us: int


class Centroid(NamedTuple):
    """The mean of some places."""

    vector_us: tuple[float, ...]
    height_us: float


def whole_us(ms: float) -> int:
    """Rounded half up, as Spark's floor(x + 0.5) does."""
    return floor(ms * US_PER_MS + 0.5)


def place_of(coordinate_ms: Sequence[float]) -> Place:
    """From a coordinate event: the vector, then the height."""
    *vector, height = map(whole_us, coordinate_ms)
    return Place(tuple(vector), height)


def centroid(places: Iterable[Place]) -> Centroid | None:
    """None of no places."""
    listed = list(places)
    if not listed:
        return None
    count = len(listed)
    return Centroid(
        tuple(sum(parts) / count for parts in zip(*(p.vector_us for p in listed), strict=True)),
        sum(place.height_us for place in listed) / count,
    )


def distance_us(a: Place | Centroid, b: Place | Centroid) -> float:
    """Estimated round trip."""
    return _length_us(a, b) + (a.height_us + b.height_us)


def deviation_us(place: Place, centre: Centroid) -> float:
    """distance(place, x) ≤ deviation + distance(centre, x) for every x."""
    return _length_us(place, centre) + (place.height_us - centre.height_us)


def _length_us(a: Place | Centroid, b: Place | Centroid) -> float:
    total = 0.0
    for mine, other in zip(a.vector_us, b.vector_us, strict=True):
        difference = float(mine - other)
        total += difference * difference
    return sqrt(total)
