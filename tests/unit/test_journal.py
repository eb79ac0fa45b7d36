"""The journal in use: group commit, crashes at every point, cuts, snapshots, bounded space."""

from __future__ import annotations

from random import Random

import pytest

from swell.errors import TooLargeError
from swell.journal.record import HEAD_BYTES, RECORD_BYTES_MAX
from swell.simulation.disk import SimDisk
from tests.unit.journal_toys import Machine


def numbered(*numbers: int) -> list[bytes]:
    return [b"record %d" % number for number in numbers]


def test_a_new_journal_is_clean_and_empty() -> None:
    found = Machine(start=False).open()
    assert found == (None, 0, [], True, "", False)


def test_records_come_back_in_order_with_their_indices() -> None:
    machine = Machine()
    assert [machine.journal.append(record) for record in numbered(1, 2, 3)] == [1, 2, 3]
    machine.wait(machine.journal.sync)
    found = machine.reopen()
    assert found == (None, 0, numbered(1, 2, 3), True, "", False)
    assert machine.journal.append(b"next") == 4


def test_a_sync_without_records_is_acknowledged_later_not_at_once() -> None:
    machine = Machine()
    machine.wait(machine.journal.sync)


def test_empty_records_are_records() -> None:
    machine = Machine()
    machine.write(b"", b"x", b"")
    assert machine.reopen().records == [b"", b"x", b""]


class CountingDisk:
    """Counts what passes through to a disk."""

    def __init__(self, disk: SimDisk) -> None:
        self.calls: list[str] = []
        for name in ("append", "sync"):
            setattr(disk, name, self._counted(name, getattr(disk, name)))

    def _counted(self, name: str, operation: object) -> object:
        def call(*arguments: object) -> object:
            self.calls.append(name)
            assert callable(operation)
            return operation(*arguments)

        return call


def test_group_commit_is_one_append_and_one_sync_per_batch() -> None:
    machine = Machine(segment_bytes_max=1 << 20)
    counting = CountingDisk(machine.process.disk)
    machine.append(b"first")
    for number in range(100):
        machine.append(b"%d" % number)
    assert counting.calls == ["append", "sync"]
    machine.settle()
    assert len(machine.acked) == 101
    assert counting.calls == ["append", "sync"] * 2
    assert machine.counters["journal-batches"] == 2
    assert machine.counters["journal-records"] == 101


def test_what_is_appended_in_a_done_shares_the_next_batch() -> None:
    machine = Machine()
    counting = CountingDisk(machine.process.disk)
    for number in range(10):
        machine.journal.append(b"%d" % number)
        machine.journal.sync(lambda: machine.append(b"again"))
    machine.settle()
    assert len(machine.acked) == 10
    assert counting.calls == ["append", "sync"] * 3


def test_a_batch_is_sealed_once_when_the_journal_rests() -> None:
    machine = Machine()
    counting = CountingDisk(machine.process.disk)
    machine.write(b"1")
    machine.write(b"2")
    machine.simulation.run_for(60.0)
    assert counting.calls == ["append", "sync"] * 3
    machine.write(b"3")
    assert machine.reopen().records == [b"1", b"2", b"3"]


def crash_run(seed: int, power: bool) -> tuple[list[bytes], list[bytes], Machine]:
    """Random appends, then a crash at a random moment: (acknowledged, appended, machine)."""
    rng = Random(seed)
    machine = Machine(seed, segment_bytes_max=rng.choice((200, 1000, 10_000)))
    appended: list[bytes] = []
    for number in range(rng.randint(1, 25)):
        record = b"%d:" % number + rng.randbytes(rng.randint(0, 60))
        appended.append(record)
        machine.append(record)
        if rng.random() < 0.6:
            machine.simulation.run_for(rng.random() * 0.003)
    acked = machine.acked
    if power and rng.random() < 0.3:
        machine.process.disk.tear_next()
    machine.process.crash(power)
    return acked, appended, machine


@pytest.mark.parametrize("power", [False, True])
def test_nothing_acknowledged_is_lost_at_a_crash(power: bool) -> None:
    lost = torn = 0
    for seed in range(300):
        acked, appended, machine = crash_run(seed, power)
        found = machine.open()
        assert found.clean, (seed, found.reason)
        assert found.records[: len(acked)] == acked, seed
        assert found.records == appended[: len(found.records)], seed
        assert machine.journal.last_index == len(found.records)
        lost += len(found.records) < len(appended)
        torn += machine.counters["journal-torn"]
        machine.write(b"after")
        assert machine.wait(machine.journal.scrub) == []
        assert machine.reopen(power).records == [*found.records, b"after"]
    assert lost > 50
    assert torn > 20


def test_crashes_while_opening_lose_nothing() -> None:
    for seed in range(60):
        acked, _, machine = crash_run(seed, power=True)
        for attempt in range(8):
            machine.process.start()
            machine.simulation.run_for(0.0004 * attempt)
            machine.process.crash(power=True)
        found = machine.open()
        assert found.clean, (seed, found.reason)
        assert found.records[: len(acked)] == acked


def test_crashes_while_the_journal_is_created_leave_a_clean_one() -> None:
    for seed in range(60):
        machine = Machine(seed, start=False)
        for attempt in range(5):
            machine.process.start()
            machine.simulation.run_for(0.0007 * attempt)
            machine.process.crash(power=True)
        assert machine.open() == (None, 0, [], True, "", False)
        machine.write(b"x")
        assert machine.reopen().records == [b"x"]


def test_a_slow_disk_only_delays() -> None:
    machine = Machine()
    machine.process.disk.delay_s = 0.5
    machine.append(b"slow")
    machine.simulation.run_for(0.4)
    assert machine.acked == []
    machine.simulation.run_for(0.4)
    assert machine.acked == [b"slow"]


def test_records_over_the_limit_are_refused_and_the_largest_is_kept() -> None:
    machine = Machine()
    largest = bytes(RECORD_BYTES_MAX)
    with pytest.raises(TooLargeError, match="too long for the journal"):
        machine.journal.append(largest + b"x")
    machine.write(b"before", largest, b"after")
    assert machine.reopen().records == [b"before", largest, b"after"]


# Cutting.


def test_a_cut_forgets_what_is_behind_it() -> None:
    machine = Machine(segment_bytes_max=150)
    for number in range(1, 9):
        machine.write(b"old %d" % number)
    machine.journal.cut(3)
    assert machine.journal.last_index == 3
    assert machine.journal.append(b"new 4") == 4
    machine.wait(machine.journal.sync)
    kept = [b"old 1", b"old 2", b"old 3", b"new 4"]
    assert machine.reopen().records == kept
    machine.journal.cut(0)
    machine.wait(machine.journal.sync)
    assert machine.reopen().records == []
    assert machine.journal.append(b"one") == 1


def test_a_cut_that_was_not_synced_may_be_undone_by_a_crash_but_not_half() -> None:
    outcomes = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.write(b"1", b"2", b"3")
        machine.journal.cut(1)
        machine.append(b"4", b"5")
        machine.simulation.run_for(0.0001 * seed)
        outcomes.add(tuple(machine.reopen().records))
    assert outcomes == {(b"1", b"2", b"3"), (b"1", b"4", b"5")}


def test_cutting_below_the_snapshot_is_a_mistake() -> None:
    machine = Machine()
    machine.write(b"1", b"2", b"3")
    machine.wait(machine.journal.snapshot, b"state", 2)
    with pytest.raises(AssertionError, match="below the snapshot"):
        machine.journal.cut(1)


# Snapshots.


def test_a_snapshot_replaces_what_it_covers() -> None:
    machine = Machine()
    machine.write(b"1", b"2", b"3")
    machine.write(b"4")
    machine.wait(machine.journal.snapshot, b"up to 3", 3)
    machine.write(b"5")
    found = machine.reopen()
    assert found == (b"up to 3", 3, [b"4", b"5"], True, "", False)
    assert machine.journal.last_index == 5
    machine.wait(machine.journal.snapshot, b"up to 5", 5)
    assert machine.reopen() == (b"up to 5", 5, [], True, "", False)
    assert machine.journal.append(b"6") == 6


def test_appends_go_on_during_a_snapshot() -> None:
    machine = Machine()
    machine.write(b"1")
    machine.process.disk.delay_s = 0.01
    machine.journal.snapshot(b"s", 1, lambda: machine.acked.append(b"snapshot"))
    machine.append(b"2")
    machine.simulation.run_for(1.0)
    assert machine.acked == [b"1", b"2", b"snapshot"]
    assert machine.reopen() == (b"s", 1, [b"2"], True, "", False)


def test_a_snapshot_from_elsewhere_may_lie_beyond_the_end() -> None:
    machine = Machine()
    machine.write(b"1", b"2")
    machine.journal.append(b"3")
    machine.journal.snapshot(b"up to 100", 100, lambda: None)
    assert machine.journal.append(b"101") == 101
    machine.wait(machine.journal.sync)
    assert machine.reopen() == (b"up to 100", 100, [b"101"], True, "", False)
    assert machine.journal.append(b"102") == 102
    machine.wait(machine.journal.sync)
    assert machine.reopen().records == [b"101", b"102"]


def test_a_snapshot_after_a_cut_across_segments() -> None:
    machine = Machine(segment_bytes_max=150)
    for number in range(1, 10):
        machine.write(b"old %d" % number)
    machine.journal.cut(4)
    for number in range(5, 12):
        machine.write(b"new %d" % number)
    machine.wait(machine.journal.snapshot, b"up to 7", 7)
    assert not any(b"old" in data for data in machine.process.disk.snapshot().values())
    assert machine.wait(machine.journal.scrub) == []
    found = machine.reopen()
    assert found == (b"up to 7", 7, [b"new %d" % n for n in range(8, 12)], True, "", False)


def test_a_snapshot_frees_segments_of_which_everything_was_cut() -> None:
    machine = Machine()
    for number in range(1, 10):
        machine.write(b"old %d" % number)
    machine.wait(machine.journal.snapshot, b"", 0)
    machine.journal.cut(4)
    for number in range(5, 12):
        machine.write(b"new %d" % number)
    machine.wait(machine.journal.snapshot, b"up to 7", 7)
    assert not any(b"old" in data for data in machine.process.disk.snapshot().values())
    assert machine.reopen().records == [b"new %d" % number for number in range(8, 12)]


@pytest.mark.parametrize("upto", [4, 7, 20])
def test_a_crash_at_any_point_of_a_snapshot_leaves_the_old_or_the_new(upto: int) -> None:
    outcomes = set()
    for seed in range(100):
        machine = Machine(seed, segment_bytes_max=150)
        for number in range(1, 8):
            machine.write(b"%d" % number)
        machine.wait(machine.journal.snapshot, b"2", 2)
        machine.journal.snapshot(b"%d" % upto, upto, lambda: None)
        machine.append(b"next")
        machine.simulation.run_for(0.0002 * seed)
        acked = machine.acked[-1] == b"next"
        found = machine.reopen(power=seed % 2 == 0)
        assert found.clean, (seed, found.reason)
        assert found.snapshot == b"%d" % found.base
        assert found.base in (2, upto)
        tail = [b"%d" % number for number in range(found.base + 1, 8)]
        assert found.records in ([tail, [*tail, b"next"]] if not acked else [[*tail, b"next"]])
        outcomes.add((found.base, acked))
        machine.wait(machine.journal.snapshot, b"again", machine.journal.last_index)
        assert machine.reopen().snapshot == b"again"
        assert machine.wait(machine.journal.scrub) == []
    assert {base for base, _ in outcomes} == {2, upto}
    assert {acked for _, acked in outcomes} == {False, True}


def test_disk_use_is_bounded_by_the_snapshot_and_two_segments() -> None:
    machine = Machine(segment_bytes_max=64 * 1024)
    journal, most = machine.journal, 0
    state = b"s" * 10_000
    for _ in range(1000):
        for _ in range(100):
            journal.append(b"record of 20 bytes..")
        machine.append()
        machine.simulation.run_for(0.002)
        if journal.bytes > len(state) + 64 * 1024 and not journal.snapshotting:
            journal.snapshot(state, journal.last_index, lambda: None)
        used = sum(machine.process.disk.list().values())
        most = max(most, used)
    machine.settle()
    assert journal.last_index == 100_000
    assert machine.counters["journal-snapshots"] > 10
    assert most <= 2 * (len(state) + 100) + 2 * 64 * 1024 + 100 * (HEAD_BYTES + 20)
    assert journal.bytes == sum(machine.process.disk.list().values())
    assert machine.reopen().base + len(machine.found.records if machine.found else []) == 100_000
