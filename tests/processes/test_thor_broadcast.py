"""`thor-broadcast` on a small scale: real processes, real sockets."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import numpy as np
import pytest

from swell.lab.broadcast_cluster import Cluster, ClusterError, Load, Measurement, unsettled
from swell.lab.broadcast_worker import Place
from swell.lab.thor_broadcast import Plan, frame_bytes, keeps_up, search

TINY = Plan((8,), 1, 0.1, 0.3, 0.4, share=0.6, tries=5)
NODES = 8
EVERYBODY = tuple(range(NODES))


def test_an_overlay_of_two_processes_sustains_what_it_confirms() -> None:
    with Cluster(NODES, connections=4, workers=2) as cluster:
        assert cluster.zones == 2
        for sources in ((0,), EVERYBODY):
            found = search(cluster, TINY, sources, 1_000)
            assert found.confirmed is not None
            assert found.confirmed.sent > 0
            assert found.confirmed.clean
            assert 0 < found.rate_per_s < found.closed_rate_per_s
        # A schedule far above the closed loop's rate leaves the sinks behind; what was sent
        # arrives all the same.
        flood = Load((0,), 1_000, window=64, rate_per_s=5 * found.closed_rate_per_s)
        measured = cluster.measure(flood, warm_up_s=0.1, seconds=0.4)
        assert not keeps_up(measured)
        assert measured.lost == 0
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_is_an_error_not_a_hang() -> None:
    with Cluster(2, connections=4, workers=2) as cluster:
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(ClusterError, match="ended early"):
            cluster.measure(Load((0,), 100, window=1), warm_up_s=0.0, seconds=0.1)


def measurement(received_per_s: float, offered_per_s: float) -> Measurement:
    times_s = np.linspace(0.1, 1.1, 21)
    received = np.outer(times_s * received_per_s, np.ones(2))
    load = Load((0,), 100, window=10, rate_per_s=offered_per_s)
    return Measurement(load, times_s, received, 0, 0, 0, Counter(), 0, 0.0)


@pytest.mark.parametrize(("received_per_s", "keeps"), [(1000, True), (960, True), (900, False)])
def test_a_growing_backlog_is_seen(received_per_s: float, keeps: bool) -> None:
    assert keeps_up(measurement(received_per_s, offered_per_s=1000)) is keeps


def test_bytes_include_the_headers() -> None:
    assert frame_bytes(1_000) - 1_000 == frame_bytes(100) - 100 == 30


def test_an_overlay_is_settled_when_complete_and_known_to_all() -> None:
    def place(node: int, zone: int, clique: tuple[int, ...], link: int) -> Place:
        other = 3 - zone
        links = ((other, link),) if link else ()
        holder = 1 if zone == 1 else 3
        return Place(node, node, zone, clique, links, (other,), ((other, (holder,)),), 0)

    places = [
        place(1, 1, (2,), 3),
        place(2, 1, (1,), 0),
        place(3, 2, (4,), 1),
        place(4, 2, (3,), 0),
    ]
    assert unsettled(places) == ""
    assert "is linked to" in unsettled([*places[:3], places[3]._replace(clique=())])
    assert "not one to each" in unsettled([places[0]._replace(links=()), *places[1:]])
    assert "does not know" in unsettled([places[0]._replace(draining=1), *places[1:]])
    assert "have not joined" in unsettled([places[0]._replace(zone=0), *places[1:]])
