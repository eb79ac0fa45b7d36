"""What a container keeps and asks for is bounded, whatever the cluster and its siblings send."""

from __future__ import annotations

from collections import Counter

import pytest

from swell.config import bursts
from swell.config import messages as m
from swell.config import operations as ops
from swell.config.bursts import Shared, StepChanges, open_burst
from swell.config.content import Content
from swell.container.changes import Ready
from swell.container.feed import DELETED_MAX, Feed
from swell.container.fetching import FETCHES_MAX, READS_MAX
from swell.container.lists import ENTRIES_MAX, ListCache
from swell.container.receipts import UNJUDGED_MAX, Receipts
from swell.errors import WireError
from swell.overlay.messages import LinkKind
from tests.unit.container_toys import APP, CLUSTER, ToyApplication, ToyCluster, key_of, public
from tests.unit.container_toys import values as values_of

KEY = key_of(1)
LONG = b"long" * 20_000


class Fetches:
    """Asked for, and answered when the test says so."""

    def __init__(self) -> None:
        self.open: list[Ready] = []

    def __call__(self, feed: Feed, change: Ready, mine: object) -> None:
        self.open.append(change)


def take(feed: Feed, data: bytes) -> bool:
    return feed.take(open_burst(data, CLUSTER, public(KEY)), data)


def test_what_was_fetched_is_kept_when_another_value_cannot_be_had() -> None:
    application = ToyApplication()
    for name in "abc":
        application.fetchable(name, LONG + name.encode())
    fetches = Fetches()
    here = Feed(APP, (), 8, fetches, Counter())
    take(here, application.burst(KEY, 0))
    a, b, c = fetches.open
    here.on_fetched(a, Content.of(LONG + b"a"))
    here.on_fetched(b, None)
    here.on_fetched(c, Content.of(LONG + b"c"))
    assert here.behind
    fetches.open.clear()
    application.fetchable("b", LONG)
    application.steps[1] = StepChanges(2, ())  # replaced by the later value
    take(here, application.burst(KEY, 0))
    assert [(one.name, one.version) for one in fetches.open] == [("b", 2)]
    here.on_fetched(fetches.open[0], Content.of(LONG))
    assert values_of(here.documents) == application.states[-1]
    assert not here._fetched


def test_a_few_values_are_fetched_at_a_time_and_all_in_the_end() -> None:
    toy = ToyCluster()
    toy.add("c1")
    toy.attached("c1")
    for k in range(60):
        toy.application.fetchable(f"n{k}", LONG + b"%d" % k)
    node = toy.node()
    node.reads_open = []
    burst = node.deliver("c1", toy.application.burst(node.key, 0))
    most = 0
    for _ in range(400):
        toy.run(0.01)
        most = max(most, len(node.reads_open))
        node.answer_reads()
    assert 1 < most <= FETCHES_MAX * READS_MAX
    feed = next(iter(toy.containers["c1"].attaching.all.values())).feed
    assert values_of(feed.documents) == toy.application.states[-1]
    assert node.of(burst)


def test_one_value_that_cannot_be_had_does_not_cost_the_others() -> None:
    toy = ToyCluster()
    toy.add("c1")
    toy.attached("c1")
    for k in range(20):
        toy.application.fetchable(f"n{k}", LONG + b"%d" % k)
    node = toy.node()
    node.unknown = "n3"
    toy.run(30.0)
    toy.application.put("n3", b"short")  # its first version is not kept any more
    toy.application.steps[3] = StepChanges(4, ())
    node.unknown = ""
    toy.run(30.0)
    feed = next(iter(toy.containers["c1"].attaching.all.values())).feed
    assert values_of(feed.documents) == toy.application.states[-1]
    requests = [ops.decode(execute.body) for execute in node.executed]
    leaves = [one for one in requests if isinstance(one, ops.GetLeaves) and not one.start]
    asked = Counter(one.name for one in leaves)
    assert asked.pop("n3") > 1
    assert set(asked.values()) == {1}


def test_the_last_deleted_names_are_remembered_and_no_others() -> None:
    application = ToyApplication()
    here = Feed(APP, (), 8, Fetches(), Counter())
    receipts = Receipts(here, False, Counter())
    here.hear = receipts.on_update
    application.put("stays", b"1")
    for k in range(DELETED_MAX + 50):
        application.put(f"n{k}", b"1")
        application.delete(f"n{k}")
        if k % 100 == 99:
            take(here, application.burst(KEY, here.at))
            for one in list(here.documents.values()):
                receipts.accept(one.name, one.version)
    take(here, application.burst(KEY, here.at))
    for one in list(here.documents.values()):
        receipts.accept(one.name, one.version)
    assert len(here.documents) == DELETED_MAX + 1
    assert "n0" not in here.documents
    assert here.documents[f"n{DELETED_MAX + 49}"].deleted
    assert len(receipts._accepted) == 1
    assert not receipts._judged
    # A name that was forgotten may come again, and one that came again is not forgotten.
    del application.heads["n0"]
    application.put("n0", b"new")
    application.put("n60", b"again")
    for k in range(DELETED_MAX):
        application.put(f"m{k}", b"1")
        application.delete(f"m{k}")
    take(here, application.burst(KEY, here.at))
    assert values_of(here.documents) == application.states[-1]


def test_judgements_of_other_names_do_not_pile_up_behind_one_that_is_never_judged() -> None:
    application = ToyApplication()
    here = Feed(APP, (), 8, Fetches(), Counter())
    receipts = Receipts(here, False, Counter())
    here.hear = receipts.on_update
    for k in range(3):
        application.put("never", b"%d" % k)
        for n in range(UNJUDGED_MAX // 2 + 100):
            application.put(f"n{k}.{n}", b"1")
        take(here, application.burst(KEY, here.at))
        for one in list(here.documents.values()):
            if one.name != "never":
                receipts.accept(one.name, one.version)
    assert len(receipts._judged) <= UNJUDGED_MAX + 1


def test_long_messages_of_lists_are_refused() -> None:
    entry = m.Entry("c", "c", 1)
    one = m.DestinationList((entry,))
    good = m.Lists((one,) * m.LISTS_MAX)
    assert m.codec.decode(m.codec.encode(good)) == good
    too_many = m.Lists((one,) * (m.LISTS_MAX + 1))
    long_host = m.Lists((m.DestinationList((m.Entry("c", "h" * 256, 1),)),))
    long_below = m.Lists((m.DestinationList((m.Entry("c", "h", 1, bytes(17)),)),))
    long_signature = m.Lists((one,), (bytes(65),))
    for bad in (too_many, long_host, long_below, long_signature, m.Introduce(bytes(5000))):
        with pytest.raises(WireError):
            m.codec.decode(m.codec.encode(bad))


def test_known_lists_are_bounded_by_their_entries() -> None:
    counters: Counter[str] = Counter()
    cache = ListCache(counters)
    entries = tuple(m.Entry(f"c{k}", f"c{k}", 1) for k in range(1024))
    for k in range(40):
        cache.put(b"%d" % k, m.DestinationList(entries), b"")
        cache.put(b"%d" % k, m.DestinationList(entries), b"")  # again: counted once
    assert len(cache) == ENTRIES_MAX // 1024
    assert counters["lists-full"] == 40 - len(cache)
    assert cache.get(b"39") is not None


def test_what_is_shared_of_bursts_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "OPENED_BYTES_MAX", 1000)
    shared: Shared[int, str] = Shared()
    for k in range(20):
        shared.put(k, "x", 300)
        shared.put(k, "y", 300)
    assert list(shared) == [17, 18, 19]
    shared.put(20, "long", 5000)
    assert list(shared) == [20]
    application = ToyApplication()
    application.put("a", b"0" * 100_000)
    opened = open_burst(application.burst(KEY, 0), CLUSTER, public(KEY))
    assert opened.size > 100_000  # unpacked: it is packed to much less
    assert len(bursts._opened) == 1


def test_a_container_has_tables_of_handlers_for_the_kinds_it_speaks() -> None:
    toy = ToyCluster()
    toy.add("c1")
    toy.attached("c1")
    tables = toy.containers["c1"].store.peers.sessions._tables
    assert set(tables) == {LinkKind.CLIENT, LinkKind.RELAY}
