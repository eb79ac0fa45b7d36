"""Members: who of our zone is alive, and what each publishes about itself.

SWIM with Lifeguard's refinements over the links of the clique; docs/protocols/membership.md has
messages, states and invariants. This module decides what news mean; asking (`probing`), doubting
(`suspicion`), passing on (`gossip`) and the values (`attributes`) are its parts. SpiderCast's
base zones: a full view and an attribute service (requirement SPI-1).

Invariants: the view changes by news that are greater in (epoch, incarnation, state) only; the
listener is called after the view has changed; nothing of a former member is left once it has
lingered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from swell.events import MemberAlive, MemberDead, MemberSuspected
from swell.events.records import CrashFound
from swell.overlay.attributes import Attributes
from swell.overlay.awareness import Awareness
from swell.overlay.contact import Contact
from swell.overlay.coordinates import Coordinate
from swell.overlay.gossip import Carrier, Gossiping
from swell.overlay.membership_messages import (
    Ack,
    AttributeRumour,
    Digest,
    Gossip,
    MemberRumour,
    Nack,
    Ping,
    PingRequest,
    PushPull,
    Rumours,
    State,
)
from swell.overlay.probing import Probing
from swell.overlay.push_pull import Exchange
from swell.overlay.roster import MEMBERS_MAX, Record, Roster, supersedes
from swell.overlay.suspicion import Suspicions
from swell.settings import MembershipSettings
from swell.wire import codec
from swell.world import Timer, World

GRAVE_FACTOR = 10
"""The number of a forgotten life is kept this many linger times, against news from processes
that slept through the death."""

NO_REFUTATION = "no-refutation"
"""Planted bug: a node that hears itself suspected says nothing."""


class MembersListener(Protocol):
    def on_member_alive(self, member: Contact) -> None:
        """New, back from the dead, or a new epoch of a known one."""
        ...

    def on_member_dead(self, member: Contact, left: bool) -> None: ...

    def on_attribute(self, member: int, key: str, value: bytes) -> None:
        """Another member's attribute changed; an empty value means that it was removed."""
        ...

    def on_rtt(self, member: int, coordinate: Coordinate | None, rtt_s: float) -> None:
        """A direct probe was answered, with the member's coordinate."""
        ...


class Members:
    """The membership protocol of one node."""

    MESSAGES: tuple[type, ...] = (Ping, Ack, PingRequest, Nack, Gossip, PushPull)

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        me: Contact,
        carrier: Carrier,
        listener: MembersListener,
        counters: Counter[str],
        coordinate: Callable[[], Coordinate | None] = lambda: None,
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.me = me
        self._world = world
        self._settings = settings
        self._carrier = carrier
        self._listener = listener
        self._counters = counters
        self._coordinate = coordinate
        self._refutes = NO_REFUTATION not in bugs
        self._running = False
        self._grave_timer: Timer | None = None
        self._linked: dict[int, int] = {}
        self.awareness = Awareness(settings.awareness_max, settings.lag_tolerance_s)
        self._roster = Roster(me)
        self._attributes = Attributes(me.id, me.epoch, counters)
        self._gossip = Gossiping(world, settings, self._roster, carrier, counters)
        self._probing = Probing(world, settings, self.awareness, self._roster, self, counters)
        self._suspicions = Suspicions(
            world, settings, self.awareness, self._probing.probe, self._condemn
        )
        self._exchange = Exchange(
            world, settings, self._roster, self._attributes, self._gossip, self
        )
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            Ping: self._on_ping,
            Ack: self._on_ack,
            PingRequest: self._probing.on_ping_request,
            Nack: self._probing.on_nack,
            Gossip: self._on_gossip,
            PushPull: self._exchange.on_push_pull,
        }

    # What the node sees.

    def alive(self) -> tuple[Contact, ...]:
        """The living members, the suspect and ourselves included, sorted by id."""
        return self._roster.contacts()

    def get(self, member: int) -> Contact | None:
        """Contact of a living member."""
        record = self._roster.get(member)
        return record.contact if record is not None and record.state <= State.SUSPECT else None

    def states(self) -> list[tuple[Contact, State]]:
        """Every record, the lingering dead included, sorted by id."""
        records = sorted(self._roster.records.items())
        return [(record.contact, record.state) for _, record in records]

    def is_alive(self, member: int) -> bool:
        return self._roster.is_living(member)

    @property
    def size(self) -> int:
        return len(self._roster.living)

    def set_attribute(self, key: str, value: bytes, urgent: bool = False) -> None:
        """Publish a value about ourselves, or remove it (empty). `urgent` sends it to every
        member at once instead of leaving it to gossip alone."""
        rumour = self._attributes.set_mine(key, value)
        if rumour is None or not self._running:
            return
        if urgent or 2 * len(value) >= self._settings.frame_bytes_max:
            self._gossip.send_to_all(Rumours(attributes=(rumour,)))
        self._gossip.spread_attribute(rumour)

    def attribute(self, member: int, key: str) -> bytes | None:
        return self._attributes.get(member, key) if self.is_alive(member) else None

    def attributes(self, key: str) -> dict[int, bytes]:
        """The values of all living members that have one, sorted by id."""
        values = ((member, self._attributes.get(member, key)) for member in self._roster.living)
        return {member: value for member, value in values if value is not None}

    def sizes(self) -> dict[str, int]:
        """Entries of every internal table."""
        return {
            "records": len(self._roster.records),
            "living": len(self._roster.living),
            "peers": len(self._roster.peers),
            "linked": len(self._linked),
            "graves": len(self._roster.graves),
            "sheets": self._attributes.sheets,
            "attributes": len(self._attributes),
            "rumours": len(self._gossip),
            "suspicions": len(self._suspicions),
            **self._probing.sizes(),
        }

    # What the node does.

    def start(self, known: Iterable[Contact]) -> None:
        """Take part, with the members that the directory named."""
        assert not self._running, "members start once"
        self._running = True
        for contact in sorted(known, key=lambda contact: contact.id):
            if contact.id != self.me.id and contact.zone == self.me.zone:
                rumour = MemberRumour(contact, 0, State.ALIVE, contact.id)
                self._hear(rumour, contact.id, spread=False)
        self._gossip.spread_member(self._roster.records[self.me.id].rumour())
        self._probing.start()
        self._exchange.start()

    def stop(self) -> None:
        """Say goodbye to everybody and fall silent."""
        if not self._running:
            return
        self._running = False
        incarnation = self._roster.records[self.me.id].incarnation + 1
        goodbye = MemberRumour(self.me, incarnation, State.LEFT, self.me.id)
        self._gossip.send_to_all(Rumours((goodbye,)))
        self._gossip.stop()
        self._exchange.stop()
        self._probing.stop()
        self._suspicions.stop()
        lingers = [record.linger for record in self._roster.records.values()]
        for timer in (self._grave_timer, *lingers):
            if timer is not None:
                timer.cancel()

    def on_link_up(self, member: int, epoch: int = 0) -> None:
        """The link is proof of life: nothing bad is passed on, and views are exchanged, by which
        the member also hears what it has to refute. While it lasts, no hearsay about a later
        life (`epoch`) of the member counts: it would have dialled anew."""
        if epoch:
            self._linked[member] = epoch
        if not self._running:
            return
        record = self._roster.get(member)
        if record is not None and record.state is not State.ALIVE:
            self._gossip.withdraw(member)
        if self.me.id < member:
            self._exchange.begin(member)

    def on_link_down(self, member: int) -> None:
        """Perhaps it died: ask at once."""
        self._linked.pop(member, None)
        if self._running and self._roster.is_living(member):
            self._probing.probe(member)

    def on_message(self, sender: int, message: Any) -> None:
        """A message of one of the classes in `MESSAGES`, from a peer that the link names."""
        if self._running and sender != self.me.id:
            self._handlers[type(message)](sender, message)

    # Probes.

    def ping(self, member: int, sequence: int) -> bool:
        rumours, entries = self._gossip.piggyback(member)
        sent = self._carrier.send(member, codec.encode(Ping(sequence, rumours)))
        if sent:
            self._gossip.passed_on(entries, member)
        return sent

    def send(self, member: int, frame: bytes) -> bool:
        return self._carrier.send(member, frame)

    def on_silent(self, member: int) -> None:
        record = self._roster.get(member)
        if record is not None and record.state <= State.SUSPECT:
            doubt = MemberRumour(record.contact, record.incarnation, State.SUSPECT, self.me.id)
            self._hear(doubt, self.me.id)

    def on_round_trip(self, member: int, coordinate: Coordinate | None, rtt_s: float) -> None:
        self._listener.on_rtt(member, coordinate, rtt_s)

    def _on_ping(self, sender: int, ping: Ping) -> None:
        self._hear_all(ping.rumours, sender)
        rumours, entries = self._gossip.piggyback(sender)
        ack = Ack(ping.sequence, self._coordinate(), rumours)
        if self._carrier.send(sender, codec.encode(ack)):
            self._gossip.passed_on(entries, sender)
        if self._roster.get(sender) is None:
            # We have forgotten it, it has not forgotten us.
            self._exchange.begin(sender)

    def _on_ack(self, sender: int, ack: Ack) -> None:
        self._probing.on_ack(sender, ack)
        self._hear_all(ack.rumours, sender)

    # Rumours.

    def _on_gossip(self, sender: int, gossip: Gossip) -> None:
        self._hear_all(gossip.rumours, sender)

    def _hear_all(self, rumours: Rumours, sender: int) -> None:
        for rumour in rumours.members:
            self.hear(sender, rumour)
        for attribute in rumours.attributes:
            self._hear_attribute(attribute, sender)
            self._gossip.echo_attribute(attribute, sender)

    def hear(self, sender: int, rumour: MemberRumour) -> None:
        self._hear(rumour, sender)
        self._gossip.echo_member(rumour, sender)

    def _hear(self, rumour: MemberRumour, sender: int, spread: bool = True) -> None:
        contact = rumour.contact
        if contact.id == self.me.id:
            self._hear_of_me(rumour)
            return
        if sender != contact.id and contact.epoch > self._linked.get(contact.id, contact.epoch):
            self._counters["rumour-contradicted"] += 1
            return
        state = rumour.state if contact.zone == self.me.zone else State.LEFT
        record = self._roster.get(contact.id)
        if record is None:
            if state >= State.DEAD:
                self._counters["rumour-unknown-dead"] += 1
            elif sender != contact.id and self._roster.is_buried(rumour):
                self._counters["rumour-buried"] += 1
                self._dispute(rumour, sender)
            elif self._make_room():
                self._adopt(None, rumour, state, spread)
        elif supersedes(rumour, state, record):
            self._adopt(record, rumour, state, spread)
        elif state is State.SUSPECT is record.state:
            same = (record.contact.epoch, record.incarnation)
            if same == (contact.epoch, rumour.incarnation) and self._suspicions.confirm(
                contact.id, rumour.origin
            ):
                self._gossip.spread_member(rumour)

    def _dispute(self, rumour: MemberRumour, sender: int) -> None:
        """The sender holds a life for lasting that we have buried. One of us is wrong, and only
        the member can tell: let the sender doubt it, so that it is asked."""
        incarnation = self._roster.graves[rumour.contact.id][1]
        doubt = MemberRumour(
            rumour.contact, max(incarnation, rumour.incarnation), State.SUSPECT, self.me.id
        )
        self._gossip.send_to(sender, Rumours((doubt,)))

    def _hear_of_me(self, rumour: MemberRumour) -> None:
        """Refute what is wrong: whoever is told that it is dead is not."""
        mine = self._roster.records[self.me.id]
        if rumour.contact.epoch != self.me.epoch:
            if rumour.contact.epoch > self.me.epoch:
                self._counters["rumour-later-self"] += 1
            return
        if (rumour.incarnation, rumour.state) <= (mine.incarnation, State.ALIVE):
            return
        if not self._refutes:
            return
        mine.incarnation = rumour.incarnation + 1
        self.awareness.note(1)
        self._counters["refutations"] += 1
        self._gossip.send_to_all(Rumours((mine.rumour(),)))
        self._gossip.spread_member(mine.rumour())

    def _make_room(self) -> bool:
        if len(self._roster.records) < MEMBERS_MAX:
            return True
        dead = self._roster.oldest_dead()
        if dead is None:
            self._counters["members-full"] += 1
            return False
        self._forget(dead)
        return True

    def _adopt(
        self, record: Record | None, rumour: MemberRumour, state: State, spread: bool
    ) -> None:
        """Make news part of the view, and pass them on."""
        contact = rumour.contact
        before = record.state if record is not None else None
        new_life = record is None or contact.epoch > record.contact.epoch
        if record is None:
            record = Record(contact, rumour.incarnation, state, rumour.origin)
            self._roster.add(record)
        else:
            self._roster.update(record, rumour, state)
        if spread:
            self._gossip.spread_member(record.rumour())
        if new_life:
            for key in self._attributes.begin_life(contact.id, contact.epoch):
                self._listener.on_attribute(contact.id, key, b"")
        if state <= State.SUSPECT:
            self._admit(record, before, new_life)
        else:
            self._bury(record, before)

    def _admit(self, record: Record, before: State | None, new_life: bool) -> None:
        member = record.contact.id
        returned = before is None or before >= State.DEAD
        if record.linger is not None:
            record.linger.cancel()
            record.linger = None
        if returned:
            self._roster.enlist(member)
            self._probing.enlist(member)
        if record.state is State.ALIVE:
            self._suspicions.end(member)
        if new_life or before is None or record.state < before:
            self._world.emit(MemberAlive(member, record.contact.epoch))
        if record.state is State.SUSPECT:
            self._suspicions.begin(member, record.origin, self.size)
            self._world.emit(MemberSuspected(member, record.contact.epoch))
            self._gossip.send_to(member, Rumours((record.rumour(),)))
        if returned or new_life:
            self._listener.on_member_alive(record.contact)
            for key, value in self._attributes.values(member):
                self._listener.on_attribute(member, key, value)

    def _bury(self, record: Record, before: State | None) -> None:
        member = record.contact.id
        self._linked.pop(member, None)
        self._suspicions.end(member)
        self._probing.forget(member)
        if record.linger is None:
            record.linger = self._world.call_later(
                self._settings.dead_linger_s, lambda: self._forget(member)
            )
        if before is not None and before <= State.SUSPECT:
            left = record.state is State.LEFT
            self._roster.strike(member)
            self._world.emit(MemberDead(member, record.contact.epoch, left))
            if self._world.recording and not left:
                self._world.emit(CrashFound(record.contact.name, record.contact.epoch))
            self._listener.on_member_dead(record.contact, left)

    def _condemn(self, member: int) -> None:
        """The suspicion ran out."""
        record = self._roster.records[member]
        death = MemberRumour(record.contact, record.incarnation, State.DEAD, self.me.id)
        self._hear(death, self.me.id)

    def _forget(self, member: int) -> None:
        record = self._roster.records[member]
        if record.linger is not None:
            record.linger.cancel()
        self._roster.forget(member, self._world.now())
        self._attributes.forget(member)
        self._gossip.forget(member)
        if self._grave_timer is None:
            self._arm_graves()

    def _arm_graves(self) -> None:
        self._grave_timer = self._world.call_later(
            GRAVE_FACTOR * self._settings.dead_linger_s, self._expire_graves
        )

    def _expire_graves(self) -> None:
        self._grave_timer = None
        age_s = GRAVE_FACTOR * self._settings.dead_linger_s
        self._roster.level(self._world.now() - age_s)
        if self._roster.graves:
            self._arm_graves()

    def settle(self, digest: Digest) -> None:
        """The owner itself says which attributes it has."""
        if self.is_alive(digest.member):
            for key in self._attributes.settle(digest):
                self._listener.on_attribute(digest.member, key, b"")

    def _hear_attribute(self, rumour: AttributeRumour, sender: int) -> None:
        before = self._attributes.get(rumour.member, rumour.key)
        if not self._attributes.hear(rumour, sender):
            return
        self._gossip.spread_attribute(rumour)
        if (before or b"") != rumour.value and self.is_alive(rumour.member):
            self._listener.on_attribute(rumour.member, rumour.key, rumour.value)
