"""Who hands a link to whom, and who recovers which zone: pure functions (THOR 3.3, 3.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.overlay.attributes import ATTRIBUTE_VALUE_BYTES_MAX
from swell.overlay.mesh import disjoint_ways
from swell.overlay.rebalancing import transfers
from swell.overlay.recovery import shares
from swell.overlay.view import View, ZoneInfo, decode_view, encode_view

loads_of = st.dictionaries(st.integers(1, 40), st.integers(0, 30), min_size=1, max_size=14)


@pytest.mark.parametrize(
    ("loads", "pairs"),
    [
        ({1: 3}, {}),
        ({1: 3, 2: 3}, {}),
        ({1: 3, 2: 2}, {}),
        ({1: 3, 2: 1}, {1: 2}),
        ({1: 0, 2: 5, 3: 5, 4: 0}, {2: 4, 3: 1}),
        ({1: 9, 2: 0, 3: 0}, {1: 2}),
        ({1: 2, 2: 1, 3: 0}, {1: 3}),
    ],
)
def test_the_most_loaded_hand_to_the_least_loaded(
    loads: dict[int, int], pairs: dict[int, int]
) -> None:
    assert transfers(loads) == pairs


@given(loads_of)
def test_repeated_transfers_even_out(loads: dict[int, int]) -> None:
    total = sum(loads.values())
    for _ in range(sum(loads.values()) + 1):
        pairs = transfers(loads)
        assert len({*pairs, *pairs.values()}) == 2 * len(pairs), "a node is in one pair at most"
        for old, new in pairs.items():
            assert loads[old] - loads[new] >= 2
            loads[old] -= 1
            loads[new] += 1
        if not pairs:
            break
    assert max(loads.values()) - min(loads.values()) <= 1
    assert sum(loads.values()) == total


@given(loads_of, st.randoms(use_true_random=False))
def test_every_member_computes_the_same_transfers(loads: dict[int, int], rng: object) -> None:
    items = list(loads.items())
    rng.shuffle(items)  # type: ignore[attr-defined]
    assert transfers(dict(items)) == transfers(loads)
    assert shares(range(5), dict(items)) == shares(range(5), loads)


@given(loads_of, st.lists(st.integers(1, 99), unique=True, max_size=60))
def test_lost_zones_are_dealt_to_the_least_loaded(loads: dict[int, int], lost: list[int]) -> None:
    dealt = shares(lost, loads)
    assert list(dealt) == lost
    after = dict(loads)
    for member in dealt.values():
        assert after[member] == min(after.values())
        after[member] += 1


@pytest.mark.parametrize(
    ("hops", "entries", "ways"),
    [
        ({}, {}, 0),
        ({5: 2}, {6: 9}, 0),
        ({5: 2, 6: 3}, {5: 9, 6: 8}, 2),
        ({5: 2, 6: 2}, {5: 9, 6: 8}, 1),
        ({5: 2, 6: 3}, {5: 9, 6: 9}, 1),
        ({5: 1, 6: 1}, {5: 9, 6: 8}, 2),
        ({5: 2, 6: 3}, {5: 20, 6: 20}, 2),
        ({5: 2, 6: 2, 7: 3}, {5: 9, 6: 8, 7: 9}, 2),
    ],
    ids=["nothing", "no-common", "two", "same-hop", "same-entry", "source", "target", "augment"],
)
def test_mesh_paths_share_no_node(hops: dict[int, int], entries: dict[int, int], ways: int) -> None:
    chosen = disjoint_ways(hops, entries, source=1, target=20)
    assert len(chosen) == ways
    firsts = [hops[zone] for zone in chosen if hops[zone] != 1]
    lasts = [entries[zone] for zone in chosen if entries[zone] != 20]
    assert len(set(firsts)) == len(firsts)
    assert len(set(lasts)) == len(lasts)


def test_a_view_of_the_largest_overlay_fits_an_attribute() -> None:
    zones = tuple(ZoneInfo(k, f"site-{k % 40}", 87) for k in range(1, 3743))
    view = View(7, zones)
    assert len(encode_view(view)) < ATTRIBUTE_VALUE_BYTES_MAX // 2
    assert decode_view(encode_view(view)) == view
