"""The replicated side of configurations: steps, versions, history, what others need, bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from swell.config import operations as ops
from swell.config import requests, uploads
from swell.config import splices as deltas
from swell.config.application import DELETED_MAX, Application
from swell.config.configuration import ConflictError, NotKeptError
from swell.config.content import Content
from swell.config.edits import Delete, Path, Resolved, Rollback, Splices, Uploaded, Way, Whole
from swell.config.gone import Range
from swell.config.history import KEEP_BYTES
from swell.config.machine import ConfigMachine
from swell.config.names import INSTANCES
from swell.config.operations import BadOperationError
from swell.config.resolving import UnresolvableError
from swell.config.splices import Splice
from swell.config.uploads import UploadError
from swell.config.versions import NO_VERSION, Kind, version_id
from swell.errors import InvalidNameError, SwellError, WireError
from swell.store.state import NotExecutedError
from tests.unit.config_toys import APPLICATION, ToyContainer, publish, resolved, value

EVERYTHING = 1 << 30


def everything(name: str) -> bool:
    return True


def application(machine: ConfigMachine) -> Application:
    found = machine.application(APPLICATION)
    assert found is not None
    return found


def history(machine: ConfigMachine, name: str) -> tuple[ops.Kept, ...]:
    return requests.history_of(machine.query(requests.history(APPLICATION, name).body))


def got(machine: ConfigMachine, name: str, version: int = 0) -> ops.Got:
    found = requests.got_of(machine.query(requests.get(APPLICATION, name, version).body))
    assert found is not None
    return found


def lines(count: int, changed: int = -1) -> bytes:
    rows = [b"line %d of a value\n" % number for number in range(count)]
    if changed >= 0:
        rows[changed] = b"line %d is new\n" % changed
    return b"".join(rows)


# Steps and versions.


def test_a_version_is_named_by_its_history() -> None:
    machine = ConfigMachine()
    first = publish(machine, Whole("a", lines(9)))
    second = publish(machine, Whole("a", lines(9) + b" and more"))
    assert (first.step, second.step) == (1, 2)
    (made,), (after,) = first.made, second.made
    assert made.id == version_id(NO_VERSION, Kind.WHOLE, Content.of(lines(9)).digest)
    (kept, newest) = history(machine, "a")
    assert (kept.version, kept.kind, kept.base) == (1, Kind.WHOLE, NO_VERSION)
    assert (newest.version, newest.kind, newest.base) == (2, Kind.DELTA, made.id)
    delta = deltas.encode((Splice(len(lines(9)), 0, b" and more"),))
    assert after.id == newest.id == version_id(made.id, Kind.DELTA, delta)
    assert newest.change_bytes == len(delta)
    assert (newest.author, newest.wall_us) == ("ann", 7)
    assert value(machine, "a") == lines(9) + b" and more"


def test_a_step_changes_several_configurations_or_none() -> None:
    machine = ConfigMachine()
    published = publish(machine, Whole("a", b"1"), Whole("b", b""), Whole("c", b"3"))
    assert [made.version for made in published.made] == [1, 1, 1]
    before = machine.dump()
    stale = (Whole("a", b"x"), Whole("b", b"y", condition=b"z" * 20))
    with pytest.raises(ConflictError, match="b of shop is at version 1"):
        publish(machine, *stale)
    assert machine.dump() == before
    assert value(machine, "b") == b""


def test_a_resolved_base_that_is_gone_was_not_executed() -> None:
    machine = ConfigMachine()
    publish(machine, Whole("a", b"1"))
    late = resolved(machine, [Whole("a", b"2")])
    publish(machine, Whole("a", b"3"))
    before = machine.dump()
    with pytest.raises(NotExecutedError, match="a of shop is at version 2"):
        machine.apply(late)
    with pytest.raises(NotExecutedError, match="not resolved"):
        machine.apply(requests.publish(APPLICATION, [Whole("a", b"2")]).body)
    assert machine.dump() == before


def test_conditions() -> None:
    machine = ConfigMachine()
    with pytest.raises(ConflictError, match="a of shop does not exist"):
        publish(machine, Whole("a", b"1", condition=b"x" * 20))
    (made,) = publish(machine, Whole("a", b"1", condition=NO_VERSION)).made
    with pytest.raises(ConflictError, match=made.id.hex()):
        publish(machine, Whole("a", b"2", condition=NO_VERSION))
    (gone,) = publish(machine, Delete("a", condition=made.id)).made
    assert got(machine, "a").deleted
    with pytest.raises(ConflictError, match="is deleted with version 2"):
        publish(machine, Whole("a", b"3", condition=made.id))
    (again,) = publish(machine, Whole("a", b"3", condition=NO_VERSION)).made
    assert again.version == 3
    assert history(machine, "a")[-1].base == gone.id


def test_what_changes_nothing_makes_no_step() -> None:
    machine = ConfigMachine()
    first = publish(machine, Whole("a", b"1"))
    again = publish(machine, Whole("a", b"1"), Delete("never"))
    assert again.step == 1
    unchanged = replace(first.made[0], changed=False)
    assert again.made[0] == unchanged
    assert first.made[0].changed
    assert (again.made[1].version, again.made[1].id) == (0, NO_VERSION)
    mixed = publish(machine, Whole("a", b"1"), Whole("b", b"2"))
    assert (mixed.step, mixed.made[0]) == (2, unchanged)
    assert mixed.made[1].changed
    steps = application(machine).since(1, everything, EVERYTHING, True)[1]
    assert [change.name for change in steps[0].changes] == ["b"]


def test_a_configuration_may_be_changed_once_in_a_step() -> None:
    machine = ConfigMachine()
    edit = Resolved("a", Way.WHOLE, NO_VERSION, b"1")
    with pytest.raises(ConflictError, match="twice"):
        machine.apply(ops.encode(ops.Step(APPLICATION, (edit, edit))))
    assert machine.application(APPLICATION) is None


@pytest.mark.parametrize("name", ["/a", "a/", "a/../b", "a\0", "", "x" * 513, "e\u0301"])
def test_names_are_checked_by_the_machine(name: str) -> None:
    edit = Resolved(name, Way.WHOLE, NO_VERSION, b"1")
    with pytest.raises(InvalidNameError):
        ConfigMachine().apply(ops.encode(ops.Step(APPLICATION, (edit,))))
    edit = Resolved("a", Way.WHOLE, NO_VERSION, b"1")
    with pytest.raises(InvalidNameError):
        ConfigMachine().apply(ops.encode(ops.Step(name, (edit,))))


def test_only_the_system_uses_reserved_names() -> None:
    for refused in (
        lambda: requests.publish("@a", [Whole("b", b"")]),
        lambda: requests.publish("a", [Whole("@b", b"")]),
    ):
        with pytest.raises(InvalidNameError, match="reserved"):
            refused()
    assert requests.get("@a", "@b").body


@pytest.mark.parametrize("body", [b"", b"\xff\x90", b"\x01", b"\x10\xc1", b"\x04\x92\xa1a\x90"])
def test_bodies_that_are_nothing_are_refused(body: bytes) -> None:
    machine = ConfigMachine()
    for call in (machine.apply, machine.query):
        with pytest.raises(BadOperationError):
            call(body)


def test_commands_and_queries_are_kept_apart() -> None:
    machine = ConfigMachine()
    with pytest.raises(BadOperationError, match="query"):
        machine.apply(requests.get("a", "b").body)
    with pytest.raises(BadOperationError, match="command"):
        machine.query(requests.set_options("a").body)


# History.


def test_every_kept_version_can_be_read_and_gone_back_to() -> None:
    machine = ConfigMachine()
    values = [lines(50, number) for number in range(10)]
    for data in values:
        publish(machine, Whole("a", data))
    publish(machine, Delete("a"))
    for number, data in enumerate(values, 1):
        assert value(machine, "a", number) == data
    publish(machine, Rollback("a", 3))
    assert value(machine, "a") == values[2]
    publish(machine, Rollback("a", 11))
    assert got(machine, "a").deleted
    assert [kept.version for kept in history(machine, "a")] == list(range(1, 14))
    with pytest.raises(NotKeptError, match="version 14 of a is not kept: 1 to 13 are"):
        value(machine, "a", 14)


def test_history_is_bounded_by_versions() -> None:
    machine = ConfigMachine()
    for number in range(20):
        publish(machine, Whole("a", lines(50, number)), keep=5)
    assert [kept.version for kept in history(machine, "a")] == [16, 17, 18, 19, 20]
    with pytest.raises(NotKeptError):
        value(machine, "a", 15)
    machine.apply(requests.set_options(APPLICATION, versions_kept=2).body)
    assert [kept.version for kept in history(machine, "a")] == [19, 20]
    assert value(machine, "a", 19) == lines(50, 18)


def test_history_is_bounded_by_bytes() -> None:
    machine = ConfigMachine()
    source = random.Random(1)
    values = [source.randbytes(100_000) for _ in range(6)]
    for data in values:
        publish(machine, Whole("a", data))
    kept = history(machine, "a")
    assert [each.version for each in kept] == [5, 6]
    assert application(machine).configurations["a"].history.size <= KEEP_BYTES
    assert value(machine, "a", 5) == values[4]


def test_a_long_value_that_was_deleted_can_be_had_back() -> None:
    machine = ConfigMachine()
    data = random.Random(1).randbytes(200_000)
    publish(machine, Whole("a", data))
    publish(machine, Delete("a"))
    publish(machine, Rollback("a", 1))
    assert value(machine, "a") == data


def test_forgotten_deletions_never_let_a_version_return() -> None:
    machine = ConfigMachine()
    for number in range(3):
        publish(machine, Whole("first", b"%d" % number))
    publish(machine, Delete("first"))
    for number in range(DELETED_MAX):
        name = f"n/{number}"
        publish(machine, Whole(name, b"x"))
        publish(machine, Delete(name))
    assert "first" not in application(machine).configurations
    assert application(machine).gone.ranges == [Range("", "", 4)]
    (made,) = publish(machine, Whole("first", b"again")).made
    assert made.version == 5
    copy = ConfigMachine()
    copy.load(machine.dump())
    assert publish(copy, Whole("other", b"")).made == publish(machine, Whole("other", b"")).made


def test_replicas_keep_what_the_primary_says() -> None:
    machine = ConfigMachine()
    for number in range(10):
        publish(machine, Whole("a", b"%d" % number), keep=3 if number > 5 else 64)
    assert len(history(machine, "a")) == 3
    copy = ConfigMachine()
    copy.load(machine.dump())
    body = resolved(machine, [Whole("a", b"x")], keep=2)
    assert copy.apply(body) == machine.apply(body)
    assert history(copy, "a") == history(machine, "a") == history(machine, "a")[-2:]


# Queries.


def test_a_change_of_nothing_makes_no_service() -> None:
    machine = ConfigMachine()
    nothing = Resolved(INSTANCES, Way.NOTHING, NO_VERSION)
    machine.apply(ops.encode(ops.Step(APPLICATION, (nothing,))))
    request = requests.list_applications(0, services=True)
    assert requests.applications_of(machine.query(request.body)) == ()
    publish(machine, Whole("a", b"1"))
    machine.apply(ops.encode(ops.Step(APPLICATION, (nothing,))))
    assert requests.applications_of(machine.query(request.body)) == ()
    assert not machine.service_changes
    made = Resolved(INSTANCES, Way.WHOLE, NO_VERSION, b"x")
    machine.apply(ops.encode(ops.Step(APPLICATION, (made,))))
    (row,) = requests.applications_of(machine.query(request.body))
    assert row.name == APPLICATION


def test_lists_have_pages() -> None:
    machine = ConfigMachine()
    for number in (3, 1, 2, 10):
        publish(machine, Whole(f"p/{number}", b"x" * number), Whole(f"q/{number}", b""))
    publish(machine, Delete("p/2"))

    def page(after: str, limit: int) -> list[str]:
        request = requests.list_names(APPLICATION, "p/", after, limit)
        return [row.name for row in requests.names_of(machine.query(request.body))]

    assert page("", 2) == ["p/1", "p/10"]
    assert page("p/10", 2) == ["p/3"]
    assert page("p/3", 2) == []
    request = requests.list_applications(0)
    (row,) = requests.applications_of(machine.query(request.body))
    assert (row.name, row.step, row.configurations) == (APPLICATION, 5, 7)


def test_long_values_are_read_by_range_and_by_leaves() -> None:
    machine = ConfigMachine()
    data = random.Random(2).randbytes(200_000)
    publish(machine, Whole("a", data))
    publish(machine, Splices("a", deltas.encode((Splice(5, 1, b"!"),)), got(machine, "a").id))
    request = requests.read(APPLICATION, "a", 1, 3, 8)
    assert machine.query(request.body) == data[3:11]
    page = requests.leaves_of(machine.query(requests.leaves(APPLICATION, "a", 2).body))
    assert not page.more
    assert sum(length for length, _ in page.leaves) == 200_000
    offset, (length, digest) = page.leaves[0][0], page.leaves[1]
    chunk = machine.query(requests.read(APPLICATION, "a", 2, offset, length).body)
    assert Content.of(chunk).digest == digest
    with pytest.raises(NotKeptError):
        machine.query(requests.read(APPLICATION, "b", 1, 0, 1).body)
    assert machine.query(requests.get(APPLICATION, "b").body) == b"\xc0"


# Uploads.


def stage(machine: ConfigMachine, upload: bytes, data: bytes, piece: int = 100_000) -> None:
    for at in range(0, len(data), piece):
        request = requests.stage(APPLICATION, upload, at, data[at : at + piece])
        assert requests.staged_of(machine.apply(request.body)) == min(at + piece, len(data))


@pytest.mark.parametrize("length", [0, 10, 32_768, 32_769, 36_863, 36_864, 300_000])
@pytest.mark.parametrize("piece", [7_000, 100_000])
def test_an_upload_is_the_content_of_its_bytes(length: int, piece: int) -> None:
    machine = ConfigMachine()
    data = random.Random(length).randbytes(length)
    upload = uploads.Upload()
    for at in range(0, length, piece):
        upload.add(data[at : at + piece])
    assert upload.content().digest == Content.of(data).digest
    if length:
        stage(machine, b"upload-1", data, piece)
        publish(machine, Uploaded("a", b"upload-1", length, Content.of(data).digest))
        assert machine.content_at(APPLICATION, "a", 1).bytes() == data  # type: ignore[union-attr]
        assert machine.uploads.size == 0


def test_pieces_come_in_order_and_may_be_repeated() -> None:
    machine = ConfigMachine()
    stage(machine, b"upload-1", b"x" * 1000, 500)
    before = machine.dump()
    again = requests.stage(APPLICATION, b"upload-1", 0, b"x" * 500)
    assert requests.staged_of(machine.apply(again.body)) == 1000
    with pytest.raises(UploadError, match="has 1000 bytes and the piece begins at 1500"):
        machine.apply(requests.stage(APPLICATION, b"upload-1", 1500, b"x").body)
    digest = Content.of(b"x" * 1000).digest
    for refused in (
        Uploaded("a", b"upload-1", 1001, digest),
        Uploaded("a", b"upload-1", 1000, b"y" * 20),
        Uploaded("a", b"upload-2", 1000, digest),
    ):
        with pytest.raises(UploadError):
            publish(machine, refused)
    assert machine.dump() == before


def test_the_oldest_uploads_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = uploads.Uploads()
    later = uploads.REST_US
    for number in range(uploads.UPLOADS_MAX + 1):
        staged.stage(APPLICATION, b"upload-%d" % number, 0, b"abc", number + later * (number > 3))
    assert staged.get(APPLICATION, b"upload-0") is None
    assert staged.size == 3 * uploads.UPLOADS_MAX
    monkeypatch.setattr(uploads, "UPLOADED_BYTES_MAX", 20)
    staged.stage(APPLICATION, b"upload-1", 3, b"d" * 12, 2 * later + 3)
    assert [name for _, name in staged.items] == [b"upload-4", b"upload-1"]
    with pytest.raises(UploadError, match="at most 20"):
        staged.stage(APPLICATION, b"upload-1", 15, b"d" * 6, 2 * later)


def test_uploads_that_go_on_are_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = uploads.Uploads()
    for number in range(uploads.UPLOADS_MAX):
        staged.stage(APPLICATION, b"upload-%d" % number, 0, b"abc", number)
    before = list(staged.items)
    with pytest.raises(NotExecutedError, match="4 other uploads are under way"):
        staged.stage(APPLICATION, b"upload-9", 0, b"abc", uploads.REST_US - 1)
    assert (list(staged.items), staged.size) == (before, 12)
    assert staged.stage(APPLICATION, b"upload-9", 0, b"", 5) == 0  # Where to go on: asks only.
    assert list(staged.items) == before
    monkeypatch.setattr(uploads, "UPLOADED_BYTES_MAX", 20)
    with pytest.raises(NotExecutedError):
        staged.stage(APPLICATION, b"upload-3", 3, b"d" * 9, 7)
    assert staged.stage(APPLICATION, b"upload-9", 0, b"abc", uploads.REST_US) == 3
    assert staged.get(APPLICATION, b"upload-0") is None


def test_an_upload_of_what_is_there_already_is_dropped() -> None:
    machine = ConfigMachine()
    data = b"x" * 1000
    publish(machine, Whole("a", data))
    stage(machine, b"upload-1", data)
    (made,) = publish(machine, Uploaded("a", b"upload-1", 1000, Content.of(data).digest)).made
    assert not made.changed
    assert not machine.uploads.items


def test_options() -> None:
    machine = ConfigMachine()
    options = requests.options_of(machine.apply(requests.set_options("a", relaying=False).body))
    assert options == ops.Options(False, 0)
    options = requests.options_of(machine.apply(requests.set_options("a", versions_kept=9).body))
    assert options == ops.Options(False, 9)


# What others need.


def test_the_newest_steps_are_shared() -> None:
    machine = ConfigMachine()
    for number in range(5):
        publish(machine, Whole("a", lines(50, number)), Whole("b", b"%d" % number))
    shop = application(machine)
    assert shop.since(5, everything, EVERYTHING, True) == (5, (), True)
    upto, steps, _ = shop.since(3, everything, EVERYTHING, True)
    assert (upto, [step.number for step in steps]) == (5, [4, 5])
    assert steps[1] is shop.since(4, everything, EVERYTHING, True)[1][0]
    upto, steps, _ = shop.since(3, lambda name: name == "a", EVERYTHING, True)
    assert [[change.name for change in step.changes] for step in steps] == [["a"], ["a"]]
    assert shop.since(1, lambda name: False, EVERYTHING, True) == (5, (), True)
    upto, steps, exact = shop.since(2, everything, 1, True)
    assert (upto, [step.number for step in steps], exact) == (3, [3], True)


def test_a_value_that_is_shorter_than_its_deltas_comes_whole() -> None:
    machine = ConfigMachine()
    source = random.Random(3)
    for _ in range(10):
        publish(machine, Whole("a", source.randbytes(600) + b"." * 400))
    upto, steps, _ = application(machine).since(1, everything, EVERYTHING, True)
    assert (upto, [step.number for step in steps]) == (10, [10])
    assert steps[0].changes[0].kind == Kind.WHOLE


def test_deltas_are_given_as_far_back_as_they_are_kept() -> None:
    machine, loaded = ConfigMachine(), ConfigMachine()
    for number in range(10):
        publish(machine, Whole("a", lines(50, number)), Whole(f"n{number}", b""), keep=3)
    loaded.load(machine.dump())  # Without the recent steps.

    def found(after: int) -> list[tuple[int, int]]:
        served = application(loaded).since(after, lambda n: n == "a", EVERYTHING, True)
        upto, steps, exact = served
        assert (upto, exact) == (10, True)
        return [(step.number, step.changes[0].kind) for step in steps]

    assert found(6) == [(10, Kind.WHOLE)]
    assert found(7) == [(8, Kind.DELTA), (9, Kind.DELTA), (10, Kind.DELTA)]
    assert found(9) == [(10, Kind.DELTA)]
    upto, steps, exact = application(loaded).since(6, everything, 100, True)
    assert (upto, exact) == (7, False)
    assert [change.name for change in steps[0].changes] == ["n6"]


def test_long_values_are_left_to_be_fetched() -> None:
    machine = ConfigMachine()
    data = random.Random(4).randbytes(300_000)
    stage(machine, b"upload-1", data)
    publish(machine, Uploaded("a", b"upload-1", len(data), Content.of(data).digest))
    for incremental in (True, False):
        (step,) = application(machine).since(0, everything, EVERYTHING, incremental)[1]
        (change,) = step.changes
        assert (change.kind, change.length) == (Kind.FETCH, 300_000)
        assert change.id == version_id(change.base, Kind.FETCH, change.data)


def test_whole_values_are_cut_at_steps() -> None:
    machine = ConfigMachine()
    for number in range(8):
        publish(machine, Whole(f"n{number}", b"x" * 1000), Whole(f"m{number}", b"y" * 1000))
    shop, container = application(machine), ToyContainer()
    calls = 0
    while container.step < shop.step:
        found = shop.since(container.step, everything, 3000, False)
        container.take(machine, found.upto, found.steps)
        assert found.exact == (container.step == shop.step)
        calls += 1
    assert calls == 8
    assert len(container.living()) == 16


NAMES = ["a", "b", "c/x", "c/y.json"]

names = st.sampled_from(NAMES)
texts = st.binary(max_size=6) | st.builds(lines, st.integers(0, 60), st.just(-1))


def edited(data: bytes, at: int, new: bytes) -> bytes:
    at %= len(data) + 1
    return data[:at] + new + data[at + 3 :]


changes = st.tuples(names, st.sampled_from("weeeerd"), st.integers(0, 1000), texts)


def edit_for(
    machine: ConfigMachine, model: dict[str, bytes], change: tuple[str, str, int, bytes]
) -> tuple[Whole | Delete | Rollback | Path, bytes | None]:
    """An edit, and the value it should lead to."""
    name, kind, number, data = change
    if name.endswith(".json"):
        old = model.get(name)
        if old is None or kind == "w":
            text = b'{"n": %d, "m": [1, 2, 3]}' % number
            return Whole(name, text), text
        if kind != "d":
            return Path(name, "n", str(number)), b'{"n": %d, "m": [1, 2, 3]}' % number
    if kind == "d":
        return Delete(name), None
    shop = machine.application(APPLICATION)
    if kind == "r" and shop is not None and name in shop.configurations:
        versions = shop.configurations[name].history.versions
        version = versions[number % len(versions)].version
        return Rollback(name, version), value(machine, name, version)
    data = edited(model[name], number, data) if kind == "e" and name in model else data
    return Whole(name, data), data


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(changes, min_size=1, max_size=3), min_size=1, max_size=25),
    st.integers(0, 1000),
    st.sets(names),
    st.booleans(),
    st.sampled_from([40, 400, EVERYTHING]),
    st.sampled_from([2, 64]),
)
def test_random_steps_reach_everybody(
    steps: list[list[tuple[str, str, int, bytes]]],
    start: int,
    interest: set[str],
    incremental: bool,
    bytes_max: int,
    keep: int,
) -> None:
    machine, twin = ConfigMachine(), ConfigMachine()
    model: dict[str, bytes] = {}
    models, at = [dict(model)], 0
    late = ToyContainer()
    for batch in steps:
        edits = {}
        for change in batch:
            edit, expected = edit_for(machine, model, change)
            if edit.name not in edits:
                edits[edit.name] = (edit, expected)
        body = resolved(machine, [edit for edit, _ in edits.values()], keep=keep)
        assert machine.apply(body) == twin.apply(body)
        for name, (_, expected) in edits.items():
            model.pop(name, None)
            if expected is not None:
                model[name] = expected
        shop = machine.application(APPLICATION)
        if shop is not None and shop.step > at:
            assert shop.step == at + 1
            at = shop.step
            models.append(dict(model))
            if at <= start % len(steps):
                # Served step by step, as one who is in step, up to some step.
                late.take(machine, *shop.since(at - 1, everything, EVERYTHING, True)[:2])
    assert machine.dump() == twin.dump()
    loaded = ConfigMachine()
    loaded.load(machine.dump())
    assert loaded.dump() == machine.dump()
    if not at:
        return
    assert late.living() == dict(sorted(models[late.step].items()))
    for source in (machine, loaded):
        container = ToyContainer(late.step)
        container.values = {n: v for n, v in late.values.items() if n in interest}
        container.versions = {n: v for n, v in late.versions.items() if n in interest}
        shop = application(source)
        exact = True
        while container.step < at:
            found = shop.since(
                container.step, interest.__contains__, bytes_max, incremental and exact
            )
            assert found.upto > container.step
            container.take(source, found.upto, found.steps)
            exact = found.exact
        assert container.living() == {n: v for n, v in sorted(model.items()) if n in interest}


# Bytes.


def full_machine() -> ConfigMachine:
    machine = ConfigMachine()
    source = random.Random(5)
    long = source.randbytes(150_000)
    publish(machine, Whole("long", long), Whole("short", b"1"))
    publish(machine, Whole("long", long[:70_000] + b"new" + long[70_000:]))
    publish(machine, Whole("long", source.randbytes(100_000)), Delete("short"))
    machine.apply(requests.set_options("other", relaying=False).body)
    stage(machine, b"upload-1", source.randbytes(90_000))
    return machine


def test_a_dump_is_all_there_is() -> None:
    machine, copy = full_machine(), ConfigMachine()
    copy.load(machine.dump())
    assert copy.dump() == machine.dump()
    for body in (
        resolved(machine, [Rollback("long", 2), Whole("short", b"2")]),
        requests.stage(APPLICATION, b"upload-1", 90_000, b"more").body,
    ):
        assert copy.apply(body) == machine.apply(body)
    for version in (1, 2, 3, 4):
        assert value(copy, "long", version) == value(machine, "long", version)
    assert copy.dump() == machine.dump()
    assert [each.name for each in copy.applications()] == ["other", APPLICATION]


def test_a_dump_has_equal_chunks_once() -> None:
    machine, copy = ConfigMachine(), ConfigMachine()
    data = random.Random(6).randbytes(400_000)
    for number, long in enumerate((data, data[:300_000] + b"x" * 100_000)):
        upload = b"upload-%d" % number
        stage(machine, upload, long)
        publish(machine, Uploaded("a", upload, len(long), Content.of(long).digest))
    publish(machine, Whole("b", data[:200_000]), Whole("c", data[:200_000]))
    assert len(machine.dump()) < 520_000
    copy.load(machine.dump())
    assert copy.dump() == machine.dump()
    for version, long in ((1, data), (2, data[:300_000] + b"x" * 100_000)):
        content = copy.content_at(APPLICATION, "a", version)
        assert content is not None
        assert content.bytes() == long
    first, second = (copy.content_at(APPLICATION, name, 1) for name in "bc")
    assert first is not None
    assert second is not None
    assert next(first.leaves()) is next(second.leaves())


@pytest.mark.parametrize("cut", [0, 3, 4, 100, -1])
def test_what_is_no_dump_changes_nothing(cut: int) -> None:
    machine = full_machine()
    data = machine.dump()
    for broken in (data[:cut], data + b"x"):
        with pytest.raises(WireError):
            machine.load(broken)
    assert machine.dump() == data


def test_refusals_of_the_primary_name_the_place() -> None:
    machine = ConfigMachine()
    with pytest.raises(UnresolvableError, match=r"a\.json of shop does not exist.*line 1, column"):
        publish(machine, Whole("a.json", b'{"a": }'))
    publish(machine, Whole("a.json", b'{"a": 1}'))
    with pytest.raises(SwellError, match="at version 1"):
        publish(machine, Path("a.json", "a.b", "1"))
