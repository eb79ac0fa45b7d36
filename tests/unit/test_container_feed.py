"""A feed takes bursts in any order, as often as they come, and ends up with the right documents."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.bursts import open_burst
from swell.config.content import Content
from swell.config.splices import Splice
from swell.container.changes import Ready
from swell.container.documents import PLAIN_BYTES_MAX, Update
from swell.container.feed import Feed
from swell.errors import WireError
from tests.unit.container_toys import APP, CLUSTER, ToyApplication, key_of, public, values

KEY = key_of(1)
PUBLIC = public(KEY)


class Fetches:
    """Asked for, and answered when the test says so."""

    def __init__(self) -> None:
        self.open: list[tuple[Feed, Ready, Content | None]] = []

    def __call__(self, feed: Feed, change: Ready, mine: Content | None) -> None:
        self.open.append((feed, change, mine))


def feed(*bugs: str, hold_max: int = 8, fetch: Fetches | None = None) -> Feed:
    return Feed(APP, (), hold_max, fetch or Fetches(), Counter(), frozenset(bugs))


def take(one: Feed, data: bytes) -> bool:
    return one.take(open_burst(data, CLUSTER, PUBLIC), data)


def random_application(rng: Random, steps: int) -> ToyApplication:
    application = ToyApplication()
    names = ["a.json", "b", "c"]
    for _ in range(steps):
        name = rng.choice(names)
        head = application.heads.get(name)
        kind = rng.random()
        if head is None or kind < 0.15 or not len(head[2]):
            application.put(name, rng.randbytes(rng.choice([0, 10, 300, PLAIN_BYTES_MAX + 9])))
        elif kind < 0.25:
            application.delete(name)
        else:
            length = len(head[2])
            first = rng.randrange(length)
            splices = [Splice(first, rng.randint(0, min(9, length - first)), rng.randbytes(5))]
            if rng.random() < 0.5 and first + 20 < length:
                splices.append(Splice(first + 15, 2, b"two"))
            application.edit(name, *splices)
    return application


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_duplicated_reordered_and_dropped_bursts_with_repair(seed: int) -> None:
    rng = Random(seed)
    application = random_application(rng, 40)
    here = feed(hold_max=4)
    heard: list[Update] = []
    here.hear = heard.append
    cuts = sorted({0, 40, *(rng.randrange(41) for _ in range(12))})
    bursts = [application.burst(KEY, a, b) for a, b in pairwise(cuts)]
    bursts += [
        application.burst(KEY, after, rng.randint(after + 1, 40))
        for after in (rng.randrange(40) for _ in range(4))
    ]
    rng.shuffle(bursts)
    for data in bursts:
        at = here.at
        for _ in range(rng.choice([0, 1, 1, 2])):
            take(here, data)
        assert here.at >= at
        assert values(here.documents) == application.states[here.at]
    repair = application.whole_burst if rng.random() < 0.5 else application.burst
    assert take(here, repair(KEY, here.at))
    assert here.at == 40
    assert not here.behind
    assert values(here.documents) == application.states[-1]
    assert [u.step for u in heard] == sorted(u.step for u in heard)
    for name in application.heads:
        versions = [u.version for u in heard if u.name == name]
        assert versions == sorted(set(versions))
        assert heard[-1].id == here.documents[heard[-1].name].id
    ids = {(c.name, c.version): c.id for s in application.steps for c in s.changes}
    assert all(ids[u.name, u.version] == u.id for u in heard)


def test_what_comes_early_is_held_bounded_and_applied_when_the_gap_closes() -> None:
    application = ToyApplication()
    application.put("a", b"0123456789")
    for k in range(9):
        application.edit("a", Splice(k, 1, b"x"))
    here = feed(hold_max=4)
    for after in range(4, 10):
        assert not take(here, application.burst(KEY, after, after + 1))
    assert here.behind
    assert len(here.held) == 4
    assert take(here, application.burst(KEY, 0, 6))
    assert here.at == 10
    assert not here.held
    assert values(here.documents) == application.states[-1]


def test_a_delta_of_another_base_is_not_applied_and_the_document_is_mended() -> None:
    application, other = ToyApplication(), ToyApplication()
    for one, start in ((application, b"right"), (other, b"wrong")):
        one.put("a", start)
        one.put("b", b"both")
        one.edit("a", Splice(0, 1, b"R"))
    here = feed()
    heard: list[Update] = []
    here.hear = heard.append
    take(here, other.burst(KEY, 0, 2))
    assert not take(here, application.burst(KEY, 2, 3))
    assert here.behind
    assert here.at == 0
    assert here.documents["a"].bytes() == b"wrong"  # what was shown stays until it is replaced
    assert take(here, application.burst(KEY, 0, 3))
    assert values(here.documents) == application.states[-1]
    assert [(u.name, u.version) for u in heard] == [("a", 1), ("b", 1), ("a", 2)]


def test_a_value_grows_beyond_plain_bytes_and_stays_right() -> None:
    application = ToyApplication()
    application.put("a", b"x" * (PLAIN_BYTES_MAX - 4))
    for k in range(20):
        application.edit("a", Splice(k * 7, 1, b"yyyy"))
    here = feed()
    assert take(here, application.burst(KEY, 0))
    assert isinstance(here.documents["a"].content, Content)
    assert values(here.documents) == application.states[-1]


def test_a_fetched_value_holds_back_its_step_and_those_behind() -> None:
    application = ToyApplication()
    application.put("b", b"1")
    application.fetchable("a", b"long" * 50_000)
    application.edit("a", Splice(4, 0, b"er"))
    fetches = Fetches()
    here = feed(fetch=fetches)
    assert not take(here, application.burst(KEY, 0, 2))
    assert not take(here, application.burst(KEY, 2, 3))
    assert here.at == 0
    assert not here.behind  # it is being brought
    ((_, change, mine),) = fetches.open
    assert mine is None
    here.on_fetched(change, Content.of(b"long" * 50_000))
    assert here.at == 3
    assert values(here.documents) == application.states[-1]


def test_a_value_that_cannot_be_fetched_is_asked_for_again() -> None:
    application = ToyApplication()
    application.fetchable("a", b"one" * 50_000)
    fetches = Fetches()
    here = feed(fetch=fetches)
    take(here, application.burst(KEY, 0))
    here.on_fetched(fetches.open[0][1], None)
    assert here.behind
    assert not here.held
    application.fetchable("a", b"two" * 50_000)
    take(here, application.burst(KEY, 1))  # does not join on
    take(here, application.whole_burst(KEY, 0))
    assert values(here.documents) == application.states[-1]


def test_a_burst_that_contradicts_itself_is_refused() -> None:
    application = ToyApplication()
    application.put("a", b"1")
    application.edit("a", Splice(0, 1, b"2"))
    application.steps.reverse()
    with pytest.raises(WireError, match="bad-change"):
        take(feed(), application.burst(KEY, 0))


def test_a_name_that_was_deleted_long_ago_may_begin_anew() -> None:
    application = ToyApplication()
    application.put("a", b"1")
    application.delete("a")
    here = feed()
    take(here, application.burst(KEY, 0))
    assert here.documents["a"].deleted
    del application.heads["a"]  # the cluster has forgotten it
    application.put("a", b"new")
    assert take(here, application.burst(KEY, 2))
    assert (here.documents["a"].version, here.documents["a"].bytes()) == (1, b"new")


@pytest.mark.parametrize("bug", ["no-base-check", "no-hold"])
def test_planted_bugs_show(bug: str) -> None:
    application = ToyApplication()
    application.put("a", b"0123456789")
    application.edit("a", Splice(0, 1, b"x"))
    application.edit("a", Splice(1, 1, b"y"))
    here = feed(bug)
    take(here, application.burst(KEY, 0, 1))
    assert take(here, application.burst(KEY, 2, 3))  # early, and yet
    assert here.at == 3
    assert values(here.documents) != application.states[3]
    assert here.documents["a"].id != application.heads["a"][1]
