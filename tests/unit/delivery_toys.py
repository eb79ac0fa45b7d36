"""One primary with its delivery, and containers that relay, answer, lie or sleep as a test wants.

Toy relays hand a burst to those on their lists without links of their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from swell.access.grants import EVERYTHING
from swell.config import reports
from swell.config.bursts import Burst, open_burst
from swell.config.delivery.delivery import Delivery
from swell.config.delivery.feeds import Feed
from swell.config.delivery.rosters import Tell
from swell.config.delivery.subscribers import Member
from swell.config.edits import Whole
from swell.config.machine import ConfigMachine
from swell.config.messages import (
    DELIVER,
    Answer,
    DestinationList,
    Itemize,
    Items,
    Level,
    Lists,
    Receipt,
    Renew,
    Renewed,
    Subscribe,
    Subscribed,
    interest_digest,
    read_deliver,
)
from swell.config.names import place
from swell.config.operations import CONFIG_SERVICE
from swell.config.proofs import combined, proof
from swell.overlay.contact import Contact
from swell.overlay.messages import Hello, LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.settings import ConfigSettings
from swell.simulation.simulation import Simulation
from swell.store.messages import Execute, Read, Status
from swell.store.state import Machine
from swell.wire import codec
from swell.wire.codec import TYPE_OFFSET
from swell.world import Address, Link, World
from tests.unit.config_toys import APPLICATION, publish

CLUSTER = "toy"
SLOTS = 4
ME = Contact(1, "n1", "a", "", 1, "n1", 0, 1)
OTHER = Contact(2, "n2", "a", "", 1, "n2", 0, 1)
SLOT = place(APPLICATION) % SLOTS


class ToyStore:
    """One slot is served, or another node does it."""

    def __init__(self) -> None:
        self.me = ME.id
        self.machine = ConfigMachine()
        self.serving = True
        self.slots = SLOTS

    def served(self, slot: int, service: int) -> Machine | None:
        here = self.serving and slot == SLOT and service == CONFIG_SERVICE
        return self.machine if here else None

    def epoch(self, slot: int) -> int:
        return 1

    def primary(self, slot: int) -> Contact:
        return ME if self.serving else OTHER

    def members(self, slot: int) -> list[Contact]:
        return [ME, OTHER] if self.serving else [OTHER, ME]


class ToyPrimary:
    """The node: delivery and the sessions of its clients."""

    def __init__(
        self,
        world: World,
        store: ToyStore,
        settings: ConfigSettings,
        bugs: tuple[str, ...],
        tell: Tell | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.sessions = Sessions(world, CLUSTER, lambda: ME, lambda: 0, self.counters)
        self.sessions.accept(LinkKind.CLIENT, self)
        self.sessions.access_of = lambda session: EVERYTHING
        planted = frozenset(bugs)
        self.delivery = Delivery(
            world, self.sessions, store, settings, CLUSTER, self.counters, planted, tell
        )

    def admit(self, contact: Contact) -> Refused | None:
        return None

    def on_open(self, session: Session) -> None: ...

    def on_closed(self, session: Session, reason: str) -> None:
        self.delivery.on_closed(session)

    def on_link_up(self, link: Link) -> None:
        self.sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None:
        self.delivery.on_writable(link)

    def on_frame(self, link: Link, frame: bytes) -> None:
        self.sessions.on_frame(link, frame)

    def stop(self) -> None: ...


class ToyContainer:
    """Takes bursts on its own link or from a toy relay. Moods: `mute` takes nothing, `asleep`
    relays nothing and says nothing, `liar` says that all have it and gives it to nobody, also when
    it is asked for each proof, `mum` does not answer that; `late` delivers without applying, `cut`
    are names that it cannot reach as a relay, `two_faced` gives its relays wrong proofs, `frames`
    says so of another; `selfish` speaks for itself alone and relays nothing; `slow_s` is how long
    it does nothing about a burst."""

    def __init__(self, fleet: ToyFleet, name: str, world: World, **about: Any) -> None:
        self.fleet = fleet
        self.name = name
        self.world = world
        self.about = {"site": "a", "host": name, "owner": APPLICATION, "willing": True} | about
        self.mute = self.asleep = self.liar = self.late = False
        self.two_faced = self.selfish = self.mum = False
        self.frames = ""
        self.slow_s = self.told_wait_s = 0.0
        self.cut: tuple[str, ...] = ()
        self.at = 0
        self.taken: list[tuple[int, int]] = []
        """(after, upto) of every burst that was applied."""
        self.secret = self.key = b""
        self.lists: dict[bytes, DestinationList] = {}
        self.items: dict[tuple[bytes, bytes], list[tuple[int, bytes]]] = {}
        """By burst and list, what each place has given."""
        self.heard: list[Any] = []
        self.relayed = 0
        self.score = 0.0
        self.link: Link

    def dial(self) -> None:
        self.link = self.world.dial(Address("n1", 0))

    def say(self, message: Any) -> None:
        self.link.send(codec.encode(message))

    def subscribe(self, interest: tuple[str, ...] = (), number: int = 1, **more: Any) -> None:
        about = self.about | more
        self.say(
            Subscribe(
                number,
                about.get("application", APPLICATION),
                interest,
                about.get("step", self.at),
                about.get("container", self.name),
                about["owner"],
                about["site"],
                about["host"],
                0,
                about["willing"],
                about.get("applied", 0),
                about.get("complete_at", 0),
            )
        )

    def renew(self, interest: tuple[str, ...] = ()) -> None:
        self.say(Renew(((APPLICATION, interest_digest(interest), self.at),)))

    def take(self, burst: Burst) -> bytes:
        """Its proof; nothing if it did not take it."""
        if self.mute:
            return b""
        if burst.upto > self.at:
            assert burst.after <= self.at, (self.name, burst.after, burst.upto, self.at)
            self.taken.append((burst.after, burst.upto))
            self.at = burst.upto
        return proof(self.secret, burst.id, self.level)

    @property
    def level(self) -> int:
        return Level.DELIVERED if self.late else Level.APPLIED

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        contact = Contact(0, self.name, "a", "", 0, "", 0, 0)
        link.send(codec.encode(Hello(CLUSTER, LinkKind.CLIENT, contact)))

    def on_link_down(self, link: Link, reason: str) -> None:
        self.heard.append(reason)

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        if frame[TYPE_OFFSET] == DELIVER:
            if self.slow_s:
                self.world.call_later(self.slow_s, lambda: self._on_deliver(frame))
            elif not self.asleep:
                self._on_deliver(frame)
            return
        message = codec.decode(frame)
        self.heard.append(message)
        if isinstance(message, Subscribed) and message.answer == Answer.SERVING:
            self.key, self.secret = message.key, message.secret
        elif isinstance(message, Itemize) and not self.mum:
            items = tuple(self.items[message.burst, message.list])
            self.say(Items(message.burst, message.list, items))
        elif isinstance(message, Lists):
            self.lists |= {one.digest(): one for one in message.lists}

    def stop(self) -> None: ...

    def _on_deliver(self, frame: bytes) -> None:
        digest, data, self.told_wait_s, asks = read_deliver(frame)
        burst = open_burst(data, CLUSTER, self.key)
        own = self.take(burst)
        if not own:
            return
        if not asks:
            self._pass_on_all(digest, burst, own)
            self.relayed += bool(digest)
            return
        if self.selfish and digest:
            self.say(Receipt(burst.id, self.level, own, digest, (), (0,)))
            return
        items = self._pass_on_all(digest, burst, own)
        proofs = [given for level, given in items if level]
        missing = [place_ for place_, (level, _) in enumerate(items) if not level]
        if self.liar:
            missing = []
            self.items[burst.id, digest] = [(self.level, bytes(16))] * len(items)
        self.relayed += bool(digest)
        scores = ((0, self.score),) if self.score else ()
        total = combined(proofs)
        self.say(Receipt(burst.id, self.level, total, digest, tuple(missing), (), scores))

    def _pass_on_all(self, digest: bytes, burst: Burst, own: bytes) -> list[tuple[int, bytes]]:
        items = [(self.level, own)]
        for entry in self.lists[digest].entries if digest else ():
            cut = self.liar or entry.container in self.cut
            given = b"" if cut else self._pass_on(entry, burst)
            if entry.container == self.frames:
                given = bytes(16)
            items.append((self.level if given else 0, given))
        self.items[burst.id, digest] = items
        return items

    def _pass_on(self, entry: Any, burst: Burst) -> bytes:
        child = self.fleet.containers[entry.container]
        own = child.take(burst)
        if own and child.two_faced:
            own = bytes(16)
        if not own or not entry.below:
            return own
        child.lists[entry.below] = self.lists[entry.below]
        return combined(given for _, given in child._pass_on_all(entry.below, burst, own) if given)

    # What the last answer was.

    @property
    def subscribed(self) -> Subscribed:
        return next(m for m in reversed(self.heard) if isinstance(m, Subscribed))

    @property
    def renewed(self) -> Renewed:
        return next(m for m in reversed(self.heard) if isinstance(m, Renewed))


class ToyFleet:
    """The primary and its containers."""

    def __init__(
        self, bugs: tuple[str, ...] = (), tell: Tell | None = None, **settings: Any
    ) -> None:
        self.simulation = Simulation(1)
        self.store = ToyStore()
        self.settings = ConfigSettings(**settings)
        self.containers: dict[str, ToyContainer] = {}
        self.primary: ToyPrimary

        def factory(world: World) -> ToyPrimary:
            self.primary = ToyPrimary(world, self.store, self.settings, bugs, tell)
            return self.primary

        self.simulation.add("n1", "a", factory).start()
        self.run(0.001)

    @property
    def delivery(self) -> Delivery:
        return self.primary.delivery

    @property
    def counters(self) -> Counter[str]:
        return self.primary.counters

    def run(self, duration_s: float) -> None:
        self.simulation.run_for(duration_s)

    def add(self, *names: str, subscribe: bool = True, **about: Any) -> list[ToyContainer]:
        """Containers that are connected and, unless told otherwise, subscribed to everything."""
        made = []
        for name in names:

            def factory(world: World, name: str = name) -> ToyContainer:
                self.containers[name] = ToyContainer(self, name, world, **about)
                return self.containers[name]

            self.simulation.add(name, "a", factory).start()
        self.run(0.001)
        for name in names:
            self.containers[name].dial()
            made.append(self.containers[name])
        self.run(0.1)
        if subscribe:
            for container in made:
                container.subscribe()
            self.run(0.2)
        return made

    def build(self, size: int, **about: Any) -> list[ToyContainer]:
        """Containers `c000`, `c001`, ... that have the first step and a tree."""
        made = self.add(*(f"c{number:03}" for number in range(size)), **about)
        self.put("a.json", b"0")
        self.run(0.5)
        for one in made:
            one.renew()
        self.put("a.json", b"1")
        self.run(0.5)
        return made

    def put(self, name: str, data: bytes) -> int:
        """Commit a change; the step."""
        step = publish(self.store.machine, Whole(name, data)).step
        self.delivery.on_committed(SLOT)
        return step

    @property
    def step(self) -> int:
        return self.delivery.feeds.step_of(SLOT, APPLICATION)

    def feed(self, interest: tuple[str, ...] = ()) -> Feed:
        feed = self.delivery.feeds.get(APPLICATION, interest_digest(interest))
        assert feed is not None
        return feed

    def member(self, name: str) -> Member:
        (member,) = [m for m in self.feed().members.values() if m.name == name]
        return member

    def relays(self) -> list[str]:
        """Who relays at present."""
        groups = self.feed().groups.values()
        return [b.relay.name for g in groups for b in g.branches() if b.digest]

    def behind(self) -> list[str]:
        return [name for name, one in self.containers.items() if one.at < self.step]

    def ask(self, question: reports.Question, deadline_s: float = 5.0) -> list[Any]:
        """Ask; the list gets the answer, or the status if there is none."""
        got: list[Any] = []

        def done(status: Status, body: bytes) -> None:
            if status is not Status.DONE:
                got.append(status)
            elif isinstance(question, reports.Await):
                got.append(reports.awaited_of(body))
            else:
                got.append(reports.status_of(body))

        body = reports.encode(question)
        request = Execute(
            0, 1, 0, SLOT, reports.REPORT_SERVICE, Read.LINEARIZABLE, body, deadline_s
        )
        self.delivery.execute(request, done)
        return got

    def status(self, name: str = "") -> dict[str, reports.StatusRow]:
        (report,) = self.ask(reports.StatusOf(APPLICATION, name))
        return {row.container: row for row in report.rows}
