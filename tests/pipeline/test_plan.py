"""PIP-5: the plan in Spark gives the moves of the planner inside a node, from a log of events."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from swell.pipeline import monitor
from swell.pipeline.plan import plan, with_limits
from swell.pipeline.plan_ranking import by_name, ranker
from swell.pipeline.schema import EVENTS
from swell.placement import planning
from swell.placement.monitoring import NodeReport, TopicReport, report
from swell.placement.planning import PlanSettings
from swell.placement.space import Place, place_of
from tests.pipeline.toy_logs import row, write_file

pytestmark = pytest.mark.beside

DIMENSIONS = 2
LIMITS_US = {"t3": 5_000, "t4": 500_000}


class World:
    """A random state, as rows of a log and as what the nodes know."""

    def __init__(self, seed: int, log: Path) -> None:
        self.rng = rng = Random(seed)
        self.rows: dict[str, list[dict[str, Any]]] = {"coordinate": [], "traffic": []}
        self.number = 0
        self.nodes = [
            NodeReport(f"n{i}", self.place(f"n{i}"), rng.choice([0.0, 0.5, 0.95])) for i in range(6)
        ]
        homes = [*self.nodes, NodeReport("gone", place_of([0.0] * 3))]
        self.reports: list[TopicReport] = []
        for number in range(60):
            self.reports.append(self.topic(f"t{number}", rng.choice(homes)))
        for kind, rows in self.rows.items():
            write_file(log, kind, "n0-1-1", rows)

    def add(self, kind: str, node: str, **fields: Any) -> None:
        self.number += 1
        self.rows[kind].append(row(self.number, node, **fields) | {"at": row(1)["at"]})

    def place(self, who: str) -> Place:
        """On a coarse grid: many clients are equally far from many nodes."""
        places = [[self.rng.randint(0, 4) * 10.0 for _ in range(2)] + [0.5] for _ in range(2)]
        for coordinate in places:  # the last one counts
            self.add("coordinate", who, coordinate=coordinate)
        return place_of(places[-1])

    def topic(self, name: str, home: NodeReport) -> TopicReport:
        rng = self.rng
        sides: list[list[Place]] = [[], []]
        out_milli = 0
        for side, column in enumerate(("source", "peer")):
            for number in range(rng.randint(0, 4)):
                client = f"{name}-{column}{number}"
                rate = rng.choice([1.0, 2.5, 40.0])
                out_milli += round(rate * 1000) if column == "peer" else 0
                for old in (999.0, rate):
                    fields = {"name": name, column: client, "rate": old, "reason": "msgs"}
                    self.add("traffic", home.node, **fields)
                self.add("traffic", home.node, **fields | {"rate": 7.0, "reason": "bytes"})
                if rng.random() < 0.9:
                    sides[side].append(self.place(client))
        found = report(name, home, *sides, out_milli, LIMITS_US.get(name, 30_000))
        return found._replace(worst_us=None) if home.node == "gone" else found


def frames(spark: SparkSession, log: Path) -> DataFrame:
    events = spark.read.format("swell").load(str(log))
    assert events.schema == EVENTS
    places = monitor.places(events, DIMENSIONS)
    topics = monitor.topics(monitor.flows(events), places, DIMENSIONS).persist()
    values = ", ".join(f"('{topic}', {limit}L)" for topic, limit in LIMITS_US.items())
    limits = spark.sql(f"select * from values {values} as (topic, limit_us)")
    return with_limits(topics, 30_000, limits)


@pytest.mark.parametrize("seed", range(4 if "SWELL_LARGE" in os.environ else 1))
def test_pip5_spark_and_node_agree_on_reports_and_moves(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    world = World(seed, tmp_path)
    topics = frames(spark, tmp_path)
    used = [one for one in world.reports if one.producers or one.consumers or one.rate_out_milli]
    found = {r["topic"]: r for r in topics.collect()}
    for expected in used:
        got = found[expected.topic]
        assert got["home"] == expected.home
        assert got["worst_us"] == expected.worst_us
        assert got["deviation_us"] == expected.deviation_us
        assert got["rate_out_milli"] == expected.rate_out_milli
        for side, centre in (("producer", expected.producers), ("consumer", expected.consumers)):
            flat = None if centre is None else [*centre.vector_us, centre.height_us]
            assert got[f"{side}_centroid"] == flat
    settings = PlanSettings(rate_out_max=500.0)
    known = [one for one in world.reports if one.topic in found]
    moves = plan(topics, world.nodes, settings)
    assert moves == planning.plan(known, world.nodes, settings)
    assert len(moves) > 5, "or nothing was shown"
    assert {move.source for move in moves} & {"gone"}


def anywhere(rng: Random) -> Place:
    return Place(tuple(rng.randint(-99_999, 99_999) for _ in range(8)), rng.randint(0, 9_999))


def test_pip5_nodes_are_ranked_as_a_node_ranks_them() -> None:
    """Bit by bit, also where two nodes are at one place and where a side has nobody."""
    rng = Random(1)
    nodes = [NodeReport(f"n{i}", anywhere(rng)) for i in range(49)]
    nodes.append(NodeReport("also n7", nodes[7].place))
    reports = []
    for number in range(500):
        sides = [[anywhere(rng) for _ in range(rng.choice([0, 1, 2, 7]))] for _ in range(2)]
        limit_us = rng.choice([None, 0, 200_000, 300_000, 400_000])
        reports.append(report(f"t{number}", rng.choice(nodes), *sides, number, limit_us))
    flat = {
        f"{side}_centroid": pa.array(
            [
                None if one[at] is None else [*one[at].vector_us, one[at].height_us]
                for one in reports
            ],
            pa.list_(pa.float64()),
        )
        for at, side in ((2, "producer"), (3, "consumer"))
    }
    plain = ("topic", "home", "rate_out_milli", "limit_us", "deviation_us")
    columns = {name: pa.array([getattr(one, name) for one in reports]) for name in plain}
    batches = list(ranker(nodes)(iter([pa.RecordBatch.from_pydict(columns | flat)])))
    assert sum(batch.num_rows for batch in batches) == len(reports)
    names = [node.node for node in by_name(nodes)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    for ranked, one in zip(rows, reports, strict=True):
        expected = planning.candidates(one, nodes)
        assert (ranked["topic"], ranked["feasible"]) == (one.topic, expected.feasible)
        tried = [names[number] for number in memoryview(ranked["ranking"]).cast("H")]
        assert tried == expected.nodes
        assert len(tried) == ranked["tried"]
    assert len({row["feasible"] for row in rows}) > 20, "or little was shown"


def test_pip5_a_flow_that_is_no_longer_reported_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row(1, name="t", peer="old", rate=1.0, reason="msgs"),
        row(100, name="t", peer="new", rate=2.0, reason="msgs"),
        row(101, name="t", source="p", rate=3.0, reason="msgs"),
    ]
    write_file(tmp_path, "traffic", "n1-1-1", rows)
    events = spark.read.format("swell").load(str(tmp_path))
    found = monitor.flows(events, window_s=60.0).orderBy("client").collect()
    assert [(r.client, r.side, r.rate_milli) for r in found] == [
        ("new", "consumer", 2000),
        ("p", "producer", 3000),
    ]
    assert monitor.flows(events, window_s=100.0).count() == 3


def test_pip5_coordinates_of_another_space_are_none(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(1, "a", coordinate=[1.0, 2.0, 3.0]), row(2, "a", coordinate=[1.0])]
    write_file(tmp_path, "coordinate", "a-1-1", rows)
    places = monitor.places(spark.read.format("swell").load(str(tmp_path)), 2)
    assert [r.place for r in places.where(f.col("node") == "a").collect()] == [[1000, 2000, 3000]]
