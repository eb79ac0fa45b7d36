"""Whoever spoils a proof is found, and nobody else is served another way for it (RIP-10)."""

from __future__ import annotations

from typing import Any

import pytest

from swell.config.delivery.avoidance import SUSPICIONS_MAX
from swell.config.messages import Items, Level, Receipt
from tests.unit.delivery_toys import ToyContainer, ToyFleet


def publish(fleet: ToyFleet, count: int) -> None:
    for number in range(count):
        fleet.put("a.json", b"%d%d" % (count, number))
        fleet.run(0.3)


def direct(fleet: ToyFleet) -> list[str]:
    """Who is reached by no relay."""
    now = fleet.primary.delivery.world.now()
    return [n for n in fleet.containers if fleet.member(n).container.direct_until > now]


def leaf_of(fleet: ToyFleet, relay: str) -> ToyContainer:
    """The last one behind a relay."""
    entries = [e for known in fleet.containers[relay].lists.values() for e in known.entries]
    return fleet.containers[[e.container for e in entries if not e.below][-1]]


@pytest.mark.parametrize(
    "shape", [{}, {"relay_fanout": 4}, {"relay_fanout": 4, "server_fanout": 1}]
)
def test_a_leaf_that_spoils_proofs_is_served_directly_and_no_other(shape: dict[str, Any]) -> None:
    fleet = ToyFleet(**shape)
    made = fleet.build(20)
    relays = fleet.relays()
    bad = made[-1]  # the last to be asked to relay
    bad.two_faced = True
    publish(fleet, 6)
    assert fleet.behind() == []
    assert direct(fleet) == [bad.name]
    assert fleet.relays() == relays
    assert fleet.counters["config-missed"] == 1  # the proofs of all others were there
    assert fleet.counters["config-relay-avoided"] == 0
    assert {row.applied for row in fleet.status().values()} == {fleet.step}
    for _ in range(3):
        fleet.run(fleet.settings.avoid_s + 1.0)
        assert direct(fleet) == []
        publish(fleet, 4)
        assert direct(fleet) == [bad.name]
    assert fleet.behind() == []
    assert fleet.counters["config-relay-avoided"] == 0


def test_a_relay_that_names_two_who_are_honest_is_avoided() -> None:
    fleet = ToyFleet(relay_fanout=4)
    fleet.build(20)
    relay = fleet.containers[fleet.relays()[0]]
    framed = []
    for _ in range(SUSPICIONS_MAX):
        victim = leaf_of(fleet, relay.name).name
        framed.append(victim)
        relay.frames = victim
        assert not fleet.status()[relay.name].avoided
        publish(fleet, 3)
        assert fleet.behind() == []
    assert fleet.status()[relay.name].avoided
    assert sorted(direct(fleet)) == sorted(framed)


def test_several_who_spoil_proofs_together_ruin_two_relays_at_most() -> None:
    fleet = ToyFleet(relay_fanout=9)
    made = fleet.build(20)
    bad = sorted(entry.container for entry in [*made[0].lists.values()][-1].entries)[-2:]
    for name in bad:
        fleet.containers[name].two_faced = True
    publish(fleet, 12)
    assert fleet.behind() == []
    assert fleet.counters["config-relay-avoided"] <= SUSPICIONS_MAX
    assert sorted(direct(fleet)) == bad


def test_a_relay_that_does_not_answer_has_lied() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    made[0].liar = made[0].mum = True
    fleet.put("a.json", b"2")
    fleet.run(1.0)
    assert not fleet.status()["c000"].avoided
    fleet.run(2 * fleet.settings.receipt_wait_s)
    assert fleet.status()["c000"].avoided
    assert fleet.behind() == []
    assert direct(fleet) == []
    assert not fleet.delivery.inquiries


def test_a_relay_that_claims_too_early_has_lied_though_all_is_well_then() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    (digest,) = made[0].lists
    made[0].slow_s = 0.1
    fleet.put("a.json", b"2")
    fleet.run(0.05)
    burst = fleet.feed().bursts[0].sealed.id
    made[0].items[burst, digest] = [(0, b"")] * 6
    made[0].say(Receipt(burst, int(Level.APPLIED), bytes(16), digest))
    fleet.run(0.5)
    assert fleet.status()["c000"].avoided
    assert fleet.behind() == []
    assert direct(fleet) == []


def test_one_who_has_left_is_not_judged() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    made[0].liar = made[0].mum = True
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    assert len(fleet.delivery.inquiries) == 1
    fleet.simulation.processes["c000"].crash()
    fleet.run(3.0)
    assert not fleet.delivery.inquiries
    assert fleet.counters["config-relay-avoided"] == 0
    assert fleet.behind() == ["c000"] or not fleet.behind()


def test_answers_that_nobody_asked_for_count_for_nothing() -> None:
    fleet = ToyFleet()
    made = fleet.build(6)
    made[1].say(Items(bytes(8), bytes(16), ((2, bytes(16)),)))
    fleet.run(0.1)
    assert fleet.counters["config-items-unknown"] == 1
