"""The nodes that a topic could live on, ranked by W(t, b), for batches of topics.

Arrays of (topics × nodes), a batch of Arrow at a time and every batch on its own: fifty nodes need
fifty expressions in Spark, more than it compiles. Terms are added in the order of
`swell.placement.monitoring.expected_ns`, so the nanoseconds are the same ones, bit by bit.

A ranking travels as bytes: two for each node to try, its number in the order of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swell.placement.monitoring import NS_PER_US, NodeReport

if TYPE_CHECKING:
    import pyarrow as pa

NODES_MAX = 1 << 12
"""A key is W(t, b) in nanoseconds and in its low bits the node's number: plain numbers are sorted
many times as fast as pairs."""

BATCH_ROWS = 2_048
"""Topics at a time: what is computed of them with fifty nodes fits in a processor's cache."""

WANTED = (
    "topic",
    "home",
    "rate_out_milli",
    "limit_us",
    "deviation_us",
    "producer_centroid",
    "consumer_centroid",
)
RANKED = "topic string, home string, rate_out_milli long, feasible int, tried int, ranking binary"

Floats = np.ndarray[Any, np.dtype[np.float64]]
Longs = np.ndarray[Any, np.dtype[np.int64]]


def by_name(nodes: Sequence[NodeReport]) -> list[NodeReport]:
    """In the order that gives nodes their numbers."""
    assert len(nodes) < NODES_MAX
    return sorted(nodes, key=lambda node: node.node)


def keys(centroids: Sequence[Floats | None], deviation_us: Floats, places: Floats) -> Longs:
    """topics × nodes: W(t, b) in nanoseconds · NODES_MAX + the node's number.

    `centroids` of producers and of consumers, a row per topic: the vector and then the height; NaN
    where there is none. `places` likewise, a row per node.
    """
    shape = len(deviation_us), len(places)
    expected_us = np.zeros(shape)
    for centre in centroids:
        if centre is not None:
            expected_us += _distances(centre, places)
    expected_us += deviation_us[:, None]
    expected_us *= float(NS_PER_US)
    expected_us += 0.5
    found: Longs = np.floor(expected_us, out=expected_us).astype(np.int64)
    found *= NODES_MAX
    found += np.arange(len(places))
    return found


def _distances(centre: Floats, places: Floats) -> Floats:
    """0 where the centroid is NaN. Term by term, as `swell.placement.space.distance_us`."""
    total = np.zeros((len(centre), len(places)))
    for axis in range(places.shape[1] - 1):
        difference = centre[:, axis, None] - places[None, :, axis]
        difference *= difference
        total += difference
    np.sqrt(total, out=total)
    total += centre[:, -1, None] + places[None, :, -1]
    total[np.isnan(centre[:, -1])] = 0.0
    return total


def ranker(nodes: Sequence[NodeReport]) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """For `mapInArrow`: from batches with the columns `WANTED` to batches of `RANKED`."""
    places = np.array(
        [(*node.place.vector_us, node.place.height_us) for node in by_name(nodes)], np.float64
    )

    def rank(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for begin in range(0, batch.num_rows, BATCH_ROWS):
                yield _ranked(batch.slice(begin, BATCH_ROWS), places)

    return rank


def _ranked(batch: pa.RecordBatch, places: Floats) -> pa.RecordBatch:
    import pyarrow as pa

    topic, home, rate, limit_us, deviation_us, *centres = (batch.column(name) for name in WANTED)
    width = places.shape[1]
    centroids = [_matrix(centre, width) for centre in centres]
    found = keys(centroids, deviation_us.to_numpy(zero_copy_only=False), places)
    limits = limit_us.fill_null(0).to_numpy(zero_copy_only=False)
    any_will_do = limit_us.is_null().to_numpy(zero_copy_only=False)
    beyond = np.where(any_will_do, np.iinfo(np.int64).max, (limits * NS_PER_US + 1) * NODES_MAX)
    feasible = (found < beyond[:, None]).sum(axis=1)
    # In the order of latency, so the feasible ones are the first; without any, all are tried.
    tried = np.where(feasible > 0, feasible, len(places))
    found.sort(axis=1)
    found &= NODES_MAX - 1
    numbers = found[np.arange(len(places)) < tried[:, None]].astype(np.uint16)
    ends = np.concatenate([[0], np.cumsum(tried * numbers.itemsize)]).astype(np.int32)
    rankings = pa.Array.from_buffers(
        pa.binary(), len(tried), [None, pa.py_buffer(ends), pa.py_buffer(numbers)]
    )
    columns = [topic, home, rate, pa.array(feasible.astype(np.int32))]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(tried.astype(np.int32)), rankings],
        ["topic", "home", "rate_out_milli", "feasible", "tried", "ranking"],
    )


def _matrix(centre: pa.ListArray, width: int) -> Floats | None:
    """A row per topic; NaN for those without a centroid; None if there is none at all."""
    known = centre.is_valid().to_numpy(zero_copy_only=False)
    if not known.any():
        return None
    matrix: Floats = np.full((len(centre), width), np.nan)
    matrix[known] = centre.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return matrix
