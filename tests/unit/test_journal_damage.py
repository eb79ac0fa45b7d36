"""Damage to a journal: torn tails, rot in every bit and file, errors of the disk, repair."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from swell.journal.record import HEAD_BYTES, Entry, Kind, encode_batch, has_batch_from
from tests.unit.journal_toys import SEGMENT_1, Machine, flipped

BATCHES = [[b"one"], [b"two", b"three", b"four"], [b"five", b"six"]]
TAIL = [b"5", b"6", b"7", b"8", b"9"]
CLEAN = "log.clean"
UNCLEAN = "log.unclean"
SNAPSHOT = "log.snapshot"


def small(machine: Machine) -> dict[str, bytes]:
    for batch in BATCHES:
        machine.write(*batch)
    return machine.files()


def with_snapshot(machine: Machine) -> dict[str, bytes]:
    """A snapshot of 4 records, then segments with more in batches of one."""
    machine.write(b"1", b"2", b"3", b"4")
    machine.wait(machine.journal.snapshot, b"up to 4", 4)
    for record in TAIL:
        machine.write(record)
    return machine.files()


def batch_starts(data: bytes) -> list[int]:
    """Where the batches of a segment begin."""
    starts, position, batch = [], 0, -1
    while position < len(data):
        length = int.from_bytes(data[position + 6 : position + 10], "big")
        number = int.from_bytes(data[position + 10 : position + 18], "big")
        if number != batch:
            starts.append(position)
        batch = number
        position += HEAD_BYTES + length
    return starts


# Torn tails.


def test_a_journal_torn_at_any_byte_loses_whole_batches_only() -> None:
    machine = Machine()
    files = small(machine)
    data = files[SEGMENT_1]
    last = batch_starts(data)[-1]
    for end in range(last, len(data)):
        for tail in (b"", b"\0" * (len(data) - end), b"\xff" * 7):
            found = machine.try_files({**files, SEGMENT_1: data[:end] + tail})
            assert found.clean, (end, found.reason)
            assert found.records == [b"one", b"two", b"three", b"four"], end
            machine.write(b"next")
            assert machine.reopen().records == [*found.records, b"next"]


def test_a_page_lost_in_the_middle_of_the_last_batch_is_a_torn_tail() -> None:
    machine = Machine()
    files = small(machine)
    data = bytearray(files[SEGMENT_1])
    last = batch_starts(bytes(data))[-1]
    data[last : last + 10] = bytes(10)
    found = machine.try_files({**files, SEGMENT_1: bytes(data)})
    assert found.clean
    assert found.records == [b"one", b"two", b"three", b"four"]


def test_a_new_segment_that_is_empty_or_torn_is_no_loss() -> None:
    machine = Machine()
    files = small(machine)
    whole = [record for batch in BATCHES for record in batch]
    for content in (b"", b"\xa5", bytes(100)):
        found = machine.try_files({**files, "log.00000002.log": content})
        assert found.clean, found.reason
        assert found.records == whole
        machine.write(b"next")
        assert machine.reopen().records == [*whole, b"next"]


def test_zeros_behind_the_newest_batch_are_nothing_and_those_of_older_segments_are_rot() -> None:
    machine = Machine()
    files = small(machine)
    whole = [record for batch in BATCHES for record in batch]
    padded = {**files, SEGMENT_1: files[SEGMENT_1] + bytes(5000)}
    found = machine.try_files(padded)
    assert (found.clean, found.records) == (True, whole)
    assert not machine.counters["journal-torn"]
    machine.write(b"next")
    assert machine.reopen().records == [*whole, b"next"]
    for newer in (b"", bytes(100)):
        found = machine.try_files({**padded, "log.00000002.log": newer})
        assert (found.clean, found.rotten) == (False, True)


# Rot.


def test_every_flipped_bit_is_rot_or_in_the_last_batch_cut() -> None:
    machine = Machine()
    files = small(machine)
    data = files[SEGMENT_1]
    starts = batch_starts(data)
    before = {starts[2]: 0, starts[3]: 1, len(data): 4}
    for bit in range(len(data) * 8):
        found = machine.try_files({**files, SEGMENT_1: flipped(data, bit)})
        if bit // 8 >= starts[-1]:
            assert (found.clean, found.rotten) == (True, False), bit
            assert found.records == [b"one", b"two", b"three", b"four"]
        else:
            assert (found.clean, found.rotten) == (False, True), bit
            assert "damaged" in found.reason
            trusted = next(count for end, count in sorted(before.items()) if bit // 8 < end)
            assert found.records == [b"one", b"two", b"three", b"four"][:trusted], bit


def test_after_a_moment_of_rest_no_flipped_bit_costs_a_record_unseen() -> None:
    machine = Machine()
    for batch in BATCHES:
        machine.write(*batch)
    machine.simulation.run_for(3.0)
    files = machine.files()
    data = files[SEGMENT_1]
    for bit in range(len(data) * 8):
        found = machine.try_files({**files, SEGMENT_1: flipped(data, bit)})
        assert found.clean == (bit // 8 >= batch_starts(data)[-1])
        assert found.rotten != found.clean
        assert not found.clean or found.records == [r for batch in BATCHES for r in batch]


def test_every_flipped_bit_of_a_closed_segment_or_the_snapshot_is_rot() -> None:
    machine = Machine(segment_bytes_max=150)
    files = with_snapshot(machine)
    names = sorted(name for name in files if name.endswith(".log"))
    assert len(names) >= 2
    for name in (SNAPSHOT, *names[:-1]):
        for bit in range(0, len(files[name]) * 8, 3):
            found = machine.try_files({**files, name: flipped(files[name], bit)})
            assert (found.clean, found.rotten) == (False, True), (name, bit)
            if name == SNAPSHOT:
                assert (found.snapshot, found.base, found.records) == (None, 0, [])
            else:
                assert (found.snapshot, found.base) == (b"up to 4", 4)
                assert found.records == TAIL[: len(found.records)]


def test_missing_swapped_and_foreign_files_are_rot() -> None:
    machine = Machine(segment_bytes_max=150)
    files = with_snapshot(machine)
    names = sorted(name for name in files if name.endswith(".log"))
    assert len(names) >= 3
    first, second, third = names[:3]
    cases = [
        {name: data for name, data in files.items() if name != first},
        {name: data for name, data in files.items() if name != second},
        {name: data for name, data in files.items() if name != SNAPSHOT},
        {name: data for name, data in files.items() if not name.endswith(".log")},
        {**files, first: files[second], second: files[first]},
        {**files, second: files[third], third: files[second]},
        {**files, second: b""},
        {**files, second: files[second][:-1]},
        {CLEAN: b""},
    ]
    for place, case in enumerate(cases):
        found = machine.try_files(case)
        assert (found.clean, found.rotten) == (False, True), place
        assert found.records == TAIL[: len(found.records)]
    assert machine.try_files(files).records == TAIL


def test_an_empty_new_segment_does_not_make_rot_a_torn_tail() -> None:
    machine = Machine()
    files = small(machine)
    damaged = flipped(files[SEGMENT_1], len(files[SEGMENT_1]) * 8 - 1)
    assert machine.try_files({**files, SEGMENT_1: damaged}).clean
    assert machine.try_files({**files, SEGMENT_1: damaged, "log.00000002.log": b""}).rotten


def test_a_batch_of_another_history_is_rot_even_at_the_end() -> None:
    machine = Machine()
    machine.write(b"common")
    common = machine.files()
    histories = []
    for records in ((b"a1", b"a2"), (b"b1", b"b2")):
        machine.try_files(common)
        for record in records:
            machine.write(record)
        histories.append(machine.files())
    a, b = (history[SEGMENT_1] for history in histories)
    last = batch_starts(a)[-1]
    found = machine.try_files({**histories[0], SEGMENT_1: a[:last] + b[last:]})
    assert found.rotten
    assert found.records == [b"common", b"a1"]


def test_an_old_snapshot_with_newer_segments_is_rot() -> None:
    machine = Machine()
    machine.write(b"1")
    machine.wait(machine.journal.snapshot, b"old", 1)
    old = machine.process.disk.snapshot()[SNAPSHOT]
    machine.write(b"2")
    machine.wait(machine.journal.snapshot, b"new", 2)
    files = machine.files()
    found = machine.try_files({**files, SNAPSHOT: old})
    assert found.rotten
    assert "missing" in found.reason


def test_a_cut_lost_to_rot_does_not_join_the_wrong_records_on() -> None:
    machine = Machine(segment_bytes_max=10_000)
    machine.write(*(b"old %d" % number for number in range(1, 9)))
    machine.wait(machine.journal.snapshot, b"up to 2", 2)
    machine.wait(machine.journal.snapshot, b"up to 2 again", 2)
    machine.write(b"old 9")
    machine.journal.cut(2)
    machine.write(b"new 3", b"new 4")
    machine.wait(machine.journal.snapshot, b"up to 3", 3)
    machine.write(b"new 5")
    files = machine.files()
    names = sorted(name for name in files if name.endswith(".log"))
    cut_at = batch_starts(files[names[0]])[-1]
    found = machine.try_files({**files, names[0]: flipped(files[names[0]], cut_at * 8 + 300)})
    assert found.rotten
    assert (found.snapshot, found.base, found.records) == (b"up to 3", 3, [])
    assert machine.journal.append(b"4") == 4
    machine.wait(machine.journal.repaired)
    found = machine.reopen()
    assert found == (b"up to 3", 3, [b"4"], True, "", False), found.reason


def test_rot_is_left_alone_until_the_owner_goes_on() -> None:
    machine = Machine(segment_bytes_max=150)
    files = with_snapshot(machine)
    name = min(name for name in files if name.endswith(".log"))
    files[name] = flipped(files[name], 300)
    found = machine.try_files(files)
    assert found.rotten
    problems = machine.wait(machine.journal.scrub)
    assert len(problems) == 1
    machine.process.crash()
    assert machine.process.disk.snapshot() == files
    assert machine.open() == found

    for record in (b"5 again", b"6 again"):
        machine.write(record)
    assert machine.acked == [b"5 again", b"6 again"]
    assert machine.wait(machine.journal.scrub) == []
    for _ in range(2):
        again = machine.reopen()
        assert (again.clean, again.rotten) == (False, False)
        assert again.records == [*found.records, b"5 again", b"6 again"]
    machine.wait(machine.journal.repaired)
    assert machine.reopen() == (*again[:3], True, "", False)


@pytest.mark.parametrize("damaged", ["snapshot", "segment"])
def test_a_crash_while_rot_is_taken_away_leaves_an_unclean_journal(damaged: str) -> None:
    for seed in range(60):
        machine = Machine(seed, segment_bytes_max=150)
        files = with_snapshot(machine)
        name = SNAPSHOT if damaged == "snapshot" else min(n for n in files if n.endswith(".log"))
        files[name] = flipped(files[name], 500)
        found = machine.try_files(files)
        assert found.rotten
        machine.append(b"new")
        machine.simulation.run_for(0.0002 * seed)
        acked = bool(machine.acked)
        again = machine.reopen()
        assert not again.clean, seed
        assert again.records[: len(found.records)] == found.records
        assert again.records[len(found.records) :] in ([[b"new"]] if acked else [[], [b"new"]])
        machine.wait(machine.journal.snapshot, b"from a peer", 50)
        machine.wait(machine.journal.repaired)
        assert machine.reopen() == (b"from a peer", 50, [], True, "", False)
        assert machine.wait(machine.journal.scrub) == []


def test_a_search_that_made_up_records_would_prolong_ends() -> None:
    """Heads that each claim all that follows, as a client could put into a value."""
    fake, _ = encode_batch([Entry(Kind.DATA, 1, b"")], 99, bytes(8))
    count = 20_000
    heads = bytearray()
    for place in range(count):
        head = bytearray(fake)
        head[6:10] = (HEAD_BYTES * (count - place - 1)).to_bytes(4, "big")
        heads += head
    assert has_batch_from(bytes(heads), 0, 3)
    assert not has_batch_from(bytes(heads[: HEAD_BYTES * 3 - 1]), 0, 3)


# Errors of the disk.


@pytest.mark.parametrize("fault", ["sync", "full"])
def test_an_error_is_fatal_never_acknowledged_and_remembered(fault: str) -> None:
    machine = Machine()
    machine.write(b"1", b"2")
    if fault == "full":
        machine.process.disk.full = True
    else:
        machine.process.disk.fail_next("sync")
    machine.append(b"3")
    machine.append(b"4")
    machine.settle()
    assert not machine.process.alive
    assert "the journal log cannot be written" in machine.process.ended
    assert machine.acked == [b"1", b"2"]
    assert UNCLEAN in machine.process.disk.list()
    machine.process.disk.heal()
    for _ in range(2):
        found = machine.open()
        assert (found.clean, found.rotten) == (False, False)
        assert "error of the disk" in found.reason
        assert found.records in ([b"1", b"2"], [b"1", b"2", b"3"])
        machine.process.crash(power=True)
    machine.open()
    machine.wait(machine.journal.snapshot, b"all", machine.journal.last_index)
    machine.wait(machine.journal.repaired)
    assert machine.reopen().clean


@pytest.mark.parametrize("operation", ["sync", "replace", "truncate"])
def test_an_error_during_a_snapshot_is_fatal_too(operation: str) -> None:
    machine = Machine()
    machine.write(b"1", b"2")
    machine.wait(machine.journal.snapshot, b"2", 2)
    machine.write(b"3")
    machine.process.disk.fail_next(operation)
    machine.journal.snapshot(b"3", 3, lambda: machine.acked.append(b"snapshot"))
    machine.settle()
    assert not machine.process.alive
    assert b"snapshot" not in machine.acked
    found = machine.open()
    assert not found.clean
    assert not found.rotten
    assert (found.snapshot, found.records) in ((b"2", [b"3"]), (b"3", []))


def test_a_node_halts_even_if_the_mark_cannot_be_written() -> None:
    machine = Machine()
    machine.process.disk.fail_next("sync", "replace")
    machine.append(b"1")
    machine.settle()
    assert not machine.process.alive
    assert machine.acked == []


def test_a_node_does_not_wait_for_ever_for_its_mark() -> None:
    machine = Machine()
    machine.process.disk.fail_next("sync")
    machine.append(b"1")
    machine.process.disk.delay_s = 1000.0
    machine.simulation.run_for(3.0)
    assert not machine.process.alive


def test_a_read_error_halts_and_blames_nobody() -> None:
    machine = Machine()
    machine.write(b"1")
    machine.process.crash()
    machine.process.disk.fail_next("read")
    machine.start()
    assert not machine.process.alive
    assert "cannot be read" in machine.process.ended
    assert machine.open().clean


# Scrubbing.


def test_scrubbing_finds_every_flipped_byte_while_in_use() -> None:
    machine = Machine(segment_bytes_max=150)
    with_snapshot(machine)
    machine.open()
    machine.write(b"last")
    assert machine.wait(machine.journal.scrub) == []
    for name, file in machine.process.disk._files.items():
        for place in range(len(file.data)):
            file.data[place] ^= 0x10
            assert len(machine.wait(machine.journal.scrub)) == 1, (name, place)
            file.data[place] ^= 0x10
    machine.append(b"under way")
    assert machine.wait(machine.journal.scrub) == []


def test_scrubbing_misses_a_file() -> None:
    machine = Machine(segment_bytes_max=150)
    for number in range(20):
        machine.write(b"%d" % number)
    names = [name for name in machine.process.disk.list() if name.endswith(".log")]
    del machine.process.disk._files[names[1]]
    assert len(machine.wait(machine.journal.scrub)) == 1


def test_scrubbing_goes_well_with_a_snapshot() -> None:
    for seed in range(20):
        machine = Machine(seed, segment_bytes_max=150)
        for number in range(20):
            machine.write(b"%d" % number)
        machine.journal.snapshot(b"s", 20, lambda: None)
        machine.simulation.run_for(0.0003 * seed)
        assert machine.wait(machine.journal.scrub) == []


# Everything at once.


def test_any_history_recovers_to_a_moment_between_the_last_acknowledged_and_the_last() -> None:
    moments_seen = 0
    for seed in range(300):
        machine = Machine(seed, segment_bytes_max=300)
        rng = machine.simulation.rng("test")
        content: list[bytes] = []
        for _ in range(3):
            moments = [list(content)]
            acked = [0]
            floor = machine.journal.base
            for step in range(rng.randint(1, 30)):
                journal = machine.journal
                if rng.random() < 0.7 or len(content) <= floor:
                    content.append(b"%d/%d " % (seed, step) * rng.randint(0, 5))
                    journal.append(content[-1])
                else:
                    del content[rng.randint(floor, len(content)) :]
                    journal.cut(len(content))
                moments.append(list(content))
                if rng.random() < 0.5:
                    journal.sync(partial(acked.append, len(moments) - 1))
                if rng.random() < 0.1 and not journal.snapshotting:
                    floor = rng.randint(floor, len(content))
                    state = msgspec.msgpack.encode(content[:floor])
                    journal.snapshot(state, floor, lambda: None)
                machine.simulation.run_for(rng.choice((0.0, 0.0005, 0.003)))
            found = machine.reopen(power=rng.random() < 0.5)
            assert found.clean, (seed, found.reason)
            covered = msgspec.msgpack.decode(found.snapshot or b"\x90", type=list[bytes])
            assert len(covered) == found.base
            content = covered + found.records
            assert machine.journal.last_index == len(content)
            later = [place for place, moment in enumerate(moments) if moment == content]
            assert later, seed
            assert later[-1] >= acked[-1], seed
            moments_seen += later[-1] < len(moments) - 1
            assert machine.wait(machine.journal.scrub) == []
    assert moments_seen > 100
