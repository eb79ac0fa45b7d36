"""Which zone newcomers join: THOR's rules of 3.1 and 3.4 (THR-3, THR-6)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.directory.assignment import (
    OVERFULL_FACTOR,
    Arrival,
    assign,
    fill,
    partition,
    pool_of,
    zones_to_create,
)

SIZE = 10

sizes_of = st.dictionaries(st.integers(1, 99), st.integers(0, 2 * SIZE), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("sizes", "arriving", "created"),
    [
        ([], 1, 1),
        ([], SIZE, 1),
        ([], SIZE + 1, 2),
        ([], 100, 10),
        ([6], 1, 0),
        ([SIZE], 1, 0),
        ([SIZE], SIZE // 2 - 1, 0),
        ([SIZE], SIZE // 2, 1),
        ([5, 5], SIZE, 0),
        ([5, 5], SIZE + 1, 1),
        ([SIZE, SIZE], 25, 3),
        ([2 * SIZE - 1], 1, 0),
        ([2 * SIZE], 1, 1),
        ([2 * SIZE, 2 * SIZE], 3, 1),
        ([2 * SIZE], 6, 1),
    ],
)
def test_half_of_optimal_rule(sizes: list[int], arriving: int, created: int) -> None:
    assert zones_to_create(sizes, arriving, SIZE) == created


@given(st.lists(st.integers(0, 3 * SIZE), max_size=6), st.integers(1, 60))
def test_no_zone_is_created_empty_and_none_overflows_by_a_batch(
    sizes: list[int], arriving: int
) -> None:
    created = zones_to_create(sizes, arriving, SIZE)
    zones = dict(enumerate([*sizes, *[0] * created], start=1))
    gets = fill(zones, arriving)
    new = range(len(sizes) + 1, len(zones) + 1)
    assert all(gets[zone] > 0 for zone in new)
    if created:
        assert all(zones[zone] + gets[zone] <= SIZE for zone in zones if gets[zone])
    else:
        assert min(sizes) < OVERFULL_FACTOR * SIZE


def test_a_single_arrival_goes_to_the_smallest_zone() -> None:
    assert fill({1: 7, 2: 6, 3: 9}, 1) == {1: 0, 2: 1, 3: 0}
    assert fill({4: 6, 2: 6}, 1) == {4: 0, 2: 1}


@given(sizes_of, st.integers(0, 60))
def test_a_batch_makes_zones_equal(sizes: dict[int, int], arriving: int) -> None:
    gets = fill(sizes, arriving)
    assert sum(gets.values()) == arriving
    after = {zone: sizes[zone] + gets[zone] for zone in sizes}
    touched = [after[zone] for zone in sizes if gets[zone]]
    if touched:
        assert max(touched) - min(after.values()) <= 1


@given(
    sizes_of,
    st.lists(st.sampled_from("pqrs"), max_size=40),
    st.sampled_from(["arrival", "rack-local", "rack-spread"]),
)
def test_every_policy_keeps_the_numbers(
    sizes: dict[int, int], racks: list[str], policy: str
) -> None:
    gets = fill(sizes, len(racks))
    arrivals = [Arrival(f"n{k}", rack) for k, rack in enumerate(racks)]
    chosen = assign(arrivals, gets, {}, policy)
    assert Counter(chosen.values()) == Counter({z: n for z, n in gets.items() if n})
    assert list(sorted(chosen)) == sorted(a.name for a in arrivals)


def racks_of(policy: str) -> dict[int, Counter[str]]:
    arrivals = [Arrival(f"n{k}", "pqrs"[k % 4]) for k in range(16)]
    chosen = assign(arrivals, fill({1: 0, 2: 0, 3: 0, 4: 0}, 16), {}, policy)
    racks: dict[int, Counter[str]] = {zone: Counter() for zone in range(1, 5)}
    for arrival in arrivals:
        racks[chosen[arrival.name]][arrival.rack] += 1
    return racks


def test_rack_local_puts_a_rack_into_a_zone() -> None:
    assert all(len(racks) == 1 for racks in racks_of("rack-local").values())


def test_rack_spread_puts_every_rack_into_every_zone() -> None:
    assert all(set(racks.values()) == {1} for racks in racks_of("rack-spread").values())


def test_policies_look_at_who_is_there_already() -> None:
    racks = {1: Counter("p"), 2: Counter("q")}
    one = [Arrival("n", "p")]
    assert assign(one, {1: 1, 2: 1}, racks, "rack-local") == {"n": 1}
    assert assign(one, {1: 1, 2: 1}, racks, "rack-spread") == {"n": 2}
    assert assign(one, {1: 1, 2: 1}, racks, "arrival") == {"n": 1}


@given(
    st.lists(st.integers(1, 500), unique=True, max_size=120),
    st.lists(st.integers(1, 99), unique=True, min_size=1, max_size=14),
)
def test_bootstrap_lists_are_an_even_partition(zones: list[int], members: list[int]) -> None:
    dealt = partition(zones, members)
    assert sorted(zone for part in dealt.values() for zone in part) == sorted(zones)
    lengths = [len(part) for part in dealt.values()]
    assert len(lengths) == len(members)
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("site", "region", "arriving", "pool"),
    [
        ("edge1", "", 1, "edge1"),
        ("edge1", "west", 1, "region:west"),
        ("edge1", "west", SIZE // 2, "edge1"),
        ("big", "west", 1, "big"),
    ],
)
def test_small_sites_of_a_region_share_zones(
    site: str, region: str, arriving: int, pool: str
) -> None:
    assert pool_of(site, region, arriving, {"big": 1}, SIZE) == pool
