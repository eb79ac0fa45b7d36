"""Network coordinates: every node learns where it lies, so that round trips can be estimated.

Vivaldi with the refinements of Ledlie and Lee, as ePulsar uses it (its section 3.2):
a *height* for the access link that every path shares, a *median filter* per peer so that one late
answer moves nothing, an *adjustment* for what a Euclidean space cannot express, and *gravity* that
keeps the whole system from drifting. Coordinates ride on probe acknowledgements; there are no
messages of their own. Lengths are seconds of round trip; the error has no unit.

Invariants:
- The own coordinate is always finite and well formed; if arithmetic breaks it, it starts anew.
- A sample that is out of range, or comes with a malformed coordinate, changes nothing.
- Memory is bounded: one short filter per peer, at most `PEERS_MAX` peers.

An estimate is a hint. Whoever decides by it also looks at `error` and asks whether the peer is
reachable, and confirms the finalists with a direct ping.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from swell.settings import CoordinateSettings
from swell.wire.codec import Message

if TYPE_CHECKING:
    from random import Random

PEERS_MAX = 1024
"""Peers whose last samples are kept; beyond it the one not heard for longest is forgotten."""

_ERROR_SUM_MIN = 1e-6
_RTT_MIN_S = 1e-6
_LENGTH_MIN_S = 1e-9
"""Two positions closer than this have no direction between them."""


class Coordinate(Message, frozen=True):
    """A position as it travels: check it with `well_formed` before computing with it."""

    vector: tuple[float, ...]
    error: float
    adjustment: float
    height: float

    @classmethod
    def origin(cls, settings: CoordinateSettings) -> Coordinate:
        """Where every node starts, sure of nothing."""
        return cls(
            vector=(0.0,) * settings.dimensions,
            error=settings.error_max,
            adjustment=0.0,
            height=settings.height_min_s,
        )

    def well_formed(self, settings: CoordinateSettings) -> bool:
        """False for what no honest node can hold: another dimension, NaN, infinite or negative
        parts, or a place further out than the longest round trip that anybody accepts."""
        limit_s = settings.rtt_max_s
        # Written so that a NaN, which compares false with everything, fails each condition.
        return (
            len(self.vector) == settings.dimensions
            and all(-limit_s <= part <= limit_s for part in self.vector)
            and 0.0 <= self.error <= settings.error_max
            and -limit_s <= self.adjustment <= limit_s
            and 0.0 <= self.height <= limit_s
        )


def raw_distance_s(a: Coordinate, b: Coordinate) -> float:
    """Round trip by position and access links alone."""
    return math.dist(a.vector, b.vector) + a.height + b.height


def distance_s(a: Coordinate, b: Coordinate) -> float:
    """Estimated round trip between two well-formed coordinates of one dimension."""
    raw_s = raw_distance_s(a, b)
    adjusted_s = raw_s + a.adjustment + b.adjustment
    return adjusted_s if adjusted_s > 0.0 else raw_s


class CoordinateClient:
    """One node's own coordinate and the samples it is learnt from."""

    def __init__(self, settings: CoordinateSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._origin = Coordinate.origin(settings)
        self._coordinate = self._origin
        self._samples: dict[int, deque[float]] = {}
        self._misfits: deque[float] = deque(maxlen=settings.adjustment_window)
        self.resets = 0
        """How often the own coordinate had to start anew."""

    @property
    def coordinate(self) -> Coordinate:
        return self._coordinate

    def distance_s(self, other: Coordinate) -> float:
        """Estimated round trip from here to a well-formed coordinate."""
        return distance_s(self._coordinate, other)

    def update(self, peer: int, other: Coordinate, rtt_s: float) -> bool:
        """Learn from one measured round trip to `peer`. False: refused, nothing changed."""
        settings = self._settings
        if not 0.0 < rtt_s <= settings.rtt_max_s or not other.well_formed(settings):
            return False
        rtt_s = max(self._filtered(peer, rtt_s), _RTT_MIN_S)
        mine = self._attracted(self._coordinate, other, rtt_s)
        if settings.adjustment_window > 0:
            mine = self._adjusted(mine, other, rtt_s)
        pull_s = -((distance_s(mine, self._origin) / settings.gravity_rho) ** 2)
        mine = self._pushed(mine, mine.error, pull_s, self._origin)
        if mine.well_formed(settings):
            self._coordinate = mine
        else:
            self._reset()
        return True

    def forget(self, peer: int) -> None:
        """Drop the samples of a peer that is gone."""
        self._samples.pop(peer, None)

    def _filtered(self, peer: int, rtt_s: float) -> float:
        """The median of the peer's last samples, this one included."""
        # Taken out and put back: the dict's order is the order of last use.
        samples = self._samples.pop(peer, None)
        if samples is None:
            samples = deque(maxlen=self._settings.latency_filter_size)
            if len(self._samples) >= PEERS_MAX:
                del self._samples[next(iter(self._samples))]
        self._samples[peer] = samples
        samples.append(rtt_s)
        return sorted(samples)[len(samples) // 2]

    def _attracted(self, mine: Coordinate, other: Coordinate, rtt_s: float) -> Coordinate:
        """Vivaldi's step: towards the peer if it seems too far, away if it seems too close, and
        further the less sure we are compared with the peer."""
        settings = self._settings
        estimate_s = distance_s(mine, other)
        weight = mine.error / max(mine.error + other.error, _ERROR_SUM_MIN)
        gain = settings.error_gain * weight
        misfit = abs(estimate_s - rtt_s) / rtt_s
        error = min(gain * misfit + mine.error * (1.0 - gain), settings.error_max)
        force_s = settings.force_gain * weight * (rtt_s - estimate_s)
        return self._pushed(mine, error, force_s, other)

    def _adjusted(self, mine: Coordinate, other: Coordinate, rtt_s: float) -> Coordinate:
        """Half of the mean misfit over the window: the peer's adjustment makes up the other."""
        self._misfits.append(rtt_s - raw_distance_s(mine, other))
        # The whole window divides the sum even while it fills: few samples count for little.
        adjustment = sum(self._misfits) / (2.0 * self._settings.adjustment_window)
        return Coordinate(mine.vector, mine.error, adjustment, mine.height)

    def _pushed(
        self, mine: Coordinate, error: float, force_s: float, other: Coordinate
    ) -> Coordinate:
        """`mine` moved by `force_s` straight away from `other` (towards it if negative).

        A node still at the origin leaves in a direction of its own: pushed straight away from its
        peer, all newcomers would end on one line and never leave it again. The height moves by no
        more than the force, or two nodes in one rack would drive theirs to seconds."""
        length_s = math.dist(mine.vector, other.vector)
        height_s = mine.height
        if length_s > _LENGTH_MIN_S and any(mine.vector):
            step = force_s / length_s
            vector = tuple(
                [m + (m - o) * step for m, o in zip(mine.vector, other.vector, strict=True)]
            )
            share = min((height_s + other.height) / length_s, 1.0)
            height_s = max(height_s + share * force_s, self._settings.height_min_s)
        else:
            vector = tuple(
                [m + d * force_s for m, d in zip(mine.vector, self._direction(), strict=True)]
            )
        return Coordinate(vector, error, mine.adjustment, height_s)

    def _direction(self) -> list[float]:
        """A random unit vector: coincident nodes leave each other in directions of their own."""
        parts = [self._rng.gauss(0.0, 1.0) for _ in range(self._settings.dimensions)]
        length = math.hypot(*parts)
        if length == 0.0:
            return [1.0] + [0.0] * (self._settings.dimensions - 1)
        return [part / length for part in parts]

    def _reset(self) -> None:
        """Start anew at the origin: a broken coordinate would mislead all who hear of it."""
        self._coordinate = self._origin
        self._misfits.clear()
        self.resets += 1
