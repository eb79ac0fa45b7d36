"""Interest aggregated per zone, and the matchers that route by it (THR-8, THR-9)."""

from __future__ import annotations

import pytest

from swell.errors import SwellError
from swell.events import Event, Multicast
from swell.overlay.interest import TOPICS_PER_NODE_MAX
from swell.overlay.matchers import ADDRESS, BROADCAST, KEY, NODE, TOPIC, NodeMatcher, node_target
from swell.overlay.messages import Interest, LinkKind
from swell.overlay.overlay import INTEREST_PORT
from swell.rings.two_level import TwoLevelRing
from swell.simulation.checkers.topology import problems
from tests.unit.overlay_toys import PORT, Cluster, contact, member_peer, wait

SIZES = (3, 3, 3)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster().build(*SIZES)


def announcements(cluster: Cluster) -> list[str]:
    """Fills with the names of nodes that announce their zone's interest."""
    found: list[str] = []

    def on_event(time_s: float, process: str, event: Event) -> None:
        # Nothing else is broadcast in these tests.
        if isinstance(event, Multicast) and event.matcher == "broadcast":
            found.append(process)

    cluster.simulation.on_event(on_event)
    return found


def zones_of(cluster: Cluster, topic: bytes) -> dict[str, list[int]]:
    return {o.me.name: sorted(o.interest.zones_of(topic)) for o in cluster.living()}


def everybody_knows(cluster: Cluster, topic: bytes, zones: list[int]) -> bool:
    return all(
        sorted(o.interest.zones_of(topic)) == [z for z in zones if z != o.me.zone]
        for o in cluster.living()
    )


def test_a_subscription_is_known_to_all_zones(cluster: Cluster) -> None:
    zone = cluster.contact("b2").zone
    cluster.overlay("b2").interest.subscribe(b"t:news")
    wait(cluster, lambda: everybody_knows(cluster, b"t:news", [zone]), 1.0)
    for name in ("b1", "b3"):
        assert list(cluster.overlay(name).interest.members_of(b"t:news")) == [
            cluster.contact("b2").id
        ]
    cluster.overlay("b2").interest.unsubscribe(b"t:news")
    wait(cluster, lambda: everybody_knows(cluster, b"t:news", []), 1.0)


def test_it_leaves_the_zone_only_when_the_aggregate_changes(cluster: Cluster) -> None:
    found = announcements(cluster)
    names = ("b1", "b2", "b3")
    for name in names:
        cluster.overlay(name).interest.subscribe(b"t:news")
        cluster.run(1.0)
    assert len(found) == 1
    for name in names[:2]:
        cluster.overlay(name).interest.unsubscribe(b"t:news")
        cluster.run(1.0)
    assert len(found) == 1
    cluster.overlay("b3").interest.unsubscribe(b"t:news")
    cluster.run(1.0)
    assert len(found) == 2
    assert {name[0] for name in found} == {"b"}


def test_two_clients_of_one_node_count_once(cluster: Cluster) -> None:
    interest = cluster.overlay("a1").interest
    found = announcements(cluster)
    interest.subscribe(b"t:x")
    interest.subscribe(b"t:x")
    cluster.run(0.5)
    interest.unsubscribe(b"t:x")
    cluster.run(0.5)
    assert interest.wanted_here(b"t:x")
    assert len(found) == 1
    interest.unsubscribe(b"t:x")
    interest.unsubscribe(b"t:x")
    assert not interest.wanted_here(b"t:x")


def test_a_late_joiner_learns_everything(cluster: Cluster) -> None:
    for name in ("a1", "b1"):
        cluster.overlay(name).interest.subscribe(b"t:" + name.encode())
    cluster.run(1.0)
    cluster.add("c4", "c")
    cluster.settle()
    joiner = cluster.overlay("c4").interest
    assert list(joiner.zones_of(b"t:a1")) == [cluster.contact("a1").zone]
    assert list(joiner.zones_of(b"t:b1")) == [cluster.contact("b1").zone]


def test_a_new_zone_learns_everything(cluster: Cluster) -> None:
    cluster.overlay("a1").interest.subscribe(b"t:old")
    cluster.run(1.0)
    for k in range(1, 4):
        cluster.add(f"d{k}", "d")
    cluster.settle()
    wait(cluster, lambda: everybody_knows(cluster, b"t:old", [cluster.contact("a1").zone]), 3.0)


def test_the_death_of_the_delegate_changes_who_announces(cluster: Cluster) -> None:
    zone = cluster.zones()[cluster.contact("b1").zone]
    delegate, second, third = zone
    third.interest.subscribe(b"t:before")
    delegate.interest.subscribe(b"t:mine")
    cluster.run(1.0)
    cluster.crash([delegate.me.name])
    wait(cluster, lambda: everybody_knows(cluster, b"t:mine", []), 30.0)
    assert second.is_delegate()
    assert everybody_knows(cluster, b"t:before", [second.me.zone])
    third.interest.subscribe(b"t:after")
    wait(cluster, lambda: everybody_knows(cluster, b"t:after", [second.me.zone]), 1.0)


def test_a_zone_that_restarts_as_a_whole_is_heard_again(cluster: Cluster) -> None:
    """Nobody of it remembers how far it had counted: the others tell."""
    zone = cluster.contact("c1").zone
    names = [overlay.me.name for overlay in cluster.zones()[zone]]
    for k in range(5):
        cluster.overlay("c2").interest.subscribe(b"t:old%d" % k)
        cluster.run(0.5)
    cluster.crash(names, power=True)
    cluster.run(1.0)
    for name in names:
        cluster.processes[name].start()
    cluster.settle()
    cluster.overlay("c3").interest.subscribe(b"t:new")
    wait(cluster, lambda: everybody_knows(cluster, b"t:new", [zone]), 10.0)
    wait(cluster, lambda: everybody_knows(cluster, b"t:old0", []), 10.0)


def test_too_many_topics_are_refused_and_change_nothing(cluster: Cluster) -> None:
    interest = cluster.overlay("a1").interest
    for k in range(65):
        interest.subscribe(b"t:%02d" % k + b"x" * 995)
    with pytest.raises(SwellError, match="bytes"):
        interest.subscribe(b"t:65" + b"x" * 995)
    assert not interest.wanted_here(b"t:65" + b"x" * 995)
    cluster.run(1.0)
    small = cluster.overlay("a2").interest
    for k in range(TOPICS_PER_NODE_MAX):
        small.subscribe(b"%d" % k)
    with pytest.raises(SwellError, match="at most"):
        small.subscribe(b"one more")
    assert not small.wanted_here(b"one more")


def test_zones_speak_for_themselves(cluster: Cluster) -> None:
    peer = member_peer(cluster, LinkKind.CANDIDATE, 77)
    peer.say(Interest(cluster.contact("b1").zone, 99, 1, True, (b"t:forged",)))
    assert all(zones == [] for zones in zones_of(cluster, b"t:forged").values())
    assert cluster.counter("interest-of-stranger") == 1


def test_an_announcement_that_cannot_be_read_is_counted(cluster: Cluster) -> None:
    cluster.overlay("a1").multicast.send(BROADCAST, b"", INTEREST_PORT, b"\0")
    cluster.run(0.5)
    assert cluster.counter("bad-announcement") == sum(SIZES)
    assert problems(cluster) == []


# Matchers.


def receivers(cluster: Cluster, payload: bytes) -> list[str]:
    return sorted(name for name, got in cluster.got.items() for one in got if one == payload)


def test_a_broadcast_reaches_everybody_once(cluster: Cluster) -> None:
    for overlay in cluster.living():
        overlay.multicast.send(BROADCAST, b"", PORT, overlay.me.name.encode())
    cluster.run(0.5)
    names = sorted(overlay.me.name for overlay in cluster.living())
    for name in names:
        assert receivers(cluster, name.encode()) == names
    assert cluster.counter("duplicate") == 0


def test_a_topic_reaches_its_subscribers_and_nobody_else(cluster: Cluster) -> None:
    subscribers = ["a2", "b1", "b3", "c3"]
    for name in subscribers:
        cluster.overlay(name).interest.subscribe(b"t:news")
    cluster.run(0.5)
    for name in ("a1", "a2", "c1"):
        cluster.overlay(name).multicast.send(TOPIC, b"news", PORT, name.encode())
    cluster.run(0.5)
    for name in ("a1", "a2", "c1"):
        assert receivers(cluster, name.encode()) == subscribers


def test_an_address_reaches_its_client_wherever_it_is(cluster: Cluster) -> None:
    for number, home in enumerate(("a1", "b2", "c3", "a3")):
        interest = cluster.overlay(home).interest
        interest.subscribe(b"a:mobile")
        cluster.run(0.5)
        cluster.overlay("b1").multicast.send(ADDRESS, b"mobile", PORT, b"%d" % number)
        cluster.run(0.5)
        interest.unsubscribe(b"a:mobile")
        cluster.run(0.5)
        assert receivers(cluster, b"%d" % number) == [home]


def test_topics_and_addresses_do_not_mix(cluster: Cluster) -> None:
    cluster.overlay("a1").interest.subscribe(b"a:x")
    cluster.run(0.5)
    cluster.overlay("b1").multicast.send(TOPIC, b"x", PORT, b"topic")
    cluster.run(0.5)
    assert receivers(cluster, b"topic") == []


def test_a_key_reaches_the_owner_that_the_two_level_ring_names(cluster: Cluster) -> None:
    wait(cluster, lambda: len({o.view.epoch for o in cluster.living()}) == 1)
    zones = {zone: [o.me.id for o in overlays] for zone, overlays in cluster.zones().items()}
    settings = cluster.settings.overlay
    ring = TwoLevelRing(zones, settings.slice_size, settings.ring_points)
    names = {overlay.me.id: overlay.me.name for overlay in cluster.living()}
    owners = []
    for k in range(60):
        key = b"key-%d" % k
        source = cluster.living()[k % len(names)]
        source.multicast.send(KEY, key, PORT, key)
        cluster.run(0.1)
        location = ring.lookup(key)
        assert location.node is not None
        owners.append(names[location.node])
        assert receivers(cluster, key) == [owners[-1]]
    assert len(set(owners)) == sum(SIZES), "every node owns some"


def test_a_node_is_reached_from_everywhere_in_three_hops(cluster: Cluster) -> None:
    for source in cluster.living():
        for target in cluster.living():
            payload = f"{source.me.name}-{target.me.name}".encode()
            source.multicast.send(NODE, node_target(target.me.zone, target.me.id), PORT, payload)
            cluster.run(0.05)
            assert receivers(cluster, payload) == [target.me.name]


def test_a_malformed_node_target_is_nobodys() -> None:
    matcher = NodeMatcher(contact(5, 3))
    for target in (b"", b"\0" * 7, b"\0" * 9):
        assert list(matcher.members(target)) == []
        assert not matcher.here(target)
        assert not matcher.wants_zone(3, target)
