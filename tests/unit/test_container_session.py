"""A container with toy nodes: finding the primary, following it, repairing gaps, receipts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from swell.config import messages as m
from swell.config import operations as ops
from swell.config.bursts import burst_id
from swell.config.chunking import CHUNK_BYTES
from swell.config.proofs import proof
from swell.config.splices import Splice
from swell.container.attaching import REFUSED_S
from swell.overlay.messages import LinkKind
from swell.settings import ConfigSettings
from tests.unit.container_toys import APP, EVERYTHING, ToyCluster, key_of, values

APPLIED, DELIVERED = m.Level.APPLIED, m.Level.DELIVERED


def started(**options: bool) -> ToyCluster:
    toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    toy.add("c1", **options)  # type: ignore[arg-type]
    toy.attached("c1")
    toy.run(0.1)
    return toy


def shown(toy: ToyCluster, name: str = "c1") -> dict[str, tuple[int, bytes]]:
    feed = next(iter(toy.containers[name].attaching.all.values())).feed
    return values(feed.documents)


def test_a_container_subscribes_with_the_primary_and_gives_its_receipt() -> None:
    toy = started()
    node = toy.node()
    assert [s.container for s in node.subscribes] == ["c1"]
    assert not toy.node(2).subscribes
    assert shown(toy) == toy.application.states[-1]
    (receipt,) = node.receipts
    assert receipt.level == APPLIED
    assert receipt.proof == proof(node.secret("c1"), receipt.burst, APPLIED)
    assert [place for place, _ in receipt.scores] == [0]
    links = [link for link in toy.simulation.processes["c1"].world.links]  # type: ignore[union-attr]
    assert len(links) == 1  # for the store and for its feed


def test_a_burst_that_comes_again_gets_its_receipt_again() -> None:
    toy = started()
    data = toy.application.burst(toy.node().key, 0)
    for _ in range(2):
        toy.node().deliver("c1", data)
    toy.run(0.1)
    receipts = toy.node().of(burst_id(data))
    assert len({(r.level, r.proof) for r in receipts}) == 1
    assert len(receipts) == 3
    assert len(toy.updates["c1"]) == 1


def test_a_redirect_is_followed() -> None:
    toy = ToyCluster()
    toy.primary, toy.told = 2, 1
    toy.application.put("a", b"1")
    toy.simulation.call_later(0.5, lambda: setattr(toy, "told", 2))
    toy.add("c1")
    toy.attached("c1")
    assert toy.simulation.time_s < 3.0
    toy.run(0.1)
    assert shown(toy) == toy.application.states[-1]


def test_a_busy_node_is_asked_again() -> None:
    toy = ToyCluster()
    toy.busy = True
    toy.add("c1")
    toy.run(1.0)
    asked = len(toy.node().subscribes)
    assert 3 <= asked <= 20
    toy.busy = False
    toy.attached("c1")


def test_a_refusal_is_told_and_not_insisted_upon() -> None:
    toy = ToyCluster()
    toy.add("c1", subscribes=(APP, "foreign"))
    toy.run(5.0)
    attachments = toy.containers["c1"].attaching.all
    refused = attachments["foreign", EVERYTHING]
    assert refused.refusal is not None
    assert refused.refusal.code == "no-token"
    assert attachments[APP, EVERYTHING].serving
    assert [s.application for s in toy.node().subscribes].count("foreign") == 1
    toy.run(REFUSED_S * 1.5)
    assert [s.application for s in toy.node().subscribes].count("foreign") == 2


def test_when_the_primary_dies_the_first_backup_is_asked_with_the_step_that_is_here() -> None:
    toy = started()
    toy.simulation.processes["n1"].crash()
    toy.primary = 2
    toy.application.edit("a", Splice(0, 1, b"x"))
    toy.attached("c1")
    toy.run(0.2)
    assert toy.node(2).subscribes[0].step == 1
    assert shown(toy) == toy.application.states[-1]
    assert [u.version for u in toy.updates["c1"]] == [1, 2]


def test_a_backup_that_is_not_primary_yet_names_the_dead_one() -> None:
    toy = started()
    toy.simulation.processes["n1"].crash()
    toy.primary = 99
    toy.run(2.0)
    assert len(toy.node(2).subscribes) + len(toy.node(3).subscribes) < 40
    toy.primary = toy.told = 3
    toy.application.put("b", b"2")
    toy.attached("c1")
    toy.run(0.2)
    assert shown(toy) == toy.application.states[-1]


def test_a_primary_that_steps_down_says_so() -> None:
    toy = started()
    toy.primary = 3
    toy.node(1).send("c1", m.Moved((APP,), toy.contacts[2]))
    toy.attached("c1")
    toy.run(0.1)
    assert not toy.node(2).subscribes
    assert toy.node(3).subscribes[0].step == 1


def test_a_silent_node_is_left() -> None:
    toy = started()
    toy.node(1).answers_renewals = False
    toy.run(9.0)
    toy.primary = toy.told = 2
    toy.run(16.0)
    assert toy.containers["c1"].counters["silent-node"] >= 1
    assert toy.node(2).links


def test_renewals_say_what_is_applied_and_close_gaps_that_nobody_saw() -> None:
    toy = started()
    toy.application.put("b", b"nobody told")
    toy.run(12.0)
    renews = [one for one in toy.node().heard if isinstance(one, m.Renew)]
    assert renews[0].feeds == ((APP, EVERYTHING, 1),)
    toy.run(toy.settings.repair_s + 0.2)
    assert [r.step for r in toy.node().repairs] == [1]
    assert shown(toy) == toy.application.states[-1]


def test_an_early_burst_waits_and_the_gap_is_repaired() -> None:
    toy = started()
    toy.application.edit("a", Splice(0, 1, b"x"))
    toy.application.edit("a", Splice(1, 1, b"y"))
    node = toy.node()
    early = node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.5)
    assert not node.of(early)
    assert not node.repairs
    toy.run(1.0)
    assert [r.step for r in node.repairs] == [1]
    assert [r.level for r in node.of(early)] == [APPLIED]
    assert [u.step for u in toy.updates["c1"]] == [1, 2, 3]


def test_the_application_judges() -> None:
    toy = started(automatic=False)
    node, container = toy.node(), toy.containers["c1"]
    feed = next(iter(container.attaching.all.values())).feed
    first = node.receipts[0].burst
    assert [r.level for r in node.of(first)] == [DELIVERED]
    toy.application.edit("a", Splice(0, 1, b"x"))
    second = node.deliver("c1", toy.application.burst(node.key, 1))
    toy.application.edit("a", Splice(0, 1, b"y"))
    third = node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.1)
    container.applied(feed, "a", 1)
    container.rejected(feed, "a", 2, "no such shop")
    toy.run(0.1)
    assert [r.level for r in node.of(first)] == [DELIVERED, APPLIED]
    assert [r.level for r in node.of(second)] == [DELIVERED]
    said = [one for one in node.heard if isinstance(one, m.Rejected)]
    assert [(r.step, r.name, r.reason) for r in said] == [(2, "a", "no such shop")]
    container.applied(feed, "a", 3)
    toy.run(0.1)
    assert [r.level for r in node.of(second)] == [DELIVERED]
    assert [r.level for r in node.of(third)] == [DELIVERED, APPLIED]


def test_a_rejection_is_told_to_the_next_primary() -> None:
    toy = started(automatic=False)
    container = toy.containers["c1"]
    feed = next(iter(container.attaching.all.values())).feed
    container.rejected(feed, "a", 1, "bad")
    toy.primary = 2
    toy.node(1).send("c1", m.Moved((APP,), toy.contacts[1]))
    toy.attached("c1")
    toy.run(0.1)
    assert [type(one) for one in toy.node(2).heard] == [m.Rejected, m.Renew]


def test_what_is_rejected_is_not_in_use_while_something_before_it_is() -> None:
    toy = started(automatic=False)
    node, container = toy.node(), toy.containers["c1"]
    feed = next(iter(container.attaching.all.values())).feed

    def in_use() -> int:
        document = container.document(APP, "a")
        return 0 if document is None else document.version

    container.rejected(feed, "a", 1, "no")
    assert in_use() == 1  # there is no other
    for version in (2, 3, 4):
        toy.application.edit("a", Splice(0, 1, b"%d" % version))
        node.deliver("c1", toy.application.burst(node.key, version - 1))
    toy.run(0.1)
    container.applied(feed, "a", 2)  # late: two more are here
    assert in_use() == 4
    container.rejected(feed, "a", 4, "no")
    assert in_use() == 2
    document = container.document(APP, "a")
    assert document is not None
    assert document.bytes() == toy.application.states[2]["a"][1]
    toy.run(0.1)
    said = [one.uses for one in node.heard if isinstance(one, m.Rejected)]
    assert said == [0, 2]
    toy.application.delete("a")
    node.deliver("c1", toy.application.burst(node.key, 4))
    toy.run(0.1)
    assert in_use() == 0
    container.rejected(feed, "a", 5, "no")
    assert in_use() == 2


def test_who_refuses_every_version_claims_none_of_them() -> None:
    toy = started(automatic=False)
    node, container = toy.node(), toy.containers["c1"]
    attachment = next(iter(container.attaching.all.values()))
    container.applied(attachment.feed, "a", 1)
    for version in range(2, 80):
        toy.application.edit("a", Splice(0, 1, b"%d" % (version % 10)))
        node.deliver("c1", toy.application.burst(node.key, version - 1))
        toy.run(0.01)
        container.rejected(attachment.feed, "a", version, "not this one either")
        assert attachment.receipts.claim == 1
    toy.application.put("b", b"welcome")
    other = node.deliver("c1", toy.application.burst(node.key, 79))
    toy.run(0.1)
    container.applied(attachment.feed, "b", 1)
    toy.run(0.1)
    assert [r.level for r in node.of(other)] == [DELIVERED, APPLIED]
    assert attachment.receipts.claim == 1
    said = [one for one in node.heard if isinstance(one, m.Rejected)]
    assert len(said) == 78
    assert {one.uses for one in said} == {1}
    toy.application.edit("a", Splice(0, 1, b"x"))
    node.deliver("c1", toy.application.burst(node.key, 80))
    toy.run(0.1)
    container.applied(attachment.feed, "a", 80)
    assert attachment.receipts.claim == 81


def test_a_burst_that_nobody_signed_changes_nothing() -> None:
    toy = started()
    toy.application.put("a", b"forged")
    forged = toy.node().deliver("c1", toy.application.burst(key_of(9), 1))
    toy.run(0.1)
    assert shown(toy) == toy.application.states[1]
    assert not toy.node().of(forged)
    assert toy.containers["c1"].counters["bad-signature"] == 1


def test_without_the_signature_check_it_would() -> None:
    toy = ToyCluster()
    toy.application.put("a", b"1")
    toy.add("c1", bugs=frozenset(["no-signature-check"]))
    toy.attached("c1")
    toy.run(0.1)
    toy.application.put("a", b"forged")
    toy.node().deliver("c1", toy.application.burst(key_of(9), 1))
    toy.run(0.1)
    assert shown(toy)["a"] == (2, b"forged")


def test_a_burst_of_the_last_primary_is_good_and_proven_with_its_secret() -> None:
    toy = started()
    toy.primary = 2
    old = toy.node(1)
    toy.application.put("b", b"2")
    data = toy.application.burst(old.key, 1)
    old.send("c1", m.Moved((APP,), toy.contacts[1]))
    toy.node(2).repairing = False
    toy.attached("c1")
    burst = old.deliver("c1", data)
    toy.run(0.1)
    assert shown(toy) == toy.application.states[-1]
    assert [r.proof for r in old.of(burst)] == [proof(old.secret("c1"), burst, APPLIED)]


def test_a_long_value_is_fetched_by_its_missing_chunks() -> None:
    toy = started()
    value = bytes(range(256)) * 1024
    toy.application.fetchable("long", value)
    node = toy.node()
    burst = node.deliver("c1", toy.application.burst(node.key, 1))
    toy.run(0.5)
    assert shown(toy)["long"] == (1, value)
    assert [r.level for r in node.of(burst)] == [APPLIED]
    before = len(node.executed)
    value = value[:100_000] + b"!" + value[100_001:]
    toy.application.fetchable("long", value)
    node.deliver("c1", toy.application.burst(node.key, 2))
    toy.run(0.5)
    assert shown(toy)["long"] == (2, value)
    requests = [ops.decode(execute.body) for execute in node.executed[before:]]
    reads = [one.length for one in requests if isinstance(one, ops.ReadRange)]
    assert reads == [CHUNK_BYTES]


def test_many_feeds_share_a_link_and_a_renewal() -> None:
    toy = ToyCluster()
    applications = [f"app{k}" for k in range(50)]
    for name in applications:
        toy.applications[name] = type(toy.application)(name)
    toy.add("c1", subscribes=applications)
    toy.attached("c1")
    toy.run(12.0)
    renews = [one for one in toy.node().heard if isinstance(one, m.Renew)]
    assert len(renews) == 1
    assert len(renews[0].feeds) == 50
    world = toy.simulation.processes["c1"].world
    assert world is not None
    assert [link.session.kind for link in world.links] == [LinkKind.CLIENT]


def unrepaired(*names: str) -> ToyCluster:
    """Containers have step 1 and 3; nobody gives them step 2."""
    toy = ToyCluster(settings=ConfigSettings(repair_s=0.5))
    toy.application.put("a", b"1")
    for name in names:
        toy.add(name)
    toy.attached(*names)
    toy.run(0.1)
    toy.node().repairing = False
    for _ in range(2):
        toy.application.put("a", b"2")
    for name in names:
        toy.node().deliver(name, toy.application.burst(toy.node().key, 2))
    return toy


def repair_times(toy: ToyCluster, seconds: float) -> list[float]:
    """When a repair was asked for, from now on."""
    repairs, times = toy.node().repairs, []
    began_s, heard = toy.simulation.time_s, len(repairs)
    while toy.simulation.time_s < began_s + seconds:
        toy.run(0.01)
        times += [toy.simulation.time_s] * (len(repairs) - heard)
        heard = len(repairs)
    return times


def test_a_gap_that_stays_is_asked_for_less_and_less_often() -> None:
    toy = unrepaired("c1")
    began_s = toy.simulation.time_s
    times = repair_times(toy, 25.0)
    waits = [after - before for before, after in pairwise([began_s, *times])]
    for wait_s, longest_s in zip(waits, (0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0), strict=False):
        assert max(0.5, longest_s / 2) - 0.02 < wait_s < longest_s + 0.05
    assert len(waits) >= 6


def test_those_who_ask_again_do_not_do_so_together() -> None:
    times = repair_times(unrepaired("c1", "c2", "c3", "c4"), 4.0)
    last = times[-4:]
    assert len(times) >= 12
    assert len(set(last)) > 1


@pytest.mark.parametrize("moves", [False, True])
def test_progress_or_another_node_ends_the_patience_with_a_gap(moves: bool) -> None:
    toy = unrepaired("c1")
    repair_times(toy, 10.0)
    old = toy.node()
    toy.application.put("a", b"4")
    toy.application.put("a", b"5")
    if moves:
        toy.primary = toy.told = 2
        toy.node().repairing = False
        old.send("c1", m.Moved((APP,), toy.contacts[1]))
        toy.run(0.05)
        toy.attached("c1")
    else:
        old.deliver("c1", toy.application.burst(old.key, 1, 2))
        old.deliver("c1", toy.application.burst(old.key, 4))
    began_s = toy.simulation.time_s
    assert repair_times(toy, 1.0)[0] - began_s < 0.6
