"""The store's storage in use: round trips, crashes at any moment, installs, compaction."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.unit.storage_toys import Machine, Slot


def filled(seed: int = 1, **options: object) -> Machine:
    """Two slots, one of them with all kinds of records."""
    machine = Machine(seed, **options)  # type: ignore[arg-type]
    machine.append(3, b"a", b"b", b"c")
    machine.fence(3, 2)
    machine.cut(3, 2)
    machine.append(3, b"d")
    machine.commit(3, 1)
    machine.write(200, b"x")
    return machine


def copy_of(number: int, count: int, commit: int, fence: int = 5) -> Slot:
    slot = Slot(fence)
    for place in range(count):
        slot.extended(number, b"copied %d" % place)
    slot.commit = commit
    return slot


def restarted(machine: Machine, power: bool = True) -> int:
    """Crash, open, check; how many slots are not as they were last."""
    machine.process.crash(power)
    machine.start()
    assert machine.found is not None, machine.process.ended
    assert machine.found.clean, machine.found.reason
    behind = machine.check(machine.found)
    machine.adopt(machine.found)
    return behind


def test_a_new_storage_is_clean_and_empty_and_its_lineage_is_its_start() -> None:
    machine = Machine(start=False)
    assert machine.open() == (1, True, "", {})
    machine.process.crash(power=True)
    assert machine.open() == (1, True, "", {})


def test_everything_comes_back() -> None:
    machine = filled()
    assert restarted(machine) == 0
    assert machine.found is not None
    assert machine.found.lineage == 1
    assert sorted(machine.found.slots) == [3, 200]
    image = machine.found.slots[3]
    assert [entry.payload for entry in image.entries] == [b"a", b"b", b"d"]
    assert (image.fence, image.base, image.state, image.commit) == (2, 0, None, 1)


def test_a_commit_point_rides_on_the_next_sync_and_asks_for_none() -> None:
    machine = filled()
    records = machine.counters["journal-batches"]
    for sequence in (2, 3):
        machine.commit(3, sequence)
    machine.settle()
    assert machine.counters["journal-batches"] == records
    before = machine.counters["journal-records"]
    machine.write(200, b"y")
    assert machine.counters["journal-records"] == before + 2
    assert restarted(machine) == 0
    assert machine.slots[3].commit == 3


def test_a_dropped_slot_stays_away_and_may_begin_anew() -> None:
    machine = filled()
    machine.install(7, copy_of(7, 4, 4), 4)
    machine.settle()
    machine.drop(3)
    machine.drop(7)
    machine.write(200, b"y")
    machine.settle()
    assert not any(name.startswith("slot.0") for name in machine.process.disk.list())
    assert restarted(machine) == 0
    assert list(machine.slots) == [200]
    machine.write(7, b"anew")
    assert restarted(machine) == 0
    assert [entry.payload for entry in machine.slots[7].log] == [b"anew"]


# Installs.


def test_an_installed_copy_replaces_everything_and_what_follows_comes_behind_it() -> None:
    machine = filled()
    machine.install(3, copy_of(3, 6, 4), 2)
    machine.append(3, b"behind")
    result = machine.sync()
    assert machine.simulation.run_until_true(lambda: bool(result), 1.0, every_s=0.0001)
    assert restarted(machine) == 0
    assert machine.found is not None
    image = machine.found.slots[3]
    assert (image.base, image.commit, image.fence) == (2, 4, 5)
    assert image.entries[-1].payload == b"behind"
    assert machine.storage.bytes == sum(machine.process.disk.list().values())


def test_syncs_of_other_slots_do_not_wait_for_an_install() -> None:
    machine = filled()
    machine.install(3, copy_of(3, 6, 4), 4)
    machine.append(200, b"y")
    first = machine.sync()
    machine.fence(3, 9)
    second = machine.sync()
    while not first:
        assert not second
        machine.settle(0.0001)
    assert not second
    machine.settle()
    assert second
    assert restarted(machine) == 0


def test_installs_drops_and_appends_of_one_slot_keep_their_order() -> None:
    for seed in range(60):
        machine = filled(seed)
        machine.install(3, copy_of(3, 6, 4), 2)
        machine.append(3, b"lost again")
        machine.install(3, copy_of(3, 3, 3, fence=6), 3)
        machine.append(3, b"lost, too")
        machine.drop(3)
        machine.append(3, b"first")
        machine.install(3, copy_of(3, 2, 1, fence=7), 1)
        machine.fence(3, 8)
        result = machine.sync()
        machine.settle(0.0006 * seed)
        assert restarted(machine) == 0 or not result
    assert result


def test_a_crash_between_the_file_and_its_record_or_renaming_is_harmless() -> None:
    outcomes = set()
    for step in range(80):
        machine = filled(step)
        machine.install(3, copy_of(3, 6, 4), 2)
        machine.append(3, b"behind")
        machine.sync()
        machine.settle(0.0001 * step)
        restarted(machine, power=bool(step % 2))
        outcomes.add(len(machine.slots[3].log))
        machine.write(3, b"next")
        assert restarted(machine) == 0
    assert outcomes == {3, 6, 7} or outcomes == {3, 7}


# Compaction.


def test_compaction_bounds_what_is_on_the_disk() -> None:
    machine = Machine(journal_bytes_max=4000)
    most = 0
    for number in range(600):
        slot = number % 5
        machine.write(slot, b"%d" % number * 10)
        machine.commit(slot, len(machine.slots[slot].log))
        if len(machine.slots[slot].log) > 10:
            machine.drop(slot)
        most = max(most, sum(machine.process.disk.list().values()))
    assert machine.counters["storage-compactions"] > 5
    assert machine.counters["storage-snapshots"] > 20
    assert most < 4000 * 2 + 2 * 5 * 10 * 100
    assert restarted(machine) == 0


def test_a_slot_without_new_records_is_not_written_again() -> None:
    machine = Machine(journal_bytes_max=4000)
    machine.write(9, b"quiet")
    while machine.counters["storage-compactions"] < 4:
        machine.write(1, b"loud" * 20)
    assert machine.counters["storage-snapshots"] <= 4 + 1
    assert restarted(machine) == 0
    assert [entry.payload for entry in machine.slots[9].log] == [b"quiet"]


def test_the_loop_is_free_between_two_slots_of_a_compaction() -> None:
    machine = Machine(journal_bytes_max=4000)
    for slot in range(8):
        machine.append(slot, bytes(600))
    dumps: list[float] = []
    dump = machine.storage._dump
    machine.storage._dump = lambda slot: (dumps.append(machine.simulation.time_s), dump(slot))[1]
    machine.sync()
    assert dumps == []
    machine.settle()
    assert len(dumps) == 8
    assert all(later - sooner >= 0.004 for sooner, later in pairwise(dumps))


def test_a_slot_that_is_dropped_while_its_file_is_made_does_not_come_back() -> None:
    for step in range(60):
        machine = Machine(step, journal_bytes_max=4000)
        for slot in range(3):
            machine.append(slot, bytes(1400))
        machine.sync()
        machine.settle(0.0003 * step)
        machine.drop(0)
        while machine.counters["storage-compactions"] < 3:
            machine.write(1, bytes(700))
            machine.settle(0.01)
        assert restarted(machine) == 0
        assert list(machine.slots) == [1, 2]


def test_a_slot_that_begins_anew_while_its_file_waits_to_be_made_is_kept() -> None:
    machine = Machine(journal_bytes_max=4000)
    for slot in range(3):
        machine.install(slot, copy_of(slot, 2, 2), 2)
    machine.settle()
    machine.append(0, bytes(4000))
    machine.sync()
    machine.install(1, copy_of(1, 4, 4), 4)  # the file of slot 0 has to wait for this one
    machine.settle(0.0)
    machine.drop(0)
    machine.append(0, b"anew")
    machine.sync()
    machine.settle()
    assert machine.counters["storage-compactions"] == 1
    while machine.counters["storage-compactions"] < 3:
        machine.write(2, bytes(700))
        machine.settle(0.01)
    assert restarted(machine) == 0
    assert [entry.payload for entry in machine.slots[0].log] == [b"anew"]


# Crashes.


def storm(seed: int, bugs: frozenset[str] = frozenset()) -> tuple[Machine, int]:
    """Three lives of random operations, each ended at a random moment."""
    machine = Machine(seed, journal_bytes_max=(1000, 3000, 20_000)[seed % 3], bugs=bugs)
    rng, behind = machine.rng, 0
    for _ in range(3):
        for _ in range(rng.randint(1, 60)):
            machine.act()
            machine.simulation.run_for(rng.choice((0.0, 0.0002, 0.001, 0.01)))
        power = rng.random() < 0.7
        if power and rng.random() < 0.3:
            machine.process.disk.tear_next()
        behind += restarted(machine, power)
        assert machine.found is not None
        assert machine.found.lineage == 1
    return machine, behind


def test_nothing_acknowledged_is_lost_and_nothing_cut_comes_back() -> None:
    behind = 0
    counters: dict[str, int] = {}
    for seed in range(150):
        machine, count = storm(seed)
        behind += count
        for name, value in machine.counters.items():
            counters[name] = counters.get(name, 0) + value
    assert behind > 60
    assert counters["storage-compactions"] > 40
    assert counters["storage-installs"] > 80
    assert counters["journal-torn"] > 30


def test_the_planted_skipped_sync_is_caught() -> None:
    def is_caught(seed: int) -> bool:
        try:
            storm(seed, frozenset(["skip-sync"]))
        except AssertionError as error:
            return "lost what was acknowledged" in str(error)
        return False

    assert sum(is_caught(seed) for seed in range(10)) >= 5


def test_crashes_while_opening_lose_nothing() -> None:
    for seed in range(40):
        machine = Machine(seed, journal_bytes_max=2000)
        for _ in range(40):
            machine.act()
            machine.simulation.run_for(machine.rng.choice((0.0, 0.001)))
        machine.process.crash(power=True)
        for attempt in range(8):
            machine.process.start()
            machine.simulation.run_for(0.0008 * attempt)
            machine.process.crash(power=True)
        restarted(machine)


def test_crashes_while_it_is_created_leave_a_clean_one() -> None:
    for seed in range(40):
        machine = Machine(seed, start=False)
        for attempt in range(5):
            machine.process.start()
            machine.simulation.run_for(0.0009 * attempt)
            machine.process.crash(power=True)
        found = machine.open()
        assert (found.clean, found.slots) == (True, {})
        machine.write(1, b"x")
        assert restarted(machine) == 0


@pytest.mark.parametrize("journal_bytes_max", [2000, 200_000])
def test_a_slow_disk_only_delays(journal_bytes_max: int) -> None:
    machine = Machine(journal_bytes_max=journal_bytes_max)
    machine.process.disk.delay_s = 0.05
    for _ in range(60):
        machine.act()
        machine.settle(0.01)
    result = machine.sync()
    assert result == []
    machine.settle(60.0)
    assert result == [True]
    assert machine.installing == {}
    assert restarted(machine) == 0
