"""The planner: when the plan is written, and what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest

from swell.directory.plan import (
    PLAN,
    Plan,
    decode_pin,
    decode_plan,
    encode_pin,
    encode_plan,
    pin_key,
)
from swell.directory.planner import CONTACTS_ALL_MAX, DELAY_S_MAX, LOOK_S, QUIET_S, Planner
from swell.directory.records import Admitted, Down, State, Up
from swell.directory.registry import VALUE_BYTES_MAX, Change, Outcome, RegistrySet
from swell.errors import WireError
from swell.overlay.contact import Contact
from swell.settings import OverlaySettings, StoreSettings
from swell.simulation import Simulation
from swell.wire.compression import pack
from tests.unit.overlay_toys import contact
from tests.unit.simulation_toys import add, node_of

SETTLED_S = QUIET_S + 2 * LOOK_S


class Directory:
    """A planner over a state whose records take effect at once."""

    def __init__(self, **settings: int) -> None:
        self.simulation = Simulation(1)
        self.state = State()
        self.counters: Counter[str] = Counter()
        self.lost = False
        world = node_of(add(self.simulation, "p", "s")).world
        store = StoreSettings(**{"slots": 32, **settings})  # type: ignore[arg-type]
        self.planner = Planner(
            world, OverlaySettings(), store, self.state, self.change, self.counters
        )
        self.planner.start()

    def change(
        self, changes: Sequence[Change], done: Callable[[list[Outcome] | None], None]
    ) -> None:
        outcomes = None if self.lost else self.state.registry.apply(RegistrySet(tuple(changes)))
        self.simulation.call_later(0.01, lambda: done(outcomes))

    def join(self, *nodes: Contact) -> None:
        for node in nodes:
            self.state.apply(Admitted(node, "uid", "", "pool"))

    def settle(self) -> Plan | None:
        self.simulation.run_for(SETTLED_S)
        return self.plan

    @property
    def plan(self) -> Plan | None:
        entry = self.state.registry.get(PLAN)
        return None if entry is None else decode_plan(entry.value)

    @property
    def written(self) -> int:
        return self.counters["planner-written"]


def planned(*zones: int, **settings: int) -> tuple[Directory, Plan]:
    """A directory with one node in each of these zones, and its first plan."""
    directory = Directory(**settings)
    directory.join(*(contact(node, zone) for node, zone in enumerate(zones, 1)))
    plan = directory.settle()
    assert plan is not None
    return directory, plan


def test_the_first_plan_waits_for_min_replicas_nodes() -> None:
    directory = Directory()
    directory.join(contact(1, 1))
    assert directory.settle() is None
    directory.join(contact(2, 1))
    plan = directory.settle()
    assert plan is not None
    assert (plan.slots, plan.replicas, plan.min_replicas) == (32, 3, 2)
    assert plan.view_epoch == 2
    assert {len(nodes) for nodes in plan.targets} == {2}
    assert plan.contacts == (contact(1, 1), contact(2, 1))


def test_a_cluster_of_one_node_has_a_plan_if_one_copy_is_enough() -> None:
    _, plan = planned(1, min_replicas=1)
    assert set(plan.targets) == {(1,)}


def test_nothing_is_written_when_nothing_differs() -> None:
    directory, plan = planned(1, 1, 2)
    directory.state.apply(Up((1,)))
    assert directory.state.epoch > plan.view_epoch
    assert directory.settle() == plan
    directory.simulation.run_for(30.0)
    assert directory.written == 1


def test_the_plan_follows_who_comes_and_goes() -> None:
    directory, _ = planned(1, 1, 2)
    directory.join(contact(4, 2))
    plan = directory.settle()
    assert plan is not None
    assert any(4 in nodes for nodes in plan.targets)
    directory.state.apply(Down((1,), 1))
    plan = directory.settle()
    assert plan is not None
    assert not any(1 in nodes for nodes in plan.targets)
    assert [c.id for c in plan.contacts] == [2, 3, 4]
    assert directory.written == 3


def test_a_node_that_started_again_is_told_in_the_plan() -> None:
    directory, before = planned(1, 1, 2)
    directory.join(contact(2, 1, epoch=1024))
    after = directory.settle()
    assert after is not None
    assert after.targets == before.targets
    assert after.contacts[1].epoch == 1024


def test_changes_are_gathered_until_it_is_quiet_but_not_for_ever() -> None:
    directory, _ = planned(1, 1)
    begin = directory.simulation.time_s
    node = 3
    while directory.written == 1:
        directory.join(contact(node, 1))
        node += 1
        directory.simulation.run_for(QUIET_S / 2)
        assert directory.simulation.time_s - begin < DELAY_S_MAX + 2 * QUIET_S
    assert directory.simulation.time_s - begin > DELAY_S_MAX - QUIET_S
    assert directory.written == 2


def test_slots_and_replicas_never_change() -> None:
    directory, _ = planned(1, 1, 2)
    directory.planner.stop()
    directory.planner = Planner(
        node_of(directory.simulation.processes["p"]).world, OverlaySettings(),
        StoreSettings(slots=7, replicas=5, min_replicas=4), directory.state, directory.change,
        directory.counters,
    )  # fmt: skip
    directory.planner.start()
    directory.join(contact(4, 2))
    plan = directory.settle()
    assert plan is not None
    assert directory.written == 2
    assert (plan.slots, plan.replicas, plan.min_replicas) == (32, 3, 2)


def test_too_few_nodes_leave_the_targets_as_they_were() -> None:
    directory, before = planned(1, 1, 2)
    directory.state.apply(Down((1, 2), 1))
    after = directory.settle()
    assert after is not None
    assert after.targets == before.targets
    assert [c.id for c in after.contacts] == [3]


def test_pins_override_the_ring_as_far_as_their_nodes_are_up() -> None:
    directory, before = planned(1, 1, 2, 2)
    others = {slot: before.targets[slot] for slot in range(4, 32)}
    pins = {0: (4, 3, 1), 1: (9, 2), 2: (9,), 3: (3, 3, 2)}
    changes = [Change(pin_key(slot), 0, encode_pin(nodes)) for slot, nodes in pins.items()]
    changes += [Change("pins/x", 0, b""), Change("pins/99", 0, encode_pin((1, 2)))]
    changes += [Change("pins/5", 0, b"\xc1")]
    directory.state.registry.apply(RegistrySet(tuple(changes)))
    plan = directory.settle()
    assert plan is not None
    assert plan.targets[0] == (4, 3, 1)
    assert plan.targets[1][0] == 2
    assert len(plan.targets[1]) == 2, "the ring helps out up to min_replicas"
    assert plan.targets[2] == before.targets[2]
    assert plan.targets[3] == (3, 2)
    assert {slot: plan.targets[slot] for slot in range(4, 32)} == others
    assert directory.counters["planner-bad-pin"] > 0
    directory.state.registry.apply(
        RegistrySet((Change(pin_key(0), directory.state.registry.read(pin_key(0))["pins/0"].version,
                            None),))
    )  # fmt: skip
    plan = directory.settle()
    assert plan is not None
    assert plan.targets[0] == before.targets[0]


def test_an_unknown_outcome_is_tried_again() -> None:
    directory = Directory()
    directory.lost = True
    directory.join(contact(1, 1), contact(2, 1))
    assert directory.settle() is None
    directory.lost = False
    assert directory.settle() is not None
    assert directory.written == 1


def test_a_plan_that_cannot_be_read_is_left_alone() -> None:
    directory, _ = planned(1, 1)
    version = directory.state.registry.revision
    directory.state.registry.apply(RegistrySet((Change(PLAN, version, b"\0rubbish"),)))
    directory.join(contact(3, 1))
    directory.simulation.run_for(SETTLED_S)
    entry = directory.state.registry.get(PLAN)
    assert entry is not None
    assert entry.value == b"\0rubbish"
    assert directory.counters["planner-bad-body"] > 0


def test_who_leads_no_more_writes_no_more() -> None:
    directory = Directory()
    directory.planner.stop()
    directory.join(contact(1, 1), contact(2, 1))
    assert directory.settle() is None


def test_a_large_plan_fits_into_one_value() -> None:
    directory = Directory(slots=1024)
    rng = directory.simulation.rng("names")
    names = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=63)) for _ in range(500)
    ]
    directory.join(*(
        Contact(1_000_000 + n, name, f"site-{n % 20}", name[:20], 1 + n // 14,
                f"{name}.example.net", 40_000 + n, (n + 1) << 10)
        for n, name in enumerate(names)
    ))  # fmt: skip
    plan = directory.settle()
    assert plan is not None
    assert len(plan.contacts) == 500
    size = len(encode_plan(plan))
    assert size < VALUE_BYTES_MAX / 2, size


def test_in_a_very_large_cluster_only_nodes_that_are_named_have_contacts() -> None:
    directory = Directory(slots=8)
    directory.join(*(contact(n, 1 + n // 14) for n in range(1, CONTACTS_ALL_MAX + 2)))
    plan = directory.settle()
    assert plan is not None
    assert {c.id for c in plan.contacts} == {node for nodes in plan.targets for node in nodes}


@pytest.mark.parametrize("value", [b"", b"\0", b"\7x", pack(b"\x90"), b"\1rubbish"])
def test_rubbish_is_no_plan(value: bytes) -> None:
    with pytest.raises(WireError):
        decode_plan(value)


def test_a_plan_has_targets_for_every_slot() -> None:
    _, plan = planned(1, 1)
    assert decode_plan(encode_plan(plan)) == plan
    short = msgspec.structs.replace(plan, targets=plan.targets[1:])
    with pytest.raises(WireError, match="31 targets, 32 slots"):
        decode_plan(encode_plan(short))


@pytest.mark.parametrize("key", ["pins/", "pins/-1", "pins/1.5", "pins/²", "pins/999999999"])
def test_a_pin_names_a_slot(key: str) -> None:
    with pytest.raises(WireError, match="bad-pin"):
        decode_pin(key, encode_pin((1,)))
