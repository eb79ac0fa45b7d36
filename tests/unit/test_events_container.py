"""What a feed writes down is what it has applied, whatever came in whatever order."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.bursts import open_burst
from swell.config.splices import Splice
from swell.container.documents import Update
from swell.container.feed import Feed
from swell.container.recording import FeedRecording, look_again
from swell.events import arrow
from swell.events.records import Applied, Span
from swell.events.rows import Collection
from swell.events.schema import Kind
from swell.simulation.recording import Recording
from swell.simulation.recording import recorded as recorded_by
from swell.world import World
from tests.unit.container_toys import (
    APP,
    CLUSTER,
    EVERYTHING,
    SEALED_US,
    ToyApplication,
    ToyCluster,
    key_of,
    public,
)
from tests.unit.test_container_feed import random_application

KEY = key_of(1)
PUBLIC = public(KEY)


class Ledger:
    """As much of a world as a recording needs."""

    def __init__(self) -> None:
        self.applied: list[Applied] = []

    def emit(self, event: Any) -> None:
        self.applied.append(event)

    @property
    def recorder(self) -> Ledger:
        return self

    @property
    def spans(self) -> list[Span]:
        return [one.span for one in self.applied]


def nothing(*arguments: object) -> None:
    """Nothing has to be fetched here."""


def recorded(*bugs: str, hold_max: int = 8) -> tuple[Feed, Ledger]:
    feed = Feed(APP, (), hold_max, nothing, Counter(), frozenset(bugs))
    return feed, record(feed, [feed])


def record(feed: Feed, siblings: list[Feed]) -> Ledger:
    ledger = Ledger()
    feed.recording = FeedRecording(cast(World, ledger), siblings)
    return ledger


def take(feed: Feed, data: bytes, peer: str = "n1") -> None:
    assert feed.recording is not None
    feed.recording.peer = peer
    feed.take(open_burst(data, CLUSTER, PUBLIC), data)


def edited(count: int, name: str = "a") -> ToyApplication:
    application = ToyApplication()
    application.put(name, b"0123456789" * 20)
    for number in range(count - 1):
        application.edit(name, Splice(number, 1, b"x"))
    return application


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_is_written_is_what_was_heard(seed: int) -> None:
    rng = Random(seed)
    application = random_application(rng, 40)
    here, ledger = recorded(hold_max=4)
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
        take(here, data)
    while here.at < 40:
        if rng.random() < 0.2:
            take(here, application.whole_burst(KEY, here.at))
        else:
            take(here, application.burst(KEY, here.at, min(40, here.at + rng.randint(1, 5))))
    by_name: dict[str, list[Update]] = {}
    for update in heard:
        by_name.setdefault(update.name, []).append(update)
    written: dict[str, list[Span]] = {}
    for span in ledger.spans:
        written.setdefault(span.name, []).append(span)
    for name, updates in by_name.items():
        versions = [n for span in written[name] for n in range(span.first, span.version + 1)]
        assert versions == [update.version for update in updates]
        found = {update.version: update for update in updates}
        for span in written[name]:
            last = found[span.version]
            assert (span.id, span.step, span.bytes) == (last.id, last.step, len(last.document))
            if span.first > 1 and span.first - 1 in found:
                assert span.base == found[span.first - 1].id
    assert set(written) == set(by_name)


def test_a_burst_is_one_range_and_all_share_it() -> None:
    application = edited(32)
    ledgers = []
    data = application.burst(KEY, 0, 32)
    for _ in range(3):
        here, ledger = recorded()
        take(here, data)
        ledgers.append(ledger)
    (span,) = ledgers[0].spans
    assert (span.first, span.version, span.step) == (1, 32, 32)
    assert all(ledger.spans[0] is span for ledger in ledgers)


def test_who_has_a_part_writes_the_rest() -> None:
    application = edited(10)
    here, ledger = recorded()
    take(here, application.burst(KEY, 0, 6))
    take(here, application.burst(KEY, 2, 10))
    assert [(span.first, span.version) for span in ledger.spans] == [(1, 6), (7, 10)]
    assert ledger.spans[1].base == ledger.spans[0].id


def test_what_waited_names_who_brought_it() -> None:
    application = edited(9)
    here, ledger = recorded()
    take(here, application.burst(KEY, 3, 6), "relay")
    take(here, application.burst(KEY, 6, 9), "other")
    assert ledger.applied == []
    take(here, application.burst(KEY, 0, 3), "n1")
    assert [one.peer for one in ledger.applied] == ["n1", "relay", "other"]


def test_feeds_of_one_container_write_a_version_once() -> None:
    application = edited(6)
    feeds: list[Feed] = []
    ledgers = []
    for _ in range(2):
        feeds.append(Feed(APP, (), 8, nothing, Counter(), frozenset()))
    for feed in feeds:
        ledgers.append(record(feed, feeds))
    take(feeds[0], application.burst(KEY, 0, 4))
    take(feeds[1], application.burst(KEY, 0, 6))
    take(feeds[0], application.burst(KEY, 4, 6))
    assert [(span.first, span.version) for span in ledgers[0].spans] == [(1, 4)]
    assert [(span.first, span.version) for span in ledgers[1].spans] == [(5, 6)]
    assert ledgers[1].spans[0].base == ledgers[0].spans[0].id


def test_a_feed_that_gets_a_sibling_writes_only_what_that_one_has_not() -> None:
    application = edited(6)
    feeds = [Feed(APP, (), 8, nothing, Counter(), frozenset()) for _ in range(2)]
    together = feeds[:1]
    ledger = record(feeds[0], together)
    take(feeds[0], application.burst(KEY, 0, 2))
    together.append(feeds[1])
    other = record(feeds[1], together)
    look_again(together)
    take(feeds[1], application.burst(KEY, 0, 4))
    take(feeds[0], application.burst(KEY, 2, 4))
    assert [(span.first, span.version) for span in other.spans] == [(3, 4)]
    together.remove(feeds[1])
    look_again(together)
    take(feeds[0], application.burst(KEY, 4, 6))
    assert [(span.first, span.version) for span in ledger.spans] == [(1, 2), (5, 6)]


def test_a_wrong_version_is_written_as_it_is() -> None:
    """With the check of bases taken out: the ids show it."""
    application = edited(9)
    here, ledger = recorded("no-base-check")
    take(here, application.burst(KEY, 0, 3))
    take(here, application.burst(KEY, 6, 9))
    assert [(span.first, span.version) for span in ledger.spans] == [(1, 3), (7, 9)]
    assert ledger.spans[1].base == ledger.spans[0].id
    assert ledger.spans[1].id == here.documents["a"].id
    right, right_ledger = recorded()
    take(right, application.burst(KEY, 0, 9))
    assert ledger.spans[1].id != right_ledger.spans[0].id


def test_a_life_that_goes_on_with_a_snapshot_says_so() -> None:
    into = Collection(1000, lambda piles: None)
    with recorded_by(Recording("run", into)):
        toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    processes = [toy.add("c1", keep=True), toy.add("c2")]
    toy.attached("c1", "c2")
    toy.run(0.2)
    for process in processes:
        process.crash()
        process.start()
    toy.attached("c1", "c2")
    starts = [
        row
        for kind, batch in arrow.batches(into.taken())
        for row in batch.to_pylist()
        if kind == Kind.START and row["role"] == "container"
    ]
    assert len(starts) == 5
    resumed = [row for row in starts if row["application"] is not None]
    told = [(row["node"], row["start"], row["row"], row["name"], row["step"]) for row in resumed]
    assert told == [("c1", 2, 2, None, 1)]


def test_rows_say_when_the_primary_sealed_the_burst() -> None:
    into = Collection(1000, lambda piles: None)
    with recorded_by(Recording("run", into)):
        toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    process = toy.add("c1", keep=True, automatic=False)
    toy.attached("c1")
    toy.run(0.2)

    def refuse() -> dict[Kind, list[dict[str, Any]]]:
        container = toy.containers["c1"]
        container.rejected(container.attaching.all[APP, EVERYTHING].feed, "a", 1, "no")
        return {kind: batch.to_pylist() for kind, batch in arrow.batches(into.taken())}

    found = refuse()
    sealed_at = datetime.fromtimestamp(SEALED_US / 1e6, UTC)
    assert [row["sent_at"] for row in found[Kind.APPLY]] == [sealed_at]
    assert [row["sent_at"] for row in found[Kind.REJECT]] == [sealed_at]
    process.crash()
    process.start()
    toy.attached("c1")
    toy.run(0.2)
    found = refuse()  # what an earlier life had
    assert Kind.APPLY not in found
    assert [(row["sequence"], row["sent_at"]) for row in found[Kind.REJECT]] == [(1, None)]
