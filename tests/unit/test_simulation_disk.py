"""The disk of the simulation: what survives, and what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from swell.simulation import Process, Simulation
from swell.simulation.disk import LOG_SYNCS
from swell.world import DiskError
from tests.unit.simulation_toys import Recorder, add, node_of

SYNCED = b"synced" * 10
UNSYNCED = b"unsynced" * 10


class Machine:
    """One process and its disk."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.process: Process = add(self.simulation, "a", "east")

    @property
    def node(self) -> Recorder:
        return node_of(self.process)

    def write(self, file: str = "log") -> None:
        """Leave a file with a synced part and an un-synced one behind it."""
        disk = self.process.disk
        disk.append(file, SYNCED)
        assert self.result("sync", file) is None
        disk.append(file, UNSYNCED)

    def result(self, operation: str, *arguments: Any) -> Any:
        """Run one operation to its end."""
        results: list[Any] = []
        getattr(self.process.disk, operation)(*arguments, results.append)
        assert results == []
        assert self.simulation.run_until_true(lambda: bool(results), 10.0, every_s=0.01)
        return results[0]

    def content(self, file: str = "log") -> bytes:
        data = self.result("read", file, 0, 1 << 20)
        assert isinstance(data, bytes)
        return data


def test_what_was_appended_can_be_read_renamed_and_cut() -> None:
    machine = Machine()
    machine.write()
    assert machine.content() == SYNCED + UNSYNCED
    assert machine.result("read", "log", 2, 4) == SYNCED[2:6]
    assert machine.result("replace", "log", "old") is None
    assert machine.process.disk.list() == {"old": len(SYNCED + UNSYNCED)}
    assert machine.result("truncate", "old", 5) is None
    assert machine.content("old") == SYNCED[:5]


@pytest.mark.parametrize(
    "call", [("sync", "no"), ("read", "no", 0, 1), ("truncate", "no", 0), ("replace", "no", "x")]
)
def test_a_missing_file_is_an_error(call: tuple[Any, ...]) -> None:
    assert isinstance(Machine().result(*call), DiskError)


def test_done_runs_in_order_of_submission_and_never_after_a_crash() -> None:
    machine = Machine()
    disk, log = machine.process.disk, machine.node.log
    disk.append("log", SYNCED)
    for number in range(20):
        disk.sync("log", lambda _, number=number: log.append(number))
        disk.read("log", 0, 1, lambda _, number=number: log.append(number))
    assert log == []
    machine.simulation.run_for(0.01)
    done = len(log)
    assert 0 < done < 40
    assert log == [number for number in range(20) for _ in range(2)][:done]
    machine.process.crash()
    machine.process.start()
    machine.simulation.run_for(1.0)
    assert len(log) == done


def test_done_waits_while_the_process_is_paused() -> None:
    machine = Machine()
    machine.process.disk.append("log", SYNCED)
    machine.process.disk.sync("log", machine.node.log.append)
    machine.process.pause()
    machine.simulation.run_for(1.0)
    assert machine.node.log == []
    machine.process.resume()
    machine.simulation.run_for(0.0)
    assert machine.node.log == [None]


def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    kept = []
    for seed in range(40):
        machine = Machine(seed)
        machine.write()
        machine.process.crash()
        machine.process.start()
        content = machine.content()
        assert (SYNCED + UNSYNCED).startswith(content)
        assert len(content) >= len(SYNCED)
        kept.append(len(content) - len(SYNCED))
    assert len(set(kept)) > 10


def test_a_power_loss_may_leave_garbage_but_only_behind_the_last_sync() -> None:
    torn = 0
    for seed in range(40):
        machine = Machine(seed)
        machine.write()
        machine.process.crash(power=True)
        machine.process.start()
        content = machine.content()
        assert content.startswith(SYNCED)
        torn += not (SYNCED + UNSYNCED).startswith(content)
    assert 5 < torn < 35


def test_a_crash_may_leave_zeros_behind_a_log_and_only_there() -> None:
    padded = 0
    for seed in range(40):
        machine = Machine(seed)
        disk = machine.process.disk
        for _ in range(LOG_SYNCS):
            disk.append("log", b"part")
            assert machine.result("sync", "log") is None
        disk.append("snapshot", SYNCED)
        assert machine.result("sync", "snapshot") is None
        machine.process.crash(power=bool(seed % 2))
        machine.process.start()
        content = machine.content()
        assert content.rstrip(b"\0") == b"part" * LOG_SYNCS
        assert machine.content("snapshot") == SYNCED
        padded += content.endswith(b"\0")
    assert 5 < padded < 35


def test_a_stop_in_order_loses_nothing() -> None:
    machine = Machine()
    machine.write()
    machine.process.stop()
    machine.simulation.run_for(1.0)
    machine.process.start()
    assert machine.content() == SYNCED + UNSYNCED


def test_a_renaming_or_cut_under_way_may_be_undone_by_a_crash() -> None:
    outcomes = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.write("old")
        machine.result("sync", "old")
        machine.process.disk.replace("old", "new", machine.node.log.append)
        machine.process.disk.truncate("new", 3, machine.node.log.append)
        machine.process.crash(power=True)
        outcomes.add(tuple(machine.process.disk.list().items()))
    length = len(SYNCED + UNSYNCED)
    assert outcomes == {(("old", length),), (("new", length),), (("new", 3),)}


def test_a_flipped_bit_is_one_bit_of_what_was_synced() -> None:
    machine = Machine()
    assert machine.process.disk.flip_bit() == ""
    machine.write()
    assert machine.process.disk.flip_bit() == "log"
    content = machine.content()
    assert content[len(SYNCED) :] == UNSYNCED
    changed = int.from_bytes(content[: len(SYNCED)], "big") ^ int.from_bytes(SYNCED, "big")
    assert changed.bit_count() == 1


def test_an_input_output_error_strikes_once() -> None:
    machine = Machine()
    machine.write()
    machine.process.disk.fail_next("sync", "read")
    assert isinstance(machine.result("sync", "log"), DiskError)
    assert isinstance(machine.result("read", "log", 0, 1), DiskError)
    assert machine.result("read", "log", 0, 1) == SYNCED[:1]
    assert machine.result("sync", "log") is None


def test_a_full_disk_fails_the_next_sync_and_stores_nothing() -> None:
    machine = Machine()
    machine.write()
    machine.process.disk.full = True
    machine.process.disk.append("log", b"refused")
    assert isinstance(machine.result("sync", "log"), DiskError)
    assert machine.content() == SYNCED + UNSYNCED
    machine.process.disk.heal()
    machine.process.disk.append("log", b"!")
    assert machine.result("sync", "log") is None
    assert machine.content() == SYNCED + UNSYNCED + b"!"


def test_a_slow_disk_is_late() -> None:
    machine = Machine()
    machine.write()
    machine.process.disk.delay_s = 2.0
    begin_s = machine.simulation.time_s
    machine.result("sync", "log")
    assert 2.0 < machine.simulation.time_s - begin_s < 2.1


def test_an_old_copy_can_be_restored() -> None:
    machine = Machine()
    machine.write()
    copy = machine.process.disk.snapshot()
    assert copy == {"log": SYNCED}
    machine.result("sync", "log")
    machine.process.crash()
    machine.process.disk.restore(copy)
    machine.process.start()
    assert machine.content() == SYNCED
