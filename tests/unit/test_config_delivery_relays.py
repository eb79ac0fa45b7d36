"""Relays that serve themselves, trees that change (RIP-7, RIP-11)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.delivery import retries
from swell.config.delivery.trees import Bough, Candidate, Tree, grow, relays_needed
from swell.config.messages import Level, Receipt
from swell.config.proofs import aggregate
from tests.unit.delivery_toys import ToyFleet


def test_a_relay_that_speaks_for_itself_alone_is_late() -> None:
    fleet = ToyFleet()
    made = fleet.build(8)
    made[0].selfish = True
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    assert len(fleet.behind()) == 7
    fleet.run(2.5)
    assert fleet.behind() == []
    assert fleet.counters["config-relay-strike"] == 1
    fleet.put("a.json", b"3")
    fleet.run(3.0)
    assert fleet.behind() == []
    assert not fleet.feed().is_busy()


def test_what_is_given_up_is_served_though_its_relay_spoke_for_itself() -> None:
    fleet = ToyFleet(hold_bursts=3, receipt_wait_s=60.0)
    made = fleet.build(8)
    made[0].selfish = True
    for number in range(4):
        fleet.put("a.json", b"1%d" % number)
        fleet.run(0.2)
    assert fleet.behind() == []


def test_a_receipt_on_its_way_counts_for_a_tree_that_has_changed() -> None:
    fleet = ToyFleet(relay_fanout=4, retries=0)
    made = fleet.build(10)
    relay = made[0]
    relay.asleep = True
    fleet.put("a.json", b"2")
    fleet.run(0.01)
    branch = fleet.member(relay.name).branch
    assert branch is not None
    (sealed,) = {leg.sealed for leg in branch.relay.container.legs.values()}
    for member in branch.members:
        fleet.containers[member.name].at = sealed.upto
    for one in made:
        one.asleep = True
    fleet.feed().spoil()
    fleet.add("later")
    fleet.put("a.json", b"3")
    fleet.run(0.01)
    assert fleet.member(relay.name).branch is not branch
    total = aggregate(branch.secrets, sealed.id, Level.APPLIED)
    relay.say(Receipt(sealed.id, Level.APPLIED, total, branch.digest))
    fleet.run(0.01)
    for member in branch.members:
        assert member.reached(Level.APPLIED) == sealed.upto


def test_other_relays_are_found_without_looking_at_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = ToyFleet(relay_fanout=10)
    made = fleet.build(60)
    looked: list[str] = []
    may_relay = retries.may_relay
    monkeypatch.setattr(
        retries, "may_relay", lambda m, now: looked.append(m.name) or may_relay(m, now)
    )
    made[0].cut = (next(e.container for li in made[0].lists.values() for e in li.entries),)
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert fleet.behind() == []
    assert len(looked) <= 6


# Trees that change.


def rows_of(tree: Tree, names: list[str]) -> dict[str, tuple[str, ...]]:
    def below(bough: Bough) -> list[tuple[str, tuple[str, ...]]]:
        listed = [*(b.relay for b in bough.boughs), *bough.leaves]
        own = (names[bough.relay], tuple(names[place] for place in listed))
        return [own, *(row for b in bough.boughs for row in below(b))]

    return dict(row for bough in tree.boughs for row in below(bough))


def regrown(names: list[str], before: dict[str, tuple[str, ...]], fanout: int) -> Tree:
    place = {name: number for number, name in enumerate(names)}
    homes = {
        place[leaf]: place[relay]
        for relay, row in before.items()
        for leaf in row
        if leaf in place and relay in place
    }
    group = [Candidate(0, True, True) for _ in names]
    return grow(group, fanout, relays_needed(len(names), fanout), homes)


def test_one_departure_changes_one_list_and_one_arrival_another() -> None:
    names = [f"c{number:03}" for number in range(549)]
    rows = rows_of(regrown(names, {}, 60), names)
    assert {len(row) for row in rows.values()} == {60}
    for gone in (300, 17, 452):
        before = rows
        del names[gone]
        rows = rows_of(regrown(names, before, 60), names)
        assert len([1 for relay, row in rows.items() if before.get(relay) != row]) == 1
    names.append("d")
    after = rows_of(regrown(names, rows, 60), names)
    assert len([1 for relay, row in after.items() if rows.get(relay) != row]) == 1


def test_another_relay_takes_over_the_list_of_one_that_has_gone() -> None:
    names = [f"c{number:03}" for number in range(122)]
    before = rows_of(regrown(names, {}, 60), names)
    assert list(before) == ["c000", "c001"]
    names.remove("c000")
    after = rows_of(regrown(names, before, 60), names)
    assert list(after) == ["c001", "c002"]
    assert len(set(after["c001"]) - set(before["c001"])) <= 1
    assert set(after["c002"]) - {"c002"} <= set(before["c000"])


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(2, 12))
@settings(max_examples=60)
def test_lists_stay_fair_whoever_goes(gone: list[int], fanout: int) -> None:
    names = [f"c{number:03}" for number in range(150)]
    rows: dict[str, tuple[str, ...]] = {}
    for number in gone:
        tree = regrown(names, rows, fanout)
        rows = rows_of(tree, names)
        assert not tree.direct
        assert sorted([*rows, *(leaf for row in rows.values() for leaf in row)]) == names
        fair = -(-(len(names) - len(rows)) // len(rows))
        assert max(map(len, rows.values())) <= min(fanout, fair * 5 // 4)
        del names[number % len(names)]
