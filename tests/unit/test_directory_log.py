"""The directory's records and its log on a simulated disk: replay, torn tails, rot, rewriting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.directory import records
from swell.directory.log import FILE, Log, encode_record, split
from swell.directory.records import Admitted, Down, Forgotten, Numbers, Record, State, Up
from swell.simulation import Simulation
from swell.simulation.process import Process
from swell.world import World
from tests.unit.overlay_toys import contact
from tests.unit.simulation_toys import Recorder

nodes = st.integers(1, 9)
some = st.lists(nodes, max_size=4).map(tuple)
changes = st.lists(
    st.one_of(
        st.builds(
            lambda node, zone, epoch: Admitted(
                contact(node, zone, epoch=epoch), f"u{node}", "", f"pool{zone % 3}"
            ),
            nodes,
            st.integers(1, 5),
            st.integers(1, 3),
        ),
        st.builds(Down, some, st.integers(1, 10**9)),
        st.builds(Up, some),
        st.builds(Forgotten, some),
        st.builds(Numbers, st.integers(1, 20), st.integers(1, 20), st.integers(1, 50)),
    ),
    max_size=30,
)


def described(state: State) -> object:
    return (
        {n: (e.contact, e.uid, e.region, e.down_since_us) for n, e in sorted(state.nodes.items())},
        sorted(state.names.items()),
        {z: (zone.pool, sorted(zone.nodes)) for z, zone in sorted(state.zones.items())},
        (state.next_node, state.next_zone, state.epoch),
        state.view(),
    )


def replayed(log: Sequence[Record]) -> State:
    state = State()
    for record in log:
        state.apply(records.decode(records.encode(record)))
    return state


@given(changes)
def test_a_snapshot_rebuilds_the_state(log: list[Record]) -> None:
    state = replayed(log)
    assert described(replayed(list(state.snapshot()))) == described(state)


@given(changes)
def test_numbers_are_never_given_out_twice_and_epochs_grow(log: list[Record]) -> None:
    state = State()
    before = (0, 0, 0)
    for record in log:
        state.apply(record)
        after = (state.next_node, state.next_zone, state.epoch)
        assert all(b <= a for b, a in zip(before, after, strict=True))
        assert all(node < state.next_node for node in state.nodes)
        assert all(zone < state.next_zone for zone in state.zones)
        before = after


@given(changes)
def test_zones_hold_exactly_their_nodes(log: list[Record]) -> None:
    state = replayed(log)
    held = {(z, n) for z, zone in state.zones.items() for n in zone.nodes}
    assert held == {(e.contact.zone, n) for n, e in state.nodes.items()}
    assert all(zone.nodes for zone in state.zones.values())
    assert sum(info.size for info in state.view().zones) == sum(
        entry.up for entry in state.nodes.values()
    )


# The file.


payloads = st.lists(st.binary(min_size=1, max_size=30), max_size=8)


@given(payloads)
def test_split_reads_what_was_written(written: list[bytes]) -> None:
    data = b"".join(map(encode_record, written))
    assert split(data) == (written, len(data), False)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=5), st.data())
def test_a_log_cut_anywhere_loses_only_its_tail(written: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(map(encode_record, written))
    end = data.draw(st.integers(0, len(whole)))
    found, used, rotten = split(whole[:end])
    assert found == written[: len(found)]
    assert used == sum(len(encode_record(record)) for record in found)
    assert not rotten


def test_zeros_at_the_end_are_a_torn_tail_not_records() -> None:
    data = encode_record(b"one")
    assert split(data + b"\0" * 64) == ([b"one"], len(data), False)


def test_damage_in_the_middle_is_rot_wherever_it_is() -> None:
    parts = [encode_record(b"record %d" % k) for k in range(4)]
    whole = b"".join(parts)
    last = len(whole) - len(parts[-1])
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        found, _, rotten = split(bytes(damaged))
        assert rotten == (position < last), position
        assert all(record == b"record %d" % k for k, record in enumerate(found))


class Machine:
    """One process with a log; `opened` holds what it read at its start."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.opened: list[bytes] | None = None
        self.log: Log
        self.done: list[int] = []
        self.process: Process = self.simulation.add("n", "s", self._factory)
        self.start()

    def _factory(self, world: World) -> Recorder:
        self.log = Log(world)
        self.opened = None
        self.done = []
        self.log.open(self._on_opened)
        return Recorder(world)

    def _on_opened(self, payloads: Sequence[bytes]) -> None:
        self.opened = list(payloads)

    def start(self) -> None:
        self.process.start()
        self.simulation.run_for(1.0)

    def propose(self, *numbers: int) -> None:
        for number in numbers:
            self.log.propose([b"%d" % number], self._noted(number))

    def _noted(self, number: int) -> Callable[[], None]:
        return lambda: self.done.append(number)

    def restart(self, power: bool = True) -> list[int]:
        self.process.crash(power)
        self.start()
        assert self.opened is not None, self.process.ended
        return [int(payload) for payload in self.opened]


def test_what_was_acknowledged_survives_a_power_loss() -> None:
    for seed in range(10):
        machine = Machine(seed)
        machine.propose(1, 2)
        machine.simulation.run_for(0.1)
        assert machine.done == [1, 2]
        machine.propose(3, 4)
        found = machine.restart()
        assert found[:2] == [1, 2]
        assert found == [1, 2, 3, 4][: len(found)]
        machine.propose(5)
        machine.simulation.run_for(0.1)
        assert machine.restart() == [*found, 5]


def test_proposals_share_a_sync() -> None:
    machine = Machine()
    machine.propose(1, 2, 3, 4)
    assert machine.done == []
    machine.simulation.run_for(0.1)
    assert machine.done == [1, 2, 3, 4]


def test_a_torn_tail_is_cut_and_the_log_goes_on() -> None:
    machine = Machine()
    machine.propose(1, 2)
    machine.simulation.run_for(0.1)
    machine.process.crash()
    copy = machine.process.disk.snapshot()
    machine.process.disk.restore({FILE: copy[FILE] + encode_record(b"3")[:-1]})
    machine.start()
    assert machine.opened == [b"1", b"2"]
    machine.propose(4)
    machine.simulation.run_for(0.1)
    assert machine.restart() == [1, 2, 4]


def test_rot_halts_with_a_sentence() -> None:
    machine = Machine()
    machine.propose(1, 2, 3)
    machine.simulation.run_for(0.1)
    machine.process.crash()
    data = bytearray(machine.process.disk.snapshot()[FILE])
    data[9] ^= 1
    machine.process.disk.restore({FILE: bytes(data)})
    machine.process.start()
    machine.simulation.run_for(1.0)
    assert not machine.process.alive
    assert "damaged" in machine.process.ended
    assert "restore" in machine.process.ended


@pytest.mark.parametrize("operation", ["sync", "read"])
def test_a_disk_error_halts_and_acknowledges_nothing(operation: str) -> None:
    machine = Machine()
    machine.propose(1)
    machine.simulation.run_for(0.1)
    machine.process.disk.fail_next(operation)
    if operation == "read":
        machine.process.crash()
        machine.process.start()
    else:
        machine.propose(2)
    machine.simulation.run_for(1.0)
    assert not machine.process.alive
    assert 2 not in machine.done


def test_rewriting_keeps_what_is_proposed_meanwhile() -> None:
    for seed in range(10):
        machine = Machine(seed)
        machine.propose(*range(1, 40))
        machine.simulation.run_for(0.1)
        long = machine.log.size
        machine.log.rewrite([b"100", b"101"])
        machine.propose(102)
        machine.simulation.run_for(0.0005 * seed)
        machine.propose(103)
        machine.simulation.run_for(0.1)
        assert machine.done[-2:] == [102, 103]
        assert machine.log.size < long
        assert machine.restart() == [100, 101, 102, 103]


def test_a_crash_while_rewriting_keeps_the_old_or_the_new_log() -> None:
    outcomes = []
    for seed in range(30):
        machine = Machine(seed)
        machine.propose(1, 2, 3)
        machine.simulation.run_for(0.1)
        machine.log.rewrite([b"100"])
        machine.simulation.run_for(0.0002 * seed)
        outcomes.append(tuple(machine.restart()))
        machine.log.rewrite([b"200"])
        machine.simulation.run_for(0.1)
        assert machine.restart() == [200]
    assert set(outcomes) == {(1, 2, 3), (100,)}


def test_rewriting_waits_for_a_sync_that_runs() -> None:
    machine = Machine()
    machine.propose(1)
    machine.log.rewrite([b"100"])
    machine.simulation.run_for(0.1)
    assert machine.restart() == [1]
