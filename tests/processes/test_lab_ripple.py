"""Ripple's evaluation on a small scale: the baseline systems on real processes and sockets."""

from __future__ import annotations

import pytest

from swell.lab.baseline_protocol import Mode
from swell.lab.baseline_run import baseline_run
from swell.lab.ripple_run import RippleSettings


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
def test_a_baseline_delivers_every_update_whole_and_in_order(mode: Mode) -> None:
    settings = RippleSettings(
        servers=4,
        containers=24,
        applications=3,
        rate_per_s=60.0,
        payload_bytes=2_000,
        warm_up_s=1.5,
        seconds=1.0,
        fleet_processes=2,
    )
    found = baseline_run(mode, settings)
    assert found.updates > 20
    assert found.deliveries == 8 * found.updates
    assert (found.lost, found.out_of_order, found.differing, found.refused) == (0, 0, 0, {})
    assert 0 < found.mean_ms < 3_000
    assert len(found.servers) == 4
    assert found.bytes_per_update is None or found.bytes_per_update > 8 * settings.payload_bytes
