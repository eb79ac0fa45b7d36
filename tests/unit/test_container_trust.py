"""What a node gives its containers so that siblings can trust each other no further than needed."""

from __future__ import annotations

from swell.config.messages import ListRequest, Lists
from swell.config.proofs import is_list_signed, read_pass
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import CLUSTER, ToyContainer, ToyFleet


def lists_of(one: ToyContainer) -> list[Lists]:
    return [heard for heard in one.heard if isinstance(heard, Lists)]


def test_a_pass_names_the_certificate_that_it_was_given_to() -> None:
    fleet = ToyFleet()
    (one,) = fleet.add("c1")
    shown = read_pass(one.subscribed.pass_, one.key)
    assert shown.holder == fleet.simulation.processes["c1"].identity == "c1"


def test_lists_of_relays_below_are_signed_for_their_application_and_site() -> None:
    fleet = ToyFleet(relay_fanout=3, server_fanout=2)
    fleet.build(30)
    fleet.put("a.json", b"1")
    fleet.run(0.2)
    checked = 0
    for one in fleet.containers.values():
        for lists in lists_of(one):
            assert len(lists.signatures) == len(lists.lists)
            for what, signature in list(zip(lists.lists, lists.signatures, strict=True))[1:]:
                about = CLUSTER, APPLICATION, "a", what.digest()
                assert is_list_signed(signature, one.key, *about)
                assert not is_list_signed(signature, one.key, CLUSTER, APPLICATION, "b", about[3])
                checked += 1
    assert checked > 2


def test_a_list_that_is_sent_again_is_signed() -> None:
    fleet = ToyFleet()
    relay = fleet.build(5)[0]
    fleet.put("a.json", b"1")
    fleet.run(0.1)
    (digest,) = relay.lists
    relay.say(ListRequest((digest, digest)))
    fleet.run(0.1)
    again = lists_of(relay)[-1]
    assert len(again.lists) == 1
    assert is_list_signed(again.signatures[0], relay.key, CLUSTER, APPLICATION, "a", digest)
