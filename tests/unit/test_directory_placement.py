"""Where the copies of slots live (SPI-3, SPI-4), and what the planner makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.directory.placement import place, slot_key
from swell.directory.planner import SLICE_SIZE
from swell.rings import TwoLevelRing

SLOTS = [slot_key(slot) for slot in range(1024)]
Zones = dict[int, list[int]]


def zones_of(*sizes: int) -> Zones:
    """Zones 1, 2, ... with so many members each; ids are counted through."""
    first = [1 + sum(sizes[:k]) for k in range(len(sizes))]
    return {
        zone: list(range(start, start + size))
        for zone, (start, size) in enumerate(zip(first, sizes, strict=True), 1)
    }


def placed(zones: Zones, replicas: int = 3, keys: Sequence[bytes] = SLOTS) -> list[tuple[int, ...]]:
    ring = TwoLevelRing(zones, SLICE_SIZE)
    return [place(key, zones, replicas, ring) for key in keys]


def zone_of(zones: Zones) -> dict[int, int]:
    return {node: zone for zone, members in zones.items() for node in members}


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(sizes, st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_copies_are_distinct_and_as_many_as_there_can_be(sizes: list[int], replicas: int) -> None:
    zones = zones_of(*sizes)
    for nodes in placed(zones, replicas, SLOTS[:20]):
        assert len(set(nodes)) == len(nodes) == min(replicas, sum(sizes))
        assert set(nodes) <= zone_of(zones).keys()


@given(sizes)
@settings(max_examples=60, deadline=None)
def test_three_copies_are_primary_successor_and_lateral(sizes: list[int]) -> None:
    zones = zones_of(*sizes)
    ring = TwoLevelRing(zones, SLICE_SIZE)
    where = zone_of(zones)
    for key, nodes in zip(SLOTS[:20], placed(zones, 3, SLOTS[:20]), strict=True):
        home, primary = ring.lookup(key)
        assert nodes[0] == primary
        successors = ring.zone_ring(zones[home]).successors(key, 3)
        if len(zones) == 1:
            assert list(nodes) == successors
            continue
        next_zone = ring.lateral(key)
        assert next_zone is not None
        lateral = ring.lateral_owner(zones[next_zone], nodes[0])
        if len(successors) > 1:
            assert nodes == (primary, successors[1], lateral)
        else:  # helped out by the following slices
            assert nodes[1] == lateral
            following = ring.zones_from(key, 3)
            assert len(nodes) < 3 or where[nodes[2]] == following[min(2, len(following) - 1)]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 5), (3, 1, 1), (2, 2)])
def test_losing_a_whole_zone_leaves_a_copy(sizes: tuple[int, ...]) -> None:
    zones = zones_of(*sizes)
    where = zone_of(zones)
    for nodes in placed(zones):
        assert len({where[node] for node in nodes}) >= 2


def test_more_than_three_alternate_between_the_zone_and_others() -> None:
    zones = zones_of(4, 4, 4)
    where = zone_of(zones)
    for nodes in placed(zones, 5):
        home = where[nodes[0]]
        assert [where[node] == home for node in nodes] == [True, True, False, True, False]
        assert where[nodes[2]] != where[nodes[4]], "each lateral replica in a zone of its own"


def test_nobody_there_means_no_copies() -> None:
    assert place(SLOTS[0], {}, 3, TwoLevelRing({})) == ()


@pytest.mark.parametrize("sizes", [(9,), (4, 4, 4), (7, 5, 3)])
def test_one_node_more_moves_about_its_share_of_the_primaries(sizes: tuple[int, ...]) -> None:
    zones = zones_of(*sizes)
    before = [nodes[0] for nodes in placed(zones)]
    zones[1] = [*zones[1], 1000]
    after = [nodes[0] for nodes in placed(zones)]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    share = 1 / (sum(sizes) + 1)
    # Some go to the newcomer from its own zone, others come to the zone, which is larger now.
    assert 0.5 * share < len(moved) / len(SLOTS) < 2.2 * share
    if len(sizes) == 1:
        assert set(moved) == {1000}, "nothing moves between those that stay"


@pytest.mark.parametrize("sizes", [(3,), (9,), (3, 3, 3), (4, 4, 4), (12, 12, 12, 12)])
def test_primaries_and_copies_are_spread_evenly(sizes: tuple[int, ...]) -> None:
    plan = placed(zones_of(*sizes))
    nodes = sum(sizes)
    primaries = Counter(nodes[0] for nodes in plan)
    copies = Counter(node for nodes in plan for node in nodes)
    assert len(primaries) == nodes
    assert max(primaries.values()) < 2.2 * len(SLOTS) / nodes
    assert max(copies.values()) < 2.2 * 3 * len(SLOTS) / nodes


def test_a_slot_is_not_placed_by_the_number_that_nodes_have_too() -> None:
    zones = zones_of(16)
    plan = placed(zones, 1)
    assert sum(plan[node] == (node,) for node in zones[1]) < 6
