"""Consistent hashing: THR-10, SPI-2, SPI-3."""

from __future__ import annotations

from hashlib import sha1
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.rings import EmptyRingError, Location, Ring, Tier, TwoLevelRing, halves, virtual_id

KEYS = [b"key-%d" % n for n in range(4000)]
members = st.lists(st.integers(1, 10_000), min_size=1, max_size=20, unique=True)


def test_the_halves_are_those_of_one_sha1_digest() -> None:
    digest = sha1(b"swell").digest()
    upper, zone = halves(b"swell")
    assert upper.to_bytes(10, "big") + zone.to_bytes(10, "big") == digest


def test_halves_are_independent() -> None:
    below = [[position < 1 << 79 for position in halves(key)] for key in KEYS]
    both = sum(upper and zone for upper, zone in below) / len(KEYS)
    assert both == pytest.approx(0.25, abs=0.03)


def test_storage_node_has_the_smallest_virtual_id_not_below_the_key_cyclically() -> None:
    ring = Ring([1, 2, 3, 4, 5], points=1)
    by_id = sorted((virtual_id(m, Tier.ZONE), m) for m in ring.members)
    assert ring.owner_at(0) == by_id[0][1]
    for (low, _), (high, member) in pairwise(by_id):
        assert ring.owner_at(low + 1) == member
        assert ring.owner_at(high) == member, "a key equal to the id belongs to it"
    assert ring.owner_at(by_id[-1][0] + 1) == by_id[0][1], "behind the last comes the first"


def test_an_empty_ring_says_so() -> None:
    with pytest.raises(EmptyRingError, match="nobody is on the ring"):
        Ring[int]([]).owner(b"key")


@given(members)
def test_members_learned_in_any_order_make_the_same_ring(ids: list[int]) -> None:
    forward, backward = Ring(ids, 8), Ring(ids[::-1], 8)
    assert [forward.owner(key) for key in KEYS[:50]] == [backward.owner(key) for key in KEYS[:50]]


@given(members, members)
def test_a_patched_ring_equals_a_new_one(before: list[int], after: list[int]) -> None:
    patched, new = Ring(before, 8).with_members(after), Ring(after, 8)
    assert patched._positions == new._positions
    assert patched._owners == new._owners


@given(members, st.integers(1, 25), st.binary(max_size=20))
def test_successors_are_distinct_and_begin_with_the_owner(
    ids: list[int], count: int, key: bytes
) -> None:
    ring = Ring(ids, 8)
    found = ring.successors(key, count)
    assert found[0] == ring.owner(key)
    assert len(found) == len(set(found)) == min(count, len(ids))
    without_owner = ring.with_members([m for m in ids if m != found[0]])
    if len(ids) > 1 and count > 1:
        assert without_owner.owner(key) == found[1], "the next one takes over"


@settings(max_examples=10)
@given(st.integers(5, 30))
def test_a_newcomer_moves_about_one_share_and_only_to_itself(size: int) -> None:
    old = Ring(range(size), 64)
    new = old.with_members(range(size + 1))
    moved = [key for key in KEYS if old.owner(key) != new.owner(key)]
    assert all(new.owner(key) == size for key in moved)
    assert 0.4 < len(moved) / len(KEYS) * (size + 1) < 1.7


def test_shares_add_up_and_match_the_keys() -> None:
    ring = Ring(range(10), 64)
    shares = ring.shares()
    assert sum(shares.values()) == pytest.approx(1.0)
    for member, share in shares.items():
        owned = sum(ring.owner(key) == member for key in KEYS) / len(KEYS)
        assert owned == pytest.approx(share, abs=0.025)


def test_slices_follow_the_size_of_zones() -> None:
    ring = TwoLevelRing({1: 8, 2: 9, 3: 64, 4: 0}, slice_size=8)
    assert [str(s) for s in ring.upper.members[:3]] == ["1:1", "2:1", "2:2"]
    assert [sum(s.zone == z for s in ring.upper.members) for z in (1, 2, 3, 4)] == [1, 2, 8, 0]
    share = sum(ring.zone(key) == 3 for key in KEYS) / len(KEYS)
    assert share == pytest.approx(8 / 11, abs=0.1)


def test_load_inside_a_zone_is_even_because_tiers_read_their_own_half() -> None:
    """The trap of THOR 4.1.3: keys of one zone share arcs of the upper half, not of the other."""
    zones = {z: list(range(100 * z, 100 * z + 10)) for z in range(1, 9)}
    ring = TwoLevelRing(zones, slice_size=10)
    nodes = [ring.lookup(key).node for key in KEYS if ring.zone(key) == 1]
    assert len(nodes) > 250
    assert {n for n in nodes if n is not None} == set(zones[1])
    assert max(nodes.count(n) for n in zones[1]) < 2 * len(nodes) / 10


@given(st.dictionaries(st.integers(1, 50), members, min_size=1, max_size=8), st.binary(max_size=16))
def test_lookup_serves_and_lateral_agree(zones: dict[int, list[int]], key: bytes) -> None:
    ring = TwoLevelRing(zones, points=4)
    location = ring.lookup(key)
    assert location == Location(ring.zone(key), ring.owner(zones[ring.zone(key)], key))
    assert [zone for zone in zones if ring.serves(zone, key)] == [location.zone]
    assert location.node in zones[location.zone]
    lateral = ring.lateral(key)
    if len(zones) == 1:
        assert lateral is None
    else:
        assert lateral in zones
        assert lateral != location.zone
        assert ring.zones_from(key, 2) == [location.zone, lateral]
        assert ring.lateral(key, zone=lateral) == location.zone
    assert sorted(ring.zones_from(key, 99)) == sorted(zones)


def test_a_zone_known_by_size_only_leaves_the_node_open() -> None:
    assert TwoLevelRing({7: 12}).lookup(b"key") == Location(7, None)


def test_losing_a_zone_moves_only_its_keys_and_to_the_lateral_zone() -> None:
    """SPI-4's premise: the copy lies where the key will be looked for."""
    zones = {z: 12 for z in range(1, 7)}
    whole = TwoLevelRing(zones)
    left = TwoLevelRing({z: n for z, n in zones.items() if z != 3})
    for key in KEYS[:500]:
        expected = whole.lateral(key) if whole.zone(key) == 3 else whole.zone(key)
        assert left.zone(key) == expected


def test_lateral_owner_owns_the_origin_as_if_it_were_a_key() -> None:
    ring = TwoLevelRing({1: [1, 2, 3], 2: [4, 5, 6]})
    assert ring.lateral_owner([4, 5, 6], 2) == ring.owner([4, 5, 6], b"2")


def test_the_cache_of_lookups_is_bounded() -> None:
    ring = TwoLevelRing({1: [1, 2, 3]}, cache_size=10)
    for key in KEYS[:100]:
        ring.lookup(key)
    ring.lookup(KEYS[99])
    assert ring.lookup.cache_info().currsize == 10
    assert ring.lookup.cache_info().hits == 1


def test_equal_views_share_one_ring() -> None:
    first, second = TwoLevelRing({1: 8, 2: 8}), TwoLevelRing({2: [9, 8, 7, 6, 5], 1: [1] * 7})
    assert first.upper is second.upper
