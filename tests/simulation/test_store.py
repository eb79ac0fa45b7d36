"""The replicated store in simulation: no acknowledged write is lost, none is applied twice, no read
is stale (RIP-4, RIP-5, SPI-3 to SPI-6). `SWELL_SEEDS` chooses how many seeds run."""

from __future__ import annotations

import os

import pytest

from swell.simulation.workloads.catalogue import STORE_BUGS, run
from tests.simulation.seeds import digests, failures, seeds_to_catch

SEEDS = int(os.environ.get("SWELL_SEEDS", "50"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * SEEDS)
def test_every_seed_is_safe_and_goes_on() -> None:
    assert failures("store", SEEDS) == []


@pytest.mark.slow
def test_planted_bugs_are_caught() -> None:
    missed = [bug for bug, seeds in seeds_to_catch("store", STORE_BUGS).items() if not seeds]
    assert missed == []


@pytest.mark.slow
def test_spi_4_a_zone_lost_for_good_takes_no_key_with_it() -> None:
    result = run("zone-loss", seed=1)
    assert result.problems == []
    assert result.counts["keys"] == 2_000
    assert result.counts["destroyed"] == 4


@pytest.mark.slow
def test_spi_6_growing_to_nine_nodes_and_back_fails_no_operation() -> None:
    result = run("growth", seed=1)
    assert result.problems == []


@pytest.mark.slow
def test_a_seed_replays_exactly_under_another_hash_seed() -> None:
    assert len(digests("store", 4)) == 1
