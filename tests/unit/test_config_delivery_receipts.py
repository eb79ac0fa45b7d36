"""What counts of receipts that come late, and of rejections (RIP-14)."""

from __future__ import annotations

import gc

import pytest

from swell.config.delivery.feeds import Burst, Leg
from swell.config.messages import Level, Receipt, Rejected, interest_digest
from swell.config.proofs import combined, proof
from swell.config.reports import Await
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import ToyContainer, ToyFleet

ALL = interest_digest(())


@pytest.mark.parametrize("unreached", [(), ("c004",)])
def test_receipts_that_come_late_through_a_relay_count(unreached: tuple[str, ...]) -> None:
    """Also those beside somebody whom the relay did not reach."""
    fleet = ToyFleet()
    made = fleet.build(6)
    relay, late = made[0], made[3]
    (listed,) = relay.lists.values()
    places = {entry.container: place for place, entry in enumerate(listed.entries, 1)}
    slow = places[late.name]
    relay.asleep = True
    fleet.put("a.json", b"2")
    fleet.run(0.01)
    (burst,) = {leg.sealed for leg in fleet.member("c000").container.legs.values()}

    def say(level: Level, who: list[ToyContainer], **more: tuple[int, ...]) -> None:
        total = combined(proof(one.secret, burst.id, level) for one in who)
        relay.say(Receipt(burst.id, level, total, listed.digest(), **more))

    for one in made:
        one.at = burst.upto if one.name not in unreached else one.at
    reached = [one for one in made if one.name not in unreached and one is not late]
    missing = tuple(sorted([slow, *(places[name] for name in unreached)]))
    say(Level.DELIVERED, [late], only=(slow,))
    say(Level.APPLIED, reached, missing=missing)
    got = fleet.ask(Await(APPLICATION, fleet.step), 30.0)
    fleet.run(6.0)
    assert got == []
    assert fleet.member(late.name).reached(Level.APPLIED) < fleet.step
    say(Level.APPLIED, [late], only=(slow,))
    fleet.run(0.5)
    assert fleet.counters["config-receipt-unknown"] == 0
    (answer,) = got
    assert (answer.complete, answer.applied.count) == (True, 6)
    assert not fleet.feed().bursts


def test_status_shows_what_is_in_use_instead_of_what_was_rejected() -> None:
    fleet = ToyFleet()
    (one, _) = fleet.build(2)
    shown = fleet.status("a.json")["c000"]
    assert (shown.version, shown.reason) == (2, "")
    one.late = True
    step = fleet.put("a.json", b"2")
    fleet.run(0.1)
    one.say(Rejected(APPLICATION, ALL, step, "a.json", "not this one", 2))
    one.late = False
    fleet.put("b.json", b"0")
    fleet.run(0.1)
    shown = fleet.status("a.json")["c000"]
    assert (shown.version, shown.reason) == (2, "rejected a.json: not this one")
    assert shown.applied > step
    shown = fleet.status("b.json")["c000"]
    assert (shown.version, shown.reason) == (1, "")
    fleet.put("a.json", b"3")
    fleet.run(0.1)
    shown = fleet.status("a.json")["c000"]
    assert (shown.version, shown.reason) == (4, "")


def test_what_is_done_leaves_nothing_to_the_collector_of_garbage() -> None:
    """Nodes collect seldom, and a burst may have many bytes."""
    fleet = ToyFleet()
    fleet.build(6)
    gc.collect()
    gc.disable()
    try:
        for number in range(100):
            fleet.put("a.json", b"%d" % number)
            fleet.run(0.02)
        fleet.run(1.0)
        found = [one for one in gc.get_objects() if isinstance(one, Burst | Leg)]
    finally:
        gc.enable()
    assert fleet.behind() == []
    assert found == []
