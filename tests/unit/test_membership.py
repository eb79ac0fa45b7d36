"""The parts of membership that compute: order of news, suspicion, health, rumours, attributes."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import WireError
from swell.overlay.attributes import KEYS_MAX, AttributeLimitError, Attributes
from swell.overlay.awareness import Awareness
from swell.overlay.contact import Contact
from swell.overlay.membership_messages import (
    ATTRIBUTE_VALUE_BYTES_MAX,
    AttributeRumour,
    Gossip,
    MemberRumour,
    Ping,
    Rumours,
    State,
)
from swell.overlay.push_pull import push_pull_interval_s
from swell.overlay.roster import GRAVES_MAX, Record, Roster, supersedes
from swell.overlay.rumours import RUMOURS_MAX, RumourQueue, bundle, retransmit_limit
from swell.overlay.suspicion import expected_confirmations, suspicion_timeout_s
from swell.settings import MembershipSettings
from swell.wire import codec


def contact(number: int, epoch: int = 1) -> Contact:
    return Contact(number, f"n{number}", "here", "r1", 7, f"n{number}", 0, epoch)


def rumour(number: int, epoch: int, incarnation: int, state: State) -> MemberRumour:
    return MemberRumour(contact(number, epoch), incarnation, state, 9)


# The order of news.

ORDER = [
    (1, 0, State.ALIVE),
    (1, 0, State.SUSPECT),
    (1, 0, State.DEAD),
    (1, 0, State.LEFT),
    (1, 1, State.ALIVE),
    (1, 1, State.DEAD),
    (2, 0, State.ALIVE),
    (2, 0, State.SUSPECT),
]


@pytest.mark.parametrize("known", range(len(ORDER)))
@pytest.mark.parametrize("heard", range(len(ORDER)))
def test_only_greater_news_override(known: int, heard: int) -> None:
    epoch, incarnation, state = ORDER[known]
    record = Record(contact(3, epoch), incarnation, state, 3)
    news = rumour(3, *ORDER[heard])
    assert supersedes(news, news.state, record) == (heard > known)


def test_the_view_is_sorted_and_knows_its_graves() -> None:
    roster = Roster(contact(5))
    for number in (9, 2, 7):
        roster.add(Record(contact(number), 0, State.ALIVE, number))
        roster.enlist(number)
    assert [c.id for c in roster.contacts()] == roster.living == [2, 5, 7, 9]
    assert roster.peers == [2, 7, 9]

    roster.strike(7)
    roster.forget(7, now_s=100.0)
    assert roster.peers == [2, 9]
    assert roster.is_buried(rumour(7, 1, 0, State.ALIVE))
    assert not roster.is_buried(rumour(7, 1, 1, State.ALIVE)), "it refuted"
    assert not roster.is_buried(rumour(7, 2, 0, State.ALIVE)), "it restarted"
    roster.level(99.0)
    assert roster.is_buried(rumour(7, 1, 0, State.ALIVE))
    roster.level(100.0)
    assert not roster.graves


def test_graves_are_bounded() -> None:
    roster = Roster(contact(1))
    for number in range(2, GRAVES_MAX + 10):
        roster.add(Record(contact(number), 0, State.DEAD, 1))
        roster.forget(number, float(number))
    assert len(roster.graves) == GRAVES_MAX
    assert 9 not in roster.graves
    assert GRAVES_MAX + 9 in roster.graves


# Suspicion.


@pytest.mark.parametrize(
    ("multiplier", "members", "expected"),
    [(4, 2, 0), (4, 3, 0), (4, 4, 2), (4, 100, 2), (6, 5, 0), (6, 6, 4), (2, 50, 0), (1, 50, 0)],
)
def test_expected_confirmations(multiplier: int, members: int, expected: int) -> None:
    assert expected_confirmations(multiplier, members) == expected


@pytest.mark.parametrize(
    ("expected", "confirmations", "timeout_s"),
    [
        (0, 0, 2.0),
        (0, 3, 2.0),
        (1, 0, 30.0),
        (1, 1, 2.0),
        (3, 0, 30.0),
        (3, 1, 16.0),
        (3, 2, 30.0 - 28.0 * math.log(3) / math.log(4)),
        (3, 3, 2.0),
        (3, 4, 2.0),
    ],
)
def test_suspicion_shrinks_with_confirmations(
    expected: int, confirmations: int, timeout_s: float
) -> None:
    assert suspicion_timeout_s(2.0, 30.0, expected, confirmations) == pytest.approx(timeout_s)


@pytest.mark.parametrize(
    ("members", "minimum_s"), [(1, 4.0), (2, 4.0), (10, 4.0), (100, 8.0), (1000, 12.0)]
)
def test_shortest_suspicion(members: int, minimum_s: float) -> None:
    assert MembershipSettings().suspicion_min_s(members) == pytest.approx(minimum_s)


# Health.


def test_health_is_bounded_and_scales_waits() -> None:
    awareness = Awareness(score_max=8, lag_tolerance_s=0.25)
    awareness.note(-1)
    assert (awareness.score, awareness.patience_s(0.5)) == (0, 0.5)
    awareness.note(3)
    assert awareness.patience_s(0.5) == 2.0
    awareness.note(100)
    assert awareness.patience_s(1.0) == 9.0


@pytest.mark.parametrize(
    ("late_s", "waited_s", "stalled"),
    [(0.0, 0.0, False), (0.25, 0.5, False), (0.26, 0.5, True), (0.9, 4.0, False), (1.1, 4.0, True)],
)
def test_a_late_timer_is_a_stall(late_s: float, waited_s: float, stalled: bool) -> None:
    awareness = Awareness(score_max=8, lag_tolerance_s=0.25)
    assert awareness.stalled(late_s, waited_s) == stalled
    assert awareness.score == int(stalled)


# Rumours.


@pytest.mark.parametrize(
    ("members", "limit"), [(1, 4), (9, 4), (10, 8), (99, 8), (100, 12), (1000, 16)]
)
def test_retransmit_limit(members: int, limit: int) -> None:
    assert retransmit_limit(4, members) == limit


@pytest.mark.parametrize(
    ("members", "interval_s"), [(1, 30.0), (32, 30.0), (33, 60.0), (64, 60.0), (65, 90.0)]
)
def test_push_pull_interval(members: int, interval_s: float) -> None:
    assert push_pull_interval_s(30.0, members) == interval_s


def test_a_newer_rumour_replaces_the_older_one() -> None:
    queue = RumourQueue(Counter())
    queue.add_member(rumour(3, 1, 0, State.SUSPECT))
    queue.add_member(rumour(3, 1, 1, State.ALIVE))
    assert bundle(queue.pick(8, 1400)).members == (rumour(3, 1, 1, State.ALIVE),)


def test_a_rumour_goes_to_each_member_once_and_only_so_often() -> None:
    queue = RumourQueue(Counter())
    queue.add_member(rumour(3, 1, 0, State.DEAD))
    queue.echo(rumour(3, 1, 0, State.DEAD), (3, ""), 4)
    assert queue.pick(3, 1400) == [], "its subject"
    assert queue.pick(4, 1400) == [], "who told us"
    queue.passed_on(queue.pick(5, 1400), 5, limit=2)
    assert queue.pick(5, 1400) == []
    queue.passed_on(queue.pick(6, 1400), 6, limit=2)
    assert len(queue) == 0


def test_what_everybody_has_or_nobody_takes_is_given_up() -> None:
    queue = RumourQueue(Counter())
    queue.add_member(rumour(3, 1, 0, State.ALIVE))
    queue.passed_on(queue.pick(4, 1400), 4, limit=9)
    queue.tick([3, 4, 5], limit=9)
    assert len(queue) == 1
    queue.tick([3, 4], limit=9)
    assert len(queue) == 0

    queue.add_member(rumour(3, 1, 0, State.ALIVE))
    for _ in range(20):
        queue.tick([3, 4], limit=4)
    assert len(queue) == 1
    queue.tick([3, 4], limit=4)
    assert len(queue) == 0


def test_least_often_sent_first_within_the_budget() -> None:
    queue = RumourQueue(Counter())
    for number in (3, 4, 5):
        queue.add_member(rumour(number, 1, 0, State.ALIVE))
    size_bytes = queue.pick(8, 1400)[0].size_bytes
    assert size_bytes == len(msgspec.msgpack.encode(rumour(3, 1, 0, State.ALIVE)))
    first = queue.pick(8, 2 * size_bytes)
    assert [entry.subject[0] for entry in first] == [3, 4]
    queue.passed_on(first, 8, limit=9)
    assert [entry.subject[0] for entry in queue.pick(9, 2 * size_bytes)] == [5, 3]


def test_the_queue_is_bounded_and_counts_what_it_drops() -> None:
    counters: Counter[str] = Counter()
    queue = RumourQueue(counters)
    for number in range(RUMOURS_MAX + 5):
        queue.add_member(rumour(number, 1, 0, State.ALIVE))
    assert len(queue) == RUMOURS_MAX
    assert counters["rumour-queue-full"] == 5


# Attributes.


def pair() -> tuple[Attributes, Attributes, Counter[str]]:
    """The owner 1, and 2 who knows it."""
    counters: Counter[str] = Counter()
    owner = Attributes(1, 1, Counter())
    other = Attributes(2, 1, counters)
    other.begin_life(1, 1)
    return owner, other, counters


def set_(owner: Attributes, key: str, value: bytes) -> AttributeRumour:
    rumour = owner.set_mine(key, value)
    assert rumour is not None
    return rumour


def test_the_highest_version_wins_in_any_order() -> None:
    owner, other, _ = pair()
    old, new = set_(owner, "k", b"old"), set_(owner, "k", b"new")
    assert other.hear(new, sender=3)
    assert not other.hear(old, sender=3)
    assert not other.hear(new, sender=1)
    assert other.get(1, "k") == b"new"
    assert owner.set_mine("k", b"new") is None, "no change, no rumour"


def test_a_removal_wins_over_late_values() -> None:
    owner, other, _ = pair()
    value, removal = set_(owner, "k", b"v"), set_(owner, "k", b"")
    assert other.hear(removal, sender=3)
    assert not other.hear(value, sender=3)
    assert other.get(1, "k") is None
    assert other.values(1) == []


def test_the_owners_digest_ends_removals_for_ever() -> None:
    owner, other, _ = pair()
    gone, stays = set_(owner, "gone", b"v"), set_(owner, "stays", b"v")
    other.hear(gone, sender=1)
    other.hear(stays, sender=1)
    set_(owner, "gone", b"")
    digest = owner.digest(1)
    assert digest is not None
    assert other.settle(digest) == ["gone"]
    assert not other.hear(gone, sender=3), "a third party is behind"
    assert len(other) == 1, "no tombstone is kept"
    assert other.get(1, "stays") == b"v"


def test_digests_find_exactly_what_is_missing() -> None:
    owner, other, _ = pair()
    other.hear(set_(owner, "a", b"1"), sender=1)
    b = set_(owner, "b", b"2")
    digest = other.digest(1)
    assert digest is not None
    assert list(owner.missing_from([digest], [1])) == [b]
    assert list(owner.missing_from([], [1])) == [
        AttributeRumour(1, 1, "a", 1, b"1"),
        b,
    ]
    other.hear(b, sender=1)
    complete = other.digest(1)
    assert complete is not None
    assert list(owner.missing_from([complete], [1])) == []


def test_a_listed_value_that_is_missing_comes_from_its_owner() -> None:
    owner, other, _ = pair()
    value = set_(owner, "k", b"v")
    digest = owner.digest(1)
    assert digest is not None
    other.settle(digest)
    held = other.digest(1)
    assert held is not None
    assert list(owner.missing_from([held], [1])) == [value]
    assert other.hear(value, sender=1)
    assert other.get(1, "k") == b"v"


def test_a_new_life_starts_empty() -> None:
    owner, other, counters = pair()
    value = set_(owner, "k", b"v")
    other.hear(value, sender=1)
    assert other.begin_life(1, 2) == ["k"]
    assert other.get(1, "k") is None
    assert not other.hear(value, sender=1)
    assert counters["attribute-unknown-life"] == 1
    other.forget(1)
    assert (len(other), other.sheets) == (0, 1)


def test_own_limits_are_told_in_a_sentence() -> None:
    owner, _, _ = pair()
    with pytest.raises(AttributeLimitError, match="at or below 65536"):
        owner.set_mine("k", bytes(ATTRIBUTE_VALUE_BYTES_MAX + 1))
    with pytest.raises(AttributeLimitError, match="1 to 63 characters"):
        owner.set_mine("k" * 64, b"v")
    for number in range(KEYS_MAX):
        owner.set_mine(f"k{number}", b"v")
    with pytest.raises(AttributeLimitError, match="remove another"):
        owner.set_mine("more", b"v")


def test_foreign_keys_are_bounded_and_removals_give_way() -> None:
    _, other, counters = pair()
    for number in range(KEYS_MAX):
        value = b"" if number < 2 else b"v"
        other.hear(AttributeRumour(1, 1, f"k{number}", number + 1, value), sender=3)
    assert other.hear(AttributeRumour(1, 1, "a", 100, b"v"), sender=3)
    assert other.hear(AttributeRumour(1, 1, "b", 101, b"v"), sender=3)
    assert not other.hear(AttributeRumour(1, 1, "c", 102, b"v"), sender=3)
    assert counters["attribute-keys-full"] == 1
    assert len(other) == KEYS_MAX


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"", b"1", b"2"])), max_size=12),
    st.randoms(use_true_random=False),
)
def test_any_order_of_rumours_and_a_digest_agree_with_the_owner(changes, rng) -> None:  # type: ignore[no-untyped-def]
    owner, other, _ = pair()
    rumours = [r for key, value in changes if (r := owner.set_mine(key, value)) is not None]
    rng.shuffle(rumours)
    for heard in rumours[: len(rumours) // 2]:
        other.hear(heard, sender=3)
    digest = owner.digest(1)
    if digest is not None:
        other.settle(digest)
        held = other.digest(1)
        for missing in owner.missing_from([held] if held is not None else [], [1]):
            other.hear(missing, sender=1)
    for heard in rumours[len(rumours) // 2 :]:
        other.hear(heard, sender=3)
    assert other.values(1) == owner.values(1)


# The wire.


def test_messages_survive_the_wire() -> None:
    news = Rumours((rumour(3, 1, 0, State.SUSPECT),), (AttributeRumour(3, 1, "key", 4, b"value"),))
    assert codec.decode(codec.encode(Ping(7, news))) == Ping(7, news)
    assert codec.decode(codec.encode(Ping(7))) == Ping(7)


@pytest.mark.parametrize(
    "bad",
    [
        AttributeRumour(1, 1, "k", 1, bytes(ATTRIBUTE_VALUE_BYTES_MAX + 1)),
        AttributeRumour(1, 1, "k" * 64, 1, b""),
        AttributeRumour(1, 1, "", 1, b""),
        AttributeRumour(1, 1, "k", -1, b""),
    ],
)
def test_what_breaks_a_limit_is_refused_by_the_codec(bad: AttributeRumour) -> None:
    with pytest.raises(WireError, match="bad-body"):
        codec.decode(codec.encode(Gossip(Rumours(attributes=(bad,)))))
