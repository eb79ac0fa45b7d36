"""What an application gives to those who are behind: parts that fit, and every deletion."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config import application as applications
from swell.config import requests
from swell.config import splices as deltas
from swell.config.application import CONFIGURATIONS_MAX, Application, Served
from swell.config.bursts import Burst, StepChanges, open_burst, seal
from swell.config.content import Content
from swell.config.edits import Delete, Splices, Uploaded, Whole
from swell.config.gone import Gone, Range
from swell.config.machine import ConfigMachine
from swell.config.operations import STEP_BYTES_MAX
from swell.config.proofs import proof
from swell.config.reports import Await
from swell.config.splices import Splice
from swell.config.versions import Kind
from swell.container.changes import Ready
from swell.container.feed import Feed
from swell.wire.limits import FRAME_BYTES_MAX
from tests.unit.config_toys import APPLICATION, publish, value
from tests.unit.container_toys import CLUSTER, SEALED_US, key_of, public
from tests.unit.delivery_toys import ToyContainer, ToyFleet

BURST_BYTES_MAX = 256 * 1024
KEY = key_of(1)


def everything(name: str) -> bool:
    return True


def application(machine: ConfigMachine) -> Application:
    found = machine.application(APPLICATION)
    assert found is not None
    return found


def sealed(after: int, served: Served) -> bytes:
    upto, steps, _ = served
    return seal(KEY, CLUSTER, APPLICATION, bytes(8), 1, after, upto, steps, SEALED_US)


class Follower:
    """A container's feed, served from a machine as delivery does it."""

    def __init__(self, machine: ConfigMachine) -> None:
        self.machine = machine
        self.feed = Feed(APPLICATION, (), 8, self._fetch, Counter())
        self.parts: dict[int, None] = {}
        self.bursts: list[Served] = []
        self.asked: list[Ready] = []

    def _fetch(self, feed: Feed, change: Ready, mine: object) -> None:
        self.asked.append(change)

    def serve(self, bytes_max: int = BURST_BYTES_MAX) -> None:
        """One burst."""
        at = self.feed.at
        served = application(self.machine).since(at, everything, bytes_max, at not in self.parts)
        self.bursts.append(served)
        if not served.exact:
            self.parts[served.upto] = None
        data = sealed(at, served)
        assert len(data) < FRAME_BYTES_MAX
        self.feed.take(open_burst(data, CLUSTER, public(KEY)), data)
        for change in self.asked:
            content = self.machine.content_at(APPLICATION, change.name, change.version)
            self.feed.on_fetched(change, content)

    def catch_up(self, bytes_max: int = BURST_BYTES_MAX) -> None:
        while self.feed.at < application(self.machine).step:
            self.serve(bytes_max)

    def living(self) -> dict[str, bytes]:
        found = self.feed.documents.items()
        return {name: one.bytes() for name, one in sorted(found) if not one.deleted}


# Long values.


def test_a_superseded_value_is_not_left_to_be_fetched() -> None:
    machine = ConfigMachine()
    data = Random(1).randbytes(300_000)
    machine.apply(requests.stage(APPLICATION, b"upload-1", 0, data).body)
    digest = Content.of(data).digest
    (made,) = publish(machine, Uploaded("a", b"upload-1", len(data), digest)).made
    for number in range(70):
        delta = deltas.encode((Splice(number, 1, b"!"),))
        (made,) = publish(machine, Splices("a", delta, made.id)).made
    served = application(machine).since(0, everything, BURST_BYTES_MAX, True)
    ((change,),) = [step.changes for step in served.steps]
    assert (change.kind, change.version, change.id) == (Kind.FETCH, 71, made.id)
    late = Follower(machine)
    late.catch_up()
    assert [change.version for change in late.asked] == [71]
    assert len(late.living()["a"]) == 300_000


def test_a_value_that_is_present_is_fetched_from_the_newest_steps() -> None:
    machine = ConfigMachine()
    data = Random(1).randbytes(300_000)
    publish(machine, Whole("b", b"1"))
    machine.apply(requests.stage(APPLICATION, b"upload-1", 0, data).body)
    publish(machine, Uploaded("a", b"upload-1", len(data), Content.of(data).digest))
    publish(machine, Whole("b", b"2"))
    served = application(machine).since(1, everything, BURST_BYTES_MAX, True)
    assert [step.number for step in served.steps] == [2, 3]


# Many configurations.


def test_many_configurations_come_in_parts_that_fit() -> None:
    machine = ConfigMachine()
    names = [f"folder/{number:05}" for number in range(2000)]
    for at in range(0, len(names), 250):
        publish(machine, *(Whole(name, name.encode() * 25) for name in names[at : at + 250]))
    late = Follower(machine)
    late.serve(64 * 1024)
    assert not late.bursts[0].exact
    # What changes meanwhile is built on versions that it has not got.
    for name in (names[0], names[-1], names[1000]):
        publish(machine, Whole(name, name.encode() * 25 + b"!"))
    publish(machine, Delete(names[5]), Delete(names[1500]))
    late.catch_up(64 * 1024)
    assert late.feed._counters["broken-base"] == 0
    assert late.living() == {
        name: data for name in names if (data := value(machine, name)) is not None
    }
    changes = [
        [change for step in served.steps for change in step.changes] for served in late.bursts
    ]
    assert not any(change.kind == Kind.FETCH for part in changes for change in part)
    assert [served.exact for served in late.bursts[:-1]] == [False] * (len(late.bursts) - 1)


def test_names_count_too() -> None:
    machine = ConfigMachine()
    for number in range(40):
        edits = [Whole(f"{number:02}{at:02}" + "x" * 500, b"") for at in range(50)]
        publish(machine, *edits)
    served = application(machine).since(0, everything, BURST_BYTES_MAX, True)
    assert len(sealed(0, served)) < FRAME_BYTES_MAX
    assert sum(len(step.changes) for step in served.steps) * 500 <= BURST_BYTES_MAX


def test_a_step_whose_values_make_no_burst_leaves_the_long_ones_to_be_fetched() -> None:
    machine = ConfigMachine()
    rng = Random(2)
    values = {f"n{number:03}": rng.randbytes(20_000) for number in range(200)}
    values |= {f"m{number:02}": rng.randbytes(1000) for number in range(50)}
    for name, data in values.items():
        publish(machine, Whole(name, data))
    edits = [Whole(name, data + b"!") for name, data in values.items()]
    publish(machine, *edits)
    late = Follower(machine)
    late.catch_up()
    assert late.living() == {name: data + b"!" for name, data in sorted(values.items())}
    (served,) = late.bursts
    kinds = Counter(change.kind for step in served.steps for change in step.changes)
    assert kinds == {Kind.FETCH: 200, Kind.WHOLE: 50}
    # Whoever has the values gets what changed, however long they are.
    served = application(machine).since(250, everything, BURST_BYTES_MAX, True)
    assert {change.kind for change in served.steps[0].changes} == {Kind.DELTA}


def test_a_long_step_is_sent_as_it_was_made() -> None:
    machine = ConfigMachine()
    rng = Random(3)
    publish(machine, *(Whole(f"n{number:03}", rng.randbytes(11_000)) for number in range(256)))
    served = application(machine).since(0, everything, BURST_BYTES_MAX, True)
    assert (served.upto, served.exact) == (1, True)
    assert {change.kind for change in served.steps[0].changes} == {Kind.WHOLE}
    assert BURST_BYTES_MAX < len(sealed(0, served)) < FRAME_BYTES_MAX
    assert 256 * 11_000 + BURST_BYTES_MAX < STEP_BYTES_MAX


def test_a_new_container_gets_a_large_application() -> None:
    fleet = ToyFleet(burst_bytes_max=20_000)
    for at in range(0, 600, 50):
        edits = [Whole(f"n{number:04}", b"%d" % number * 100) for number in range(at, at + 50)]
        publish(fleet.store.machine, *edits)
    (one,) = fleet.add("c1", subscribe=False)
    late = Follower(fleet.store.machine)
    _let_take(one, late.feed)
    one.subscribe()
    fleet.run(0.01)
    asked = fleet.ask(Await(APPLICATION, 12))
    for number in (0, 599, 300):
        fleet.put(f"n{number:04}", b"%d" % number * 100 + b"!")
        assert not asked or late.feed.at >= 12
    fleet.run(2.0)
    assert one.at == 15
    assert len(one.taken) > 5
    assert late.feed._counters["broken-base"] == 0
    assert len(late.living()) == 600
    assert late.living()["n0599"].endswith(b"!")
    fleet.put("n0599", b"end")
    fleet.run(0.1)
    assert late.living()["n0599"] == b"end"
    assert one.taken[-1] == (15, 16)
    assert asked[0].applied.count == 1


def test_a_burst_from_where_a_part_ends_is_made_anew() -> None:
    fleet = ToyFleet(burst_bytes_max=300)
    machine = fleet.store.machine
    for name in ("a", "b"):
        publish(machine, Whole(name, name.encode() * 200))
    publish(machine, Whole("a", b"a" * 200 + b"!"))
    early, late = fleet.add("c1", "c2", subscribe=False)
    early.at, early.mute = 2, True
    early.subscribe()  # It is sent a delta, which is kept for others who are at step 2.
    fleet.run(0.05)
    machine.load(machine.dump())  # Without the newest steps: the late one gets step 2 as a part.
    feed = Follower(machine).feed
    _let_take(late, feed)
    late.subscribe()
    fleet.run(1.0)
    assert late.taken == [(0, 2), (2, 3)]
    assert feed._counters["broken-base"] == 0
    assert {name: len(one) for name, one in feed.documents.items()} == {"a": 201, "b": 200}


def test_a_new_primary_hears_who_has_only_part() -> None:
    fleets = [ToyFleet(burst_bytes_max=300) for _ in range(2)]
    machine = fleets[0].store.machine
    for name in ("a", "b"):
        publish(machine, Whole(name, name.encode() * 200))
    publish(machine, Whole("a", b"a" * 200 + b"!"))
    machine.load(machine.dump())  # Without the newest steps, so that `b` comes first.
    fleets[1].store.machine = machine
    feed = Follower(machine).feed
    first, second = (fleet.add("c1", subscribe=False)[0] for fleet in fleets)
    for one in (first, second):
        _let_take(one, feed)
    take = first.take

    def take_one(burst: Burst) -> bytes:
        first.asleep = True
        return take(burst)

    first.take = take_one  # type: ignore[method-assign]
    first.subscribe()
    fleets[0].run(1.0)
    assert (first.taken, feed.at, feed.complete_at) == ([(0, 2)], 2, 3)

    fleet, second.asleep = fleets[1], True
    second.subscribe(step=feed.at, applied=feed.at, complete_at=feed.complete_at)
    fleet.run(0.1)
    early, late = (fleet.ask(Await(APPLICATION, 1), deadline_s) for deadline_s in (1.0, 20.0))
    fleet.run(1.0)
    assert (early[0].complete, early[0].applied.count) == (False, 0)
    second.asleep = False
    fleet.run(8.0)
    assert (late[0].complete, late[0].applied.count) == (True, 1)
    assert (second.taken, feed.at, feed.complete_at) == ([(2, 3)], 3, 3)
    assert feed._counters["broken-base"] == 0
    assert {name: len(one) for name, one in feed.documents.items()} == {"a": 201, "b": 200}


def _let_take(one: ToyContainer, feed: Feed) -> None:
    """It keeps real documents."""

    def take(burst: Burst) -> bytes:
        one.taken.append((burst.after, burst.upto))
        taken = feed.take(burst, b"")
        one.at = feed.at
        return proof(one.secret, burst.id, one.level) if taken else b""

    one.take = take  # type: ignore[method-assign]


# Deletions.


def test_forgotten_deletions_reach_who_was_away() -> None:
    machine = ConfigMachine()
    names = [f"n{number:04}" for number in range(1500)]
    for at in range(0, 1500, 250):
        publish(machine, *(Whole(name, b"x") for name in names[at : at + 250]))
    late = Follower(machine)
    late.catch_up()
    kept = names[::7]
    gone = [name for name in names if name not in kept]
    for name in gone:
        publish(machine, Delete(name))
    assert len(application(machine).configurations) == len(kept) + applications.DELETED_MAX
    copy = ConfigMachine()
    copy.load(machine.dump())
    late.machine = copy
    late.catch_up()
    assert sorted(late.living()) == kept
    # Every one was heard of.
    assert sum(one.deleted for one in late.feed.documents.values()) <= applications.DELETED_MAX


def test_ranges_are_bounded_by_what_exists() -> None:
    gone, living = Gone(), [f"n{number:02}" for number in range(0, 100, 10)]
    rng = Random(4)
    for step in range(1, 2000):
        place = rng.randrange(len(living) + 1)
        lower = living[place - 1] if place else ""
        gone.add(lower, living[place] if place < len(living) else "", step)
    assert len(gone.ranges) <= len(living) + 1 <= CONFIGURATIONS_MAX
    gone.add("", "", 2000)
    assert gone.ranges == [Range("", "", 2000)]
    gone.add("d", "m", 2001)
    assert gone.ranges == [Range("", "d", 2000), Range("d", "m", 2001), Range("m", "", 2000)]
    assert gone.since(2000) == [Range("d", "m", 2001)]
    gone.add("c", "p", 2002)
    assert gone.ranges == [Range("", "c", 2000), Range("c", "p", 2002), Range("p", "", 2000)]


def test_what_came_later_in_a_range_stays() -> None:
    late = Feed(APPLICATION, (), 8, lambda *_: None, Counter())
    machine = ConfigMachine()
    publish(machine, Whole("a", b"1"), Whole("b", b"1"), Whole("c", b"1"))
    _take(late, 0, application(machine).since(0, everything, 1 << 20, True))
    heard: list[str] = []
    late.hear = lambda update: heard.append(f"{update.name} {update.document.deleted}")
    range_ = StepChanges(2, (Range("a", "", 2).change(),))
    publish(machine, Whole("c", b"2"))
    (newer,) = application(machine).since(1, everything, 1 << 20, True).steps
    _take(late, 1, Served(3, (range_, StepChanges(3, newer.changes)), True))
    assert heard == ["b True", "c True", "c False"]
    assert {name: one.deleted for name, one in late.documents.items()} == {
        "a": False, "b": True, "c": False,
    }  # fmt: skip
    _take(late, 0, Served(4, (StepChanges(2, range_.changes),), True))
    assert not late.documents["c"].deleted


def _take(feed: Feed, after: int, served: Served) -> None:
    data = sealed(after, served)
    assert feed.take(open_burst(data, CLUSTER, public(KEY)), data)


actions = st.tuples(st.sampled_from("wwwds"), st.integers(0, 11), st.integers(0, 4))


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=60), st.sampled_from([100, 400, 1 << 20]), st.booleans())
def test_whoever_is_served_now_and_then_has_everything_in_the_end(
    steps: list[tuple[str, int, int]], bytes_max: int, reload: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applications, "DELETED_MAX", 2)
        machine = ConfigMachine()
        late, model = Follower(machine), dict[str, bytes]()
        for what, number, size in steps:
            name = f"n{number:02}"
            if what == "w":
                data = b"%d." % number * (size * 10 + 1) + b"%d" % len(model)
                publish(machine, Whole(name, data), keep=3)
                model[name] = data
            elif what == "d":
                publish(machine, Delete(name), keep=3)
                model.pop(name, None)
            elif machine.application(APPLICATION) is not None:
                if reload:
                    machine.load(machine.dump())
                late.serve(bytes_max)
        if machine.application(APPLICATION) is not None:
            late.catch_up(bytes_max)
        assert late.living() == dict(sorted(model.items()))
        assert late.feed._counters["broken-base"] == 0
