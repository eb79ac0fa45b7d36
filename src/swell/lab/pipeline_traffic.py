"""A large log of traffic, made by arrays: what `swell pipeline monitor` reads.

Every topic has one producer and two consumers somewhere; its home reports each of them ten times,
the last time a few seconds before the log ends. Nodes and clients have one coordinate each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from swell.events.schema import Kind
from swell.lab.pipeline_rows import BEGIN_US, common, texts, write_pieces
from swell.pipeline.audit_settings import US_PER_S
from swell.pipeline.monitor import MESSAGES

DIMENSIONS = 8
SPAN_MS = 100.0
"""Nodes and clients are spread evenly in a cube of this size."""
NODES = 50
FLOWS = 3
REPORTS = 10
REPORT_EVERY_S = 10
TOPICS_PER_CLIENT = 10
PIECE_TOPICS = 100_000


def write_traffic(root: Path, rows: int, seed: int = 1) -> int:
    """Write about so many traffic rows; returns how many topics there are."""
    rng = np.random.default_rng(seed)
    topics = max(1, rows // (FLOWS * REPORTS))
    clients = max(FLOWS, topics // TOPICS_PER_CLIENT)
    _write_places(root, "node", NODES, rng)
    _write_places(root, "client", clients, rng)
    home = rng.integers(0, NODES, topics)
    client = rng.integers(0, clients, topics * FLOWS)
    for begin in range(0, topics, PIECE_TOPICS):
        here = np.arange(begin, min(topics, begin + PIECE_TOPICS))
        _write_flows(root, here, home, client, rng)
    return topics


def _write_places(root: Path, role: str, count: int, rng: np.random.Generator) -> None:
    number = np.arange(count)
    at_us = np.full(count, BEGIN_US)
    columns = common(texts(f"{role}-", number), at_us, np.ones(count, np.int64), count, role)
    values = np.round(rng.random(count * (DIMENSIONS + 1)) * SPAN_MS, 3)
    edges = pa.array(np.arange(count + 1, dtype=np.int32) * (DIMENSIONS + 1))
    columns["coordinate"] = pa.ListArray.from_arrays(edges, pa.array(values))
    write_pieces(root, str(Kind.COORDINATE), columns, role)


def _write_flows(
    root: Path,
    topics: np.ndarray,
    home: np.ndarray,
    client: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """All reports of some topics, one interval after the other."""
    flow = np.tile(
        np.repeat(topics * FLOWS, FLOWS) + np.tile(np.arange(FLOWS), len(topics)), REPORTS
    )
    count = len(flow)
    report = np.repeat(np.arange(REPORTS), count // REPORTS)
    at_us = BEGIN_US + report * REPORT_EVERY_S * US_PER_S + flow % US_PER_S
    topic = flow // FLOWS
    row = flow * REPORTS + report + 1
    columns = common(texts("node-", home[topic]), at_us, row, count)
    names = texts("client-", client[flow])
    produces = pa.array(flow % FLOWS == 0)
    nobody = pa.scalar(None, pa.string())
    columns |= {
        "name": texts("topic-", topic),
        "source": pc.if_else(produces, names, nobody),
        "peer": pc.if_else(produces, nobody, names),
        "rate": pa.array(np.round(1 + 9 * rng.random(count), 3)),
        "reason": pa.repeat(MESSAGES, count),
    }
    write_pieces(root, str(Kind.TRAFFIC), columns, f"nodes{topics[0]}")
