"""Configurations in simulation: one digest per version anywhere, no gaps, versions never go back,
acknowledged exactly once, whatever relays do (RIP-3 … RIP-16). `SWELL_SEEDS` chooses how many
seeds run."""

from __future__ import annotations

import os

import pytest

from swell.simulation.workloads.catalogue import CONFIG_BUGS
from tests.simulation.seeds import digests, failures, seeds_to_catch

SEEDS = int(os.environ.get("SWELL_SEEDS", "50"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 4 * SEEDS)
def test_every_seed_keeps_the_chains_and_reaches_everybody() -> None:
    assert failures("config", SEEDS) == []


@pytest.mark.slow
def test_planted_bugs_are_caught() -> None:
    missed = [bug for bug, seeds in seeds_to_catch("config", CONFIG_BUGS).items() if not seeds]
    assert missed == []


@pytest.mark.slow
def test_a_seed_replays_exactly_under_another_hash_seed() -> None:
    assert len(digests("config", 4)) == 1
