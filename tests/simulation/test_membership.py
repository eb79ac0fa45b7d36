"""Joining, leaving, failing, returning; partitions; attributes; nothing left behind (SPI-1)."""

from __future__ import annotations

import pytest

from swell.events import MemberDead, MemberSuspected
from swell.settings import MembershipSettings
from tests.simulation.zone import Zone

FORM_S = 5.0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 14])
def test_a_zone_forms_and_stays(size: int) -> None:
    zone = Zone(1, size)
    assert zone.converges(FORM_S)
    zone.simulation.run_for(60.0)
    assert zone.agrees()
    assert zone.counts["MemberSuspected"] == 0
    assert zone.counts["MemberDead"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_join_leave_fail_and_rejoin(seed: int) -> None:
    zone = Zone(seed, 6)
    bound_s = zone.settings.detection_bound_s(8)
    assert zone.converges(FORM_S)

    zone.join(7)
    zone.join(8)
    assert zone.converges(FORM_S), "two joined"

    zone.leave(3)
    assert zone.converges(2.0), "one left: known without any suspicion"
    assert zone.counts["MemberSuspected"] == 0

    zone.process(4).crash()
    zone.process(5).crash(power=True)
    assert zone.converges(bound_s), "two died"

    for number in (3, 4, 5):
        zone.process(number).start()
    assert zone.converges(FORM_S), "three returned as new lives"
    assert [c.epoch for c in zone.node(1).members.alive()] == [1, 1, 2, 2, 2, 1, 1, 1]

    deaths = zone.counts["MemberDead"]
    zone.process(8).crash()
    zone.process(8).start()
    assert zone.converges(FORM_S), "a restart faster than any suspicion"
    assert zone.counts["MemberDead"] == deaths


@pytest.mark.parametrize("cut_s", [3.0, 40.0, 70.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_partition_heals(seed: int, cut_s: float) -> None:
    """Shorter than any suspicion, longer, and longer than the dead linger."""
    zone = Zone(seed, 7)
    assert zone.converges(FORM_S)
    left, right = ["n1", "n3", "n5"], ["n2", "n4", "n6", "n7"]
    rule = zone.simulation.network.partition(left, right)
    zone.simulation.run_for(1.0)
    zone.node(1).members.set_attribute("load", b"left")
    zone.node(2).members.set_attribute("load", b"right")
    zone.simulation.run_for(cut_s - 1.0)
    if cut_s > 10.0:
        assert [c.id for c in zone.node(1).members.alive()] == [1, 3, 5]
        assert [c.id for c in zone.node(2).members.alive()] == [2, 4, 6, 7]
    zone.simulation.network.remove(rule)
    assert zone.converges(15.0)
    assert zone.simulation.run_until_true(lambda: zone.attributes_agree("load"), 5.0)
    assert zone.node(7).members.attributes("load") == {1: b"left", 2: b"right"}
    zone.simulation.run_for(60.0)
    assert zone.agrees()


@pytest.mark.parametrize("seed", range(3))
def test_a_link_lost_in_a_living_zone_kills_nobody(seed: int) -> None:
    """One pair cannot speak to each other at all; everybody else reaches both."""
    zone = Zone(seed, 5)
    assert zone.converges(FORM_S)
    zone.simulation.network.partition(["n1"], ["n2"])
    zone.simulation.run_for(120.0)
    assert zone.agrees()
    assert zone.counts["MemberDead"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_who_slept_reads_its_frames_before_it_condemns(seed: int) -> None:
    """1 falls asleep while it suspects 2; the refutation waits in its sockets when the suspicion
    has long run out."""
    zone = Zone(seed, 5)
    assert zone.converges(FORM_S)

    def dead(observer: int, member: int) -> bool:
        return any(o == observer and e == MemberDead(member, 1, False) for _, o, e in zone.events)

    def suspects(observer: int, member: int) -> bool:
        return any(o == observer and e == MemberSuspected(member, 1) for _, o, e in zone.events)

    rule = zone.simulation.network.partition(["n2"], ["n1", "n3", "n4", "n5"])
    assert zone.simulation.run_until_true(lambda: suspects(1, 2), 15.0, 0.01)
    zone.process(1).pause()
    zone.simulation.network.remove(rule)
    zone.simulation.run_for(40.0)
    assert dead(3, 1), "the sleeper itself was declared dead meanwhile"
    zone.process(1).resume()
    assert zone.converges(10.0)
    assert not dead(1, 2)
    assert not any(dead(1, member) for member in (3, 4, 5))


@pytest.mark.parametrize("urgent", [True, False])
def test_attributes_reach_everybody(urgent: bool) -> None:
    zone = Zone(5, 10)
    assert zone.converges(FORM_S)
    for number in range(1, 11):
        zone.node(number).members.set_attribute("load", b"%d" % number, urgent=urgent)
    within_s = 0.01 if urgent else 3.0
    assert zone.simulation.run_until_true(lambda: zone.attributes_agree("load"), within_s, 0.001)
    assert zone.node(4).members.attributes("load")[7] == b"7"

    zone.node(7).members.set_attribute("load", b"", urgent=urgent)
    assert zone.simulation.run_until_true(lambda: zone.attributes_agree("load"), within_s, 0.001)
    assert zone.node(4).members.attribute(7, "load") is None


def test_attributes_of_a_former_life_are_gone_and_late_joiners_get_the_present_ones() -> None:
    zone = Zone(6, 5)
    assert zone.converges(FORM_S)
    zone.node(2).members.set_attribute("role", b"delegate")
    zone.node(3).members.set_attribute("large", bytes(60_000))
    zone.simulation.run_for(3.0)
    assert zone.node(5).members.attribute(2, "role") == b"delegate"

    zone.process(2).crash()
    zone.process(2).start()
    zone.join(6)
    assert zone.converges(FORM_S)
    assert zone.attributes_agree("role")
    assert zone.node(5).attributes[2, "role"] == b"", "the listener heard of the removal"
    assert zone.attributes_agree("large")
    assert zone.node(6).members.attribute(3, "large") == bytes(60_000)


def test_a_removal_missed_by_a_paused_member_is_repaired_by_the_owner() -> None:
    zone = Zone(7, 4, MembershipSettings(push_pull_interval_s=5.0))
    assert zone.converges(FORM_S)
    zone.node(1).members.set_attribute("a", b"1")
    zone.simulation.run_for(3.0)
    rule = zone.simulation.network.partition(["n1"], ["n4"])
    zone.simulation.run_for(25.0)
    zone.node(1).members.set_attribute("a", b"")
    zone.simulation.run_for(3.0)
    zone.simulation.network.remove(rule)
    assert zone.simulation.run_until_true(lambda: zone.attributes_agree("a"), 20.0)
    assert zone.node(4).members.attribute(1, "a") is None


@pytest.mark.slow
def test_thousands_of_changes_leave_nothing_behind() -> None:
    """Four places come and go, gracefully and not, 3,000 times; four members stay."""
    settings = MembershipSettings(
        probe_interval_s=0.2, probe_timeout_s=0.1, gossip_interval_s=0.05, dead_linger_s=2.0,
        push_pull_interval_s=5.0,
    )  # fmt: skip
    zone = Zone(8, 4, settings)
    rng = zone.simulation.rng("churn")
    changes = 0
    newest = 4
    guests: list[int] = []
    while changes < 3_000:
        if len(guests) < 4 and rng.random() < 0.5:
            newest += 1
            zone.join(newest)
            guests.append(newest)
        elif guests:
            guest = guests.pop(rng.randrange(len(guests)))
            if rng.random() < 0.5:
                zone.leave(guest)
            else:
                zone.book.pop(guest)
                zone.process(guest).crash(power=rng.random() < 0.3)
        else:
            continue
        changes += 1
        zone.simulation.run_for(0.1)
        if guests and changes % 7 == 0:
            node = zone.process(guests[-1]).node
            if node is not None:
                zone.node(guests[-1]).members.set_attribute("guest", b"%d" % changes)
    for guest in guests:
        zone.leave(guest)
    assert zone.converges(60.0)
    zone.simulation.run_for(60.0)
    for number in range(1, 5):
        sizes = zone.node(number).members.sizes()
        assert sizes.pop("round") <= 3
        assert sizes.pop("probes") == sizes.pop("targets") <= 1
        assert sizes == {
            "records": 4, "living": 4, "peers": 3, "linked": 0, "graves": 0, "sheets": 4,
            "attributes": 0, "rumours": 0, "suspicions": 0, "relays": 0,
        }  # fmt: skip


def test_an_idle_member_sends_two_frames_per_interval() -> None:
    zone = Zone(9, 14)
    zone.simulation.run_for(30.0)
    before = sum(zone.node(n).frames.total() for n in range(1, 15))
    zone.simulation.run_for(300.0)
    frames = sum(zone.node(n).frames.total() for n in range(1, 15)) - before
    assert 1.9 < frames / 14 / 300.0 < 2.2


def test_round_trips_are_measured_by_direct_probes() -> None:
    zone = Zone(10, 5)
    zone.simulation.run_for(20.0)
    rtts = zone.node(1).rtts
    assert sorted(rtts) == [2, 3, 4, 5]
    assert all(0.0005 <= rtt_s <= 0.0006 for rtt_s in rtts.values())
