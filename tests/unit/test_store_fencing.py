"""What a member promised and what it has is kept, whoever asks: its fence, the tail of its log."""

from __future__ import annotations

import msgspec

from swell.dht import operations as dht
from swell.dht.operations import DHT_SERVICE
from swell.node import Node
from swell.overlay.messages import LinkKind, Welcome
from swell.settings import Settings, StoreSettings
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.store import entry as entries
from swell.store import payload
from swell.store.messages import Adopted, Beat, Beaten, Copied, Copy, Prepare, Prepared, Run
from tests.unit.overlay_toys import Peer

SLOT = 0
NAMES = ("a1", "a2", "a3")


def running(fleet: Fleet, name: str) -> Node:
    node = fleet.node(name)
    assert node is not None
    return node


def serving(fleet: Fleet, names: tuple[str, ...]) -> Node | None:
    """Who serves the slot."""
    nodes = [node for node in map(fleet.node, names) if node is not None]
    served = (node for node in nodes if SLOT in node.store.replicas)
    return next((node for node in served if node.store.replicas[SLOT].primary is not None), None)


def served_slot() -> Fleet:
    settings = msgspec.structs.replace(Settings.local(), store=StoreSettings(slots=1))
    fleet = Fleet(Simulation(1), settings, voters=3)
    for name in NAMES:
        fleet.add(name, "a")
    assert fleet.simulation.run_until_true(lambda: serving(fleet, NAMES) is not None, 60.0)
    fleet.simulation.run_for(3.0)
    return fleet


def test_the_fence_outlives_the_data() -> None:
    fleet = served_slot()
    simulation = fleet.simulation
    primary = serving(fleet, NAMES)
    assert primary is not None
    name = next(name for name in NAMES if running(fleet, name) is not primary)
    store = running(fleet, name).store
    replica = store.replicas[SLOT]
    fence = replica.fence
    store.upkeep._drop(replica)
    assert (replica.has_data, replica.fence) == (False, fence)
    simulation.run_for(0.1)
    simulation.processes[primary.config.name].pause()
    simulation.processes[name].crash(power=True)
    simulation.processes[name].start()
    assert simulation.run_until_true(lambda: running(fleet, name).store.ready, 10.0, 0.001)
    assert running(fleet, name).store.replicas[SLOT].fence == fence

    impostor = Peer(simulation, "impostor", name, identity="a9")
    impostor.connect(LinkKind.STORE, msgspec.structs.replace(primary.me(), name="a9"), CLUSTER)
    (beaten,) = impostor.say(Beat(1, ((SLOT, fence - 1, 0),)))
    assert isinstance(beaten, Beaten)
    assert [slot for slot, _ in beaten.fenced] == [SLOT]


def test_an_old_table_drops_nothing() -> None:
    fleet = served_slot()
    primary = serving(fleet, NAMES)
    assert primary is not None
    name = next(name for name in NAMES if running(fleet, name) is not primary)
    store = running(fleet, name).store
    replica, table = store.replicas[SLOT], store.table
    record = table.record(SLOT)
    assert record is not None
    others = tuple(m for m in record.members if m.node != store.me)
    stale = msgspec.structs.replace(record, members=others, basis=others)
    table._records[SLOT] = (table.version(SLOT) - 1, stale)
    replica.heard_at = store.world.now() - 60.0
    store.upkeep._watch(replica, store.world.now())
    store.upkeep._drop_surplus()
    assert store.upkeep._asking
    assert fleet.simulation.run_until_true(lambda: not store.upkeep._asking, 5.0)
    assert replica.has_data
    assert table.record(SLOT) == record


def test_a_copy_never_shortens_a_log() -> None:
    fleet = served_slot()
    simulation = fleet.simulation
    primary = serving(fleet, NAMES)
    assert primary is not None
    name = next(name for name in NAMES if running(fleet, name) is not primary)
    replica = running(fleet, name).store.replicas[SLOT]
    contact, epoch = primary.me(), replica.fence
    simulation.processes[contact.name].crash()
    impostor = Peer(simulation, "impostor", name, identity=contact.name)
    impostor.connect(LinkKind.STORE, contact, CLUSTER)
    base, digest, commit = replica.chain.last, replica.chain.digest, replica.commit
    behind = []
    for sequence in range(base + 1, base + 4):
        entry = entries.make(
            SLOT, epoch, sequence, behind[-1].digest if behind else digest, payload.NOTHING
        )
        behind.append(entry)
    run = Run(SLOT, epoch, commit, base, digest, tuple(entry.data for entry in behind))
    (prepared,) = impostor.say(Prepare((run,)))
    assert isinstance(prepared, Prepared)
    assert prepared.acks == ((SLOT, epoch, base + 3),)

    state = replica.state.dump()
    first = behind[0]
    copy = Copy(SLOT, epoch, first.sequence, epoch, first.digest, 0, len(state), state)
    (copied,) = impostor.say(copy)
    assert isinstance(copied, Copied)
    assert copied.durable
    assert (replica.chain.last, replica.chain.digest) == (base + 3, behind[-1].digest)
    assert replica.commit == first.sequence


def test_a_write_of_an_earlier_epoch_is_refused_and_not_stored() -> None:
    fleet = served_slot()
    simulation = fleet.simulation
    deposed = serving(fleet, NAMES)
    assert deposed is not None
    contact, epoch = deposed.me(), deposed.store.replicas[SLOT].fence
    simulation.processes[contact.name].crash()
    rest = tuple(name for name in NAMES if name != contact.name)
    assert simulation.run_until_true(lambda: serving(fleet, rest) is not None, 30.0)

    primary = serving(fleet, rest)
    follower = next(name for name in rest if primary is not running(fleet, name))
    replica = running(fleet, follower).store.replicas[SLOT]
    last, digest, dump = replica.chain.last, replica.chain.digest, replica.state.dump()
    body = dht.put("key", b"written by a primary of the past").body
    command = payload.encode_command(1 << 32, 1, 1, DHT_SERVICE, body)
    late = entries.make(SLOT, epoch, last + 1, digest, command)

    impostor = Peer(simulation, "impostor", follower, identity=contact.name)
    (welcome,) = impostor.connect(LinkKind.STORE, contact, CLUSTER)
    assert isinstance(welcome, Welcome)
    refused = running(fleet, follower).counters["store-refused"]
    run = Run(SLOT, epoch, last + 1, last, digest, (late.data,))
    (answer,) = impostor.say(Prepare((run,)))

    assert isinstance(answer, Adopted)
    (position,) = answer.positions
    assert position.refused
    assert position.fence == replica.fence > epoch
    assert running(fleet, follower).counters["store-refused"] == refused + 1
    assert (replica.chain.last, replica.chain.digest) == (last, digest)
    assert replica.state.dump() == dump

    simulation.processes[follower].crash(power=True)
    simulation.processes[follower].start()
    assert simulation.run_until_true(lambda: SLOT in running(fleet, follower).store.replicas, 10.0)
    kept = running(fleet, follower).store.replicas[SLOT].chain
    assert kept.last >= last
    assert kept.digest_at(last) == digest
    assert kept.digest_at(last + 1) != late.digest
