"""Delivery at the primary: streams, strays, relays, receipts (RIP-3, RIP-9, RIP-10, RIP-12)."""

from __future__ import annotations

import pytest

from swell.access.grants import NOTHING, Grant, Granted, Right
from swell.config.delivery.subscribing import APPLICATION_FEEDS_MAX
from swell.config.messages import (
    Answer,
    ListRequest,
    Lists,
    Moved,
    Renew,
    Repair,
    Unsubscribe,
    interest_digest,
)
from swell.config.operations import SetOptions, encode
from swell.config.proofs import read_pass
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import ME, OTHER, SLOT, ToyFleet

ALL = interest_digest(())


def test_a_container_gets_what_is_there_and_what_follows() -> None:
    fleet = ToyFleet()
    fleet.put("a.json", b"1")
    fleet.put("b.json", b"1")
    (one,) = fleet.add("c1")
    assert one.subscribed.answer == Answer.SERVING
    assert one.subscribed.step == 2
    assert one.subscribed.members == (ME, OTHER)
    assert read_pass(one.subscribed.pass_, one.key).container == "c1"
    assert one.taken == [(0, 2)]
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    assert one.taken == [(0, 2), (2, 3)]
    row = fleet.status("a.json")["c1"]
    assert (row.applied, row.version, row.relay) == (3, 2, "")


def test_an_application_that_does_not_exist_yet_is_waited_for() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    assert (one.subscribed.answer, one.subscribed.step) == (Answer.SERVING, 0)
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    assert one.taken == [(0, 1)]


def test_what_is_committed_together_leaves_together() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    for number in range(20):
        fleet.put("a.json", b"%d" % number)
    fleet.run(0.1)
    assert one.taken == [(0, 20)]
    assert fleet.counters["config-sealed"] == 1


def test_steps_of_no_interest_make_no_burst() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1", subscribe=False)
    one.subscribe(("a.json", "pay/*"))
    fleet.run(0.1)
    fleet.put("b.json", b"1")
    fleet.run(0.1)
    assert one.taken == []
    one.renew(("a.json", "pay/*"))
    fleet.run(0.1)
    assert one.renewed.feeds[0][2] == 0  # it is not behind
    fleet.put("pay/x.json", b"1")
    fleet.run(0.1)
    assert one.taken == [(0, 2)]
    fleet.put("b.json", b"2")
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    assert one.taken[-1] == (2, 4)


def test_a_group_is_served_by_a_relay_with_one_frame() -> None:
    fleet = ToyFleet()
    made = fleet.build(30)
    assert fleet.behind() == []
    assert fleet.relays() == ["c000"]
    sealed = fleet.counters["config-sealed"]
    direct = sum(one.relayed for one in made)
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    assert fleet.behind() == []
    assert sum(one.relayed for one in made) == direct + 1
    assert fleet.counters["config-sealed"] == sealed + 1
    rows = fleet.status("a.json")
    assert {row.applied for row in rows.values()} == {fleet.step}
    assert {row.relay for name, row in rows.items() if name != "c000"} == {"c000"}
    assert not fleet.feed().bursts
    assert not fleet.feed().strays


def test_a_list_is_sent_once_and_again_on_request() -> None:
    fleet = ToyFleet()
    made = fleet.build(5)
    relay = made[0]
    for number in range(5):
        fleet.put("a.json", b"1%d" % number)
        fleet.run(0.1)
    assert len([m for m in relay.heard if isinstance(m, Lists)]) == 1
    (digest,) = relay.lists
    relay.say(ListRequest((digest, bytes(16))))
    made[1].say(ListRequest((digest,)))  # not its own
    fleet.run(0.1)
    assert [m.lists for m in relay.heard if isinstance(m, Lists)][1] == (relay.lists[digest],)
    assert not [m for m in made[1].heard if isinstance(m, Lists)]


def test_without_digests_every_burst_takes_its_lists_along() -> None:
    fleet = ToyFleet(list_digests=False)
    relay, *_ = fleet.build(5)
    before = len([m for m in relay.heard if isinstance(m, Lists)])
    for number in range(3):
        fleet.put("a.json", b"1%d" % number)
        fleet.run(0.1)
    assert len([m for m in relay.heard if isinstance(m, Lists)]) == before + 3


def test_relays_pass_on_to_relays_when_there_are_many() -> None:
    fleet = ToyFleet(relay_fanout=3, server_fanout=2)
    made = fleet.build(30)
    assert fleet.behind() == []
    assert len(fleet.relays()) >= 2
    assert any(entry.below for one in made for li in one.lists.values() for entry in li.entries)
    assert {row.applied for row in fleet.status().values()} == {fleet.step}
    assert fleet.counters["config-proof-wrong"] == 0
    assert fleet.counters["config-missed"] == 0


def test_only_siblings_of_one_application_and_site_relay_for_each_other() -> None:
    fleet = ToyFleet()
    fleet.add(*(f"x{n}" for n in range(4)), owner="x")
    fleet.add(*(f"y{n}" for n in range(4)), owner="y")
    fleet.add(*(f"z{n}" for n in range(4)), owner="y", site="b")
    fleet.put("a.json", b"1")
    fleet.run(0.3)
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert fleet.relays() == ["x0", "y0", "z0"]
    for name, one in fleet.containers.items():
        for what in one.lists.values():
            assert {entry.container[0] for entry in what.entries} == {name[0]}


@pytest.mark.parametrize("how", ["setting", "option", "no listener"])
def test_relaying_off_serves_everybody_directly(how: str) -> None:
    fleet = ToyFleet(relaying=how != "setting")
    made = fleet.build(6, host="" if how == "no listener" else "h")
    if how == "option":
        assert fleet.relays()
        fleet.store.machine.apply(encode(SetOptions(APPLICATION, relaying=False)))
    relayed = sum(one.relayed for one in made)
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    assert fleet.relays() == []
    assert fleet.behind() == []
    assert sum(one.relayed for one in made) == relayed


def test_unwilling_containers_are_reached_and_not_asked() -> None:
    fleet = ToyFleet()
    made = fleet.add(*(f"u{n}" for n in range(5)), willing=False)
    made += fleet.add("w")
    for number in range(2):
        fleet.put("a.json", b"%d" % number)
        fleet.run(0.3)
    assert fleet.relays() == ["w"]


def test_scores_choose_the_relay() -> None:
    fleet = ToyFleet(score_s=0.5)
    made = fleet.build(4)
    assert fleet.relays() == ["c000"]
    for one in made:
        one.score = 5.0
    made[2].score = 0.001
    for one in made:
        one.say(Renew(((APPLICATION, ALL, one.at),), one.score))
    fleet.run(1.0)
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    assert fleet.relays() == ["c002"]
    assert fleet.behind() == []
    assert fleet.status()["c002"].score == pytest.approx(0.001)


def test_a_relay_stays_one_while_others_are_hardly_less_loaded() -> None:
    fleet = ToyFleet(score_s=0.5)
    made = fleet.build(4)

    def tell(*scores: float) -> list[str]:
        for one, score in zip(made, scores, strict=True):
            one.score = score
            one.say(Renew(((APPLICATION, ALL, one.at),), score))
        fleet.run(1.0)
        fleet.put("a.json", b"%d" % fleet.step)
        fleet.run(0.2)
        return fleet.relays()

    assert tell(1.0, 0.25, 0.25, 0.25) == ["c000"]
    assert tell(1.0, 0.25, 0.01, 0.25) == ["c002"]
    assert tell(0.01, 0.01, 0.08, 0.01) == ["c002"]
    fleet.run(5.0)  # all are too old to count, but one
    made[1].say(Renew(((APPLICATION, ALL, made[1].at),), 0.0001))
    fleet.run(0.2)
    fleet.put("a.json", b"0")
    fleet.run(0.2)
    assert fleet.relays() == ["c002"]


def test_a_late_joiner_catches_up_and_is_in_step() -> None:
    fleet = ToyFleet()
    fleet.build(5)
    fleet.put("b.json", b"1")
    (late,) = fleet.add("late")
    assert late.at == fleet.step
    assert fleet.member("late").branch is not None
    assert not fleet.feed().strays


def test_a_gap_is_repaired_on_the_own_link() -> None:
    fleet = ToyFleet()
    one, *_ = fleet.build(5)
    one.at = 0
    one.taken.clear()
    one.say(Repair(APPLICATION, ALL, 0))
    fleet.run(0.2)
    assert one.taken == [(0, fleet.step)]
    assert fleet.member(one.name).branch is not None


def test_many_strays_share_one_seal() -> None:
    fleet = ToyFleet()
    fleet.put("a.json", b"1")
    fleet.add(*(f"c{n}" for n in range(20)))
    assert fleet.behind() == []
    assert fleet.counters["config-sealed"] == 1
    assert not fleet.feed().sealed


def test_who_is_offline_is_listed_for_a_while() -> None:
    fleet = ToyFleet(offline_s=5.0)
    made = fleet.build(5)
    fleet.simulation.processes["c003"].crash()
    fleet.run(0.5)
    assert fleet.status()["c003"].state == 3
    fleet.put("a.json", b"2")
    fleet.run(0.3)
    assert all(one.at == fleet.step for one in made if one.name != "c003")
    fleet.run(6.0)
    assert "c003" not in fleet.status()
    assert len(fleet.delivery.subscribers) == 4


def test_a_container_that_comes_back_goes_on_where_it_was() -> None:
    fleet = ToyFleet()
    made = fleet.build(5)
    back = made[3]
    secret = back.secret
    back.link.close()
    fleet.run(0.2)
    fleet.put("a.json", b"2")
    fleet.run(0.2)
    back.dial()
    fleet.run(0.1)
    back.subscribe()
    fleet.run(0.2)
    assert back.at == fleet.step
    assert back.secret != secret
    assert len(fleet.status()) == 5
    fleet.put("a.json", b"3")
    fleet.run(0.2)
    assert fleet.behind() == []
    assert fleet.counters["config-relay-avoided"] == 0


def test_a_second_link_of_one_container_replaces_the_first() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    first = one.link
    one.dial()
    fleet.run(0.1)
    one.subscribe()
    fleet.run(0.1)
    assert fleet.counters["config-replaced"] == 1
    first.close()
    fleet.run(0.1)
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    assert one.taken == [(0, 1)]
    assert fleet.status()["c1"].state == 0


def test_unsubscribing_and_the_last_one_leave_nothing() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    one.say(Unsubscribe(APPLICATION, ALL))
    fleet.run(0.1)
    assert not fleet.delivery.feeds
    assert not fleet.delivery.subscribers
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    assert one.at == 1


def test_another_node_serves_it() -> None:
    fleet = ToyFleet()
    made = fleet.build(4)
    fleet.store.serving = False
    fleet.delivery.on_stopped(SLOT)
    fleet.run(0.2)
    moved = [m for m in made[0].heard if isinstance(m, Moved)]
    assert [(m.applications, m.primary) for m in moved] == [((APPLICATION,), OTHER)]
    assert not fleet.delivery.feeds
    made[0].subscribe(number=7)
    fleet.run(0.1)
    answer = made[0].subscribed
    assert (answer.number, answer.answer, answer.members[0]) == (7, Answer.REDIRECT, OTHER)
    made[0].renew()
    fleet.run(0.1)
    assert made[0].renewed.feeds == ()


def test_a_step_from_the_future_waits() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1", subscribe=False)
    one.subscribe(step=9)
    fleet.run(0.1)
    assert (one.subscribed.answer, one.subscribed.code) == (Answer.BUSY, "ahead")
    assert "another cluster" in one.subscribed.sentence


# Limits.


def test_subscriptions_are_bounded_with_a_sentence() -> None:
    fleet = ToyFleet(subscriptions_max=100)
    (one,) = fleet.add("c1", subscribe=False)
    for number in range(APPLICATION_FEEDS_MAX + 5):
        one.subscribe((f"x{number}",), number=number)
    fleet.run(0.3)
    assert len(fleet.delivery.feeds) == APPLICATION_FEEDS_MAX
    assert one.subscribed.answer == Answer.REFUSED
    assert "name several configurations in one" in one.subscribed.sentence
    one.subscribe(container="c2")
    fleet.run(0.1)
    assert one.subscribed.code == "other-container"
    fleet.put("x3", b"1")
    fleet.run(0.1)
    assert one.taken == [(0, 1)]


def test_ten_thousand_subscriptions_cost_nobody_else_anything() -> None:
    fleet = ToyFleet()
    fleet.store.served = lambda slot, service: fleet.store.machine  # type: ignore[method-assign]
    (greedy, other) = fleet.add("greedy", "other")
    for number in range(10_000):
        greedy.subscribe(number=number, application=f"app{number}")
        if number % 1000 == 0:
            fleet.run(0.05)
    fleet.run(1.0)
    assert len(fleet.delivery.feeds) == fleet.settings.subscriptions_max
    assert greedy.subscribed.code == "too-many"
    assert "allowed are 4096" in greedy.subscribed.sentence
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    assert fleet.behind() == []
    fleet.simulation.processes["greedy"].crash()
    fleet.run(0.1)
    fleet.put("a.json", b"2")
    fleet.run(0.1)
    assert other.at == 2


@pytest.mark.parametrize(
    ("more", "interest", "code"),
    [
        ({}, ("b", "a"), "bad-interest"),
        ({"host": "h" * 300}, (), "bad-address"),
        ({"application": "a\nb"}, (), "bad-name"),
    ],
)
def test_what_makes_no_sense_is_refused(
    more: dict[str, str], interest: tuple[str, ...], code: str
) -> None:
    fleet = ToyFleet()
    fleet.store.served = lambda slot, service: fleet.store.machine  # type: ignore[method-assign]
    (one,) = fleet.add("c1", subscribe=False)
    one.subscribe(interest, **more)
    fleet.run(0.1)
    assert (one.subscribed.answer, one.subscribed.code) == (Answer.REFUSED, code)
    assert len(one.subscribed.sentence) > 20
    assert not fleet.delivery.subscribers


def test_a_token_decides_who_may_follow_and_relay() -> None:
    fleet = ToyFleet()
    sessions = fleet.primary.sessions
    sessions.access_of = lambda session: NOTHING
    (one,) = fleet.add("c1")
    assert (one.subscribed.answer, one.subscribed.code) == (Answer.REFUSED, "no-access")
    read = Granted([Grant(APPLICATION, "", (Right.READ,))])
    sessions.access_of = lambda session: read
    fleet.add("c2", "c3", "c4")
    assert not fleet.member("c2").willing
    for number in range(2):
        fleet.put("a.json", b"%d" % number)
        fleet.run(0.3)
    assert fleet.relays() == []
