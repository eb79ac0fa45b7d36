"""Fleets on a small scale: real nodes, containers in processes, updates to all of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from swell.lab.fanout_swell import Swell
from swell.lab.fanout_trial import Trial
from swell.lab.fleet import FleetProcess
from swell.lab.fleet_messages import Collect, Collected, Hosted, Start
from swell.lab.ripple_publisher import Phase
from swell.lab.ripple_run import RippleSettings, ripple_run
from swell.world import Address


def test_a_fleet_ends_with_whoever_started_it() -> None:
    process = FleetProcess()
    process.order(Collect())
    assert isinstance(process.answer(20.0), Collected)
    process._pipe.close()
    process._process.join(10.0)
    assert process._process.exitcode == 0


def test_a_fleet_without_nodes_is_ended_cleanly() -> None:
    process = FleetProcess()
    nobody = Address("127.0.0.1", 9)
    process.order(Start("lab", (nobody,), (Hosted("c1", "shop", "s", ("shop",)),)))
    process.order(Collect(contents=True))
    found = process.answer(20.0)
    assert isinstance(found, Collected)
    assert [(one.container, one.step) for one in found.following] == [("c1", 0)]
    begun_s = time.monotonic()
    process.stop()
    assert time.monotonic() - begun_s < 8.0


@pytest.mark.slow
def test_every_update_reaches_every_container_and_is_counted_once(tmp_path: Path) -> None:
    with Swell().running(tmp_path) as running:
        for _ in range(2):
            found = running.trial(Trial(False, 0.3, 0.7, subscribers=70, window=8))
            assert found.deliveries > 0
            assert found.bytes_deliveries % 70 == 0
            assert (found.missing, found.skipped, found.load_processes) == (0, 0, 2)
            assert 0 < found.p50_ms <= found.p99_ms


@pytest.mark.slow
def test_a_small_ripple_loses_nothing() -> None:
    settings = RippleSettings(
        servers=3,
        containers=24,
        applications=3,
        payload_bytes=1_000,
        warm_up_s=1.5,
        phases=(Phase(0.5, 40.0), Phase(0.5, 80.0)),
        server_processes=2,
        fleet_processes=2,
    )
    found = ripple_run(settings)
    assert found.updates > 20
    assert found.deliveries == 8 * found.updates
    assert (found.lost, found.out_of_order, found.differing) == (0, 0, 0)
    assert (found.refused, found.unreported) == ({}, ())
    assert 0 < found.mean_ms < 3_000
    assert len(found.servers) == 2
