"""Handshakes, and which message may come on which kind of session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from swell.directory.messages import (
    CandidatesRequest,
    GroupReply,
    GroupRequest,
    JoinRefused,
    JoinRequest,
    LookupRequest,
    ReportReply,
    VoterState,
    ZoneReport,
)
from swell.directory.raft.messages import Heartbeat
from swell.ids import MessageId
from swell.operations.messages import Request
from swell.overlay.membership_messages import Gossip, MemberRumour, Nack, Ping, Rumours, State
from swell.overlay.messages import (
    Adopt,
    Adopted,
    Bye,
    Flush,
    Flushed,
    Hello,
    Interest,
    InterestPull,
    LeaseReply,
    LeaseRequest,
    LinkKind,
    LinkPing,
    LinkPong,
    RecoveryClaim,
    Refused,
    TakeOver,
    TookOver,
    Welcome,
)
from swell.overlay.routed import Detour, encode_detour, encode_routed
from swell.overlay.sessions import Session
from swell.overlay.view import View
from swell.simulation.checkers.topology import problems
from swell.wire import codec
from swell.world import Address
from tests.unit.overlay_toys import Cluster, Peer, contact, member_peer

ROUTED_FRAME = encode_routed(MessageId(900, 1, 1), 99, 1, 20, b"", b"x")
STRANGER = contact(901, 77)

WITHIN = (
    Ping(1),
    Nack(1),
    Gossip(Rumours((MemberRumour(STRANGER, 1, State.ALIVE, 901),))),
    TakeOver(STRANGER),
    TookOver(901, True, ""),
    Flush(2, 5),
    Flushed(2, 5),
    RecoveryClaim(2),
)
BETWEEN = (
    Adopt("handover"),
    Adopted(True, ""),
    LeaseRequest(),
    LeaseReply(True, ""),
    LinkPing(1, None, (), (0, 0), 0.0),
    LinkPong(1, None, (), (0, 0)),
    Bye(),
)
BOTH = (InterestPull(0), Interest(77, 1, 1, True, (b"t:x",)), ROUTED_FRAME)
ASKED = (
    JoinRequest("peer", "u", "s", "", "", "h", 0, 1),
    CandidatesRequest(1, 1, 3),
    LookupRequest(1, "a1"),
    ZoneReport(1, ((1, 1),), 0),
    GroupRequest(),
)
ANSWERS = (
    ReportReply(1, View(10**9), (), True),
    JoinRefused("bad-name", "never"),
    GroupReply(0, "peer", 1, ()),
)
AMONG_VOTERS = (VoterState(False, ()), Heartbeat(10**6, 0, 0))
REQUESTS = (Request(1, "status", b"{}", 1.0),)
HANDSHAKE = (Hello("simulated", 1, STRANGER), Welcome(STRANGER, 0), Refused("x", "y"))

ALLOWED = {
    LinkKind.CLIQUE: WITHIN + BOTH,
    LinkKind.CANDIDATE: BETWEEN + BOTH,
    LinkKind.DIRECTORY: ASKED + ANSWERS,
    LinkKind.CLIENT: REQUESTS,
}
EVERYTHING: tuple[Any, ...] = WITHIN + BETWEEN + BOTH + ASKED + ANSWERS + REQUESTS + HANDSHAKE
EVERYTHING += AMONG_VOTERS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster().build(3, 3)
    yield cluster
    cluster.settle(120.0)


def wrong_types(cluster: Cluster) -> int:
    counters = cluster.simulation.counters
    return counters["wire-error unexpected-type"] + counters["wire-error unknown-type"]


def own_zone(kind: LinkKind) -> int:
    return 1 if kind == LinkKind.CLIQUE else 77


@pytest.mark.parametrize("kind", list(ALLOWED), ids=lambda kind: kind.name)
def test_each_message_is_taken_on_its_kinds_of_session_only(
    cluster: Cluster, kind: LinkKind
) -> None:
    before = wrong_types(cluster)
    refused = 0
    for number, value in enumerate(EVERYTHING):
        peer = member_peer(cluster, kind, own_zone(kind), node=1000 + number)
        assert isinstance(peer.heard[0], Welcome)
        peer.say(value)
        if value not in ALLOWED[kind]:
            refused += 1
            assert peer.ended, f"{type(value).__name__} was taken on a {kind.name} link"
        peer.link.close()
    assert wrong_types(cluster) - before == refused


@pytest.mark.parametrize("kind", list(ALLOWED), ids=lambda kind: kind.name)
def test_malformed_bodies_end_that_link_and_nothing_else(cluster: Cluster, kind: LinkKind) -> None:
    for value in ALLOWED[kind]:
        frame = value if isinstance(value, bytes) else codec.encode(value)
        for body in (b"", b"\xc1", b"\x91", frame[6:-1], b"\x95" + b"\x01" * 5, b"\xc0" * 3):
            peer = member_peer(cluster, kind, own_zone(kind), node=2000)
            peer.say(codec.frame(frame[4], body))
            peer.link.close()
    assert problems(cluster) == []


HOSTILE = [
    codec.frame(45, msgspec.msgpack.encode([2**63, []])),
    codec.frame(46, msgspec.msgpack.encode([1, 2**64 - 1, 1, True, [b"t:x"], []])),
    codec.frame(46, msgspec.msgpack.encode([1, 1, -1, True, [], []])),
    codec.frame(51, msgspec.msgpack.encode([1, 1, -5])),
    codec.frame(51, msgspec.msgpack.encode([1, 1, 10**9])),
    codec.frame(35, msgspec.msgpack.encode([False, "x" * 1000, []])),
    codec.frame(40, msgspec.msgpack.encode([False, "no such reason"])),
    codec.frame(41, msgspec.msgpack.encode([[-1, "n", "s", "r", 2, "h", 0, 1]])),
    codec.frame(41, msgspec.msgpack.encode([[1, "n", "s", "r", 2, "h", 99999, 1]])),
    codec.frame(36, msgspec.msgpack.encode([1, None, list(range(60_000)), [0, 0], 0.0])),
    encode_routed(MessageId(900, 1, 5), 99, 2, 20, b"short", b""),
    encode_routed(MessageId(900, 1, 6), 99, 1, 1, b"", b""),
    encode_routed(MessageId(900, 1, 7), 99, 1, 2, b"", b"\xff" * 9),
    encode_routed(MessageId(900, 1, 8), 99, 1, 3, b"", b""),
    encode_routed(MessageId(900, 1, 9), 99, 1, 3, b"", b"\0\0\0\1\xff\0"),
    encode_routed(MessageId(900, 1, 10), 99, 250, 250, b"", b""),
    encode_detour(Detour(0, 0, 1, True, (), ROUTED_FRAME)),
    encode_detour(Detour(1, 77, 99, True, (1,) * 200, ROUTED_FRAME)),
]


@pytest.mark.parametrize("kind", [LinkKind.CLIQUE, LinkKind.CANDIDATE, LinkKind.DIRECTORY])
def test_forged_numbers_and_payloads_harm_nobody(cluster: Cluster, kind: LinkKind) -> None:
    for frame in HOSTILE:
        peer = member_peer(cluster, kind, own_zone(kind), node=2001)
        if kind == LinkKind.CANDIDATE:
            peer.say(Adopt("opening"))
        peer.say(frame)
        peer.link.close()
    cluster.run(15.0)
    cluster.settle(120.0)


def test_a_payload_that_cannot_be_read_is_the_fault_of_its_source_not_of_the_neighbour(
    cluster: Cluster,
) -> None:
    peer = member_peer(cluster, LinkKind.CANDIDATE, 77, node=2002)
    peer.say(*HOSTILE[10:16])
    assert peer.ended == ""


def test_nothing_is_taken_before_the_handshake(cluster: Cluster) -> None:
    peer = Peer(cluster.simulation, "silent", "a1")
    peer._hello = codec.encode(LeaseRequest())
    peer.link = peer.world.dial(Address("a1", 0))
    before = cluster.simulation.counters["wire-error no-handshake"]
    cluster.run(0.3)
    assert peer.ended
    assert peer.heard == []
    assert cluster.simulation.counters["wire-error no-handshake"] == before + 1


@pytest.mark.parametrize(
    ("kind", "who", "cluster_name", "code"),
    [
        (LinkKind.CLIQUE, contact(950, 1, "p"), "another", "wrong-cluster"),
        (LinkKind.CLIQUE, contact(950, 1, "other-name"), "simulated", "wrong-identity"),
        (LinkKind.CANDIDATE, contact(950, 9, "other-name"), "simulated", "wrong-identity"),
        (LinkKind.DIRECTORY, contact(0, 0, "other-name"), "simulated", "wrong-identity"),
        (LinkKind.CLIQUE, contact(950, 2, "p"), "simulated", "wrong-zone"),
        (LinkKind.CLIQUE, contact(0, 1, "p"), "simulated", "not-admitted"),
        (LinkKind.CANDIDATE, contact(0, 9, "p"), "simulated", "not-admitted"),
        (LinkKind.CANDIDATE, contact(950, 1, "p"), "simulated", "same-zone"),
        (LinkKind.CANDIDATE, contact(950, 0, "p"), "simulated", "same-zone"),
        (9, contact(950, 1, "p"), "simulated", "not-served"),
    ],
)
def test_refusals(cluster: Cluster, kind: int, who: Any, cluster_name: str, code: str) -> None:
    name = "p"
    while name in cluster.simulation.processes:
        name += "p"
    who = msgspec.structs.replace(who, name=name if who.name == "p" else who.name)
    peer = Peer(cluster.simulation, name, "a1")
    heard = peer.connect(kind, who, cluster_name)
    assert [type(message) for message in heard] == [Refused]
    assert heard[0].code == code
    assert peer.ended


def test_nobody_takes_the_id_of_another_member(cluster: Cluster) -> None:
    peer = Peer(cluster.simulation, "thief", "a1")
    heard = peer.connect(LinkKind.CLIQUE, contact(cluster.contact("a2").id, 1, "thief"))
    assert heard[0].code == "wrong-identity"


def test_a_former_life_of_a_member_is_refused(cluster: Cluster) -> None:
    known = cluster.contact("a2")
    peer = Peer(cluster.simulation, "ghost", "a1", identity="a2")
    heard = peer.connect(LinkKind.CLIQUE, msgspec.structs.replace(known, epoch=0))
    assert heard[0].code == "stale-epoch"


def test_only_directory_links_that_this_node_dialled_answer_its_questions(cluster: Cluster) -> None:
    """The voter accepts directory links: what comes in on them is never an answer."""
    voter = cluster.node(cluster.voter)
    assert voter is not None
    peer = member_peer(cluster, LinkKind.DIRECTORY, 1)
    peer.connect(LinkKind.DIRECTORY, contact(0, 0, peer.world.name), host=cluster.voter)
    peer.say(*ANSWERS)
    cluster.run(5.0)
    assert voter.overlay is not None
    assert voter.overlay.view.epoch < 10**9
    assert voter.counters["moved"] == 0


class Owner:
    """Writes down how its session began and ended."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def on_open(self, session: Session) -> None:
        self.log.append("open")

    def on_closed(self, session: Session, reason: str) -> None:
        self.log.append(reason)


@pytest.mark.parametrize(
    ("answer", "log"),
    [
        (Refused("busy", "not now"), ["busy"]),
        (Welcome(contact(5, 1, "a2"), 0), ["wire-error wrong-identity"]),
        (Welcome(contact(5, 1, "answerer"), 0), ["open"]),
    ],
    ids=["refused", "wrong-name", "welcome"],
)
def test_the_dialling_side(answer: Any, log: list[str]) -> None:
    """A refusal ends the session at once, even if the other side never closes the link; the name
    in the welcome must be the one in the certificate."""
    cluster = Cluster().build(2)
    peer = Peer(cluster.simulation, "answerer", "a1")
    node = cluster.node("a1")
    assert node is not None
    peer._hello = codec.encode(answer)
    owner = Owner()
    node.sessions.open(Address("answerer", 0), "answerer", LinkKind.CLIQUE, owner)
    cluster.run(1.0)
    assert owner.log == log
