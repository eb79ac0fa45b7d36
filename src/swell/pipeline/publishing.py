"""What the pipeline recommends, written back to the cluster as a configuration (PIP-6).

Application `swell`, configuration `thresholds.json`: names and values of settings, with the figures
they follow from. Nodes follow it (`swell.config.thresholds`).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from swell.client.blocking import connect_sync
from swell.config.thresholds import APPLICATION, NAME
from swell.pipeline.outcome import Outcome


class Target(NamedTuple):
    """The cluster to write to."""

    nodes: str
    cluster: str
    certificates: str | None


def document(outcome: Outcome) -> str:
    """The configuration: the same load gives the same text."""
    recommended = {str(row["setting"]): row["value"] for row in outcome.tables["recommended"]}
    return json.dumps({"settings": recommended, "load": outcome.facts}, indent=2) + "\n"


def publish(outcome: Outcome, target: Target) -> str:
    """Publish it; a sentence that says what is there now."""
    with connect_sync(
        target.nodes, cluster=target.cluster, certificates=target.certificates
    ) as client:
        made = client.configs(APPLICATION).put(NAME, document(outcome), author="swell pipeline")
    change = "published as" if made.changed else "as before:"
    return f"thresholds {change} version {made.version} of {APPLICATION}/{NAME}"
