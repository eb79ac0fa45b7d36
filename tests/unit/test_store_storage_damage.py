"""Damage to the store's storage: every bit, every file, errors of the disk, what is kept of it."""

from __future__ import annotations

import pytest

from swell.store import snapshots
from swell.store.storage import Restored
from tests.unit.storage_toys import Machine, Slot, Value, flipped, slot_of

Files = dict[str, bytes]


def prepared(bugs: frozenset[str] = frozenset(), sealed: bool = True) -> tuple[Machine, Files]:
    """Slots with and without files, in place by compaction and by install, records behind them;
    and all of it on a disk."""
    machine = Machine(journal_bytes_max=3300, bugs=bugs)
    for number in (1, 2, 3):
        machine.append(number, b"one", b"two", b"three")
        machine.commit(number, 2)
    while not machine.counters["storage-compactions"]:
        machine.write(1, b"more")
        machine.settle(0.01)
    copy = Slot(4)
    for payload in (b"w", b"x", b"y", b"z"):
        copy.extended(5, payload)
    copy.commit = 3
    machine.install(5, copy, 2)
    machine.settle()
    machine.fence(2, 7)
    machine.cut(3, 2)
    machine.write(6, b"no file")
    machine.write(5, b"newest")
    machine.write(6, b"newer")
    if sealed:
        machine.settle(3.0)
    return machine, machine.files()


def values(restored: Restored) -> dict[int, Value]:
    return {number: slot_of(image).value() for number, image in restored.slots.items()}


def is_newest_segment(files: Files, name: str) -> bool:
    return name == max(file for file in files if file.endswith(".log"))


def try_bit(machine: Machine, files: Files, name: str, bit: int) -> str:
    """Flip a bit, and say what became of it; fails if data that never were are said to be clean."""
    found = machine.try_files({**files, name: flipped(files[name], bit)})
    if not found.clean:
        assert found.reason
        return "void"
    assert found.lineage == 1, "another lineage is presented as clean"
    if values(found) == {number: slot.value() for number, slot in machine.slots.items()}:
        return "intact"
    machine.check(found, acknowledged=False)
    return "shorter"


def try_bits(machine: Machine, files: Files, every: int) -> dict[str, set[str]]:
    return {
        name: {try_bit(machine, files, name, bit) for bit in range(0, len(data) * 8, every)}
        for name, data in files.items()
        if data
    }


def test_no_flipped_bit_goes_unseen_once_the_journal_is_sealed() -> None:
    machine, files = prepared()
    for name, outcomes in try_bits(machine, files, every=61).items():
        newest = is_newest_segment(files, name)
        assert outcomes == {"void", "intact"} if newest else outcomes == {"void"}, name
    assert {"slot.0001", "slot.0005", "store.snapshot"} < set(files)


def test_before_that_only_the_newest_batch_may_be_cut() -> None:
    machine, files = prepared(sealed=False)
    outcomes = try_bits(machine, files, every=67)
    newest = max(name for name in files if name.endswith(".log"))
    assert outcomes.pop(newest) == {"void", "shorter"}
    assert set().union(*outcomes.values()) == {"void"}


def test_missing_old_swapped_and_foreign_files_are_damage() -> None:
    machine, files = prepared()
    first = snapshots.decode(files["slot.0001"])
    assert first is not None
    _, _, index, image, _ = first
    cases: list[Files] = [
        {name: data for name, data in files.items() if name != "slot.0001"},
        {name: data for name, data in files.items() if name != "slot.0005"},
        {name: data for name, data in files.items() if not name.startswith("store")},
        {name: data for name, data in files.items() if name != "store.snapshot"},
        {**files, "slot.0001": b""},
        {**files, "slot.0001": files["slot.0001"] + b"\0"},
        {**files, "slot.0001": files["slot.0002"]},
        {**files, "slot.0001": snapshots.encode(1, 2, index, image)[0]},
        {**files, "slot.0001": snapshots.encode(1, 1, index - 1, image)[0]},
        {**files, "slot.0001": snapshots.encode(1, 1, index + 1000, image)[0]},
    ]
    for place, case in enumerate(cases):
        found = machine.try_files(case)
        assert not found.clean, place
        assert found.lineage == machine.starts
    assert machine.try_files(files).clean


def test_files_that_nothing_names_are_taken_away_and_are_no_damage() -> None:
    machine, files = prepared()
    stray = {"slot.0009": files["slot.0001"], "slot.0001.new": b"half", "slot.0005.new": b""}
    found = machine.try_files({**files, **stray})
    assert found.clean
    assert not set(stray) & set(machine.process.disk.list())
    machine.check(found)


def test_after_a_void_nothing_old_comes_back_and_the_new_lineage_stays() -> None:
    machine, files = prepared()
    data = files["slot.0001"]
    found = machine.try_files({**files, "slot.0001": flipped(data, 999)})
    assert (found.clean, found.slots, found.lineage) == (False, {}, machine.starts)
    assert "slot 1" in found.reason
    assert not any(name.startswith("slot.0") for name in machine.process.disk.list())
    machine.adopt(found)
    machine.write(1, b"new")
    lineage = found.lineage
    machine.process.crash(power=True)
    again = machine.open()
    assert (again.clean, again.lineage, again.reason) == (True, lineage, "")
    assert [entry.payload for entry in machine.slots[1].log] == [b"new"]


@pytest.mark.parametrize("damaged", ["slot.0001", "store.snapshot", "log"])
def test_a_crash_while_damage_is_dropped_never_brings_half_of_it_back(damaged: str) -> None:
    machine, files = prepared()
    name = min(n for n in files if n.endswith(".log")) if damaged == "log" else damaged
    damaged_files = {**files, name: flipped(files[name], 500)}
    for step in range(60):
        machine.process.crash()
        machine.process.disk.restore(damaged_files)
        machine.process.start()
        machine.simulation.run_for(0.0004 * step)
        begun = machine.starts
        machine.process.crash(power=True)
        found = machine.open()
        assert found.slots == {}
        assert found.lineage in (begun, machine.starts)
        assert found.clean == (found.lineage == begun)


# Errors of the disk.


@pytest.mark.parametrize("fault", ["sync", "replace", "truncate", "full"])
@pytest.mark.parametrize("trust", [False, True])
def test_an_error_of_the_disk_at_any_moment_is_fatal_and_remembered(
    fault: str, trust: bool
) -> None:
    failed = 0
    for seed in range(15):
        machine = Machine(seed, journal_bytes_max=1500, trust_unrotten=trust)
        for _ in range(machine.rng.randint(1, 40)):
            machine.act()
            machine.simulation.run_for(machine.rng.choice((0.0, 0.001)))
        if fault == "full":
            machine.process.disk.full = True
        else:
            machine.process.disk.fail_next(fault)
        for _ in range(60):
            if machine.process.alive:
                machine.act()
                machine.simulation.run_for(0.001)
        machine.simulation.run_for(2.0)
        if machine.process.alive:
            assert fault in ("replace", "truncate")  # nothing was renamed or cut meanwhile
            continue
        failed += 1
        assert "see to the disk" in machine.process.ended
        machine.process.disk.heal()
        machine.start()
        assert machine.found is not None, machine.process.ended
        if trust:
            assert (machine.found.clean, machine.found.lineage) == (True, 1)
            assert "error of the disk" in machine.found.reason
            machine.check(machine.found)
            machine.adopt(machine.found)
            machine.process.crash(power=True)
            machine.start()
            assert machine.found.reason == ""
            assert machine.check(machine.found) == 0
        else:
            assert (machine.found.clean, machine.found.lineage) == (False, 2)
    assert failed >= 9


def test_rot_of_the_only_copy_halts_and_leaves_the_slots_as_they_are() -> None:
    machine, files = prepared()
    limit, _, bugs = machine.options
    machine.options = (limit, True, bugs)
    name = min(name for name in files if name.endswith(".log"))
    for damaged in (name, "slot.0002"):
        damaged_files = {**files, damaged: flipped(files[damaged], 500)}
        machine.process.crash()
        machine.process.disk.restore(damaged_files)
        machine.start()
        assert not machine.process.alive
        assert "restore the data directory from a copy" in machine.process.ended
        left = machine.process.disk.snapshot()
        assert all(left[n] == data for n, data in damaged_files.items() if n.startswith("slot"))


def test_an_error_while_an_install_is_written_is_told_with_its_slot() -> None:
    machine, _ = prepared()
    machine.open()
    machine.process.disk.fail_next("sync")
    machine.install(77, Slot(1), 0)
    result = machine.sync()
    machine.simulation.run_for(2.0)
    assert not machine.process.alive
    assert "the file of slot 77 cannot be written" in machine.process.ended
    assert machine.acked.get(77, 0) == 0
    assert result == [True]  # nothing of the others waited for it
    assert "store.unclean" in machine.process.disk.list()
    assert not machine.open().clean


def test_a_read_error_halts_and_changes_nothing() -> None:
    machine, files = prepared()
    halted = []
    for moment in range(8):
        machine.process.disk.restore(files)
        machine.process.start()
        machine.simulation.run_for(0.0003 * moment)
        machine.process.disk.fail_next("read")
        machine.settle()
        machine.process.disk.heal()
        if not machine.process.alive:
            halted.append(machine.process.ended)
        machine.process.crash()
        found = machine.open()
        assert found.clean
        machine.check(found)
        machine.process.crash()
    assert all("cannot be read" in reason for reason in halted)
    assert any("slot" in reason for reason in halted)
    assert any("journal" in reason for reason in halted)


# Planted bugs.


def test_the_planted_promotion_of_unclean_data_is_caught() -> None:
    machine, files = prepared(frozenset(["promote-unclean"]))

    def is_caught(name: str, bit: int) -> bool:
        try:
            # After a seal an honest storage presents nothing shorter as clean.
            return try_bit(machine, files, name, bit) == "shorter"
        except AssertionError as error:
            return "lineage" in str(error) or "never w" in str(error)

    caught = [
        is_caught(name, bit) for name, data in files.items() for bit in range(0, len(data) * 8, 301)
    ]
    assert sum(caught) > 10


@pytest.mark.parametrize("damaged", ["slot.0001", "store.snapshot", "log"])
def test_the_scrub_finds_rot_before_it_is_needed(damaged: str) -> None:
    machine, files = prepared()
    machine.process.crash()
    machine.process.disk.restore(files)
    machine.open()
    name = min(n for n in files if n.endswith(".log")) if damaged == "log" else damaged
    machine.simulation.run_for(3605.0)
    assert machine.process.alive
    assert machine.counters["store-scrubbed"] == 1
    machine.process.disk._files[name].data[100] ^= 1
    machine.simulation.run_for(3605.0)
    assert not machine.process.alive
    assert "cannot be trusted" in machine.process.ended
    assert not machine.open().clean
