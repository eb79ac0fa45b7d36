"""Delivery, the pure parts: interests, ranks, trees, proofs (RIP-7, RIP-8, RIP-20)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.delivery.interest import INTEREST_BYTES_MAX, matcher, problem
from swell.config.delivery.ranks import RANK_MAX, UNKNOWN, is_score, median_of, rank_of
from swell.config.delivery.trees import Bough, Candidate, Tree, grow, relays_needed, shares
from swell.config.messages import Level
from swell.config.proofs import aggregate, combined, proof


@pytest.mark.parametrize(
    ("interest", "name", "wanted"),
    [
        ((), "anything", True),
        (("a.json",), "a.json", True),
        (("a.json",), "a.jsonx", False),
        (("pay/*",), "pay/x", True),
        (("pay/*",), "pay", False),
        (("a.json", "pay/*"), "b.json", False),
        (("a.json", "pay/*"), "a.json", True),
        (("*",), "x", True),
    ],
)
def test_an_interest_matches_names_and_prefixes(
    interest: tuple[str, ...], name: str, wanted: bool
) -> None:
    assert not problem(interest)
    assert matcher(interest)(name) is wanted


@pytest.mark.parametrize(
    ("interest", "sentence"),
    [
        (("b", "a"), "sort"),
        (("a", "a"), "once"),
        (("a*b",), "prefixes"),
        (("x" * 512,) * 1, ""),
        (tuple(f"{n:05}" + "x" * 500 for n in range(INTEREST_BYTES_MAX // 505 + 1)), "allowed"),
    ],
)
def test_a_bad_interest_is_explained(interest: tuple[str, ...], sentence: str) -> None:
    assert sentence in problem(interest)
    assert bool(problem(interest)) is bool(sentence)


# Ranks.


def test_ranks_double_and_are_bounded() -> None:
    assert rank_of(0.0) == 0
    assert rank_of(1e-6) == 0
    assert rank_of(1e300) == RANK_MAX
    assert rank_of(2.5e-4) - rank_of(1.25e-4) == 1
    assert median_of([UNKNOWN, UNKNOWN]) == 0
    assert median_of([7, UNKNOWN, 1, 3]) == 3
    assert median_of([4, 2]) == 2


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(0.0, 1e30))
@settings(max_examples=50)
def test_ranks_grow_with_scores(odd: float, score: float) -> None:
    assert is_score(odd) is (math.isfinite(odd) and odd >= 0.0)
    assert 0 <= rank_of(score) <= rank_of(score * 1.5) <= rank_of(score) + 1


# Trees.

candidates = st.builds(Candidate, st.integers(0, 5), st.booleans(), st.booleans()).map(
    lambda one: one._replace(relays=one.relays and one.reachable)
)


def places(tree: Tree) -> list[int]:
    def below(bough: Bough) -> list[int]:
        return [bough.relay, *bough.leaves, *(p for b in bough.boughs for p in below(b))]

    return [*tree.direct, *(place for bough in tree.boughs for place in below(bough))]


def depth(bough: Bough) -> int:
    return 2 + max((depth(b) - 1 for b in bough.boughs), default=0)


def all_boughs(tree: Tree) -> list[Bough]:
    return [b for top in tree.boughs for b in (top, *top.boughs)]


@given(st.lists(candidates, max_size=90), st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=120)
def test_everybody_is_in_the_tree_once(
    group: list[Candidate], fanout: int, server_fanout: int
) -> None:
    (share,) = shares([len(group)], fanout, server_fanout)
    tree = grow(group, fanout, share)
    assert sorted(places(tree)) == list(range(len(group)))
    for bough in all_boughs(tree):
        assert len(bough.boughs) + len(bough.leaves) <= fanout
        assert group[bough.relay].relays
        assert all(group[leaf].reachable for leaf in bough.leaves)
    assert all(depth(bough) <= 3 for bough in tree.boughs)
    assert tree == grow(list(group), fanout, share)
    worst = max((group[b.relay].rank for b in all_boughs(tree)), default=-1)
    relays = {b.relay for b in all_boughs(tree)}
    assert all(one.rank >= worst for k, one in enumerate(group) if one.relays and k not in relays)


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=6), st.integers(2, 60))
@settings(max_examples=60)
def test_three_hops_are_enough_where_all_are_willing(sizes: list[int], fanout: int) -> None:
    parts = shares(sizes, fanout, 64)
    for size, share in zip(sizes, parts, strict=True):
        tree = grow([Candidate(0, True, True)] * size, fanout, share)
        assert not tree.direct or size <= 2
        assert share <= relays_needed(size, fanout)
    assert sum(parts) <= 64 or any(size > fanout * fanout for size in sizes)


def test_lists_are_even_and_in_order_of_names() -> None:
    group = [Candidate(1, True, True) for _ in range(122)]
    group[50] = group[100] = Candidate(0, True, True)
    tree = grow(group, 60, 2)
    assert [bough.relay for bough in tree.boughs] == [50, 100]
    assert [len(bough.leaves) for bough in tree.boughs] == [60, 60]
    assert tree.boughs[0].leaves == tuple(sorted(tree.boughs[0].leaves))


def test_small_groups_are_served_directly() -> None:
    assert grow([Candidate(0, True, True)] * 2, 60, 1) == Tree((), (0, 1))
    assert grow([Candidate(0, True, True)] * 3, 60, 1).boughs[0].leaves == (1, 2)


def test_five_thousand_take_three_levels_with_few_first_ones() -> None:
    assert shares([5000], 60, 64) == [64]
    assert shares([6000], 60, 64) == [64]
    tree = grow([Candidate(0, True, True)] * 6000, 60, 64)
    assert len(tree.boughs) == 64
    assert max(depth(bough) for bough in tree.boughs) == 3
    assert sorted(places(tree)) == list(range(6000))


# Proofs.


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=8, unique=True))
@settings(max_examples=40)
def test_the_primary_makes_the_same_proof(secrets: list[bytes]) -> None:
    burst = b"burst-id"
    level = int(Level.APPLIED)
    one_by_one = combined(proof(secret, burst, level) for secret in secrets)
    assert aggregate(secrets, burst, level) == one_by_one
    if secrets:
        assert aggregate(secrets[1:], burst, level) != one_by_one
        assert aggregate(secrets, burst, int(Level.DELIVERED)) != one_by_one
