"""From events to rows: one row or many, numbers without gaps, lives that learn who they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from swell.events import Event, MemberAlive, Started, arrow
from swell.events.records import (
    Acknowledged,
    Applied,
    CrashFound,
    LifeBegan,
    LifeEnded,
    Located,
    Published,
    Rejected,
    Sent,
    Span,
    Stored,
    Subscribed,
)
from swell.events.rows import Collection, Life, Recorder, event_count, row_count
from swell.events.schema import VERSION, Kind

WALL_NS = 1_700_000_000_123_456_789
MONO_NS = 77_000_001_999
SEALED_US = 1_700_000_000_000_000


def collection() -> Collection:
    return Collection(1_000_000, lambda piles: None)


def take(recorder: Recorder, *events: Event) -> None:
    for number, event in enumerate(events):
        recorder.take(WALL_NS + number * 1000, MONO_NS + number * 1000, event)


def rows(taken: Collection) -> dict[Kind, list[dict[str, Any]]]:
    found: dict[Kind, list[dict[str, Any]]] = {}
    for kind, batch in arrow.batches(taken.taken()):
        batch.validate(full=True)
        assert batch.schema == arrow.BATCH_SCHEMA
        found.setdefault(kind, []).extend(batch.to_pylist())
    return found


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """What is not the same in all rows of a life."""
    same = {"schema", "run", "at", "mono_us", "node", "role", "start", "row", "site", "zone"}
    return {name: value for name, value in row.items() if name not in same and value is not None}


def test_a_row_has_its_life_and_its_clocks() -> None:
    into = collection()
    take(Recorder(into, Life("run", "n1", 3, "s1")), Started(17, 4, 9), CrashFound("n2", 5))
    found = rows(into)
    (start,), (crash,) = found[Kind.START], found[Kind.CRASH_FOUND]
    life = {"schema": VERSION, "run": "run", "node": "n1", "role": "node", "start": 3}
    for row in (start, crash):
        assert row.items() >= (life | {"site": "s1", "zone": 4}).items()
    assert (start["row"], crash["row"]) == (1, 2)
    assert start["at"] == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert start["mono_us"] == 77_000_001
    assert crash["mono_us"] == 77_000_002
    assert filled(start) == {"epoch": 9}
    assert filled(crash) == {"epoch": 5, "peer": "n2"}


def test_a_record_that_lists_stands_for_a_row_each() -> None:
    into = collection()
    take(
        Recorder(into, Life("run", "n1", 1)),
        Acknowledged("shop", None, ["c1", "c2", "c3"], 5, 8, 2),
        Sent("shop", ["c9"], 9, 9, 2, 70),
        Acknowledged("shop", "pay/*", ["c4"], 9, 9, 2),
        LifeEnded(),
    )
    found = rows(into)
    acks = found[Kind.ACK]
    assert [(row["peer"], row["row"], row["sequence"]) for row in acks] == [
        ("c1", 1, 8), ("c2", 2, 8), ("c3", 3, 8), ("c4", 5, 9),
    ]  # fmt: skip
    assert [row["name"] for row in acks] == [None, None, None, "pay/*"]
    assert [row["row"] for row in found[Kind.DELIVER]] == [4]
    assert [row["row"] for row in found[Kind.STOP]] == [6]


def test_records_may_share_a_list() -> None:
    into = collection()
    branch, others = ("c1", "c2"), ("c2", "c3", "c1")
    take(
        Recorder(into, Life("run", "n1", 1)),
        *(Acknowledged("shop", None, peers, n, n, 2) for n, peers in ((1, branch), (2, others))),
        Acknowledged("shop", None, branch, 3, 3, 2),
    )
    found = [(row["peer"], row["row"], row["sequence"]) for row in rows(into)[Kind.ACK]]
    peers = [*((peer, 1) for peer in branch), *((peer, 2) for peer in others), ("c1", 3), ("c2", 3)]
    assert found == [(peer, row, step) for row, (peer, step) in enumerate(peers, 1)]


def test_many_lives_share_a_collection_and_a_span() -> None:
    into = collection()
    span = Span("shop", "limits", 3, 5, 9, b"id", b"base", 2, 40, SEALED_US)
    other = Span("shop", "limits", 6, 6, 10, b"di", b"id", 2, 41, SEALED_US + 7)
    recorders = [Recorder(into, Life("run", f"c{n}", n, "s1")) for n in (1, 2)]
    for recorder in recorders:
        take(recorder, LifeBegan("container"), Applied(span, "n1"))
    take(recorders[0], Applied(other, "c2"))
    found = rows(into)[Kind.APPLY]
    assert [(row["node"], row["start"], row["row"], row["peer"]) for row in found] == [
        ("c1", 1, 2, "n1"), ("c2", 2, 2, "n1"), ("c1", 1, 3, "c2"),
    ]  # fmt: skip
    assert {row["role"] for row in found} == {"container"}
    assert filled(found[0]) == {
        "application": "shop", "name": "limits", "epoch": 2, "first": 3, "sequence": 5, "step": 9,
        "digest": b"id", "base": b"base", "bytes": 40, "peer": "n1",
        "sent_at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    }  # fmt: skip
    assert found[2]["sent_at"] - found[0]["sent_at"] == timedelta(microseconds=7)
    assert (found[2]["first"], found[2]["sequence"], found[2]["digest"]) == (6, 6, b"di")


def test_the_other_kinds_fill_in_what_they_know() -> None:
    into = collection()
    take(
        Recorder(into, Life("run", "n1", 1)),
        Stored("shop", "limits", 4, 7, b"i", b"b", "ann", 3, 12, 1_700_000_000_000_001),
        Published("shop", ("limits", "pay/x"), None, 3, 99),
        Subscribed("shop", ("",), "c1", 0, 3),
        Rejected("shop", "limits", 4, 7, None, "no"),
        Rejected("shop", "limits", 5, 8, b"i", "no", SEALED_US),
        Located((1.5, -2.0, 0.25)),
    )
    found = rows(into)
    assert filled(found[Kind.STORE][0]) == {
        "application": "shop", "name": "limits", "epoch": 3, "first": 4, "sequence": 4, "step": 7,
        "digest": b"i", "base": b"b", "source": "ann", "bytes": 12,
        "sent_at": datetime(2023, 11, 14, 22, 13, 20, 1, UTC),
    }  # fmt: skip
    assert [row["name"] for row in found[Kind.PUBLISH]] == ["limits", "pay/x"]
    assert found[Kind.SUBSCRIBE][0]["name"] == ""
    unknown, known = found[Kind.REJECT]
    assert (filled(unknown)["reason"], unknown["sent_at"]) == ("no", None)
    assert known["sent_at"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert found[Kind.COORDINATE][0]["coordinate"] == [1.5, -2.0, 0.25]


def test_what_is_no_row_takes_no_number() -> None:
    into = collection()
    take(Recorder(into, Life("run", "n1", 1)), MemberAlive(3, 1), LifeEnded("tired"))
    (stop,) = rows(into)[Kind.STOP]
    assert (stop["row"], stop["reason"]) == (1, "tired")


def test_counting() -> None:
    into = collection()
    take(Recorder(into, Life("run", "n1", 1)), Sent("a", ["x", "y"], 1, 1, 1, 1), LifeEnded())
    piles = into.taken()
    assert (event_count(piles), row_count(piles)) == (2, 3)
    assert into.taken() == {}


def test_a_full_pile_is_handed_over_by_itself() -> None:
    told: list[int] = []
    into = Collection(3, lambda piles: told.append(event_count(piles)))
    recorder = Recorder(into, Life("run", "n1", 1))
    take(recorder, CrashFound("n2", 5), *[LifeEnded()] * 7)
    assert told == [3, 3]
    left = {event: len(pile.events) for event, pile in into.taken().items()}
    assert left == {CrashFound: 1, LifeEnded: 1}


def test_the_memory_of_the_application_is_left_alone() -> None:
    into = collection()
    recorder = Recorder(into, Life("run", "n1", 1, "s"))
    take(recorder, *(CrashFound(f"n{number}", number) for number in range(5000)))
    take(recorder, *(Sent("a", ["x", "y"], 1, number, 1, 1) for number in range(5000)))
    theirs, ours = pa.default_memory_pool(), arrow.POOL
    before = theirs.bytes_allocated(), ours.bytes_allocated()
    made = list(arrow.batches(into.taken()))
    assert sum(batch.num_rows for _, batch in made) == 15_000
    assert theirs.bytes_allocated() - before[0] < 4096
    assert ours.bytes_allocated() - before[1] > 15_000 * 8


def test_constant_columns_of_any_length() -> None:
    for count in (1, 2, 3, 255, 256, 257, 5000):
        into = collection()
        take(Recorder(into, Life("run", "n1", 1, "s")), *[LifeEnded("x")] * count)
        found = rows(into)[Kind.STOP]
        assert len(found) == count
        assert {(row["site"], row["reason"], row["peer"]) for row in found} == {("s", "x", None)}
