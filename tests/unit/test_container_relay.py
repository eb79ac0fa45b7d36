"""Relaying between containers: lists, passes, aggregated receipts, bad relays."""

from __future__ import annotations

import pytest

from swell.config import messages as m
from swell.config.bursts import burst_id
from swell.config.messages import DestinationList, Entry
from swell.config.proofs import NO_PROOF, Pass, combined, proof, sign_list, sign_pass
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.world import Address, Plane
from tests.unit.container_toys import APP, CLUSTER, SITE, ToyCluster, ToyNode, key_of, values

APPLIED, DELIVERED = m.Level.APPLIED, m.Level.DELIVERED


def group(*names: str, **options: object) -> ToyCluster:
    toy = ToyCluster()
    toy.application.put("a", b"0123456789")
    for name in names:
        toy.add(name, **options)  # type: ignore[arg-type]
    toy.attached(*names)
    toy.run(0.1)
    for node in toy.nodes.values():
        node.receipts.clear()
    return toy


def list_of(*names: str, below: bytes = b"") -> DestinationList:
    return DestinationList(tuple(Entry(name, name, 0, below) for name in names))


def expected(node: ToyNode, burst: bytes, level: int, *names: str) -> bytes:
    return combined(proof(node.secret(name), burst, level) for name in names)


def next_burst(toy: ToyCluster) -> bytes:
    toy.application.put("a", b"%d" % toy.application.step)
    return toy.application.burst(toy.node().key, toy.application.step - 1)


def up_to_date(toy: ToyCluster, *names: str) -> bool:
    wanted = toy.application.states[-1]
    feeds = [next(iter(toy.containers[n].attaching.all.values())).feed for n in names]
    return all(values(feed.documents) == wanted for feed in feeds)  # type: ignore[arg-type]


def test_a_relay_forwards_to_its_list_and_answers_for_all() -> None:
    toy = group("r", "c1", "c2", "c3")
    node, known = toy.node(), list_of("c1", "c2", "c3")
    node.send("r", m.Lists((known,)))
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    (receipt,) = node.of(burst)
    assert (receipt.level, receipt.list, receipt.missing, receipt.only) == (
        APPLIED, known.digest(), (), (),
    )  # fmt: skip
    assert receipt.proof == expected(node, burst, APPLIED, "r", "c1", "c2", "c3")
    assert up_to_date(toy, "r", "c1", "c2", "c3")
    links = toy.containers["r"].relay.children.links
    node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    assert toy.containers["r"].relay.children.links == links == 3


def test_scores_of_all_ride_on_a_receipt_once_per_period() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    toy.run(toy.settings.score_s)
    node.send("r", m.Lists((known,)))
    bursts = []
    for _ in range(3):
        bursts.append(node.deliver("r", next_burst(toy), known.digest()))
        toy.run(0.2)
    told = [sorted(place for place, _ in node.of(burst)[0].scores) for burst in bursts]
    assert told == [[0, 1, 2], [], []]


def test_a_list_that_is_missing_is_asked_for() -> None:
    toy = group("r", "c1")
    node, known = toy.node(), list_of("c1")
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    assert [one.digests for one in node.heard if isinstance(one, m.ListRequest)] == [
        (known.digest(),)
    ]
    assert not node.of(burst)
    assert up_to_date(toy, "r")
    node.send("r", m.Lists((known,)))
    toy.run(0.2)
    assert [r.proof for r in node.of(burst)] == [expected(node, burst, APPLIED, "r", "c1")]


def test_a_burst_that_asks_for_no_receipts_is_passed_on_and_the_next_speaks_for_it() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    first = node.deliver("r", next_burst(toy), known.digest(), asks=False)
    alone = node.deliver("c2", next_burst(toy), asks=False)
    toy.run(0.2)
    assert node.receipts == []
    assert up_to_date(toy, "c2")
    node.deliver("r", toy.application.burst(node.key, toy.application.step - 1), known.digest())
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    assert [r.proof for r in node.of(burst)] == [expected(node, burst, APPLIED, "r", "c1", "c2")]
    assert not node.of(first) + [one for one in node.of(alone) if not one.list]
    assert up_to_date(toy, "r", "c1", "c2")


def test_without_its_list_a_burst_waits_for_it_even_if_it_asks_for_no_receipts() -> None:
    toy = group("r", "c1")
    node, known = toy.node(), list_of("c1")
    node.deliver("r", next_burst(toy), known.digest(), asks=False)
    toy.run(0.2)
    assert not up_to_date(toy, "c1")
    node.send("r", m.Lists((known,)))
    toy.run(0.2)
    assert up_to_date(toy, "r", "c1")


def test_a_list_that_does_not_come_leaves_the_relay_alone_with_the_burst() -> None:
    toy = group("r", "c1")
    node, known = toy.node(), list_of("c1")
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(toy.settings.receipt_wait_s + 0.2)
    (receipt,) = node.of(burst)
    assert receipt.only == (0,)
    assert receipt.proof == expected(node, burst, APPLIED, "r")


def test_who_cannot_be_reached_is_named_at_once() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    toy.simulation.processes["c1"].crash()
    node.send("r", m.Lists((known,)))
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(toy.settings.receipt_wait_s / 2)
    (receipt,) = node.of(burst)
    assert receipt.missing == (1,)
    assert receipt.proof == expected(node, burst, APPLIED, "r", "c2")


def test_the_silent_are_named_when_the_time_is_over_and_follow_later() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    toy.simulation.processes["c2"].pause()
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(toy.settings.receipt_wait_s + 0.2)
    (first,) = node.of(burst)
    assert first.missing == (2,)
    toy.simulation.processes["c2"].resume()
    toy.run(0.3)
    late = node.of(burst)[1]
    assert late.only == (2,)
    assert late.proof == expected(node, burst, APPLIED, "c2")


def test_a_burst_that_comes_again_goes_to_those_who_did_not_answer() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    toy.simulation.processes["c2"].pause()
    data = next_burst(toy)
    burst = node.deliver("r", data, known.digest())
    toy.run(toy.settings.receipt_wait_s + 0.2)
    toy.simulation.processes["c2"].resume()
    toy.run(0.3)
    node.deliver("r", data, known.digest())
    toy.run(0.3)
    last = node.of(burst)[-1]
    assert (last.missing, last.only) == ((), ())
    assert last.proof == expected(node, burst, APPLIED, "r", "c1", "c2")


def test_the_delivered_go_before_the_applied_and_the_rest_follows() -> None:
    toy = group("r", "c1")
    toy.add("c2", automatic=False)
    toy.attached("c2")
    toy.run(0.1)
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    delivered, applied = node.of(burst)
    assert (delivered.level, delivered.only) == (DELIVERED, (2,))
    assert delivered.proof == expected(node, burst, DELIVERED, "c2")
    assert (applied.level, applied.missing) == (APPLIED, (2,))
    assert applied.proof == expected(node, burst, APPLIED, "r", "c1")
    container = toy.containers["c2"]
    feed = next(iter(container.attaching.all.values())).feed
    container.applied(feed, "a", feed.documents["a"].version)
    toy.run(0.2)
    last = node.of(burst)[-1]
    assert (last.level, last.only) == (APPLIED, (2,))


def test_three_levels_end_in_one_receipt() -> None:
    toy = group("r", "s", "c1", "c2", "c3")
    node = toy.node()
    lower = list_of("c2", "c3")
    upper = DestinationList((Entry("s", "s", 0, lower.digest()), Entry("c1", "c1", 0)))
    node.send("r", node.signed(upper, lower))
    toy.run(toy.settings.score_s)
    first = node.deliver("r", next_burst(toy), upper.digest())
    toy.run(0.3)
    assert up_to_date(toy, "r", "s", "c1", "c2", "c3")
    lists = {receipt.list for receipt in node.of(first)}
    assert lists == {upper.digest(), lower.digest()}  # the scores behind `s` came with its own
    burst = node.deliver("r", next_burst(toy), upper.digest())
    toy.run(0.3)
    (receipt,) = node.of(burst)
    assert receipt.proof == expected(node, burst, APPLIED, "r", "s", "c1", "c2", "c3")


def test_a_relay_below_speaks_for_itself_when_somebody_is_missing() -> None:
    toy = group("r", "s", "c1", "c2")
    node = toy.node()
    lower = list_of("c1", "c2")
    upper = DestinationList((Entry("s", "s", 0, lower.digest()),))
    node.send("r", m.Lists((upper,)))  # the lower one is asked for through `r`
    toy.simulation.processes["c2"].crash()
    burst = node.deliver("r", next_burst(toy), upper.digest())
    toy.run(0.1)
    node.send("r", node.signed(lower))
    toy.run(0.5)
    below, above = node.of(burst)
    assert (below.list, below.missing) == (lower.digest(), (2,))
    assert below.proof == expected(node, burst, APPLIED, "s", "c1")
    assert (above.list, above.missing) == (upper.digest(), (1,))
    assert above.proof == expected(node, burst, APPLIED, "r")


@pytest.mark.parametrize("whose", ["nobody's", "another node's", "another site's", "the node's"])
def test_a_list_of_a_sibling_counts_only_with_the_signature_of_a_node(whose: str) -> None:
    toy = group("s", "c1")
    node, known = toy.node(), list_of("c1")
    key, site = (toy.node(2) if whose == "another node's" else node).key, SITE
    if whose == "another site's":
        site = "elsewhere"
    signature = sign_list(key, CLUSTER, APP, site, known.digest())
    lists = m.Lists((known,), () if whose == "nobody's" else (signature,))
    dial(toy, "s", a_pass(toy), m.deliver(known.digest(), next_burst(toy)), lists)
    toy.run(0.3)
    assert up_to_date(toy, "s")
    relay = toy.containers["s"].relay
    assert up_to_date(toy, "c1") == (relay.children.links == 1) == (whose == "the node's")
    assert toy.containers["s"].counters["list-refused"] == (whose != "the node's")


def test_a_list_that_a_sibling_was_not_asked_for_is_refused() -> None:
    toy = group("s", "c1")
    lists = toy.node().signed(list_of("c1"))
    dial(toy, "s", a_pass(toy), lists)
    toy.run(0.2)
    assert toy.containers["s"].counters["list-refused"] == 1
    assert not len(toy.containers["s"].relay.lists)


def test_a_child_speaks_for_its_own_list_only() -> None:
    toy = group("r", "s", "c1", "c2")
    node = toy.node()
    lower = list_of("c2")
    upper = DestinationList((Entry("s", "s", 0, lower.digest()), Entry("c1", "c1", 0)))
    node.send("r", node.signed(upper, lower))
    toy.simulation.processes["s"].pause()
    burst = node.deliver("r", next_burst(toy), upper.digest())
    toy.run(0.1)
    (session,) = toy.containers["c1"].siblings._passes  # type: ignore[union-attr]
    session.send(m.Receipt(burst, APPLIED, bytes(16), lower.digest()))
    toy.run(0.2)
    assert not node.of(burst)
    assert toy.containers["r"].counters["stray-receipt"] == 1
    toy.simulation.processes["s"].resume()
    toy.run(0.3)
    assert node.of(burst)[-1].proof == expected(node, burst, APPLIED, "r", "s", "c1", "c2")


def test_a_relay_below_that_is_a_leaf_elsewhere_does_not_answer_for_its_list() -> None:
    toy = group("r", "s", "c1")
    node = toy.node()
    lower, leaf = list_of("c1"), list_of("s")
    upper = DestinationList((Entry("s", "s", 0, lower.digest()),))
    node.send("r", node.signed(upper, lower, leaf))
    toy.simulation.processes["c1"].pause()
    data = next_burst(toy)
    burst = node.deliver("r", data, upper.digest())
    node.deliver("r", data, leaf.digest())
    toy.run(0.2)
    (receipt,) = node.of(burst)
    assert receipt.list == leaf.digest()
    assert receipt.proof == expected(node, burst, APPLIED, "r", "s")
    toy.simulation.processes["c1"].resume()
    toy.run(0.3)
    whole = node.of(burst)[-1]
    assert whole.list == upper.digest()
    assert whole.proof == expected(node, burst, APPLIED, "r", "s", "c1")


def dial(toy: ToyCluster, container: str, *frames: object) -> Session:
    """A link to a container from the machine of node 2, with what is sent on it."""
    node = toy.node(2)

    class Owner:
        def on_open(self, session: Session) -> None:
            for frame in frames:
                if isinstance(frame, bytes):
                    session.link.send(frame, Plane.DATA)
                else:
                    session.link.send(m.codec.encode(frame), Plane.DATA)

        def on_closed(self, session: Session, reason: str) -> None:
            session.open = False

    return node.sessions.open(Address(container, 0), "", LinkKind.RELAY, Owner())


def a_pass(toy: ToyCluster, key: int = 1, **changed: object) -> m.Introduce:
    until_s = toy.node().world.wall_us() // 1_000_000 + 60
    fields = {"application": APP, "site": SITE, "expires_s": until_s, "cluster": CLUSTER}
    shown = Pass(**{"container": "evil", "holder": "n2", **fields, **changed})  # type: ignore[arg-type]
    return m.Introduce(sign_pass(key_of(key), shown))


@pytest.mark.parametrize(
    ("changed", "counter"),
    [
        ({"application": "other"}, "refused-pass-application"),
        ({"site": "elsewhere"}, "refused-pass-site"),
        ({"cluster": "other"}, "refused-pass-cluster"),
        ({"expires_s": 1}, "refused-pass-expired"),
        ({"key": 9}, "refused-pass-unknown-key"),
        ({"container": "c1", "holder": "c1"}, "refused-pass-holder"),
    ],
)
def test_a_wrong_pass_ends_the_link(changed: dict[str, object], counter: str) -> None:
    toy = group("c1")
    data = next_burst(toy)
    session = dial(toy, "c1", a_pass(toy, **changed), m.deliver(b"", data))  # type: ignore[arg-type]
    toy.run(0.2)
    assert not session.open
    assert toy.containers["c1"].counters[counter] == 1
    assert not up_to_date(toy, "c1")


def test_nothing_is_taken_without_a_pass() -> None:
    toy = group("c1")
    session = dial(toy, "c1", m.deliver(b"", next_burst(toy)))
    toy.run(0.2)
    assert not session.open
    assert toy.containers["c1"].counters["refused-no-pass"] == 1


def test_a_sibling_that_alters_a_burst_is_complained_about() -> None:
    toy = group("c1")
    toy.run(toy.settings.receipt_wait_s)
    data = bytearray(next_burst(toy))
    data[-70] ^= 1
    bad = m.deliver(b"", bytes(data))
    session = dial(toy, "c1", a_pass(toy), *[bad] * 5)
    toy.run(0.2)
    assert not session.open
    said = [one for one in toy.node().heard if isinstance(one, m.Complaint)]
    assert [(c.application, c.relay, c.reason) for c in said] == [(APP, "evil", "bad-signature")]
    assert not up_to_date(toy, "c1")


def test_nobody_is_complained_about_for_what_a_node_of_another_version_has_signed() -> None:
    toy = group("c1")
    toy.run(toy.settings.receipt_wait_s)
    unsigned = b"\1" + next_burst(toy)[1:-64]
    signed = unsigned + toy.node().key.sign(b"swell-burst\0%b\0" % CLUSTER.encode() + unsigned)
    session = dial(toy, "c1", a_pass(toy), m.deliver(b"", signed))
    toy.run(0.2)
    assert session.open
    assert toy.containers["c1"].counters["burst-format"] == 1
    assert not [one for one in toy.node().heard if isinstance(one, m.Complaint)]
    assert not up_to_date(toy, "c1")


def test_a_container_without_a_listener_takes_no_links() -> None:
    toy = group("c1", listens=False)
    session = dial(toy, "c1", a_pass(toy))
    toy.run(0.2)
    assert session.refusal is not None
    assert toy.node().subscribes[-1].host == ""
    assert not toy.node().subscribes[-1].willing


def test_a_relay_that_claims_too_early_has_no_proof() -> None:
    toy = group("r", "c1", "c2", bugs=frozenset(["ack-before-children"]))
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    data = next_burst(toy)
    node.deliver("r", data, known.digest())
    toy.run(0.3)
    first = node.of(burst_id(data))[0]
    assert (first.missing, first.proof) == ((), NO_PROOF)
    assert not up_to_date(toy, "c2")  # claimed, and never sent


def test_idle_links_are_closed() -> None:
    toy = group("r", "c1")
    node, known = toy.node(), list_of("c1")
    node.send("r", m.Lists((known,)))
    node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    assert toy.containers["r"].relay.children.links == 1
    toy.run(130.0)
    assert toy.containers["r"].relay.children.links == 0
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    assert node.of(burst)[0].missing == ()


def test_a_relay_shows_a_node_the_proof_of_each() -> None:
    toy = group("r", "c1", "c2")
    node, known = toy.node(), list_of("c1", "c2")
    node.send("r", m.Lists((known,)))
    toy.simulation.processes["c2"].pause()
    burst = node.deliver("r", next_burst(toy), known.digest())
    toy.run(0.2)
    node.send("r", m.Itemize(burst, known.digest()))
    node.send("r", m.Itemize(burst, bytes(16)))
    toy.run(0.2)
    (answer,) = [one for one in node.heard if isinstance(one, m.Items)]
    proofs = [expected(node, burst, APPLIED, name) for name in ("r", "c1")]
    assert answer.items == (*((APPLIED, proof) for proof in proofs), (0, NO_PROOF))


def test_a_relay_waits_as_long_as_it_is_told() -> None:
    toy = group("r", "s", "c1")
    node, lower = toy.node(), list_of("c1")
    upper = DestinationList((Entry("s", "s", 0, lower.digest()),))
    node.send("r", node.signed(upper, lower))
    toy.simulation.processes["c1"].pause()
    data = next_burst(toy)
    node.links["r"].link.send(m.deliver(upper.digest(), data, 3.0), Plane.DATA)
    toy.run(2.9)
    assert not node.of(burst_id(data))
    toy.run(0.2)
    below, _ = node.of(burst_id(data))
    assert (below.list, below.missing) == (lower.digest(), (1,))
