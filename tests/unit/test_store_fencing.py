"""A write to a fenced epoch: refused with the fence, and nothing of it is kept anywhere."""

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
from swell.store.messages import Adopted, Prepare, Run
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


def test_a_write_of_an_earlier_epoch_is_refused_and_not_stored() -> None:
    settings = msgspec.structs.replace(Settings.local(), store=StoreSettings(slots=1))
    fleet = Fleet(Simulation(1), settings, voters=3)
    for name in NAMES:
        fleet.add(name, "a")
    simulation = fleet.simulation
    assert simulation.run_until_true(lambda: serving(fleet, NAMES) is not None, 60.0)
    simulation.run_for(3.0)
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
