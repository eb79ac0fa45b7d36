"""What a container refuses is heard before anything behind it counts as applied (RIP-14)."""

from __future__ import annotations

from swell.config import messages as m
from swell.config.splices import Splice
from swell.container.attachment import Attachment
from swell.container.rejections import REFUSED_MAX, Refused, Rejections
from swell.simulation.network import Rule
from tests.unit.container_toys import APP, EVERYTHING, ToyCluster, ToyNode
from tests.unit.test_container_relay import list_of

APPLIED, DELIVERED = m.Level.APPLIED, m.Level.DELIVERED


def judging(*others: str) -> tuple[ToyCluster, Attachment]:
    """`c1` judges and has applied version 1 of `a`, step 1; the others take everything."""
    toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    toy.add("c1", automatic=False)
    for name in others:
        toy.add(name)
    toy.attached("c1", *others)
    toy.run(0.1)
    container = toy.containers["c1"]
    attachment = container.attaching.all[APP, EVERYTHING]
    container.applied(attachment.feed, "a", 1)
    toy.run(0.1)
    return toy, attachment


def slow(toy: ToyCluster, extra_s: float) -> None:
    """The own link of `c1`, each way."""
    toy.simulation.network.add(Rule(frozenset(("c1",)), frozenset(("n1",)), extra_s=extra_s))


def edited(toy: ToyCluster, node: ToyNode) -> bytes:
    """The next version of `a`, as a burst."""
    step = toy.application.edit("a", Splice(0, 1, b"%d" % (toy.application.step % 10)))
    return toy.application.burst(node.key, step - 1)


def put(toy: ToyCluster, node: ToyNode, name: str) -> bytes:
    step = toy.application.put(name, b"welcome")
    return toy.application.burst(node.key, step - 1)


def rejected_steps(node: ToyNode) -> list[int]:
    return [one.step for one in node.heard if isinstance(one, m.Rejected)]


def claims(node: ToyNode) -> list[int]:
    renews = [one for one in node.heard if isinstance(one, m.Renew)]
    return [step for one in renews for _, _, step in one.feeds]


def levels(node: ToyNode, burst: bytes) -> list[int]:
    return [receipt.level for receipt in node.of(burst)]


def claimed(node: ToyNode, burst: bytes, place: int) -> bool:
    """Whether a receipt says that the container at a place of a list has applied a burst."""
    return any(
        place in receipt.only if receipt.only else place not in receipt.missing
        for receipt in node.of(burst)
        if receipt.level == APPLIED
    )


def test_a_receipt_by_a_relay_does_not_overtake_a_rejection() -> None:
    toy, attachment = judging("r")
    node, container, feed = toy.node(), toy.containers["c1"], attachment.feed
    known = list_of("c1")
    node.send("r", m.Lists((known,)))
    refused = node.deliver("r", edited(toy, node), known.digest())
    later = node.deliver("r", put(toy, node, "b"), known.digest())
    toy.run(0.2)
    slow(toy, 2.0)
    container.rejected(feed, "a", 2, "no such shop")
    container.applied(feed, "b", 1)
    toy.run(1.5)
    assert not rejected_steps(node)
    assert not claimed(node, later, 1)
    assert any(1 in r.only or not (r.only or r.missing) for r in node.of(later))
    assert toy.simulation.run_until_true(lambda: claimed(node, later, 1), 10.0, 0.01)
    assert rejected_steps(node) == [2]
    assert not claimed(node, refused, 1)


def test_what_is_held_back_is_said_when_the_node_has_answered() -> None:
    toy, attachment = judging()
    node, container, feed = toy.node(), toy.containers["c1"], attachment.feed
    node.answers_renewals = False
    refused = node.deliver("c1", edited(toy, node))
    later = node.deliver("c1", put(toy, node, "b"))
    toy.run(0.1)
    container.rejected(feed, "a", 2, "no")
    container.applied(feed, "b", 1)
    again = node.deliver("c1", toy.application.burst(node.key, 2))
    assert again == later
    toy.run(0.1)
    assert (levels(node, refused), levels(node, later)) == ([DELIVERED], [DELIVERED, DELIVERED])
    assert [type(one) for one in node.heard[-2:]] == [m.Rejected, m.Renew]
    node.send("c1", m.Renewed(((APP, EVERYTHING, 3),)))
    toy.run(0.1)
    assert (levels(node, refused), levels(node, later)[2:]) == ([DELIVERED], [APPLIED, APPLIED])
    assert not attachment.receipts.rejections.unheard


def test_what_ends_before_a_rejected_step_is_not_held_back() -> None:
    toy, attachment = judging()
    node, container, feed = toy.node(), toy.containers["c1"], attachment.feed
    node.answers_renewals = False
    before = node.deliver("c1", put(toy, node, "b"))
    node.deliver("c1", edited(toy, node))
    toy.run(0.1)
    container.rejected(feed, "a", 2, "no")
    container.applied(feed, "b", 1)
    toy.run(0.1)
    assert levels(node, before) == [DELIVERED, APPLIED]


def test_another_primary_hears_a_rejection_before_what_is_behind_it_counts() -> None:
    toy, attachment = judging()
    node, other, container = toy.node(1), toy.node(2), toy.containers["c1"]
    node.deliver("c1", edited(toy, node))
    toy.run(0.1)
    container.rejected(attachment.feed, "a", 2, "no")
    toy.run(0.1)
    assert not attachment.receipts.rejections.unheard
    other.answers_renewals = False
    toy.primary = 2
    node.send("c1", m.Moved((APP,), toy.contacts[1]))
    toy.run(0.3)
    assert other.subscribes[-1].applied == 1
    assert [type(one) for one in other.heard] == [m.Rejected, m.Renew]
    later = other.deliver("c1", put(toy, other, "b"))
    toy.run(0.1)
    container.applied(attachment.feed, "b", 1)
    toy.run(0.1)
    assert levels(other, later) == [DELIVERED]
    other.send("c1", m.Renewed(((APP, EVERYTHING, 3),)))
    toy.run(0.1)
    assert levels(other, later) == [DELIVERED, APPLIED]


def test_one_that_serves_no_more_is_told_of_nothing_behind_a_rejection() -> None:
    toy, attachment = judging()
    node, other, container = toy.node(1), toy.node(2), toy.containers["c1"]
    toy.primary = 2
    node.send("c1", m.Moved((APP,), toy.contacts[1]))
    toy.run(0.3)
    other.deliver("c1", edited(toy, other))
    toy.run(0.1)
    container.rejected(attachment.feed, "a", 2, "no")
    toy.run(0.1)
    assert (rejected_steps(node), rejected_steps(other)) == ([], [2])
    data = put(toy, node, "b")
    old, new = node.deliver("c1", data), other.deliver("c1", toy.application.burst(other.key, 2))
    toy.run(0.1)
    container.applied(attachment.feed, "b", 1)
    toy.run(0.1)
    assert (levels(node, old), levels(other, new)) == ([DELIVERED], [DELIVERED, APPLIED])


def test_a_rejection_that_nobody_heard_is_told_though_a_later_version_was_taken() -> None:
    toy, attachment = judging()
    node, other, container = toy.node(1), toy.node(2), toy.containers["c1"]
    node.deliver("c1", edited(toy, node))
    node.deliver("c1", edited(toy, node))
    toy.run(0.1)
    rule = toy.simulation.network.partition(["c1"], ["n1"])
    container.rejected(attachment.feed, "a", 2, "no")
    container.applied(attachment.feed, "a", 3)
    toy.primary = toy.told = 2
    assert toy.simulation.run_until_true(lambda: bool(rejected_steps(other)), 60.0, 0.01)
    toy.simulation.network.remove(rule)
    assert rejected_steps(other) == [2]
    assert other.subscribes[-1].applied == 1
    toy.run(0.1)
    assert claims(other)[0] == 3


def test_many_rejections_share_a_proof() -> None:
    toy, attachment = judging()
    node, container = toy.node(), toy.containers["c1"]
    for _ in range(20):
        node.deliver("c1", edited(toy, node))
    toy.run(0.1)
    before = len(claims(node))
    for version in range(2, 22):
        container.rejected(attachment.feed, "a", version, "no")
    toy.run(0.1)
    assert rejected_steps(node) == list(range(2, 22))
    assert len(claims(node)) - before == 2  # behind the first, and behind all the others
    assert not attachment.receipts.rejections.unheard
    assert attachment.receipts.claim == 1


def test_a_node_that_was_asked_a_moment_ago_is_not_silent() -> None:
    toy, attachment = judging()
    node, container = toy.node(), toy.containers["c1"]
    node.deliver("c1", edited(toy, node))
    toy.run(0.85 * toy.settings.renew_s - toy.simulation.time_s)
    assert not claims(node)
    slow(toy, 0.15 * toy.settings.renew_s)
    container.rejected(attachment.feed, "a", 2, "no")
    toy.run(0.4 * toy.settings.renew_s)
    assert len(claims(node)) == 1
    toy.run(0.6 * toy.settings.renew_s)
    assert container.counters["silent-node"] == 0
    assert not attachment.receipts.rejections.unheard


# Alone.


def refused(step: int, name: str = "a", floor: int = 0) -> Refused:
    return Refused(step, floor, m.Rejected(APP, EVERYTHING, step, name, "no"))


def say_all(rejections: Rejections) -> int:
    for one in rejections.unsaid():
        rejections.note_said(one)
    return rejections.said


def test_only_what_was_said_ahead_is_heard() -> None:
    rejections = Rejections()
    rejections.add(refused(4))
    said = say_all(rejections)
    rejections.add(refused(6, "b"))
    assert rejections.note_heard(said, 9)
    assert not rejections.hides(5)
    assert rejections.hides(6)
    assert not rejections.said_since(said)
    said = say_all(rejections)
    rejections.begin_anew()  # the answer is of a subscription that has ended
    assert not rejections.note_heard(said, 9)
    assert [one.message.step for one in rejections.unsaid()] == [4, 6]
    assert rejections.hides(4)


def test_a_node_that_is_behind_is_told_again() -> None:
    rejections = Rejections()
    rejections.add(refused(4))
    assert not rejections.note_heard(say_all(rejections), 3)
    assert rejections.hides(4)
    assert [one.message.step for one in rejections.unsaid()] == [4]
    assert rejections.note_heard(say_all(rejections), 4)
    assert not rejections.hides(4)


def test_nothing_is_claimed_behind_what_was_not_said() -> None:
    rejections = Rejections()
    rejections.add(refused(8, floor=5))
    rejections.current.clear()  # a later version was taken
    assert rejections.floor == 5
    say_all(rejections)
    assert rejections.floor == float("inf")


def test_rejections_are_bounded() -> None:
    rejections = Rejections()
    forgotten = [rejections.add(refused(n, f"a{n}")) for n in range(1, REFUSED_MAX + 3)]
    assert forgotten[-3:] == ["", "a1", "a2"]
    assert len(rejections.current) == len(rejections.unsaid()) == REFUSED_MAX
    assert not rejections.hides(2)
    assert rejections.hides(3)
