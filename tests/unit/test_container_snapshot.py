"""A container's snapshot: what it acknowledged is there after a crash, whatever was torn."""

from __future__ import annotations

from random import Random

import pytest

from swell.config import messages as m
from swell.config.bursts import StepChanges, seal
from swell.config.content import Content
from swell.config.gone import Range
from swell.config.splices import Splice
from swell.container import rewriting
from swell.container import snapshot as snapshots
from swell.container.snapshot import FILE
from swell.container.snapshot_file import Kind, parse, record
from swell.simulation.process import Process
from tests.unit.container_toys import APP, CLUSTER, EVERYTHING, SEALED_US, ToyCluster, values


def kept(**options: object) -> tuple[ToyCluster, Process]:
    toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    toy.application.put("b", b"second")
    process = toy.add("c1", keep=True, **options)  # type: ignore[arg-type]
    toy.attached("c1")
    toy.run(0.2)
    return toy, process


def shown(toy: ToyCluster) -> dict[str, tuple[int, bytes]]:
    return values(toy.containers["c1"].attaching.all[APP, EVERYTHING].feed.documents)  # type: ignore[arg-type]


def edit(toy: ToyCluster, times: int = 1) -> list[bytes]:
    """Bursts of one edit each; their ids."""
    node, bursts = toy.node(), []
    for _ in range(times):
        step = toy.application.edit("a", Splice(toy.application.step % 10, 1, b"x"))
        bursts.append(node.deliver("c1", toy.application.burst(node.key, step - 1)))
    return bursts


def isolated(toy: ToyCluster) -> None:
    for name in toy.nodes:
        toy.simulation.processes[name].crash()


@pytest.mark.parametrize("power", [False, True])
def test_it_begins_with_what_it_had_when_no_server_answers(power: bool) -> None:
    toy, process = kept()
    edit(toy, 5)
    toy.run(0.2)
    wanted = toy.application.states[-1]
    isolated(toy)
    process.crash(power)
    process.start()
    toy.run(1.0)
    assert shown(toy) == wanted
    assert toy.containers["c1"].document(APP, "b").bytes() == b"second"  # type: ignore[union-attr]


def test_it_subscribes_with_the_step_it_had() -> None:
    toy, process = kept()
    process.crash()
    edit_step = toy.application.edit("a", Splice(0, 1, b"x"))
    process.start()
    toy.attached("c1")
    toy.run(0.2)
    assert toy.node().subscribes[-1].step == edit_step - 1
    assert shown(toy) == toy.application.states[-1]


@pytest.mark.parametrize("rewritten", [False, True])
def test_it_knows_that_it_had_only_part(rewritten: bool) -> None:
    toy, process = kept()
    node = toy.node()
    toy.application.put("b", b"third")
    toy.application.put("c", b"fourth")
    toy.application.put("b", b"fifth")
    steps = toy.application.steps
    node.deliver("c1", seal(node.key, CLUSTER, APP, EVERYTHING, 1, 2, 4, (steps[3],), SEALED_US, 5))
    toy.run(0.2)
    if rewritten:
        toy.containers["c1"].snapshot._rewrite()  # type: ignore[union-attr]
        toy.run(0.2)
    process.crash(power=True)
    process.start()
    toy.attached("c1")
    last = node.subscribes[-1]
    assert (last.step, last.complete_at) == (4, 5)


def test_a_receipt_is_given_when_it_is_durable_and_many_share_a_sync() -> None:
    toy, process = kept()
    process.disk.delay_s = 0.5
    bursts = edit(toy, 10)
    toy.run(0.3)
    assert not any(toy.node().of(burst) for burst in bursts)
    assert shown(toy) == toy.application.states[-1]
    toy.run(1.0)
    assert [len(toy.node().of(burst)) for burst in bursts] == [1] * 10


def test_what_was_acknowledged_is_never_older_after_a_crash() -> None:
    for seed in range(20):
        toy, process = kept()
        process.disk.delay_s = 0.02
        bursts = edit(toy, 30)
        toy.run(0.01 + 0.005 * seed)
        acknowledged = sum(1 for burst in bursts if toy.node().of(burst)) + 2
        process.disk.tear_next()
        process.crash(power=True)
        isolated(toy)
        process.start()
        toy.run(1.0)
        feed = toy.containers["c1"].attaching.all[APP, EVERYTHING].feed
        assert feed.at >= acknowledged
        assert shown(toy) == toy.application.states[feed.at]


def test_a_receipt_before_the_sync_is_caught() -> None:
    toy, process = kept(bugs=frozenset(["stale-snapshot"]))
    process.disk.delay_s = 1.0
    (burst,) = edit(toy)
    toy.run(0.2)
    assert toy.node().of(burst)
    process.crash(power=True)
    isolated(toy)
    process.disk.delay_s = 0.0
    process.start()
    toy.run(1.0)
    feed = toy.containers["c1"].attaching.all[APP, EVERYTHING].feed
    assert feed.at < toy.application.step


def test_rot_is_not_used() -> None:
    toy, process = kept()
    edit(toy, 3)
    toy.run(0.2)
    process.crash()
    files = process.disk.snapshot()
    data = bytearray(files[FILE])
    data[len(data) // 3] ^= 4
    process.disk.restore({**files, FILE: bytes(data)})
    process.start()
    toy.attached("c1")
    toy.run(0.2)
    assert toy.containers["c1"].counters["snapshot-rotten"] == 1
    assert toy.node().subscribes[-1].step == 0
    assert shown(toy) == toy.application.states[-1]


def test_every_cut_of_the_file_is_a_state_that_was() -> None:
    toy, process = kept()
    edit(toy, 4)
    toy.run(0.2)
    process.crash()
    files = process.disk.snapshot()
    isolated(toy)
    seen = set()
    for length in range(0, len(files[FILE]), 37):
        process.disk.restore({FILE: files[FILE][:length] + b"\0\1\2"})
        process.start()
        toy.run(0.1)
        feed = toy.containers["c1"].attaching.all[APP, EVERYTHING].feed
        seen.add(feed.at)
        assert shown(toy) == toy.application.states[feed.at]
        process.crash()
    assert {0, 2, 3, 4, 5} <= seen


def test_it_is_written_anew_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "REWRITE_BYTES_MIN", 2000)
    monkeypatch.setattr(rewriting, "WRITE_BYTES", 64)
    toy, process = kept()
    for _ in range(40):
        edit(toy, 3)
        toy.run(0.004)
    toy.run(0.5)
    rewritten = toy.containers["c1"].counters["snapshot-rewritten"]
    assert 5 < rewritten < 40
    assert process.disk.list()[FILE] < 12_000  # of twice as many that were written
    wanted = toy.application.states[-1]
    isolated(toy)
    process.crash(power=True)
    process.start()
    toy.run(0.5)
    assert shown(toy) == wanted


def test_a_long_value_is_kept_by_its_chunks_and_an_edit_costs_its_own_bytes() -> None:
    toy, process = kept()
    value = Random(1).randbytes(512 * 1024)
    toy.application.fetchable("long", value)
    node = toy.node()
    node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.5)
    before = process.disk.list()[FILE]
    assert len(value) < before < 1.1 * len(value)
    toy.application.edit("long", Splice(100_000, 3, b"edit"))
    node.deliver("c1", toy.application.burst(node.key, 3))
    toy.run(0.2)
    assert process.disk.list()[FILE] - before < 400
    wanted = toy.application.states[-1]
    isolated(toy)
    process.crash(power=True)
    process.start()
    toy.run(0.5)
    assert shown(toy) == wanted


def begun_again(toy: ToyCluster, process: Process) -> None:
    """With what is on disk, and nothing else."""
    isolated(toy)
    process.crash(power=True)
    process.start()
    toy.run(0.5)
    assert not toy.containers["c1"].counters["snapshot-rotten"]


def test_chunks_that_only_the_old_file_has_are_in_the_new_one_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewriting, "WRITE_BYTES", 16)
    toy, process = kept()
    node, value = toy.node(), Random(1).randbytes(100_000)
    toy.application.fetchable("long", value)
    node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.5)
    toy.application.delete("long")
    node.deliver("c1", toy.application.burst(node.key, 3))
    toy.run(0.2)
    process.disk.delay_s = 0.2
    monkeypatch.setattr(snapshots, "REWRITE_BYTES_MIN", 0)
    container = toy.containers["c1"]
    assert container.snapshot is not None
    container.snapshot._rewrite()
    # The old file has its chunks, and what is written anew has not.
    toy.application.fetchable("again", value)
    node.deliver("c1", toy.application.burst(node.key, 4))
    toy.run(5.0)
    assert container.snapshot._rewriting is None
    process.disk.delay_s = 0.0
    toy.application.edit("again", Splice(100, 1, b"!"))
    node.deliver("c1", toy.application.burst(node.key, 5))
    toy.run(0.5)
    wanted = toy.application.states[-1]
    begun_again(toy, process)
    assert shown(toy) == wanted


def test_a_value_that_was_fetched_and_deleted_in_one_burst_does_not_spoil_the_file() -> None:
    toy, process = kept()
    node = toy.node()
    toy.application.fetchable("long", b"long" * 20_000)
    toy.application.delete("long")
    # Only the value before is there to be fetched.
    toy.application.heads["long"] = (
        *toy.application.heads["long"][:2],
        Content.of(b"long" * 20_000),
    )
    node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.5)
    feed = toy.containers["c1"].attaching.all[APP, EVERYTHING].feed
    assert feed.at == 4
    begun_again(toy, process)
    assert shown(toy) == toy.application.states[-1]


def test_a_feed_that_was_left_while_it_fetched_writes_nothing_any_more() -> None:
    toy, process = kept()
    node, container = toy.node(), toy.containers["c1"]
    node.reads_open = []
    toy.application.fetchable("long", b"long" * 20_000)
    node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.2)
    container.unsubscribe(container.attaching.all[APP, EVERYTHING].feed)
    node.repairing = False
    container.subscribe(APP)
    toy.attached("c1")
    for _ in range(10):
        node.answer_reads()
        toy.run(0.1)
    updates = len(toy.updates["c1"])
    node.repairing, node.reads_open = True, None
    toy.run(12.0)
    assert len(toy.updates["c1"]) == updates + 3
    begun_again(toy, process)
    assert shown(toy) == toy.application.states[-1]


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_it_is_written_anew_while_updates_never_stop(
    monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    monkeypatch.setattr(snapshots, "REWRITE_BYTES_MIN", 2000)
    toy, process = kept()
    process.disk.delay_s = delay_s
    bursts = []
    for _ in range(400):
        bursts += edit(toy)
        toy.run(0.005)
    container = toy.containers["c1"]
    assert container.counters["snapshot-rewritten"] > 3
    assert process.disk.list()[FILE] < 20_000
    acknowledged = sum(1 for burst in bursts if toy.node().of(burst)) + 2
    assert acknowledged > 300
    begun_again(toy, process)
    at = toy.containers["c1"].attaching.all[APP, EVERYTHING].feed.at
    assert at >= acknowledged
    assert shown(toy) == toy.application.states[at]


def test_a_rewriting_that_fails_while_it_ends_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy, process = kept()
    container = toy.containers["c1"]
    assert container.snapshot is not None
    process.disk.delay_s = 0.05
    process.disk.fail_next("sync")
    container.snapshot._rewrite()
    bursts = edit(toy, 5)
    toy.run(1.0)
    assert container.counters["snapshot-rewrite-failed"] == 1
    assert not container.snapshot.failed
    assert all(toy.node().of(burst) for burst in bursts)
    process.disk.delay_s = 0.0
    begun_again(toy, process)
    assert shown(toy) == toy.application.states[-1]


def test_a_version_that_was_rejected_is_not_used_in_the_next_life_and_judged_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "REWRITE_BYTES_MIN", 0)
    toy, process = kept(automatic=False)
    for life in range(3):
        container = toy.containers["c1"]
        feed = container.attaching.all[APP, EVERYTHING].feed
        if not life:
            container.applied(feed, "a", 1)
            edit(toy)
            toy.run(0.1)
        assert feed.documents["a"].version == 2
        container.rejected(feed, "a", 2, "not this one")
        assert container.document(APP, "a").version == 1  # type: ignore[union-attr]
        toy.run(0.1)
        if life == 1:
            assert container.snapshot is not None
            container.snapshot._rewrite()
            toy.run(0.2)
        elif not life:
            edit_other = toy.application.put("b", b"makes it durable")
            toy.node().deliver("c1", toy.application.burst(toy.node().key, edit_other - 1))
            toy.run(0.1)
            isolated(toy)
        toy.updates.clear()
        process.crash(power=life == 0)
        process.start()
        toy.run(0.5)
        container = toy.containers["c1"]
        assert ("a", 2) in [(u.name, u.version) for u in toy.updates["c1"]]
        assert container.document(APP, "a").version == 1  # type: ignore[union-attr]
        assert container.document(APP, "a").bytes() == b"0123456789"  # type: ignore[union-attr]
    feed = container.attaching.all[APP, EVERYTHING].feed
    container.applied(feed, "a", 2)
    assert container.document(APP, "a").version == 2  # type: ignore[union-attr]


def test_a_failed_disk_is_left_and_the_container_goes_on() -> None:
    toy, process = kept()
    process.disk.fail_next("sync")
    bursts = edit(toy)
    toy.run(0.2)
    bursts += edit(toy)
    toy.run(0.2)
    assert toy.containers["c1"].counters["snapshot-failed"] == 1
    assert all(toy.node().of(burst) for burst in bursts)
    assert process.disk.list()[FILE] == 0  # older than what was acknowledged


@pytest.mark.parametrize("operation", ["read", "sync"])
def test_a_disk_that_fails_once_while_it_is_opened_does_not_cost_what_was_acknowledged(
    operation: str,
) -> None:
    toy, process = kept()
    edit(toy, 3)
    toy.run(0.2)
    before = shown(toy)
    isolated(toy)
    process.crash()
    process.disk.fail_next(operation)
    process.start()
    toy.run(1.0)
    snapshot = toy.containers["c1"].snapshot
    assert shown(toy) == before
    assert snapshot is not None
    assert snapshot.failed == (operation == "sync")  # one that was read is whole and goes on
    assert not snapshot.unreadable


def test_a_disk_that_cannot_be_read_is_given_up_and_says_so() -> None:
    toy, process = kept()
    process.crash()
    process.disk.fail_next("read")
    process.start()
    for _ in range(snapshots.READ_TRIES):
        toy.run(snapshots.READ_AGAIN_S / 2)
        process.disk.fail_next("read")
        toy.run(snapshots.READ_AGAIN_S / 2)
    container = toy.containers["c1"]
    assert container.ready
    assert container.snapshot is not None
    assert container.snapshot.unreadable
    assert container.counters["snapshot-read-failed"] == snapshots.READ_TRIES
    toy.attached("c1")
    toy.run(0.2)
    assert shown(toy) == toy.application.states[-1]
    assert process.disk.list()[FILE] == 0


def test_what_was_not_judged_before_a_crash_is_judged_anew() -> None:
    toy, process = kept(automatic=False)
    process.crash()
    toy.updates.clear()
    process.start()
    toy.attached("c1")
    toy.run(0.2)
    assert [(u.name, u.version) for u in toy.updates["c1"]] == [("a", 1), ("b", 1)]
    assert toy.node().subscribes[-1].applied == 0
    container = toy.containers["c1"]
    feed = container.attaching.all[APP, EVERYTHING].feed
    container.applied(feed, "a", 1)
    container.applied(feed, "b", 1)
    toy.run(12.0)
    renews = [one for one in toy.node().heard if isinstance(one, m.Renew)]
    assert renews[-1].feeds[0][2] == 2


@pytest.mark.parametrize("mended", [False, True])
def test_what_was_deleted_without_its_name_stays_deleted(mended: bool) -> None:
    toy, process = kept()
    node, feed = toy.node(), toy.containers["c1"].attaching.all[APP, EVERYTHING].feed
    if mended:  # The file is at step 4 when everything is asked for again.
        edit(toy, 2)
        toy.run(0.2)
        feed.at = 0
    steps = (StepChanges(3, (Range("a", "", 3).change(),)),)
    upto = 4 if mended else 3
    node.deliver(
        "c1", seal(node.key, CLUSTER, APP, EVERYTHING, 1, 2 * (not mended), upto, steps, SEALED_US)
    )
    toy.run(0.2)
    assert [*shown(toy)] == ["a"]
    isolated(toy)
    process.crash(power=True)
    process.start()
    toy.run(1.0)
    assert [*shown(toy)] == ["a"]


def test_records() -> None:
    good = record(Kind.BURST, b"one") + record(Kind.BURST, b"two")
    assert [one.body for one in parse(good).records] == [b"one", b"two"]
    assert parse(good[:-1]).rotten is False
    assert len(parse(good[:-1]).records) == 1
    assert parse(b"x" + good).rotten
