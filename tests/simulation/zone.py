"""A zone for membership tests: `Members` on a clique of simulated links, and its checker.

The address book stands for the directory: who is in it is dialled, whatever the view says, so
that a healed partition finds itself again. The member with the lower id dials.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from swell.events import Event, MemberAlive, MemberDead, MemberSuspected
from swell.overlay.contact import Contact
from swell.overlay.members import Members
from swell.settings import MembershipSettings
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.wire import codec
from swell.world import Link, Timer, World

HELLO = 250
REDIAL_S = 1.0


class ZoneNode:
    """One member: links with a hello that names it, and the protocol under test."""

    def __init__(self, world: World, zone: Zone, me: Contact) -> None:
        self.world = world
        self.zone = zone
        self.me = me
        self.links: dict[int, Link] = {}
        self.dialing: dict[int, Link] = {}
        self.frames: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.attributes: dict[tuple[int, str], bytes] = {}
        self.rtts: dict[int, float] = {}
        self.timer: Timer | None = None
        self.members = Members(world, zone.settings, me, self, self, self.counters, bugs=zone.bugs)
        world.call_later(0.0, self.begin)

    def begin(self) -> None:
        self.members.start([c for c in self.zone.book.values() if c.id != self.me.id])
        self.redial()

    def redial(self) -> None:
        for contact in sorted(self.zone.book.values(), key=lambda contact: contact.id):
            self.dial(contact)
        self.timer = self.world.call_later(REDIAL_S * (0.5 + self.world.rng.random()), self.redial)

    def dial(self, contact: Contact) -> None:
        busy = contact.id in self.links or contact.id in self.dialing
        if contact.id > self.me.id and not busy:
            self.dialing[contact.id] = self.world.dial(contact.address, contact.name)

    # The world.

    def on_link_up(self, link: Link) -> None:
        link.send(codec.frame(HELLO, b"%d" % self.me.id))

    def on_link_down(self, link: Link, reason: str) -> None:
        self.forget(link)
        member = link.session
        if member is not None and self.links.get(member) is link:
            del self.links[member]
            self.members.on_link_down(member)

    def forget(self, link: Link) -> None:
        for member, dialing in list(self.dialing.items()):
            if dialing is link:
                del self.dialing[member]

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        if link.session is not None:
            self.members.on_message(link.session, codec.decode(frame))
            return
        member = int(frame[codec.HEADER_BYTES :])
        self.forget(link)
        link.session = member
        former = self.links.get(member)
        self.links[member] = link
        if former is not None:
            former.close()
        self.members.on_link_up(member)

    def stop(self) -> None:
        self.members.stop()

    # Members.

    def send(self, member: int, frame: bytes) -> bool:
        link = self.links.get(member)
        sent = link is not None and link.send(frame)
        if sent:
            self.frames[str(frame[codec.TYPE_OFFSET])] += 1
        return sent

    def on_member_alive(self, member: Contact) -> None:
        assert self.members.get(member.id) == member
        self.dial(member)

    def on_member_dead(self, member: Contact, left: bool) -> None:
        assert not self.members.is_alive(member.id)
        link = self.links.pop(member.id, None)
        if link is not None:
            link.close()

    def on_attribute(self, member: int, key: str, value: bytes) -> None:
        self.attributes[member, key] = value

    def on_rtt(self, member: int, coordinate: Any, rtt_s: float) -> None:
        self.rtts[member] = rtt_s


class Zone:
    """Processes 1 … n of one site, and what they said about each other."""

    def __init__(
        self,
        seed: int,
        size: int,
        settings: MembershipSettings | None = None,
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.simulation = Simulation(seed)
        self.settings = settings or MembershipSettings()
        self.bugs = bugs
        self.size = size
        self.book: dict[int, Contact] = {}
        self.events: list[tuple[float, int, Event]] = []
        self.counts: Counter[str] = Counter()
        self.simulation.on_event(self._on_event)
        for number in range(1, size + 1):
            self.join(number)

    def _on_event(self, time_s: float, name: str, event: Event) -> None:
        if isinstance(event, MemberAlive | MemberSuspected | MemberDead):
            self.events.append((time_s, int(name[1:]), event))
            self.counts[type(event).__name__] += 1

    def contact(self, number: int, epoch: int) -> Contact:
        return Contact(number, f"n{number}", "here", "r1", 7, f"n{number}", 0, epoch)

    def join(self, number: int) -> None:
        def factory(world: World) -> ZoneNode:
            process = self.process(number)
            me = self.book[number] = self.contact(number, process.starts)
            return ZoneNode(world, self, me)

        self.simulation.add(f"n{number}", "here", factory).start()

    def process(self, number: int) -> Process:
        return self.simulation.processes[f"n{number}"]

    def node(self, number: int) -> ZoneNode:
        node = self.process(number).node
        assert isinstance(node, ZoneNode)
        return node

    def leave(self, number: int) -> None:
        self.book.pop(number, None)
        self.process(number).stop()

    def running(self) -> list[int]:
        return [n for n in (int(name[1:]) for name in self.simulation.processes)
                if self.process(n).alive]  # fmt: skip

    def agrees(self) -> bool:
        """Every running member sees exactly the running members, in their present lives."""
        running = self.running()
        lives = [(number, self.process(number).starts) for number in running]
        return all(
            [(c.id, c.epoch) for c in self.node(number).members.alive()] == lives
            for number in running
        )

    def converges(self, within_s: float) -> bool:
        return self.simulation.run_until_true(self.agrees, within_s)

    def attributes_agree(self, key: str) -> bool:
        """Every member holds what each owner has set, and told its listener so."""
        running = self.running()
        truth = {n: self.node(n).members.attribute(n, key) for n in running}
        held = {n: value for n, value in truth.items() if value is not None}
        return all(
            self.node(n).members.attributes(key) == held
            and all(
                self.node(n).attributes.get((other, key), b"") == held.get(other, b"")
                for other in running
                if other != n
            )
            for n in running
        )
