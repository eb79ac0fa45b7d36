"""Who may subscribe as whom, how much of it, and who asks for what is not there (RIP-3, RIP-5)."""

from __future__ import annotations

import pytest

from swell.access.grants import Grant, Granted, Right
from swell.config.delivery import following, subscribers
from swell.config.messages import Answer, Repair, Unsubscribe, interest_digest
from swell.overlay.sessions import Access
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import ToyFleet

ALL = interest_digest(())
READ = (Right.READ,)


def show(fleet: ToyFleet, *rights: tuple[str, Access]) -> None:
    """Containers with these names come with these tokens."""
    tokens = dict(rights)
    fleet.primary.sessions.access_of = lambda session: tokens[session.link.peer]


# Names and owners.


def test_an_owner_takes_a_right_on_it() -> None:
    fleet = ToyFleet()
    show(fleet, ("c1", Granted([Grant(APPLICATION, "", READ)], "t1")))
    (one,) = fleet.add("c1", owner="bank")
    assert (one.subscribed.answer, one.subscribed.code) == (Answer.REFUSED, "no-access")
    assert "bank" in one.subscribed.sentence
    both = [Grant(APPLICATION, "", READ), Grant("bank", "some/", (Right.RELAY,))]
    fleet.primary.sessions.access_of = lambda session: Granted(both, "t2")
    one.dial()
    fleet.run(0.1)
    one.subscribe()
    fleet.run(0.1)
    assert one.subscribed.answer == Answer.SERVING


@pytest.mark.parametrize(("token", "taken"), [("t1", True), ("t2", False)])
def test_a_name_in_use_is_taken_over_by_its_own_token_only(token: str, taken: bool) -> None:
    fleet = ToyFleet()
    grants = [Grant(APPLICATION, "", READ)]
    show(fleet, ("c1", Granted(grants, "t1")), ("c2", Granted(grants, token)))
    first, other = fleet.add("c1", "c2", subscribe=False)
    first.subscribe()
    fleet.run(0.1)
    other.subscribe(container="c1")
    fleet.run(0.1)
    assert (other.subscribed.answer == Answer.SERVING) is taken
    assert fleet.counters["config-replaced"] == taken
    if taken:
        return
    assert other.subscribed.code == "name-taken"
    assert "a name of its own" in other.subscribed.sentence
    first.link.close()
    fleet.run(0.1)
    other.subscribe(container="c1", number=2)
    fleet.run(0.1)
    assert other.subscribed.answer == Answer.SERVING


def test_a_name_in_use_is_taken_over_by_its_own_certificate_only() -> None:
    fleet = ToyFleet()
    first, other = fleet.add("c1", "c2", subscribe=False)
    first.subscribe()
    fleet.run(0.1)
    other.subscribe(container="c1")
    fleet.run(0.1)
    assert other.subscribed.code == "name-taken"
    assert fleet.status()["c1"].state == 0


def test_relaying_is_granted_per_feed() -> None:
    fleet = ToyFleet()
    grants = [Grant(APPLICATION, "", READ), Grant(APPLICATION, "a", (Right.RELAY,))]
    fleet.primary.sessions.access_of = lambda session: Granted(grants, "t")
    made = fleet.add("c1", "c2", "c3")
    for one in made:
        one.subscribe(("a.bin",), number=2)
    fleet.run(0.2)
    for number in range(2):
        fleet.put("a.bin", b"%d" % number)
        fleet.run(0.3)
    own = fleet.feed(("a.bin",))
    relays = [b.relay.name for g in own.groups.values() for b in g.branches() if b.digest]
    assert relays == ["c1"]
    assert fleet.relays() == []


# Limits.


def test_interests_of_the_absent_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "OFFLINE_INTERESTS_MAX", 100)
    fleet = ToyFleet()
    made = fleet.add("c1", "c2", "c3", subscribe=False)
    for one in made:
        one.subscribe((one.name + "x" * 38,))
    fleet.run(0.1)
    for one in made:
        one.link.close()
        fleet.run(0.1)
    assert sorted(c.name for c in fleet.delivery.subscribers._offline) == ["c2", "c3"]
    assert len(fleet.delivery.feeds) == 2
    made[1].dial()
    fleet.run(0.1)
    made[1].subscribe(("y",))
    fleet.run(0.1)
    made[1].link.close()
    fleet.run(0.1)
    assert fleet.delivery.subscribers.offline == 2


@pytest.mark.parametrize("limit", ["APPLICATION_INTERESTS_MAX", "INTERESTS_LENGTH_MAX"])
def test_feeds_are_bounded_per_application_and_node(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, limit, 2)
    fleet = ToyFleet()
    made = fleet.add("c1", "c2", "c3", subscribe=False)
    for one in made:
        one.subscribe((one.name[1],))
        fleet.run(0.1)
    assert [one.subscribed.answer for one in made] == [0, 0, Answer.REFUSED]
    assert made[2].subscribed.code == "too-many"
    made[2].subscribe(("1",), number=2)
    fleet.run(0.1)
    assert made[2].subscribed.answer == Answer.SERVING
    made[1].say(Unsubscribe(APPLICATION, interest_digest(("2",))))
    fleet.run(0.1)
    made[1].subscribe(("3",), number=3)
    fleet.run(0.1)
    assert made[1].subscribed.answer == Answer.SERVING


# What is asked for.


def test_a_step_that_has_nothing_for_it_is_given_when_it_is_asked_for() -> None:
    fleet = ToyFleet(bursts_open=1)
    interest = ("a.bin",)
    one, other = fleet.add("c1", "c2", subscribe=False)
    one.subscribe(interest)
    other.subscribe(interest)
    fleet.run(0.1)
    other.asleep = True
    fleet.put("a.bin", b"1")
    fleet.run(0.01)
    told = fleet.put("b.bin", b"1")
    one.renew(interest)
    fleet.run(0.01)
    assert one.renewed.feeds[0][2] == told  # nobody has looked at it yet
    fleet.run(3.0)
    assert one.at < told
    one.say(Repair(APPLICATION, interest_digest(interest), one.at))
    fleet.run(0.1)
    assert one.at == told
    fleet.put("a.bin", b"2")
    fleet.run(0.1)
    assert one.at == fleet.step


def test_many_who_were_told_a_step_in_vain_share_one_seal() -> None:
    fleet = ToyFleet(relaying=False)
    interest = ("a.bin",)
    made = fleet.add(*(f"c{number}" for number in range(9)), subscribe=False)
    for one in made:
        one.subscribe(interest)
    fleet.run(0.1)
    fleet.put("b.bin", b"1")
    fleet.run(0.1)
    assert {one.at for one in made} == {0}
    for one in made:
        one.say(Repair(APPLICATION, interest_digest(interest), 0))
    fleet.run(0.2)
    assert {one.at for one in made} == {1}
    assert fleet.counters["config-sealed"] == 1
    assert not fleet.feed(interest).strays


def test_what_was_of_no_use_is_made_anew_once() -> None:
    fleet = ToyFleet()
    fleet.put("a.bin", b"1")
    made = fleet.add("c1", "c2", "c3", subscribe=False)
    for one in made:
        one.asleep = True
        one.subscribe()
    fleet.run(1.1)
    assert fleet.counters["config-sealed"] == 1
    for one in made:
        one.asleep = False
        one.say(Repair(APPLICATION, ALL, 0))
    fleet.run(0.1)
    assert fleet.behind() == []
    assert fleet.counters["config-sealed"] == 2


def test_who_leaves_does_not_end_what_others_share() -> None:
    fleet = ToyFleet()
    made = fleet.build(8)
    relay = made[0]
    relay.asleep = True
    fleet.put("a.json", b"2")
    fleet.run(0.01)
    made[1].asleep = True  # it will be the next one asked
    fleet.simulation.processes[relay.name].crash()
    fleet.run(0.05)
    leg = fleet.member("c003").leg
    assert leg is not None
    assert leg.container.name == "c001"
    made[3].say(Unsubscribe(APPLICATION, ALL))
    fleet.run(0.01)
    assert leg in leg.container.legs.values()
