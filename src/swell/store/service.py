"""The store of one node: its slots, and how they are reached.

Wires the parts together, hands messages to them, and gives each slot the role that its record says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from swell.directory.registry import RegistryAccess
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.settings import StoreSettings
from swell.store.candidate import Candidate
from swell.store.copying import Copying
from swell.store.leases import Leases
from swell.store.listener import Listener, Nobody
from swell.store.member import MemberSide
from swell.store.messages import (
    Adopt,
    Adopted,
    Beat,
    Beaten,
    Copied,
    Copy,
    Execute,
    Prepare,
    Prepared,
    Pull,
    Pulled,
    Read,
    Status,
)
from swell.store.peers import Peers
from swell.store.primary import Done, Primary
from swell.store.proposals import Proposals
from swell.store.record import Record
from swell.store.replica import Replica
from swell.store.replicator import Replicator
from swell.store.roles import Roles
from swell.store.snapshots import SlotImage
from swell.store.state import Machine, SlotState
from swell.store.storage import Restored, Storage
from swell.store.table import Table
from swell.store.turns import Turns
from swell.store.upkeep import Upkeep
from swell.wire import codec
from swell.world import Plane, World

_STALE = int(Read.STALE)


class Store:
    """One node's part of the replicated store."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        registry: RegistryAccess,
        settings: StoreSettings,
        services: Mapping[int, Callable[[], Machine]],
        start: int,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.world = world
        self.sessions = sessions
        self.registry = registry
        self.settings = settings
        self.counters = counters
        self.bugs = bugs
        self.listener: Listener = Nobody()
        self.me = 0
        self.ready = False
        self.stopped = False
        self.replicas: dict[int, Replica] = {}
        self.reading: dict[Primary, None] = {}
        """Where reads wait for leases."""
        self.services = dict(services)
        """Service → what makes its machine for a slot."""
        self.turns = Turns(self)
        self.roles = Roles(self)
        self.table = Table(self._on_record, counters)
        self.storage = Storage(
            world,
            start,
            self._dump,
            counters,
            settings.journal_bytes_max,
            trust_unrotten=settings.replicas == 1,
            bugs=bugs,
            scrub_interval_s=settings.scrub_interval_s,
        )
        self.peers = Peers(self)
        self.leases = Leases(self)
        self.member = MemberSide(self)
        self.copying = Copying(self)
        self.proposals = Proposals(self)
        self.upkeep = Upkeep(self)
        self._handle_messages()

    def _handle_messages(self) -> None:
        kinds = (LinkKind.STORE,)
        handle = self.sessions.handle
        handle(Adopt, self.member.on_adopt, kinds)
        handle(Adopted, self._on_adopted, kinds)
        handle(Prepare, self.member.on_prepare, kinds)
        handle(Prepared, self._on_prepared, kinds)
        handle(Pull, self.member.on_pull, kinds)
        handle(Pulled, self._on_pulled, kinds)
        handle(Copy, self.copying.on_copy, kinds)
        handle(Copied, self.copying.on_copied, kinds)
        handle(Beat, self.member.on_beat, kinds)
        handle(Beaten, self.leases.on_beaten, kinds)

    # Life.

    def start(self) -> None:
        """Read what is on the disk."""
        self.storage.open(self._on_restored)

    def _on_restored(self, restored: Restored) -> None:
        for slot, image in restored.slots.items():
            replica = self.replica(slot)
            replica.load(image)
        if not restored.clean:
            self.counters["store-unclean"] += 1
        self.ready = True
        self._begin()

    def join(self, node: int) -> None:
        """The directory has given this node its id; a node that moves keeps it."""
        first = not self.me
        self.me = node
        if first:
            self._begin()

    def _begin(self) -> None:
        if self.ready and self.me and self.settings.slots:
            self.registry.watch("plan", self.table.on_plan)
            self.registry.watch("slots/", self.table.on_slots)
            self.upkeep.start()

    def stop(self) -> None:
        self.stopped = True
        for replica in self.replicas.values():
            self.roles.step_down(replica)

    # For its users.

    @property
    def slots(self) -> int:
        return self.table.slots

    @property
    def min_replicas(self) -> int:
        plan = self.table.plan
        return plan.min_replicas if plan is not None else self.settings.min_replicas

    def primary(self, slot: int) -> Contact | None:
        """Who serves a slot, as far as is known here."""
        record = self.table.record(slot)
        return self.table.contact(record.primary) if record is not None else None

    def primaries(self) -> Sequence[int]:
        return self.table.primaries()

    def contacts(self) -> Sequence[Contact]:
        return self.table.contacts()

    def served(self, slot: int, service: int) -> Machine | None:
        """The machine of a slot that this node is primary of."""
        replica = self.replicas.get(slot)
        if replica is None or replica.primary is None:
            return None
        return replica.state.machine(service)

    def epoch(self, slot: int) -> int:
        """The epoch in which this node serves a slot; 0 if it does not."""
        replica = self.replicas.get(slot)
        return replica.primary.record.epoch if replica is not None and replica.primary else 0

    def members(self, slot: int) -> list[Contact]:
        """Who keeps a slot, the primary first, as far as is known here."""
        record = self.table.record(slot)
        if record is None:
            return []
        nodes = [record.primary, *(node for node in record.nodes if node != record.primary)]
        contacts = [self.table.contact(node) for node in nodes]
        return [contact for contact in contacts if contact is not None]

    def is_known(self, slot: int, session: int, number: int) -> bool:
        """Whether a command has been seen: it is under way or was executed."""
        replica = self.replicas.get(slot)
        if replica is None or replica.primary is None:
            return False
        return replica.primary.is_open(session, number) or replica.state.is_known(session, number)

    def statistics(self) -> dict[str, int]:
        """`slots` of the cluster; those that are served, as far as is known here; those this node
        is primary of, those it is a member of; the start at which its data began."""
        lineage, records = self.storage.lineage, [r.record for r in self.replicas.values()]
        members = [r for r in records if r is not None and r.lineage(self.me) == lineage]
        return {
            "slots": self.slots,
            "served": sum(1 for node in self.table.primaries() if node),
            "primary_of": sum(1 for _ in self.claims()),
            "member_of": len(members),
            "lineage": lineage,
        }

    def execute(self, request: Execute, done: Done) -> None:
        """A command or a query of a client's, if this node serves the slot."""
        replica = self.replicas.get(request.slot)
        if replica is None:
            done(Status.REDIRECT, b"")
        elif request.read == _STALE:
            self._stale(replica, request, done)
        elif replica.primary is None:
            done(Status.REDIRECT, b"")
        elif request.read:
            replica.primary.read(request, done)
        else:
            replica.primary.command(request, done)

    def _stale(self, replica: Replica, request: Execute, done: Done) -> None:
        record = replica.record
        lineage = record.lineage(self.me) if record is not None else None
        if lineage != self.storage.lineage or not replica.has_data:
            done(Status.REDIRECT, b"")
            return
        status, body = replica.state.query(request.service, request.body)
        done(Status.STALE if status is Status.DONE else status, body)

    # Replicas and roles.

    def replica(self, slot: int) -> Replica:
        """What is here of a slot, if only a place for it."""
        replica = self.replicas.get(slot)
        if replica is None:
            replica = self.replicas[slot] = Replica(
                slot, self._new_state, self.settings.keep_entries, self.world.now()
            )
        return replica

    def _new_state(self) -> SlotState:
        return SlotState(self.services)

    def _dump(self, slot: int) -> SlotImage:
        return self.replicas[slot].image()

    def role(self, slot: int) -> Primary | Candidate | None:
        """What this node is in a slot, if it is not a member only."""
        replica = self.replicas.get(slot)
        return None if replica is None else replica.primary or replica.candidate

    def replicator(self, slot: int) -> Replicator | None:
        """Of a slot that this node is primary or candidate of."""
        role = self.role(slot)
        return None if role is None else role.replicator

    def _on_record(self, slot: int, record: Record) -> None:
        """The registry has a newer record."""
        self.proposals.resolve(slot)
        involved = self.me in [m.node for m in (*record.members, *record.basis)]
        if involved or slot in self.replicas:
            self.roles.follow(self.replica(slot), record)

    def on_leases(self) -> None:
        """Reads that waited for leases may be answered."""
        reading, self.reading = self.reading, {}
        for primary in reading:
            primary.on_leases()

    def on_progress(self, slot: int) -> None:
        """More of a slot's log is durable somewhere."""
        role = self.role(slot)
        if role is not None:
            role.on_progress()

    # Looking around, for the parts.

    def claims(self) -> Iterator[tuple[int, int, int, Sequence[int]]]:
        """The slots that this node serves: slot, epoch, commit point, whose leases it needs."""
        for slot, replica in self.replicas.items():
            primary = replica.primary
            if primary is not None and primary.serving:
                yield slot, primary.record.epoch, replica.commit, primary.needed

    def copies_wanted(self) -> Iterator[tuple[int, int]]:
        """(slot, node): who needs a whole state from here."""
        for slot in list(self.replicas):
            replicator = self.replicator(slot)
            if replicator is not None:
                for node in list(replicator.copies):
                    yield slot, node

    def places(self, slot: int, left: int) -> list[int]:
        """Nodes that should keep a slot; if too few members are left, any other too."""
        targets = list(self.table.targets(slot))
        if left < self.min_replicas:
            others = [c.id for c in self.table.contacts() if c.id not in targets]
            turn = slot % len(others) if others else 0
            targets += others[turn:] + others[:turn]
        return targets

    # Messages.

    def on_peer_up(self, node: int) -> None:
        """A new link: everybody there is greeted again."""
        for replica in self.replicas.values():
            if replica.primary is not None:
                replica.primary.replicator.on_link_up(node)
            elif replica.candidate is not None:
                if replica.candidate.replicator is not None:
                    replica.candidate.replicator.on_link_up(node)
                else:
                    replica.candidate.ask()
        self.leases.soon()

    def _on_adopted(self, session: Session, message: Adopted) -> None:
        node = self.peers.speaker(session)
        if not node:
            return
        for position in message.positions:
            replica = self.replicas.get(position.slot)
            if replica is None:
                continue
            if replica.primary is not None:
                replica.primary.on_position(node, position)
            elif replica.candidate is not None:
                replica.candidate.on_position(node, position)

    def _on_prepared(self, session: Session, message: Prepared) -> None:
        node = self.peers.speaker(session)
        if not node:
            return
        now = self.world.now()
        for slot, epoch, sequence in message.acks:
            role = self.role(slot)
            replicator = role.replicator if role is not None else None
            if role is None or replicator is None or replicator.record.epoch != epoch:
                continue
            if replicator.on_ack(node, sequence, now):
                role.on_progress()

    def _on_pulled(self, session: Session, message: Pulled) -> None:
        self.peers.speaker(session)
        replica = self.replicas.get(message.slot)
        if replica is None or replica.candidate is None:
            return
        if replica.candidate.record.epoch == message.epoch:
            replica.candidate.on_entries(session, message)

    def reply(self, session: Session, message: Any) -> bool:
        """An answer, on the link that asked."""
        if not session.open or self.stopped:
            return False
        return session.link.send(codec.encode(message), Plane.CONTROL)
