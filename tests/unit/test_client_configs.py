"""The client's side of configurations: publishing of any length, conditions, waiting, readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

import swell
from swell.client.configs import Configs
from swell.client.documents import Document
from swell.client.edits import Edit
from swell.client.interests import check_names, covers
from swell.client.session_pending import Answer
from swell.client.uploads import ATTEMPTS_MAX, Held
from swell.client.watching import BUFFER_MAX, EVERYTHING, Watch
from swell.config import operations as ops
from swell.config import reports, requests
from swell.config.edits import WHOLE_BYTES_MAX, Splices, Uploaded, Whole
from swell.config.machine import ConfigMachine
from swell.config.operations import CONFIG_SERVICE, PIECE_BYTES_MAX
from swell.config.reports import Await, Awaited, StatusOf, StatusReport, StatusRow, Tally
from swell.container import documents as kept
from swell.errors import (
    ConfigurationError,
    InvalidNameError,
    OutcomeUnknownError,
    RefusedError,
    StaleVersionError,
    SwellError,
    TooLargeError,
    UnavailableError,
    WireError,
)
from tests.unit.config_toys import APPLICATION, publish, resolved, value

MEGABYTE = 1024 * 1024


class ToyCluster:
    """One machine behind a client's requests. `before` sees each of them first."""

    def __init__(self) -> None:
        self.machine = ConfigMachine()
        self.before: Callable[[Any], None] = lambda request: None
        self.heard: list[Any] = []
        self.bytes_heard = 0
        self.configs = Configs(self.call, APPLICATION, Held())

    async def call(
        self, service: int, place: int, read: int, body: bytes, deadline_s: float | None
    ) -> Answer:
        assert service == CONFIG_SERVICE
        request = ops.decode(body)
        self.heard.append(request)
        self.bytes_heard += len(body)
        await asyncio.sleep(0)
        self.before(request)
        try:
            if read:
                return Answer(self.machine.query(body))
            if isinstance(request, ops.Publish):
                body = resolved(self.machine, request.edits, request.author)
            return Answer(self.machine.apply(body))
        except SwellError as error:
            raise RefusedError("refused", str(error)) from None

    def count(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.heard)

    def published(self) -> list[Edit]:
        return [
            edit
            for request in self.heard
            if isinstance(request, ops.Publish)
            for edit in request.edits
        ]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def noise(size: int, seed: int = 7) -> bytes:
    """Bytes without any order, the same every time."""
    return Random(seed).randbytes(size)


# Conditions.


def test_a_condition_that_fails_says_what_is_there() -> None:
    async def scenario() -> None:
        configs = ToyCluster().configs
        first = await configs.put("a.json", "{}", condition=swell.ABSENT)
        assert (first.step, first.version, first.length, first.changed) == (1, 1, 2, True)
        with pytest.raises(StaleVersionError, match="is at version 1") as caught:
            await configs.put("a.json", "[]", condition=swell.ABSENT)
        error = caught.value
        assert (error.name, error.version, error.id, error.deleted) == (
            "a.json",
            1,
            first.id,
            False,
        )
        second = await configs.set("a.json", "x", "1", condition=first.id.hex())
        with pytest.raises(StaleVersionError) as caught:
            await configs.unset("a.json", "x", condition=first.id)
        assert caught.value.id == second.id
        gone = await configs.delete("a.json", condition=second.id)
        with pytest.raises(StaleVersionError) as caught:
            await configs.delete("a.json", condition=second.id)
        assert (caught.value.version, caught.value.id, caught.value.deleted) == (3, gone.id, True)
        with pytest.raises(StaleVersionError, match="does not exist") as caught:
            await configs.delete("never", condition=first.id)
        assert (caught.value.name, caught.value.version) == ("never", 0)
        with pytest.raises(ConfigurationError, match="40 hexadecimal digits"):
            await configs.put("a.json", "{}", condition="nonsense")

    run(scenario())


@pytest.mark.parametrize("name", ["a of b", "a is at version 7 (x)", "x does not exist, which is"])
def test_a_refusal_is_read_whatever_the_name(name: str) -> None:
    async def scenario() -> None:
        configs = ToyCluster().configs
        made = await configs.put(name, "1")
        with pytest.raises(StaleVersionError) as caught:
            await configs.put(name, "2", condition=bytes([1]) * 20)
        assert (caught.value.name, caught.value.id) == (name, made.id)

    run(scenario())


def test_other_refusals_pass_as_they_are() -> None:
    async def scenario() -> None:
        configs = ToyCluster().configs
        with pytest.raises(RefusedError, match="line 1, column 2"):
            await configs.put("a.json", "{")
        await configs.put("a", "1")
        with pytest.raises(RefusedError, match="not kept"):
            await configs.get("a", 9)
        with pytest.raises(ConfigurationError, match="no edit"):
            await configs.publish(["a"])  # type: ignore[list-item]
        assert requests.conflict_of("conflict: something else", "shop") is None

    run(scenario())


def test_several_changes_are_one_step_and_tell_what_changed() -> None:
    async def scenario() -> None:
        configs = ToyCluster().configs
        await configs.put("a", "1")
        made = await configs.publish([swell.edits.put("a", "1"), swell.edits.put("b", "2")])
        assert [(m.name, m.step, m.changed) for m in made] == [("a", 2, False), ("b", 2, True)]
        with pytest.raises(StaleVersionError):
            await configs.publish(
                [swell.edits.put("c", "3"), swell.edits.delete("a", bytes([1]) * 20)]
            )
        assert [row.name for row in await configs.list()] == ["a", "b"]

    run(scenario())


def test_reading_back() -> None:
    async def scenario() -> None:
        configs = ToyCluster().configs
        await configs.put("a.json", '{"x": 1}\n', author="ann")
        await configs.set("a.json", "x", "2")
        found = await configs.get("a.json", 1)
        assert found is not None
        assert await found.json() == {"x": 1}
        assert (found.version, found.author, found.deleted, found.length) == (1, "ann", False, 9)
        assert [line async for line in configs.diff("a.json", 1)][2:] == [
            "@@ -1 +1 @@",
            '-{"x": 1}',
            '+{"x": 2}',
        ]
        assert [past.version for past in await configs.history("a.json")] == [1, 2]
        await configs.delete("a.json")
        gone = await configs.get("a.json")
        assert gone is not None
        assert gone.deleted
        with pytest.raises(RefusedError, match="is a deletion"):
            await gone.bytes()
        assert [line async for line in configs.diff("a.json", 3, 1)][-1] == '+{"x": 1}'
        assert await configs.get("never") is None
        with pytest.raises(RefusedError, match="no configuration never"):
            await anext(configs.diff("never", 1))

    run(scenario())


def test_lists_of_any_length() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        for start in range(0, 2500, 250):
            publish(cluster.machine, *(Whole(f"n{k:05}", b"") for k in range(start, start + 250)))
        rows = await cluster.configs.list()
        assert [row.name for row in rows] == [f"n{k:05}" for k in range(2500)]
        assert len(await cluster.configs.list("n0001")) == 10

    run(scenario())


# Long values.


def test_a_long_value_is_staged_once_and_edited_by_deltas() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        configs, data, seen = cluster.configs, noise(3 * MEGABYTE + 5), []
        await configs.put("big", data, progress=lambda *now: seen.append(now))
        assert seen[-1] == (len(data), len(data))
        assert [now for now, _ in seen] == sorted({now for now, _ in seen})
        assert cluster.count(ops.Stage) == 7
        assert isinstance(cluster.published()[-1], Uploaded)
        before = cluster.bytes_heard
        edited = data[:1000] + b"new" + data[1000:2_000_000] + data[2_000_100:]
        made = await configs.put("big", edited)
        assert value(cluster.machine, "big") is None, "too long to come with an answer"
        assert isinstance(cluster.published()[-1], Splices)
        assert cluster.bytes_heard - before < 1000
        assert cluster.count(ops.ReadRange) == 0, "the base was at hand"
        found = await configs.get("big")
        assert found is not None
        assert found.id == made.id
        assert await found.bytes() == edited
        again = await configs.put("big", edited)
        assert (again.changed, again.version) == (False, made.version)

    run(scenario())


def test_only_chunks_that_are_not_in_the_new_value_are_fetched() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        data = noise(2 * MEGABYTE)
        await cluster.configs.put("big", data)
        other = Configs(cluster.call, APPLICATION, Held())
        edited = data[:700_000] + b"x" + data[700_001:]
        await other.put("big", edited)
        assert isinstance(cluster.published()[-1], Splices)
        read = [request for request in cluster.heard if isinstance(request, ops.ReadRange)]
        assert sum(request.length for request in read) < 64 * 1024
        found = await other.get("big")
        assert found is not None
        assert await found.bytes() == edited

    run(scenario())


def test_who_is_overtaken_makes_the_delta_again_and_in_the_end_stages() -> None:
    async def scenario(rivals: int) -> list[Edit]:
        cluster = ToyCluster()
        data = noise(WHOLE_BYTES_MAX + 1)
        await cluster.configs.put("big", data)
        left = rivals

        def overtake(request: Any) -> None:
            nonlocal left
            if isinstance(request, ops.Publish) and left:
                left -= 1
                publish(cluster.machine, Whole("big", b"%04d" % left + data[4:WHOLE_BYTES_MAX]))

        cluster.before = overtake
        await cluster.configs.put("big", b"last" + data[4:])
        found = await cluster.configs.get("big")
        assert found is not None
        assert await found.bytes() == b"last" + data[4:]
        return cluster.published()[1:]

    assert len(asyncio.run(scenario(2))) == 3
    tried = asyncio.run(scenario(1000))
    assert [type(edit) for edit in tried] == [Splices] * ATTEMPTS_MAX + [Uploaded]


def test_a_failing_condition_on_a_long_value_is_told_before_it_is_sent() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        data = noise(MEGABYTE)
        made = await cluster.configs.put("big", data)
        staged = cluster.count(ops.Stage)
        with pytest.raises(StaleVersionError) as caught:
            await cluster.configs.put("big", data[::-1], condition=swell.ABSENT)
        assert caught.value.id == made.id
        with pytest.raises(StaleVersionError, match="does not exist"):
            await cluster.configs.put("other", data, condition=made.id)
        assert cluster.count(ops.Stage) == staged
        await cluster.configs.put("big", data[::-1], condition=made.id)

    run(scenario())


def test_who_may_write_and_not_read_sends_all_of_it() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        data = noise(WHOLE_BYTES_MAX + 1)
        await cluster.configs.put("big", data)

        def refuse(request: Any) -> None:
            if isinstance(request, ops.Get | ops.GetLeaves | ops.ReadRange):
                raise RefusedError("refused", "this token may not read shop/big")

        cluster.before = refuse
        made = await cluster.configs.put("big", b"x" + data)
        assert isinstance(cluster.published()[-1], Uploaded)
        assert (made.version, made.length) == (2, len(data) + 1)

    run(scenario())


def test_values_that_do_not_fit_one_command_together() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        piece = WHOLE_BYTES_MAX - 1
        values = {f"n{k}": noise(piece, k) for k in range(10)}
        edits = [swell.edits.put(name, data) for name, data in values.items()]
        made = await cluster.configs.publish(edits)
        assert {one.step for one in made} == {1}
        assert {name: value(cluster.machine, name) for name in values} == values
        with pytest.raises(TooLargeError, match="publish some before"):
            await cluster.configs.publish(
                [swell.edits.put(f"m{k}", noise(piece + 2)) for k in range(5)]
            )

    run(scenario())


@pytest.mark.parametrize("error", [RefusedError("refused", "ahead"), OutcomeUnknownError("?")])
def test_staging_goes_on_where_the_cluster_is(error: SwellError) -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        data = noise(6 * PIECE_BYTES_MAX + 1)
        fails = {PIECE_BYTES_MAX, 4 * PIECE_BYTES_MAX}

        def fail(request: Any) -> None:
            if isinstance(request, ops.Stage) and request.offset in fails:
                fails.remove(request.offset)
                raise error

        cluster.before = fail
        await cluster.configs.put("big", data)
        found = await cluster.configs.get("big")
        assert found is not None
        assert await found.bytes() == data
        assert not fails

    run(scenario())


def test_staging_that_gets_nowhere_ends() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()

        def fail(request: Any) -> None:
            if isinstance(request, ops.Stage) and request.data:
                raise RefusedError("refused", "the value has too many bytes")

        cluster.before = fail
        with pytest.raises(RefusedError, match="too many bytes"):
            await cluster.configs.put("big", bytes(MEGABYTE))
        assert cluster.count(ops.Publish) == 0

    run(scenario())


def test_bytes_that_are_not_what_the_digest_says_are_not_shown() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        await cluster.configs.put("big", noise(MEGABYTE))
        found = await cluster.configs.get("big")
        assert found is not None
        found.digest = bytes(len(found.digest))
        with pytest.raises(WireError, match="not what its digest says"):
            await found.bytes()

    run(scenario())


def test_a_deadline_is_that_of_the_whole_operation() -> None:
    async def scenario() -> None:
        cluster = ToyCluster()
        with pytest.raises(UnavailableError, match=r"within 0\.005 s"):
            await cluster.configs.put("big", noise(8 * MEGABYTE), deadline_s=0.005)
        with pytest.raises(ConfigurationError):
            await cluster.configs.get("a", deadline_s=0.0)

    run(scenario())


# Waiting.


class ToyPrimary:
    """Answers about delivery what a test says; None: not in time."""

    def __init__(self, *answers: Awaited | StatusReport | None) -> None:
        self.answers = list(answers)
        self.turns_s: list[float | None] = []
        self.heard: list[Await | StatusOf] = []
        self.configs = Configs(self.call, APPLICATION, Held())

    async def call(
        self, service: int, place: int, read: int, body: bytes, deadline_s: float | None
    ) -> Answer:
        assert service == reports.REPORT_SERVICE
        self.turns_s.append(deadline_s)
        self.heard.append(reports.decode(body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await asyncio.sleep(0.001)
            raise UnavailableError("no answer")
        return Answer(reports.encode_answer(answer))


def test_waiting_tells_of_progress_until_it_is_complete() -> None:
    async def scenario() -> None:
        some = Awaited(False, applied=Tally(1), silent=Tally(2))
        all_ = Awaited(True, applied=Tally(3))
        primary = ToyPrimary(some, None, None, some, all_)
        seen: list[swell.Report] = []
        report = await primary.configs.wait(7, level="delivered", progress=seen.append)
        assert report == all_
        assert seen == [some, some, all_]
        asked = primary.heard[0]
        assert isinstance(asked, Await)
        assert (asked.step, asked.level) == (7, 1)
        turns_s = [turn_s or 0.0 for turn_s in primary.turns_s]
        assert turns_s[1] < turns_s[2] < turns_s[3], "longer turns where answers come late"
        with pytest.raises(ConfigurationError, match="delivered or applied"):
            await primary.configs.wait(7, level="done")

    run(scenario())


def test_waiting_ends_with_the_deadline() -> None:
    async def scenario() -> None:
        some = Awaited(False, silent=Tally(2))
        report = await ToyPrimary(some).configs.wait(1, deadline_s=0.02)
        assert report == some
        with pytest.raises(UnavailableError):
            await ToyPrimary(None).configs.wait(1, deadline_s=0.02)

    run(scenario())


def test_status_of_many_containers() -> None:
    async def scenario() -> None:
        def row(name: str) -> StatusRow:
            return StatusRow(name, "shop", "a", 0, 1, 1, 1, 0.0, "", 0.0, False, "")

        pages = StatusReport(3, 2, (row("a"), row("b")), True), StatusReport(4, 2, (row("c"),))
        primary = ToyPrimary(*pages)
        status = await primary.configs.status("db.json")
        assert [one.container for one in status.rows] == ["a", "b", "c"]
        assert status.step == 4
        assert [one.after for one in primary.heard if isinstance(one, StatusOf)] == ["", "b"]

    run(scenario())


# Readers.


class ToyCourt:
    def __init__(self) -> None:
        self.judged: list[tuple[str, int, str | None]] = []

    def judge(self, watch: Watch, name: str, version: int, reason: str | None) -> None:
        self.judged.append((name, version, reason))


def document(name: str, version: int) -> Document:
    return Document(kept.Document(name, version, bytes(20), version, b"%d" % version))


def test_a_reader_that_keeps_up_gets_everything_in_order() -> None:
    async def scenario() -> None:
        court = ToyCourt()
        watch = Watch(court, "shop", ("a*",), manual=False)
        assert watch.matches("ab")
        assert not watch.matches("b")
        for version in (1, 2, 3):
            assert watch.offer(document("a", version))
        assert watch.offer(document("a", 2)), "older: not queued, and not judged yet"
        taken = [await watch.take() for _ in range(3)]
        assert [update.version for update in taken if update] == [1, 2, 3]
        assert court.judged == [("a", 1, None), ("a", 2, None), ("a", 3, None)]
        assert not watch.offer(document("a", 3))
        watch.end()
        assert await watch.take() is None

    run(scenario())


def test_a_slow_reader_gets_the_newest_of_every_name() -> None:
    async def scenario() -> None:
        watch = Watch(ToyCourt(), "shop", (), manual=False)
        watch.offer(document("quiet", 1))
        for version in range(1, BUFFER_MAX + 100):
            watch.offer(document("busy", version))
            watch.offer(document("other", version))
        taken: dict[str, list[int]] = {}
        watch.end()
        while (update := await watch.take()) is not None:
            taken.setdefault(update.name, []).append(update.version)
        assert taken["quiet"] == [1]
        for name in ("busy", "other"):
            assert taken[name] == sorted(taken[name])
            assert taken[name][-1] == BUFFER_MAX + 99
        total = sum(map(len, taken.values()))
        assert total <= BUFFER_MAX + 1
        assert watch.coalesced == 2 * (BUFFER_MAX + 99) + 1 - total

    run(scenario())


def test_judging_by_hand() -> None:
    async def scenario() -> None:
        court = ToyCourt()
        watch = Watch(court, "shop", (), manual=True)
        for version in (1, 2, 3):
            watch.offer(document("a", version))
        watch.offer(document("b", 1))
        first, second = await watch.take(), await watch.take()
        assert first is not None
        assert second is not None
        assert watch.judged("a") == 0
        await second.applied()
        assert watch.judged("a") == 2
        await first.rejected("late")
        assert watch.judged("a") == 2, "what is judged stays judged"
        assert court.judged == [("a", 2, None), ("a", 1, "late")]
        third = await watch.take()
        assert watch.open() == [("a", 3, True), ("b", 1, False)]
        assert third is not None
        await third.applied()
        assert watch.judged("a") == EVERYTHING
        assert watch.open() == [("b", 1, False)]

    run(scenario())


def test_a_refused_reader_hears_why_behind_what_is_here() -> None:
    async def scenario() -> None:
        watch = Watch(ToyCourt(), "shop", (), manual=False)
        watch.offer(document("a", 1))
        watch.fail(RefusedError("no-access", "the token does not allow it"))
        assert await watch.take() is not None
        with pytest.raises(RefusedError, match="does not allow"):
            await watch.take()

    run(scenario())


def test_interests() -> None:
    assert check_names("db.json") == ("db.json",)
    assert check_names(["b", "a/*", "b"]) == ("a/*", "b")
    assert check_names(["a", "*"]) == check_names([]) == ()
    for bad in ("", "a*b", "a/../b", "/a"):
        with pytest.raises(InvalidNameError):
            check_names([bad])
    assert covers((), ("a",))
    assert covers((), ())
    assert not covers(("a",), ())
    assert covers(("a/*", "b"), ("a/x", "a/y*", "b"))
    assert not covers(("a/*",), ("a",))
    assert not covers(("a/*",), ("a*",))
    assert not covers(("ab",), ("a*",))


def test_what_a_container_says_about_itself() -> None:
    with pytest.raises(ConfigurationError, match="relay=False"):
        swell.connect("127.0.0.1:1", app="shop", relay=False, listen="127.0.0.1:0")
    with pytest.raises(ConfigurationError, match=r"cannot reach 0\.0\.0\.0"):
        swell.connect("127.0.0.1:1", app="shop", listen="0.0.0.0:7000")
    with pytest.raises(InvalidNameError, match="container"):
        swell.connect("127.0.0.1:1", app="shop", container="Not A Name")
    with pytest.raises(InvalidNameError, match="reserved"):
        swell.connect("127.0.0.1:1", app="@shop")
    plain = swell.connect("127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="connect with app="):
        plain.watch("a")
    with pytest.raises(UnavailableError, match="not connected"):
        swell.connect("127.0.0.1:1", app="shop").watch("a")


def test_the_public_names() -> None:
    assert dir(swell) == [
        "ABSENT", "Document", "Publication", "Report", "Update", "Value", "__version__",
        "connect", "connect_sync", "edits",
    ]  # fmt: skip
    for name in dir(swell):
        assert getattr(swell, name) is not None
