"""Scores of containers as ranks, for picking relays (RIP-20, RIP-22).

A rank is a score rounded to a power of two, so that noise does not change the trees. Whoever has
not told its score lately has the median rank of its group: neither picked first nor never.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from swell.config.scores import LATENCY_S_MIN, PAYLOAD_BYTES_MIN, REQUESTS_MIN

RANK_MAX = 127
UNKNOWN = -1
"""In place of the rank of a container that has not told its score."""

_SMALLEST = REQUESTS_MIN * PAYLOAD_BYTES_MIN * LATENCY_S_MIN


def is_score(value: float) -> bool:
    return math.isfinite(value) and value >= 0.0


def rank_of(score: float) -> int:
    """0 for whoever is idle on an idle machine; one more with every doubling."""
    if score <= _SMALLEST:
        return 0
    return min(math.frexp(score / _SMALLEST)[1], RANK_MAX)


def median_of(ranks: Iterable[int]) -> int:
    """The lower median of the ranks that are known; 0 if none is."""
    known = sorted(rank for rank in ranks if rank != UNKNOWN)
    return known[(len(known) - 1) // 2] if known else 0
