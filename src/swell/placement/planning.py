"""Which topics move where: Algorithm 1 of ePulsar, with its ties broken.

A topic is moved because its worst latency is above its limit, because its home is gone, or to
relieve its home: the topics with the highest output rate leave an overloaded node first, until it
would no longer be. Topics
with the fewest feasible nodes choose first; a topic takes the first of its candidates that can
host it, or stays. (The printed pseudocode goes on after the first, which would make the last the
winner.) A candidate that is the present home is no move.

Equal candidates are taken in the order of their names, equal topics too: one state has one plan,
whoever computes it. `choose` takes candidates that somebody else has ranked: the pipeline ranks
millions of topics in Spark and ends here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from swell.placement.monitoring import MILLI, NS_PER_US, NodeReport, TopicReport, expected_ns

UTILIZATION_MAX = 0.85


class PlanSettings(msgspec.Struct, frozen=True):
    """When a node has too much."""

    rate_out_max: float = 1_500_000.0
    """R_out^th: messages per second that a node may send. The paper's value is for 8 CPUs."""
    utilization_max: float = UTILIZATION_MAX
    """Of CPU, memory and network; the highest counts."""

    @property
    def rate_out_max_milli(self) -> int:
        return round(self.rate_out_max * MILLI)


class Move(NamedTuple):
    topic: str
    source: str
    target: str


class Candidates(NamedTuple):
    """A topic to be placed and the nodes to try, the best first."""

    topic: str
    home: str
    rate_out_milli: int
    feasible: int
    """How many nodes are within the limit; 0: none, and all nodes are tried."""
    nodes: Iterable[str]


class Load:
    """What nodes carry while a plan is made."""

    def __init__(
        self,
        rates_milli: Mapping[str, int],
        utilizations: Mapping[str, float],
        settings: PlanSettings,
    ) -> None:
        """`utilizations` were measured at these rates."""
        self._rates = dict(rates_milli)
        self._most = {
            node: _most_milli(rate, utilizations.get(node, 0.0), settings)
            for node, rate in rates_milli.items()
        }

    def fits(self, node: str, more_milli: int = 0) -> bool:
        """Whether a node with so much more would not be overloaded."""
        return self._rates[node] + more_milli <= self._most[node]

    def has(self, node: str) -> bool:
        return node in self._rates

    def move(self, source: str, target: str, rate_milli: int) -> None:
        if source in self._rates:
            self._rates[source] -= rate_milli
        self._rates[target] += rate_milli

    def rate_milli(self, node: str) -> int:
        return self._rates[node]

    def most_milli(self, node: str) -> int:
        """The highest rate at which the node is not overloaded."""
        return self._most[node]


def _most_milli(seen_milli: int, measured: float, settings: PlanSettings) -> int:
    """The highest rate at which a node is not overloaded; -1: none. What it uses grows with what it
    sends, from what was measured at the rate that was seen."""
    too_much = settings.rate_out_max_milli + 1
    if not seen_milli:
        return too_much - 1 if measured <= settings.utilization_max else -1
    most = -1
    while too_much - most > 1:
        middle = (most + too_much) // 2
        if measured * (middle / seen_milli) <= settings.utilization_max:
            most = middle
        else:
            too_much = middle
    return most


def load_of(
    topics: Iterable[TopicReport], nodes: Iterable[NodeReport], settings: PlanSettings
) -> Load:
    reports = list(nodes)
    rates = {node.node: 0 for node in reports}
    for topic in topics:
        if topic.home in rates:
            rates[topic.home] += topic.rate_out_milli
    return Load(rates, {node.node: node.utilization for node in reports}, settings)


def violated(topic: TopicReport) -> bool:
    return (
        topic.worst_us is not None
        and topic.limit_us is not None
        and topic.worst_us > topic.limit_us
    )


def shed(node: str, topics: Iterable[TopicReport], load: Load) -> list[TopicReport]:
    """The topics that leave an overloaded node: the largest first, until the rest is not too
    much."""
    leaving: list[TopicReport] = []
    rate_milli = load.rate_milli(node)
    for topic in sorted(topics, key=lambda one: (-one.rate_out_milli, one.topic)):
        if rate_milli <= load.most_milli(node) or not topic.rate_out_milli:
            break  # the rest may stay, or would be no relief
        leaving.append(topic)
        rate_milli -= topic.rate_out_milli
    return leaving


def candidates(topic: TopicReport, nodes: Iterable[NodeReport]) -> Candidates:
    """Feasible nodes by what latency to expect; all nodes if none is feasible."""
    ranked = sorted((expected_ns(topic, node), node.node) for node in nodes)
    limit_ns = None if topic.limit_us is None else topic.limit_us * NS_PER_US
    feasible = [name for ns, name in ranked if limit_ns is None or ns <= limit_ns]
    names = feasible or [name for _, name in ranked]
    return Candidates(topic.topic, topic.home, topic.rate_out_milli, len(feasible), names)


def choose(placing: Iterable[Candidates], load: Load) -> list[Move]:
    """Place topics one after the other. They come in the order of (feasible, topic); where none is
    feasible, all nodes are candidates and the topic comes among the last."""
    moves: list[Move] = []
    for topic in placing:
        for node in topic.nodes:
            if node == topic.home:
                if load.fits(node):
                    break
            elif load.fits(node, topic.rate_out_milli):
                load.move(topic.home, node, topic.rate_out_milli)
                moves.append(Move(topic.topic, topic.home, node))
                break
    return moves


def plan(
    topics: Sequence[TopicReport],
    nodes: Sequence[NodeReport],
    settings: PlanSettings | None = None,
) -> list[Move]:
    """The moves of one decision, in the order in which they were decided."""
    load = load_of(topics, nodes, settings or PlanSettings())
    by_home: dict[str, list[TopicReport]] = {}
    for topic in topics:
        by_home.setdefault(topic.home, []).append(topic)
    moving = {topic.topic: topic for topic in topics if violated(topic)}
    for home, listed in by_home.items():
        leaving = shed(home, listed, load) if load.has(home) else listed
        moving |= {topic.topic: topic for topic in leaving}
    placing = [candidates(topic, nodes) for topic in moving.values()]
    placing.sort(key=lambda one: (one.feasible or len(nodes), one.topic))
    return choose(placing, load)
