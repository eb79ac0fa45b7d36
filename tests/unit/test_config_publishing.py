"""Publishing at the primary: resolved against heads, committed later, in order (RIP-6, RIP-17)."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config import heads, requests
from swell.config import operations as ops
from swell.config import splices as deltas
from swell.config.content import Content
from swell.config.edits import Delete, Edit, Path, Rollback, Splices, Uploaded, Whole
from swell.config.publishing import Publishing
from swell.config.splices import Splice
from swell.config.versions import NO_VERSION, Kind
from swell.errors import UnavailableError
from swell.settings import ConfigSettings
from swell.store.messages import Execute, Read, Status
from swell.store.request import Request
from tests.unit.config_toys import APPLICATION, Answers, ToyStore, ToyWorld, value

DOCUMENT = json.dumps({f"key{number}": "x" * 20 for number in range(300)}, indent=1).encode()


class Primary:
    """A store, publishing in front of it, and a client."""

    def __init__(self, value_bytes_max: int = 1 << 27) -> None:
        self.world = ToyWorld()
        self.store = ToyStore()
        self.counters: Counter[str] = Counter()
        world: Any = self.world
        config = ConfigSettings(value_bytes_max=value_bytes_max)
        self.publishing = Publishing(world, self.store, config, self.counters)
        self.client = Answers(self.publishing.execute)

    def send(self, *edits: Edit, number: int = 0) -> int:
        return self.client.send(requests.publish(APPLICATION, edits, "ann"), number)

    def settled(self, *edits: Edit) -> int:
        number = self.send(*edits)
        self.world.work()
        self.store.commit()
        return number

    def status(self, number: int) -> Status:
        return self.client.given[number][0]

    def kinds(self, name: str) -> list[int]:
        request = requests.history(APPLICATION, name)
        kept = requests.history_of(self.store.machine.query(request.body))
        return [each.kind for each in kept]

    def is_idle(self) -> bool:
        return not self.publishing._lines and not self.world.offloaded


def changed(document: bytes, key: str, text: str) -> bytes:
    parsed = json.loads(document)
    parsed[key] = text
    return json.dumps(parsed, indent=1).encode()


# Heads.


def test_pipelined_changes_of_one_configuration_all_become_deltas() -> None:
    primary = Primary()
    primary.settled(Whole("a.json", DOCUMENT))
    expected, numbers = DOCUMENT, []
    for number in range(32):
        key, text = f"key{number * 7}", f"new {number}"
        expected = changed(expected, key, text)
        if number % 2:
            numbers.append(primary.send(Path("a.json", key, text)))
        else:
            numbers.append(primary.send(Whole("a.json", expected)))
    assert not primary.client.given.keys() & set(numbers)
    primary.store.commit(10)
    assert len(primary.client.given.keys() & set(numbers)) == 10
    numbers.append(primary.send(Path("a.json", "key1", "last")))
    primary.store.commit()
    versions = [primary.client.published(number).made[0].version for number in numbers]
    assert versions == list(range(2, 35))
    assert primary.kinds("a.json") == [Kind.WHOLE, *[Kind.DELTA] * 33]
    assert value(primary.store.machine, "a.json") == changed(expected, "key1", "last")
    assert max(map(len, primary.store.bodies[1:])) < 300
    assert primary.is_idle()
    assert not primary.counters["config-mispredicted"]


def test_several_keys_of_a_document_are_one_version() -> None:
    primary = Primary()
    primary.settled(Whole("a.json", DOCUMENT))
    number = primary.send(
        Path("a.json", "key7", "7"),
        Whole("b", b"1"),
        Path("a.json", "key5", None),
        Path("a.json", "new.er", "true"),
        Path("a.json", "key7", "8"),
    )
    last = primary.send(Path("a.json", "new.er", "1"), Path("a.json", "new.er", "true"))
    primary.store.commit()
    made = primary.client.published(number).made
    assert [one.version for one in made] == [2, 1]
    expected = json.loads(DOCUMENT) | {"key7": 8, "new": {"er": True}}
    del expected["key5"]
    assert json.loads(value(primary.store.machine, "a.json") or b"") == expected
    assert primary.kinds("a.json") == [Kind.WHOLE, Kind.DELTA]
    assert len(primary.store.bodies[-2]) < 400
    assert not primary.client.published(last).made[0].changed
    refused = primary.settled(Path("a.json", "key1", "1"), Path("a.json", "key2.x", "1"))
    assert "a.json of shop is at version 2" in primary.client.refusal(refused)
    stale = Path("a.json", "key2", "1", condition=NO_VERSION)
    refused = primary.settled(Path("a.json", "key1", "1"), stale)
    assert primary.client.refusal(refused).startswith("conflict: a.json")
    primary.settled(Path("c.yaml", "x", "1"), Path("c.yaml", "z", "2"))
    assert value(primary.store.machine, "c.yaml") == b"x: 1\nz: 2\n"
    assert primary.is_idle()


@pytest.mark.parametrize(
    ("name", "old", "edit", "off"),
    [
        ("a.json", 60_000, Path("a.json", "k0", "1"), False),
        ("a.json", 80_000, Path("a.json", "k0", "1"), True),
        ("a.yaml", 3_500, Path("a.yaml", "k0", "1"), False),
        ("a.yaml", 6_000, Path("a.yaml", "k0", "1"), True),
        ("a.toml", 6_000, Path("a.toml", "k0", "1"), True),
        ("a.txt", 0, Whole("a.txt", b"x" * 60_000), False),
        ("a.txt", 12_000, Whole("a.txt", b"x" * 12_000), False),
        ("a.txt", 16_000, Whole("a.txt", b"x" * 20_000), True),
        ("a.txt", 60_000, Delete("a.txt"), False),
    ],
)
def test_what_takes_long_is_resolved_off_the_loop(
    name: str, old: int, edit: Edit, off: bool
) -> None:
    primary = Primary()
    line = {"json": b'"k%d": 0', "yaml": b"k%d: 0", "toml": b"k%d = 0"}.get(name[2:], b"k%d")
    lines = [line % number for number in range(old // (len(line) + 4))]
    data = b"{" + b",\n".join(lines) + b"}" if name == "a.json" else b"\n".join(lines)
    if lines:
        primary.client.published(primary.settled(Whole(name, data)))
    before = primary.counters["config-offloaded"]
    primary.client.published(primary.settled(edit))
    assert primary.counters["config-offloaded"] - before == off


def test_long_values_are_resolved_off_the_loop_and_others_wait() -> None:
    primary = Primary()
    long = random.Random(1).randbytes(100_000)
    first = primary.send(Whole("long", long))
    behind = primary.send(Whole("long", long + b"more"))
    beside = primary.send(Whole("short", b"1"))
    both = primary.send(Whole("short", b"2"), Whole("long", b"end" + long))
    last = primary.send(Whole("short", b"3"))
    assert [len(primary.world.offloaded), len(primary.store.log)] == [1, 1]
    primary.store.commit()
    assert primary.status(beside) is Status.DONE
    while primary.world.offloaded or primary.store.log:
        primary.world.work(1)
        primary.store.commit(1)
    steps = [primary.client.published(n).step for n in (beside, first, behind, both, last)]
    assert steps == [1, 2, 3, 4, 5]
    assert primary.kinds("long") == [Kind.WHOLE, Kind.DELTA, Kind.DELTA]
    assert value(primary.store.machine, "short") == b"3"
    assert primary.is_idle()


def test_small_splices_of_long_bytes_stay_on_the_loop() -> None:
    primary = Primary()
    long = random.Random(1).randbytes(200_000)
    (made,) = primary.client.published(primary.settled(Whole("long", long))).made
    delta = deltas.encode((Splice(5, 1, b"!"),))
    number = primary.send(Splices("long", delta, made.id))
    assert not primary.world.offloaded
    stale = primary.send(Splices("long", delta, made.id))
    assert stale not in primary.client.given  # The version that it lost to is not committed yet.
    primary.store.commit()
    assert primary.client.published(number).made[0].version == 2
    assert "long of shop is at version 2" in primary.client.refusal(stale)


def test_what_waits_is_bounded() -> None:
    primary = Primary()
    long = b"x" * 100_000
    numbers = [primary.send(Whole("a", long + b"%d" % n)) for n in range(heads.WAITING_MAX + 1)]
    assert primary.status(numbers[-1]) is Status.BUSY
    assert primary.counters["config-waiting-full"] == 1
    while primary.world.offloaded:
        primary.world.work()
    primary.store.commit()
    assert [primary.status(number) for number in numbers[:-1]] == [Status.DONE] * heads.WAITING_MAX
    assert primary.is_idle()


def test_a_full_store_leaves_no_head_behind() -> None:
    primary = Primary()
    primary.settled(Whole("a", b"1"))
    primary.store.room = 1
    first, second = primary.send(Whole("a", b"2")), primary.send(Whole("a", b"3"))
    assert primary.status(second) is Status.BUSY
    primary.store.commit()
    assert primary.status(first) is Status.DONE
    third = primary.settled(Whole("a", b"4"))
    assert primary.client.published(third).made[0].version == 3
    assert not primary.counters["config-mispredicted"]
    assert primary.is_idle()


def test_after_a_wrong_prediction_nothing_is_ordered_until_all_is_settled() -> None:
    primary = Primary()
    primary.settled(Whole("a", b"1"), Whole("b", b"1"))
    doomed = primary.send(Whole("a", b"2"))
    built_on = primary.send(Whole("a", b"3"))
    # Something that this primary did not order comes before.
    foreign = Answers(primary.store.execute)
    edit = ops.Resolved("a", 1, primary_id(primary, "a"), b"rival")
    body = ops.encode(ops.Step(APPLICATION, (edit,)))
    foreign.send(Request(0, Read.COMMAND, body), number=900)
    primary.store.log.rotate(1)
    primary.store.commit(2)
    assert primary.status(doomed) is Status.BUSY
    meanwhile = primary.send(Whole("b", b"2"))
    assert primary.status(meanwhile) is Status.BUSY
    primary.store.commit()
    assert primary.status(built_on) is Status.BUSY
    assert value(primary.store.machine, "a") == b"rival"
    # Not executed, so the same number may be sent again.
    primary.send(Whole("a", b"2"), number=doomed)
    primary.store.commit()
    assert primary.client.published(doomed).made[0].version == 3
    assert primary.is_idle()


def mispredict(primary: Primary, name: str) -> None:
    """Something that this primary did not order comes before all that it did."""
    edit = ops.Resolved(name, 1, primary_id(primary, name), b"rival")
    body = ops.encode(ops.Step(APPLICATION, (edit,)))
    Answers(primary.store.execute).send(Request(0, Read.COMMAND, body), number=900)
    primary.store.log.rotate(1)


def test_a_refusal_that_rests_on_what_did_not_come_about_is_none() -> None:
    primary = Primary()
    primary.settled(Whole("a", b"1"), Whole("b", b"1"))
    primary.send(Whole("a", b"2"))
    primary.send(Whole("b", b"2"))
    # Judged by the head of a, which is wrong; told when b is settled, which is as predicted.
    stale = primary.send(Whole("a", b"3", condition=primary_id(primary, "a")))
    mispredict(primary, "a")
    primary.store.commit()
    assert value(primary.store.machine, "b") == b"2"
    assert primary.status(stale) is Status.BUSY
    assert primary.is_idle()


def test_a_refusal_from_off_the_loop_rests_on_what_it_was_resolved_against() -> None:
    primary = Primary()
    primary.settled(Whole("a.json", b"{}"))
    primary.send(Whole("a.json", b"[1]"))
    broken = primary.send(Path("a.json", "key", "x" * 10), Whole("b", b"x" * 100_000))
    assert len(primary.world.offloaded) == 1
    mispredict(primary, "a.json")
    primary.store.commit()
    primary.world.work()  # A list has no keys, but there is none.
    assert primary.status(broken) is Status.BUSY
    assert primary.is_idle()


def primary_id(primary: Primary, name: str) -> bytes:
    request = requests.get(APPLICATION, name)
    got = requests.got_of(primary.store.machine.query(request.body))
    return got.id if got is not None else NO_VERSION


def test_a_lost_primary_ends_what_was_under_way() -> None:
    primary = Primary()
    primary.settled(Whole("a", b"1"))
    ordered = primary.send(Whole("a", b"2"))
    resolving = primary.send(Whole("long", b"x" * 100_000))
    waiting = primary.send(Whole("long", b"y" * 100_000))
    primary.store.lose()
    assert primary.status(ordered) is Status.RETRY
    primary.world.work()
    assert primary.status(resolving) is Status.REDIRECT
    assert primary.status(waiting) is Status.REDIRECT
    assert primary.is_idle()
    primary.store.serving = True
    again = primary.settled(Whole("a", b"3"))
    assert primary.client.published(again).made[0].version == 2


def test_a_repeated_command_is_not_resolved_again() -> None:
    primary = Primary()
    number = primary.send(Whole("a", b"1"))
    primary.send(Whole("a", b"1"), number=number)
    assert [body[0] for body in primary.store.bodies] == [4, 1]
    primary.store.commit()
    result = primary.client.published(number)
    primary.client.given.clear()
    primary.settled(Whole("a", b"2"))
    primary.send(Whole("a", b"1"), number=number)
    primary.store.commit()
    assert primary.client.published(number) == result
    assert value(primary.store.machine, "a") == b"2"


def test_a_command_that_was_repeated_while_it_waited_is_executed_once() -> None:
    primary = Primary()
    number = primary.send(Whole("a", b"x" * 100_000))
    primary.send(Whole("a", b"x" * 100_000), number=number)
    primary.world.work()
    primary.store.commit()
    assert primary.client.published(number).made[0].version == 1


# Refusals.


def test_a_refusal_waits_for_what_it_rests_on() -> None:
    primary = Primary()
    first = primary.send(Whole("a", b"1"))
    second = primary.send(Whole("a", b"2", condition=NO_VERSION))
    assert not primary.client.given
    primary.store.commit()
    assert primary.status(first) is Status.DONE
    assert "a of shop is at version 1" in primary.client.refusal(second)
    third = primary.send(Whole("a", b"3"))
    fourth = primary.send(Whole("a", b"4", condition=NO_VERSION))
    primary.store.lose()
    assert [primary.status(number) for number in (third, fourth)] == [Status.RETRY] * 2


def test_what_was_refused_stays_refused() -> None:
    primary = Primary()
    primary.settled(Whole("a", b"1"))
    number = primary.settled(Whole("a", b"2", condition=NO_VERSION))
    sentence = primary.client.refusal(number)
    primary.settled(Delete("a"))
    # The same command once more, which was on its way twice: by now it would be right.
    primary.client.given.clear()
    primary.send(Whole("a", b"2", condition=NO_VERSION), number=number)
    primary.store.commit()
    assert primary.client.refusal(number) == sentence
    assert value(primary.store.machine, "a") is None
    assert primary.is_idle()


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (Whole("b.json", b'{\n "a": }'), "b.json of shop does not exist.*line 2, column 7"),
        (Path("a.json", "key1.x", "1"), "a.json of shop is at version 1"),
        (Path("a.txt", "x", "1"), "text has no paths"),
        (Splices("a.json", deltas.encode((Splice(0, 1, b"["),)), b"?" * 20), "at version 1"),
        (Splices("a.json", b"\xff", b"?" * 20), "at version 1"),
        (Rollback("a.json", 9), "version 9 of a.json is not kept: 1 to 1 are"),
        (Rollback("none", 1), "shop has no configuration none"),
        (Uploaded("b", b"upload-1", 1, b"d" * 20), "is not here"),
        (Delete("a.json", condition=NO_VERSION), "a.json of shop is at version 1"),
    ],
)
def test_refusals_leave_no_trace(edit: Edit, sentence: str) -> None:
    primary = Primary()
    primary.settled(Whole("a.json", DOCUMENT))
    before = primary.store.machine.dump()
    number = primary.settled(Whole("other", b"1"), edit)
    assert re.search(sentence, primary.client.refusal(number), re.DOTALL)
    assert [body[0] for body in primary.store.bodies] == [4, 5]
    assert primary.store.machine.dump() == before
    assert primary.is_idle()


def test_a_client_made_delta_must_leave_a_valid_document() -> None:
    primary = Primary()
    (made,) = primary.client.published(primary.settled(Whole("a.json", b'{"a": 1}'))).made
    broken = deltas.encode((Splice(7, 1, b""),))
    number = primary.settled(Splices("a.json", broken, made.id))
    assert "not valid json, line 1" in primary.client.refusal(number)


def test_long_values_are_refused_off_the_loop_too() -> None:
    primary = Primary()
    number = primary.settled(Whole("a.json", b"[" + b" " * 100_000))
    assert "a.json of shop does not exist" in primary.client.refusal(number)
    assert primary.counters["config-offloaded"] == 1
    assert primary.is_idle()


def test_values_have_a_limit() -> None:
    primary = Primary(value_bytes_max=1000)
    number = primary.settled(Whole("a", b"x" * 1001))
    assert "1001 bytes, allowed are 1000" in primary.client.refusal(number)
    request = requests.stage(APPLICATION, b"upload-1", 600, b"x" * 500)
    assert "allowed are 1000" in primary.client.refusal(primary.client.send(request))
    (made,) = primary.client.published(primary.settled(Whole("a", b"x" * 1000))).made
    grown = Splices("a", deltas.encode((Splice(0, 0, b"y"),)), made.id)
    assert "allowed are 1000" in primary.client.refusal(primary.settled(grown))


def test_too_much_to_do_is_busy() -> None:
    primary = Primary()
    number = primary.send(Whole("a", b"x" * 100_000))
    _, _, done = primary.world.offloaded.popleft()
    done(UnavailableError("more than 1 computations are waiting"))
    assert primary.status(number) is Status.BUSY
    assert primary.is_idle()


def test_a_mistake_of_ours_blocks_nobody() -> None:
    primary = Primary()
    number = primary.send(Whole("a", b"x" * 100_000))
    behind = primary.send(Whole("a", b"1"))
    _, _, done = primary.world.offloaded.popleft()
    done(ZeroDivisionError("a bug"))
    assert "ZeroDivisionError" in primary.client.refusal(number)
    (report,) = primary.world.later
    with pytest.raises(ZeroDivisionError):
        report()
    primary.store.commit()
    assert primary.client.published(behind).made[0].version == 1
    assert primary.is_idle()


def test_what_clients_may_not_send() -> None:
    primary = Primary()
    step = ops.encode(ops.Step(APPLICATION, (ops.Resolved("a", 1, NO_VERSION, b"1"),)))
    twice = ops.encode(ops.Publish(APPLICATION, (Whole("a", b"1"), Delete("a"))))
    reserved = ops.encode(ops.Publish(APPLICATION, (Whole("@a", b"1"),)))
    for body, sentence in (
        (step, "no command for clients"),
        (twice, "twice"),
        (reserved, "reserved"),
        (b"", "no operation"),
    ):
        number = primary.client.send(Request(0, Read.COMMAND, body))
        assert sentence in primary.client.refusal(number)
    number = primary.client.send(requests.publish(APPLICATION, [Whole("a", b"")]), slot=5)
    assert "not in slot 5" in primary.client.refusal(number)
    assert not primary.store.bodies


# Everything else.


def test_uploads_go_all_the_way() -> None:
    primary = Primary()
    data = random.Random(2).randbytes(700_000)
    for at in range(0, len(data), 400_000):
        piece = data[at : at + 400_000]
        primary.client.send(requests.stage(APPLICATION, b"upload-1", at, piece))
    primary.store.commit()
    edit = Uploaded("a", b"upload-1", len(data), Content.of(data).digest)
    first = primary.send(edit)
    primary.world.work()
    behind = primary.send(Rollback("a", 1))
    primary.store.commit()
    assert primary.client.published(first).made[0].length == 700_000
    assert "no configuration a" in primary.client.refusal(behind)
    content = primary.store.machine.content_at(APPLICATION, "a", 1)
    assert content is not None
    assert content.bytes() == data
    assert not primary.counters["config-mispredicted"]


def test_the_primary_says_how_many_versions_are_kept() -> None:
    primary = Primary()
    primary.send(Whole("a", b"1"))
    assert ops.decode(primary.store.bodies[0]).keep_versions == ConfigSettings().keep_versions


def test_an_upload_waits_while_others_go_on() -> None:
    primary = Primary()
    for number in range(5):
        primary.client.send(requests.stage(APPLICATION, b"upload-%d" % number, 0, b"abc"))
        primary.store.commit()
    assert [primary.status(number) for number in range(1, 6)] == [*[Status.DONE] * 4, Status.BUSY]
    assert len(primary.store.bodies) == 4
    assert ops.decode(primary.store.bodies[0]).wall_us == primary.world.wall_us()
    assert primary.counters["config-uploads-full"] == 1


def test_the_longest_step_is_answered_again() -> None:
    primary = Primary()
    edits = [Whole("x" * 500 + str(number), b"%d" % number) for number in range(ops.EDITS_MAX)]
    number = primary.settled(*edits)
    first = primary.client.given.pop(number)
    assert first[0] is Status.DONE
    primary.send(*edits, number=number)
    primary.store.commit()
    assert primary.client.given[number] == first
    assert len(requests.made_of(edits, primary.client.published(number))) == ops.EDITS_MAX


def test_everything_else_passes_through() -> None:
    primary = Primary()
    assert primary.publishing.slots == 1
    assert primary.publishing.primaries() == [1]
    number = primary.client.send(requests.get(APPLICATION, "a"))
    assert requests.got_of(primary.client.given[number][1]) is None
    number = primary.client.send(Request(0, Read.COMMAND, b"dht"), service=1)
    assert primary.store.bodies == [b"dht"]
    primary.store.lose()
    number = primary.send(Whole("a", b"1"))
    assert primary.status(number) is Status.REDIRECT


def test_asides_are_answered_by_the_primary_only() -> None:
    primary = Primary()
    asked: list[Execute] = []

    def aside(execute: Execute, done: heads.Done) -> None:
        asked.append(execute)
        done(Status.DONE, b"aside")

    primary.publishing.asides[3] = aside
    number = primary.client.send(Request(0, Read.LINEARIZABLE, b"who"), service=3)
    assert primary.client.given[number] == (Status.DONE, b"aside")
    primary.store.lose()
    number = primary.client.send(Request(0, Read.LINEARIZABLE, b"who"), service=3)
    assert primary.status(number) is Status.REDIRECT
    assert len(asked) == 1


def test_a_path_edit_may_begin_a_document() -> None:
    primary = Primary()
    primary.settled(Path("a.json", "port", "80"), Path("b.yaml", "host", "x"))
    assert json.loads(value(primary.store.machine, "a.json") or b"") == {"port": 80}
    assert value(primary.store.machine, "b.yaml") == b"host: x\n"


edits = st.one_of(
    st.tuples(st.just("whole"), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.just("long"), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.just("create"), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.just("commit"), st.just(""), st.integers(0, 3)),
    st.tuples(st.just("work"), st.just(""), st.integers(0, 3)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(edits, max_size=30))
def test_random_pipelines_end_as_if_done_one_by_one(actions: list[tuple[str, str, int]]) -> None:
    primary = Primary()
    sent: dict[int, tuple[str, str, bytes]] = {}
    for what, name, number in actions:
        if what == "commit":
            primary.store.commit(number)
        elif what == "work":
            primary.world.work(number)
        elif what == "delete":
            sent[primary.send(Delete(name))] = (what, name, b"")
        else:
            size = 70_000 if what == "long" else 50
            data = random.Random(number).randbytes(size)
            condition = NO_VERSION if what == "create" else None
            sent[primary.send(Whole(name, data, condition))] = (what, name, data)
    while primary.world.offloaded or primary.store.log:
        primary.world.work(1)
        primary.store.commit()
    assert primary.is_idle()
    assert not primary.counters["config-mispredicted"] + primary.counters["config-busy"]
    # Per configuration in the order of sending, whatever was resolved sooner.
    model: dict[str, bytes] = {}
    for number, (what, name, data) in sent.items():
        if what == "create" and name in model:
            assert f"{name} of shop is at version" in primary.client.refusal(number)
            continue
        primary.client.published(number)
        model.pop(name, None)
        if what != "delete":
            model[name] = data
    for name in "ab":
        assert value(primary.store.machine, name) == model.get(name)
