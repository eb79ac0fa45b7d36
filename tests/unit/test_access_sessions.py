"""Clients of real nodes in the simulation, by certificate and by token: what they may do, and when
it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swell.access.grants import Right, parse_grant
from swell.access.messages import Authenticate, Authenticated
from swell.access.token import ENTROPY_BYTES, Token, draw
from swell.client.session import Requester
from swell.client.store_session import StoreSession
from swell.config import operations as config_ops
from swell.config.edits import Whole
from swell.dht import operations as ops
from swell.dht.operations import DHT_SERVICE
from swell.errors import RefusedError, SwellError
from swell.node import Node
from swell.operations.messages import Request as Operation
from swell.operations.messages import Response
from swell.overlay.contact import Contact
from swell.overlay.messages import Hello, LinkKind, Refused, Welcome
from swell.settings import Settings, StoreSettings
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.store.messages import Execute, Executed, Status, Table, TableRequest
from swell.store.request import Request
from swell.wire import codec
from swell.world import Address, Link, Role, World
from tests.unit.overlay_toys import Peer

SLOTS = 8
NAMES = ("a1", "a2", "a3")
NOBODY = Contact(0, "client", "", "", 0, "", 0, 0)
REFUSED = int(Status.REFUSED)


class Lab:
    """Three nodes, `a1` of them the directory, and whoever a test needs."""

    def __init__(self) -> None:
        settings = msgspec.structs.replace(Settings.local(), store=StoreSettings(slots=SLOTS))
        self.simulation = Simulation(5)
        self.fleet = Fleet(self.simulation, settings)
        for name in NAMES:
            self.fleet.add(name, "a")
        self._names = self._numbers = 0
        assert self.simulation.run_until_true(self._ready, 60.0)
        self.simulation.run_for(3.0)

    def _ready(self) -> bool:
        primaries = self.node("a1").store.primaries()
        return len(primaries) == SLOTS and all(primaries)

    def node(self, name: str) -> Node:
        node = self.fleet.node(name)
        assert node is not None
        return node

    def name(self, role: Role) -> str:
        self._names += 1
        return f"{role}{self._names}"

    def peer(self, node: str = "a1", role: Role = Role.CLIENT) -> Peer:
        """Somebody with a certificate of this role, connected as a client."""
        peer = Peer(self.simulation, self.name(role), node)
        self.simulation.processes[peer.world.name].role = role
        (welcome,) = peer.connect(LinkKind.CLIENT, NOBODY, CLUSTER)
        assert isinstance(welcome, Welcome)
        return peer

    def bearer(self, token: Token, node: str = "a1") -> Peer:
        peer = self.peer(node)
        (answer,) = peer.say(Authenticate(token.text))
        assert isinstance(answer, Authenticated), answer
        return peer

    def administer(self, operation: str, node: str = "a2", **arguments: Any) -> Any:
        """Ask as an administrator; the result, or the sentence."""
        return operate(self.peer(node, Role.ADMIN), operation, **arguments)

    def create(self, *grants: str, ttl_s: int = 3600, node: str = "a2") -> Token:
        """Grants as `read shop/x`."""
        token = draw(self.node("a1").world.entropy(ENTROPY_BYTES))
        made = self.administer("token-create", node, **creation(token, *grants, ttl_s=ttl_s))
        assert made["id"] == token.id
        return token

    def execute(self, request: Request, service: int = DHT_SERVICE) -> Execute:
        self._numbers += 1
        session = self.node("a2").world.wall_us() // 1_000_000 << 32 | 1
        place, read, body = request
        return Execute(
            session, self._numbers, self._numbers, place % SLOTS, service, read, body, 2.0
        )

    def run(self, peer: Peer, request: Request, service: int = DHT_SERVICE) -> tuple[int, str]:
        """Status and body of the answer."""
        (answer,) = peer.say(self.execute(request, service))
        assert isinstance(answer, Executed)
        return answer.status, answer.body.decode(errors="replace")


def creation(token: Token, *grants: str, ttl_s: int = 3600) -> dict[str, Any]:
    parsed = [parse_grant(place, Right(right)) for right, place in map(str.split, grants)]
    wire = [[grant.application, grant.prefix, [*grant.rights]] for grant in parsed]
    return {
        "id": token.id, "hash": token.hash.hex(), "grants": wire, "ttl_s": ttl_s, "label": "test",
    }  # fmt: skip


def operate(peer: Peer, operation: str, **arguments: Any) -> Any:
    (response,) = peer.say(Operation(1, operation, msgspec.json.encode(arguments), 2.0))
    assert isinstance(response, Response)
    return response.error or msgspec.json.decode(response.body)


@pytest.fixture(name="lab", scope="module")
def make_lab() -> Lab:
    return Lab()


PUT, GET = ops.put("a/k", b"v"), ops.get("a/k")
DONE = int(Status.DONE)


@pytest.mark.parametrize("role", [Role.NODE, Role.ADMIN, Role.UNKNOWN])
def test_who_may_do_everything_without_a_token(lab: Lab, role: Role) -> None:
    peer = lab.peer("a1", role)
    assert lab.run(peer, PUT) == (DONE, "\x03")
    assert operate(peer, "members")["from"] == "a1"


def test_a_client_without_a_token_learns_where_the_cluster_is_and_no_more(lab: Lab) -> None:
    peer = lab.peer()
    (table,) = peer.say(TableRequest(1))
    assert isinstance(table, Table)
    assert operate(peer, "status")["name"] == "a1"
    assert operate(peer, "ping", node="a2")["node"] == "a2"
    for operation in ("members", "overlay", "voters", "broadcast", "token-list", "nonsense"):
        assert "for administrators" in operate(peer, operation)
    status, sentence = lab.run(peer, GET)
    assert status == REFUSED
    assert "takes a token" in sentence
    assert "--read @dht/a/k" in sentence
    assert not peer.ended  # it may still show one


def test_a_token_allows_what_it_grants(lab: Lab) -> None:
    lab.run(lab.peer(role=Role.ADMIN), PUT)
    reader, writer = lab.create("read @dht/a/"), lab.create("write @dht/a/", "read shop")
    for node in NAMES:  # wherever it was made, and whoever is the primary
        peer = lab.bearer(reader, node)
        assert lab.run(peer, GET) == (DONE, "\x01v")
        sentence = "this token may not write @dht/a/k: ask for one with --write @dht/a/k"
        assert lab.run(peer, PUT) == (REFUSED, sentence)
        assert lab.run(peer, ops.get("b/k"))[0] == REFUSED
        assert lab.run(peer, ops.get("a"))[0] == REFUSED
    peer = lab.bearer(writer)
    assert lab.run(peer, PUT) == (DONE, "\x03")
    assert lab.run(peer, GET)[0] == REFUSED
    assert lab.run(peer, ops.put_and_retrieve("a/k", b"w"))[0] == REFUSED
    assert "for administrators" in operate(peer, "token-list")
    assert lab.node("a1").counters["access-refused"] > 0


def test_a_token_of_another_application_and_services_without_a_check(lab: Lab) -> None:
    peer = lab.bearer(lab.create("write shop", "write @dht"))
    body = config_ops.encode(config_ops.Publish("bank", (Whole("a", b"1"),)))
    status, sentence = lab.run(peer, Request(0, 0, body), config_ops.CONFIG_SERVICE)
    assert (status, sentence) == (
        REFUSED, "this token may not write bank/a: ask for one with --write bank/a",
    )  # fmt: skip
    assert "takes full access" in lab.run(peer, PUT, service=99)[1]
    # The first byte is no operation of that service, whatever the request claims to be.
    assert lab.run(peer, PUT._replace(read=1, body=GET.body))[0] == REFUSED


def test_a_token_narrows_an_administrator(lab: Lab) -> None:
    peer = lab.peer(role=Role.ADMIN)
    peer.say(Authenticate(lab.create("read @dht").text))
    assert lab.run(peer, PUT)[0] == REFUSED
    assert "for administrators" in operate(peer, "members")
    peer.say(Authenticate(lab.create("write @dht").text))  # another one, on the same link
    assert lab.run(peer, PUT)[0] == DONE


@pytest.mark.parametrize("text", ["", "swell", "x" * 255, "swell_" + "a" * 46, "admin", "\0"])
def test_what_is_no_token_ends_the_link(lab: Lab, text: str) -> None:
    peer = lab.peer()
    (refused,) = peer.say(Authenticate(text))
    assert refused.code == "bad-token"
    assert peer.ended


def test_a_wrong_secret_is_as_unknown_as_a_wrong_id(lab: Lab) -> None:
    token = lab.create("read @dht")
    wrong = [
        token._replace(secret=bytes(20)),
        token._replace(secret=bytes([token.secret[0] ^ 1]) + token.secret[1:]),
        draw(token.secret + bytes(8)),
    ]
    answers = []
    for guess in wrong:
        peer = lab.peer()
        (refused,) = peer.say(Authenticate(guess.text))
        answers.append((refused.code, refused.sentence))
        assert peer.ended
    assert set(answers) == {("unknown-token", answers[0][1])}
    assert token.text not in answers[0][1]


def test_revoked_in_mid_stream(lab: Lab) -> None:
    token, other = lab.create("read @dht"), lab.create("read @dht")
    peers = [lab.bearer(token, node) for node in NAMES]
    bystander = lab.bearer(other)
    clients = operate(bystander, "status")["clients"]
    for peer in peers:
        peer.heard.clear()
    assert lab.administer("token-revoke", id=token.id)["state"] == "revoked"
    for peer in peers:
        assert peer.heard == [Refused("revoked-token", peer.heard[0].sentence)]
        assert f"the token {token.id} was revoked" in peer.heard[0].sentence
        assert peer.ended
    assert lab.run(bystander, GET)[0] == DONE
    (refused,) = lab.peer("a3").say(Authenticate(token.text))
    assert refused.code == "revoked-token"
    assert lab.administer("token-revoke", id=token.id)["state"] == "revoked"  # once more
    assert operate(bystander, "status")["clients"] == clients - 1


def test_expired_in_mid_stream(lab: Lab) -> None:
    authentication = lab.node("a1").authentication
    others = authentication.token_sessions
    token, longer = lab.create("read @dht", ttl_s=20), lab.create("read @dht", ttl_s=100)
    peer, other = lab.bearer(token), lab.bearer(longer)
    lab.simulation.run_for(10.0)
    assert lab.run(peer, GET)[0] == DONE
    peer.heard.clear()
    lab.simulation.run_for(10.0)
    (refused,) = peer.heard
    assert refused.code == "expired-token"
    assert peer.ended
    (refused,) = lab.peer("a2").say(Authenticate(token.text))
    assert refused.code == "expired-token"
    assert lab.run(other, GET)[0] == DONE
    other.link.close()
    lab.simulation.run_for(6.0)
    assert authentication.token_sessions == others


def test_the_same_token_is_created_once(lab: Lab) -> None:
    token = lab.create("read @dht")
    again = lab.administer("token-create", "a3", **creation(token, "read @dht", ttl_s=9))
    assert again["expires_s"] - again["created_s"] == 3600  # as it was the first time
    twin = Token(token.id, bytes(20))
    answer = lab.administer("token-create", **creation(twin, "write @dht"))
    assert "there is another token" in answer
    listed = {one["id"]: one for one in lab.administer("token-list", "a3")["tokens"]}
    assert listed[token.id]["grants"] == [{"application": "@dht", "prefix": "", "rights": ["read"]}]
    everything = msgspec.json.encode(listed)
    assert token.secret.hex().encode() not in everything
    assert token.hash.hex().encode() not in everything


@pytest.mark.parametrize(
    "changes",
    [{"id": "x"}, {"id": "a" * 12 + "b"}, {"hash": "00"}, {"hash": "zz" * 32}, {"grants": []},
     {"grants": [["shop", "", ["fly"]]]}, {"grants": [["shop", "", []]]}, {"grants": "shop"},
     {"grants": [["@other", "", ["read"]]]}, {"grants": [["shop", "a*", ["read"]]]},
     {"ttl_s": 0}, {"ttl_s": -5}, {"ttl_s": 1e400}, {"ttl_s": 10**12}, {"label": "a\nb"},
     {"label": "x" * 64}, {"label": 7}],
)  # fmt: skip
def test_tokens_that_cannot_be(lab: Lab, changes: dict[str, Any]) -> None:
    token = draw(bytes(ENTROPY_BYTES))
    answer = lab.administer("token-create", **{**creation(token, "read shop"), **changes})
    assert isinstance(answer, str)
    assert token.id not in [one["id"] for one in lab.administer("token-list")["tokens"]]


def test_nobody_but_a_node_opens_links_between_nodes(lab: Lab) -> None:
    for role in (Role.CLIENT, Role.ADMIN):
        for kind in (LinkKind.CLIQUE, LinkKind.DIRECTORY, LinkKind.VOTER, LinkKind.STORE):
            name = lab.name(role)
            peer = Peer(lab.simulation, name, "a1")
            lab.simulation.processes[name].role = role
            (refused,) = peer.connect(kind, msgspec.structs.replace(NOBODY, id=9, name=name))
            assert refused.code == "wrong-role"


class Mute:
    """A process that says welcome to whoever dials it, then nothing; it keeps what it hears."""

    def __init__(self, lab: Lab, role: Role) -> None:
        self.name = lab.name(role)
        self.heard: list[Any] = []
        process = lab.simulation.add(self.name, "a", lambda world: self)
        process.role = role
        process.start()

    def on_link_up(self, link: Link) -> None:
        link.send(codec.encode(Welcome(msgspec.structs.replace(NOBODY, name=self.name), 0)))

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self.heard.append(codec.decode(frame))

    def stop(self) -> None: ...


def test_a_client_is_not_taken_for_a_node(lab: Lab) -> None:
    """Whoever dials finds a client's certificate behind a node's address."""
    impostor = Mute(lab, Role.CLIENT)
    token = lab.create("read @dht").text
    client = Client(lab, [impostor.name], token)
    assert isinstance(client.ask("status"), SwellError)
    assert lab.simulation.counters["wire-error wrong-role"] >= 1
    assert Authenticate(token) not in impostor.heard


def test_nothing_is_sent_before_the_token_is_accepted(lab: Lab) -> None:
    mute = Mute(lab, Role.NODE)
    token = lab.create("read @dht").text
    client = Client(lab, [mute.name], token)
    assert client.ask("status") is None
    assert client.call(GET) is None
    assert [type(message) for message in mute.heard] == [Hello, Authenticate] * 2


class Client:
    """The client library's own sessions, with a client's certificate."""

    def __init__(self, lab: Lab, nodes: list[str], token: str = "") -> None:
        self.lab = lab
        self.requester: Requester
        self.session: StoreSession
        addresses = [Address(node, 0) for node in nodes]

        def requester(world: World) -> Requester:
            self.requester = Requester(world, CLUSTER, addresses, token)
            return self.requester

        def session(world: World) -> StoreSession:
            self.session = StoreSession(world, CLUSTER, addresses, None, token)
            return self.session

        for factory in (requester, session):
            process = lab.simulation.add(lab.name(Role.CLIENT), "a", factory)
            process.role = Role.CLIENT
            process.start()
        lab.simulation.run_for(0.001)

    def call(self, request: Request) -> Any:
        outcomes: list[Any] = []
        place, read, body = request
        self.session.call(DHT_SERVICE, place, read, body, 5.0, outcomes.append)
        self.lab.simulation.run_for(0.5)
        return outcomes[0] if outcomes else None

    def ask(self, operation: str) -> Any:
        outcomes: list[Any] = []
        self.requester.request(operation, {}, 5.0, outcomes.append)
        self.lab.simulation.run_for(0.5)
        return outcomes[0] if outcomes else None


def test_the_client_library_shows_its_token_first(lab: Lab) -> None:
    lab.run(lab.peer(role=Role.ADMIN), PUT)
    client = Client(lab, list(NAMES), lab.create("read @dht").text)
    assert client.call(GET).body == b"\x01v"
    refused = client.call(PUT)
    assert isinstance(refused, RefusedError)
    assert "may not write @dht/a/k" in str(refused)
    assert client.call(GET).body == b"\x01v"  # the session goes on
    assert client.ask("status")["name"] in NAMES
    assert "for administrators" in str(client.ask("members"))


def test_a_refused_token_is_final_for_the_client(lab: Lab) -> None:
    token = lab.create("read @dht")
    client = Client(lab, list(NAMES), token.text)
    assert client.call(GET).body == b"\x01v"
    lab.administer("token-revoke", id=token.id)
    before = sum(lab.node(name).counters["revoked-token"] for name in NAMES)
    for _ in range(3):
        outcome = client.call(GET)
        assert isinstance(outcome, RefusedError)
        assert outcome.code == "revoked-token"
    lab.simulation.run_for(120.0)
    after = sum(lab.node(name).counters["revoked-token"] for name in NAMES)
    assert after == before  # nobody was asked again
    peers = client.session.peers
    assert not peers.dial(peers.at(Address("a1", 0)), lab.node("a1").world.now())
    outcome = client.ask("status")
    assert isinstance(outcome, RefusedError)
    assert "was revoked" in str(outcome)


def test_without_the_directory_known_tokens_go_on(lab: Lab) -> None:
    """Last of the module: it takes the directory away."""
    known, fresh = lab.create("read @dht"), lab.create("read @dht")
    peer = lab.bearer(known, "a2")
    lab.fleet.crash(["a1"])
    lab.simulation.run_for(1.0)
    again = lab.bearer(known, "a2")
    assert not peer.ended
    assert not again.ended
    stranger = lab.peer("a2", Role.ADMIN)
    stranger.say(Authenticate(draw(fresh.secret + bytes(8)).text))
    (status,) = stranger.say(lab.execute(GET))  # while it is being looked up: nothing
    assert status.status == REFUSED
    lab.simulation.run_for(3.0)
    assert [m.code for m in stranger.heard if isinstance(m, Refused)] == ["token-unverified"]
    assert stranger.ended
