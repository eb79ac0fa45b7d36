"""PIP-6 on real processes: what the pipeline publishes is what nodes work with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.pipeline import publishing
from swell.pipeline.outcome import Outcome
from tests.processes.commands import LocalCluster, await_condition, running, swell_json

WITHIN_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from running(tmp_path / "cluster", "--nodes", "3", "--sites", "1")


def await_said(cluster: LocalCluster, *words: str) -> None:
    """Until every node has a line with all of these words in its log."""

    def is_said(log: Path) -> bool:
        return any(all(word in line for word in words) for line in log.read_text().splitlines())

    logs = sorted(cluster.path.glob("logs/*.log"))
    assert len(logs) == 3
    await_condition(lambda: all(map(is_said, logs)), WITHIN_S, f"all say {' '.join(words)}")


def test_nodes_follow_what_the_pipeline_publishes(cluster: LocalCluster) -> None:
    rows = [
        {"setting": "config.relay_fanout", "value": 17},
        {"setting": "config.keep_versions", "value": 10**9},
    ]
    outcome = Outcome("workload", tables={"recommended": rows})
    nodes = ",".join(cluster.facts["addresses"].values())
    target = publishing.Target(nodes, cluster.facts["cluster"], None)
    assert "published as version 1" in publishing.publish(outcome, target)
    assert "as before: version 1" in publishing.publish(outcome, target)
    await_said(cluster, "ThresholdsFollowed", "relay_fanout", "17")
    await_said(cluster, "ThresholdIgnored", "config.keep_versions")
    swell_json("config", "delete", "swell/thresholds.json", "--dir", cluster.path)
    await_said(cluster, "ThresholdsFollowed", "version=0")
