"""Lists of instances as documents: changes by lines, what differs, picking by weight (RIP-23)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.access.grants import Grant, Granted, Right
from swell.client.interests import covers
from swell.config import lines, requests
from swell.config.access import refusal
from swell.config.content import Content
from swell.config.delivery.interest import matcher
from swell.config.edits import Delete, Edit, Line, Lines, Path, Rollback, Whole
from swell.config.machine import ConfigMachine
from swell.config.names import INSTANCES
from swell.config.splices import apply_to
from swell.errors import EditRefusedError, InvalidNameError
from swell.services.instances import (
    PROTECTED,
    TEXT_BYTES_MAX,
    Instance,
    Instances,
    NoInstanceError,
    check_lines,
    checked,
    following,
    parse,
)
from tests.unit.config_toys import APPLICATION, publish

LEASE = "00112233445566ff"
KEYS = st.sampled_from([f"h{n}:{port}" for n in range(6) for port in (1, 22)] + ["z", "ä:1", "~"])


def instance(id: str = "a:1", **fields: object) -> Instance:
    return Instance(**{"lease": LEASE, "host": "a", "port": 1, "id": id, **fields})  # type: ignore[arg-type]


def document(*instances: Instance, protected: bool = False) -> bytes:
    rows = {one.id: one.text for one in instances}
    if protected:
        rows[PROTECTED] = "1"
    keys = sorted(rows, key=str.encode)
    return b"".join(lines.encode_line(key, rows[key]) for key in keys)


# Lines.


def as_document(rows: dict[str, str]) -> bytes:
    return b"".join(f"{key}\t{rows[key]}\n".encode() for key in sorted(rows, key=str.encode))


def expected(rows: dict[str, str], line: Line) -> dict[str, str]:
    """What a dictionary would make of it."""
    there = rows.get(line.key)
    if line.only is not None:
        if line.only == "" and there is not None:
            return rows
        if line.only and (there is None or not there.startswith(line.only)):
            return rows
    others = {key: text for key, text in rows.items() if key != line.key}
    return others if line.text is None else {**others, line.key: line.text}


TEXTS = st.one_of(st.text("xy{", max_size=6), st.integers(500, 1600).map(lambda n: "x" * n))
LINE = st.builds(
    Line,
    KEYS,
    st.one_of(st.none(), TEXTS),
    st.one_of(st.none(), st.just(""), st.text("xy", min_size=1, max_size=2)),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, TEXTS), st.lists(LINE, max_size=4, unique_by=lambda line: line.key))
def test_lines_do_what_a_dictionary_does(rows: dict[str, str], changes: list[Line]) -> None:
    before = as_document(rows)
    splices = lines.resolve(Content.of(before), changes)
    for line in changes:
        rows = expected(rows, line)
    after = apply_to(before, splices) if splices else before
    assert after == as_document(rows)
    if after == before:
        assert not splices
    for key in rows:
        assert lines.find(Content.of(after), key).text == rows[key].encode()


def test_a_long_list_is_not_read_whole() -> None:
    rows = {f"host{n:06}:80": "x" * 100 for n in range(20_000)}
    content = Content.of(as_document(rows))

    class Counting:
        bytes = 0

        def __len__(self) -> int:
            return len(content)

        def read(self, offset: int, length: int) -> bytes:
            Counting.bytes += length
            return content.read(offset, length)

    (splice,) = lines.resolve(Counting(), [Line("host012345:80", "new")])
    assert splice.data == b"host012345:80\tnew\n"
    assert content.read(splice.offset, splice.length) == b"host012345:80\t" + b"x" * 100 + b"\n"
    assert Counting.bytes < 40_000


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "a\nb", "x" * 256, "\x7f"])
def test_bad_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidNameError):
        lines.resolve(Content.of(b""), [Line(key, "")])


def test_bad_lines_are_refused() -> None:
    for bad in ([Line("a", "x\ny")], [Line("a", "x" * 20_000)], [Line("a", "1"), Line("a", "2")]):
        with pytest.raises(EditRefusedError):
            lines.resolve(Content.of(b""), bad)


@pytest.mark.parametrize(
    "edit",
    [
        Whole(INSTANCES, b""),
        Delete(INSTANCES),
        Path(INSTANCES, "a", "1"),
        Rollback(INSTANCES, 1),
        Lines("@other", (Line("a", "b"),)),
        Lines("list", (Line("a", "b"),)),
    ],
)
def test_what_is_reserved_is_changed_by_lines_and_nothing_else_is(edit: Edit) -> None:
    with pytest.raises(InvalidNameError):
        requests.publish("shop", [edit])


@pytest.mark.parametrize(
    ("interest", "matched"),
    [
        ((), False), (("*",), False), (("a*",), False), ((INSTANCES,), True), (("@*",), True),
        (("*", INSTANCES), True), (("*", "@x*"), False), (("@inst*", "a"), True),
    ],
)  # fmt: skip
def test_what_is_reserved_is_followed_on_request(interest: tuple[str, ...], matched: bool) -> None:
    assert matcher(interest)(INSTANCES) is matched
    assert matcher(interest)("a") is not {"a", "a*", "*"}.isdisjoint(interest or ("*",))
    assert covers(interest, (INSTANCES,)) is matched


def test_what_is_reserved_is_listed_on_request() -> None:
    machine = ConfigMachine()
    publish(machine, Whole("a", b"1"), Lines(INSTANCES, (instance().line(),)), Whole("z", b"2"))

    def names(prefix: str) -> list[str]:
        body = requests.list_names(APPLICATION, prefix).body
        return [row.name for row in requests.names_of(machine.query(body))]

    assert (names(""), names("@"), names(INSTANCES)) == (["a", "z"], [INSTANCES], [INSTANCES])
    body = requests.list_applications(0, services=True).body
    other = ConfigMachine()
    other.load(machine.dump())
    for each in (machine, other):
        rows = requests.applications_of(each.query(body))
        assert [row.name for row in rows] == [APPLICATION]
    assert requests.applications_of(ConfigMachine().query(body)) == ()


def test_lists_are_written_with_the_right_to_write_them() -> None:
    body = requests.publish(APPLICATION, [Lines(INSTANCES, (instance().line(),))]).body
    for prefix, right, allowed in (
        ("", Right.WRITE, True),
        (INSTANCES, Right.WRITE, True),
        ("pay/", Right.WRITE, False),
        ("", Right.READ, False),
    ):
        access = Granted([Grant(APPLICATION, prefix, (right,))])
        assert (not refusal(access, body)) is allowed


# Instances.


def test_an_instance_survives_its_line() -> None:
    whole = instance(weight=2.5, check="http:/health", ttl_s=3.0, healthy=False, since=7,
                     metadata={"zone": "é\t\n"})  # fmt: skip
    assert list(parse(document(whole))) == [whole]
    assert whole.text.startswith(whole.mark)
    assert "\n" not in whole.text
    assert checked(whole) == whole


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": -1.0}, {"weight": float("nan")}, {"port": 65_536}, {"port": -1}, {"host": ""},
        {"check": "ping"}, {"check": "http:/a b"}, {"check": "tcp", "port": 0}, {"ttl_s": 0.5},
        {"lease": "xyz"}, {"metadata": {"a": 1}}, {"metadata": {"a": "x" * TEXT_BYTES_MAX}},
        {"id": "!a"}, {"id": ""}, {"id": "a b"},
    ],
)  # fmt: skip
def test_nonsense_is_no_instance(fields: dict[str, object]) -> None:
    bad = instance(**fields)  # type: ignore[arg-type]
    with pytest.raises(NoInstanceError):
        checked(bad)
    with pytest.raises((NoInstanceError, InvalidNameError)):
        check_lines(Lines(INSTANCES, (bad.line(),)))


def test_clients_do_not_mark_lists() -> None:
    with pytest.raises(InvalidNameError):
        check_lines(Lines(INSTANCES, (Line(PROTECTED, "1"),)))
    check_lines(Lines(INSTANCES, (instance().line(), Line("b:1", None))))


def test_what_is_no_instance_is_left_out_and_counted() -> None:
    good = instance("b:1")
    found = parse(b"a:1\tnonsense\n" + document(good) + b"\xff\t{}\n")
    assert (list(found), found.unreadable) == ([good], 2)
    later, change = following(found, document(good))
    assert (later.unreadable, change) == (0, ((), (), ()))


LISTS = st.tuples(
    st.dictionaries(KEYS, st.builds(lambda w, h: (w, h), st.integers(0, 3), st.booleans())),
    st.booleans(),
)


def listed(rows: dict[str, tuple[int, bool]]) -> list[Instance]:
    return [instance(id, weight=float(w), healthy=h) for id, (w, h) in rows.items()]


@settings(max_examples=100, deadline=None)
@given(st.lists(LISTS, min_size=1, max_size=5))
def test_following_says_what_comparing_would(
    history: list[tuple[dict[str, tuple[int, bool]], bool]],
) -> None:
    before = parse(b"")
    for rows, protected in history:
        instances = {one.id: one for one in listed(rows)}
        after, change = following(before, document(*instances.values(), protected=protected))
        assert after.by_id == instances
        assert after.protected == protected
        assert after.healthy == sum(one.healthy for one in instances.values())
        was = before.by_id
        assert {one.id for one in change.added} == instances.keys() - was.keys()
        assert {one.id: one for one in change.removed} == {
            id: was[id] for id in was.keys() - instances.keys()
        }
        assert {one.id: one for one in change.changed} == {
            id: one for id, one in instances.items() if id in was and was[id] != one
        }
        before = after


# Picking.


def shares(instances: Instances) -> dict[str, int]:
    rng, found = Random(1), dict[str, int]()
    for _ in range(2_000):
        one = instances.pick(rng)
        if one is not None:
            found[one.id] = found.get(one.id, 0) + 1
    return found


def test_picking_follows_the_weights_of_the_healthy() -> None:
    rows = (
        instance("a:1"),
        instance("b:1", weight=3.0),
        instance("c:1", weight=0.0),
        instance("d:1", healthy=False),
    )
    found = shares(parse(document(*rows)))
    assert found.keys() == {"a:1", "b:1"}
    assert 2.5 < found["b:1"] / found["a:1"] < 3.5
    protected = shares(parse(document(*rows, protected=True)))
    assert protected.keys() == {"a:1", "b:1", "d:1"}


def test_nobody_to_pick() -> None:
    assert parse(b"").pick(Random(1)) is None
    assert parse(document(instance(healthy=False))).pick(Random(1)) is None
    assert parse(document(instance(weight=0.0))).pick(Random(1)) is None
