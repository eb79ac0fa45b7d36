"""An application's steps as a primary would send them, nodes that serve them as a test wants, and
containers, in a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swell.config import messages as m
from swell.config import operations as ops
from swell.config.bursts import Change, StepChanges, burst_id, seal
from swell.config.content import Content
from swell.config.proofs import Pass, sign_list, sign_pass
from swell.config.splices import Splice, encode
from swell.config.versions import NO_VERSION, Kind, version_id
from swell.container.documents import Update
from swell.container.session import ContainerSession
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.settings import ConfigSettings
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.store.messages import Execute, Executed, Status, Table, TableRequest
from swell.world import Address, Link, Plane, World

CLUSTER = "toy"
APP = "shop"
SITE = "a"
EVERYTHING = m.interest_digest(())

SEALED_US = 1_700_000_000_000_000
"""When all bursts were sealed, as they say."""


def key_of(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


class ToyApplication:
    """Documents and every step that made them."""

    def __init__(self, name: str = APP) -> None:
        self.name = name
        self.steps: list[StepChanges] = []
        self.heads: dict[str, tuple[int, bytes, Content]] = {}
        self.states: list[dict[str, tuple[int, bytes]]] = [{}]
        """After every step: name → version and value."""

    @property
    def step(self) -> int:
        return len(self.steps)

    def put(self, name: str, data: bytes) -> int:
        content = Content.of(data)
        return self._step(name, Kind.WHOLE, data, content.digest, content)

    def fetchable(self, name: str, data: bytes) -> int:
        """A whole value that containers have to fetch."""
        content = Content.of(data)
        return self._step(name, Kind.FETCH, content.digest, content.digest, content)

    def edit(self, name: str, *splices: Splice) -> int:
        delta = encode(splices)
        return self._step(name, Kind.DELTA, delta, delta, self.heads[name][2].splice(splices))

    def delete(self, name: str) -> int:
        return self._step(name, Kind.DELETE, b"", b"", Content.of(b""))

    def _step(self, name: str, kind: Kind, data: bytes, what: bytes, content: Content) -> int:
        version, base, _ = self.heads.get(name, (0, NO_VERSION, None))
        made = version_id(base, kind, what)
        change = Change(name, kind, version + 1, base, made, data, len(content))
        self.steps.append(StepChanges(self.step + 1, (change,)))
        self.heads[name] = version + 1, made, content
        state = {**self.states[-1], name: (version + 1, content.bytes())}
        if kind == Kind.DELETE:
            del state[name]
        self.states.append(state)
        return self.step

    def burst(self, key: Ed25519PrivateKey, after: int, upto: int = 0) -> bytes:
        upto = upto or self.step
        steps = tuple(self.steps[after:upto])
        return seal(key, CLUSTER, self.name, EVERYTHING, 1, after, upto, steps, SEALED_US)

    def whole_burst(self, key: Ed25519PrivateKey, after: int) -> bytes:
        """The present values of everything, as a late container gets them."""
        last: dict[str, StepChanges] = {}
        for step in self.steps:
            (change,) = step.changes
            kind = Kind.DELETE if change.kind == Kind.DELETE else Kind.WHOLE
            data = self.heads[change.name][2].bytes()
            whole = Change(
                change.name, kind, change.version, change.base, change.id, data, len(data)
            )
            last[change.name] = StepChanges(step.number, (whole,))
        steps = tuple(
            sorted((s for s in last.values() if s.number > after), key=lambda s: s.number)
        )
        return seal(key, CLUSTER, self.name, EVERYTHING, 1, after, self.step, steps, SEALED_US)


def values(documents: dict[str, object]) -> dict[str, tuple[int, bytes]]:
    """Name → version and value of a feed's documents."""
    return {
        name: (one.version, one.bytes())  # type: ignore[attr-defined]
        for name, one in documents.items()
        if not one.deleted  # type: ignore[attr-defined]
    }


class ToyCluster:
    """Nodes `n1` … in a simulation, which share the applications; `primary` serves them."""

    def __init__(self, nodes: int = 3, settings: ConfigSettings | None = None) -> None:
        self.simulation = Simulation(1)
        self.settings = settings or ConfigSettings()
        self.applications = {APP: ToyApplication()}
        self.primary = 1
        self.busy = False
        self.told = 1
        """Whom nodes that do not serve name as the primary; 0: nobody."""
        self.contacts = [
            Contact(n, f"n{n}", SITE, "", 1, f"n{n}", 0, 1) for n in range(1, nodes + 1)
        ]
        self.nodes: dict[str, ToyNode] = {}
        self.containers: dict[str, ContainerSession] = {}
        self.updates: dict[str, list[Update]] = {}
        for contact in self.contacts:
            self._add_node(contact)

    @property
    def application(self) -> ToyApplication:
        return self.applications[APP]

    def _add_node(self, contact: Contact) -> None:
        def factory(world: World) -> ToyNode:
            node = self.nodes[contact.name] = ToyNode(world, self, contact)
            return node

        self.simulation.add(contact.name, SITE, factory).start()

    def node(self, number: int = 0) -> ToyNode:
        return self.nodes[f"n{number or self.primary}"]

    def add(
        self,
        name: str,
        *,
        owner: str = APP,
        site: str = SITE,
        listens: bool = True,
        keep: bool = False,
        automatic: bool = True,
        bugs: frozenset[str] = frozenset(),
        subscribes: Sequence[str] = (APP,),
    ) -> Process:
        def factory(world: World) -> ContainerSession:
            container = ContainerSession(
                world,
                CLUSTER,
                [Address(contact.name, 0) for contact in self.contacts],
                name,
                owner,
                site,
                self.settings,
                Address(name, 0) if listens else None,
                keep=keep,
                bugs=bugs,
                hear=lambda update: self.updates.setdefault(name, []).append(update),
            )
            self.containers[name] = container
            for application in subscribes:
                container.subscribe(application, (), automatic)
            return container

        process = self.simulation.add(name, SITE, factory)
        process.start()
        return process

    def run(self, seconds: float) -> None:
        self.simulation.run_for(seconds)

    def attached(self, *names: str) -> None:
        """Run until all feeds of these containers are served."""
        sessions = [self.containers[name] for name in names]
        assert self.simulation.run_until_true(
            lambda: all(a.serving for s in sessions for a in s.attaching.all.values()), 30.0, 0.01
        ), "not attached"


class ToyNode:
    """A node: serves if it is the primary, else redirects. What it sends is up to the test."""

    def __init__(self, world: World, cluster: ToyCluster, contact: Contact) -> None:
        self.world = world
        self.cluster = cluster
        self.contact = contact
        self.key = key_of(contact.id)
        self.links: dict[str, Session] = {}
        self.subscribes: list[m.Subscribe] = []
        self.heard: list[object] = []
        self.repairs: list[m.Repair] = []
        self.receipts: list[m.Receipt] = []
        self.answers_renewals = True
        self.repairing = True
        self.executed: list[Execute] = []
        self.reads_open: list[tuple[Session, Execute]] | None = None
        """Reads that wait for the test to answer them, if it wants to."""
        self.unknown = ""
        """A name whose value it does not give."""
        self.sessions = Sessions(world, CLUSTER, lambda: contact, lambda: 0, Counter())
        self.sessions.accept(LinkKind.CLIENT, self)
        for cls, handler in (
            (TableRequest, self.on_table_request),
            (m.Subscribe, self.on_subscribe),
            (m.Repair, self.on_repair),
            (m.Renew, self.on_renew),
            (m.Receipt, self.on_receipt),
            (m.ListRequest, self.on_other),
            (m.Rejected, self.on_other),
            (m.Complaint, self.on_other),
            (m.Unsubscribe, self.on_other),
            (m.Items, self.on_other),
            (Execute, self.on_execute),
        ):
            self.sessions.handle(cls, handler, (LinkKind.CLIENT,))

    def secret(self, container: str) -> bytes:
        return (container.encode() + bytes([self.contact.id]) * 16)[:16]

    def pass_of(self, session: Session, subscribe: m.Subscribe) -> bytes:
        until_s = self.world.wall_us() // 1_000_000 + 3600
        about = subscribe.owner, subscribe.site, subscribe.container
        return sign_pass(self.key, Pass(CLUSTER, *about, until_s, session.link.peer))

    def signed(self, *lists: m.DestinationList) -> m.Lists:
        """As lists go to a relay that may pass them on."""
        signatures = [sign_list(self.key, CLUSTER, APP, SITE, one.digest()) for one in lists]
        return m.Lists(lists, tuple(signatures))

    def on_table_request(self, session: Session, request: TableRequest) -> None:
        primaries = (self.cluster.told or self.cluster.primary,) * 4
        session.send(Table(request.number, primaries, tuple(self.cluster.contacts), 1))

    def on_subscribe(self, session: Session, subscribe: m.Subscribe) -> None:
        cluster = self.cluster
        self.subscribes.append(subscribe)
        if cluster.primary != self.contact.id:
            told = [c for c in cluster.contacts if c.id == cluster.told]
            answer = m.Subscribed(subscribe.number, m.Answer.REDIRECT, members=tuple(told))
        elif cluster.busy:
            answer = m.Subscribed(subscribe.number, m.Answer.BUSY)
        elif subscribe.application not in cluster.applications:
            answer = m.Subscribed(
                subscribe.number, m.Answer.REFUSED, code="no-token", sentence="no"
            )
        else:
            self.links[subscribe.container] = session
            others = [c for c in cluster.contacts if c is not self.contact]
            answer = m.Subscribed(
                subscribe.number,
                m.Answer.SERVING,
                cluster.applications[subscribe.application].step,
                public(self.key),
                self.secret(subscribe.container),
                self.pass_of(session, subscribe),
                (self.contact, *others),
            )
        session.send(answer)
        if answer.answer == m.Answer.SERVING and self.repairing:
            self._bring(session, subscribe.application, subscribe.step)

    def _bring(self, session: Session, application: str, after: int) -> None:
        known = self.cluster.applications[application]
        if known.step > after:
            session.link.send(m.deliver(b"", known.burst(self.key, after)), Plane.DATA)

    def on_repair(self, session: Session, repair: m.Repair) -> None:
        self.repairs.append(repair)
        if self.repairing:
            self._bring(session, repair.application, repair.step)

    def on_renew(self, session: Session, renew: m.Renew) -> None:
        self.heard.append(renew)
        if self.answers_renewals:
            known = self.cluster.applications
            feeds = tuple((a, i, known[a].step) for a, i, _ in renew.feeds)
            session.send(m.Renewed(feeds))

    def on_receipt(self, session: Session, receipt: m.Receipt) -> None:
        self.receipts.append(receipt)

    def on_other(self, session: Session, message: object) -> None:
        self.heard.append(message)

    def on_execute(self, session: Session, execute: Execute) -> None:
        """Reads of long values."""
        self.executed.append(execute)
        if self.reads_open is not None:
            self.reads_open.append((session, execute))
            return
        request = ops.decode(execute.body)
        if request.name == self.unknown:
            session.send(Executed(execute.number, Status.REFUSED, b"not kept", self.contact))
            return
        _, _, content = self.cluster.applications[request.application].heads[request.name]
        if isinstance(request, ops.GetLeaves):
            chunks = [tuple(chunk) for chunk in content.chunk_ids()][request.start :]
            page = ops.LeafPage(tuple(chunks[:3]), len(chunks) > 3)
            body = ops._encode(page)
        else:
            body = content.read(request.offset, request.length)
        session.send(Executed(execute.number, Status.DONE, body, self.contact))

    # What tests do.

    def answer_reads(self) -> None:
        """Those that were held back; what comes next is held back too."""
        reads, self.reads_open = self.reads_open or [], None
        for session, execute in reads:
            self.on_execute(session, execute)
        self.reads_open = []

    def deliver(self, container: str, data: bytes, digest: bytes = b"", asks: bool = True) -> bytes:
        """Send a burst; its id."""
        self.links[container].link.send(m.deliver(digest, data, asks=asks), Plane.DATA)
        return burst_id(data)

    def send(self, container: str, message: object) -> None:
        self.links[container].send(message)

    def of(self, burst: bytes) -> list[m.Receipt]:
        return [receipt for receipt in self.receipts if receipt.burst == burst]

    # The world's side.

    def admit(self, contact: Contact) -> Refused | None:
        return None

    def on_open(self, session: Session) -> None: ...

    def on_closed(self, session: Session, reason: str) -> None:
        self.links = {name: s for name, s in self.links.items() if s is not session}

    def on_link_up(self, link: Link) -> None:
        self.sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self.sessions.on_frame(link, frame)

    def stop(self) -> None:
        self.sessions.close_all("stopped")
