"""What a topic's home reports about it: as much for a million clients as for two (ePulsar 3.2).

Of latency: the centroids of producers and consumers, W(t), how far the farthest of each lie from
them, and E(t), the worst way from any producer over the present home to any consumer. Of load: the
rate at which the home sends. Rates are whole thousandths of messages per second: sums of them are
exact.
"""

from __future__ import annotations

from collections.abc import Collection
from math import floor
from typing import NamedTuple

from swell.placement.space import Centroid, Place, centroid, deviation_us, distance_us

MILLI = 1000
NS_PER_US = 1000


class TopicReport(NamedTuple):
    """One topic, aggregated. A side without clients that have a place is None."""

    topic: str
    home: str
    producers: Centroid | None
    consumers: Centroid | None
    deviation_us: float
    """W(t)."""
    worst_us: float | None
    """E(t); None: nobody sends to anybody."""
    rate_out_milli: int
    limit_us: int | None
    """The latency that the topic allows; None: any."""


class NodeReport(NamedTuple):
    """One node that topics may live on."""

    node: str
    place: Place
    utilization: float = 0.0
    """The highest of CPU, memory and network, 0 to 1."""


def report(
    topic: str,
    home: NodeReport,
    producers: Collection[Place],
    consumers: Collection[Place],
    rate_out_milli: int,
    limit_us: int | None = None,
) -> TopicReport:
    """Aggregate a topic's clients."""
    centres = centroid(producers), centroid(consumers)
    deviation = _farthest_us(producers, centres[0]) + _farthest_us(consumers, centres[1])
    worst = None
    if producers and consumers:
        worst = max(distance_us(place, home.place) for place in producers) + max(
            distance_us(place, home.place) for place in consumers
        )
    return TopicReport(topic, home.node, *centres, deviation, worst, rate_out_milli, limit_us)


def _farthest_us(places: Collection[Place], centre: Centroid | None) -> float:
    if centre is None:
        return 0.0
    return max(deviation_us(place, centre) for place in places)


def expected_ns(report: TopicReport, node: NodeReport) -> int:
    """W(t, b): the worst latency to expect if the topic lived on this node, in whole nanoseconds,
    so that what is equal is equal in every engine."""
    return floor(expected_us(report, node) * NS_PER_US + 0.5)


def expected_us(report: TopicReport, node: NodeReport) -> float:
    sides = (report.producers, report.consumers)
    first, second = (0.0 if side is None else distance_us(side, node.place) for side in sides)
    return first + second + report.deviation_us
