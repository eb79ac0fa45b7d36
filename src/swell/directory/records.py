"""The directory's log records and the state they add up to.

The log holds outcomes, not requests, with one exception: a record may compare before it sets. To
apply one never fails, and whether it took effect depends on the state alone, so every copy of the
log gives the same state. Ids are given out once and never again.

Tags of records: 1 to 5 nodes and zones, 6 to 15 the registry, 21 voters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from swell.directory.registry import Registry, RegistrySet, RegistryState
from swell.overlay.contact import Contact
from swell.overlay.view import View, ZoneInfo
from swell.world import Address


class Admitted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A node was given its id and zone, or came back, or moved."""

    contact: Contact
    uid: str
    region: str
    pool: str
    life: bytes = b""


class Down(msgspec.Struct, frozen=True, array_like=True, tag=2):
    nodes: tuple[int, ...]
    at_us: int


class Up(msgspec.Struct, frozen=True, array_like=True, tag=3):
    nodes: tuple[int, ...]


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=4):
    nodes: tuple[int, ...]


class Numbers(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The numbers already given out, whatever the other records say: ends a compacted log."""

    next_node: int
    next_zone: int
    epoch: int


class VoterAt(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Where a voter is that was added by command; no host: it was removed."""

    name: str
    host: str
    port: int


Record = Admitted | Down | Up | Forgotten | Numbers | RegistrySet | RegistryState | VoterAt

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode
decode_all = msgspec.msgpack.Decoder(list[Record]).decode


class Entry:
    """One node as the directory knows it."""

    __slots__ = ("contact", "down_since_us", "life", "region", "uid")

    def __init__(self, contact: Contact, uid: str, region: str, life: bytes = b"") -> None:
        self.contact = contact
        self.uid = uid
        self.region = region
        self.life = life
        self.down_since_us = 0

    @property
    def up(self) -> bool:
        return not self.down_since_us


class Zone:
    """One zone: its pool and all of its nodes, living or not."""

    __slots__ = ("id", "nodes", "pool")

    def __init__(self, number: int, pool: str) -> None:
        self.id = number
        self.pool = pool
        self.nodes: dict[int, Entry] = {}

    def up(self) -> list[Contact]:
        return [entry.contact for entry in self.nodes.values() if entry.up]

    def racks(self) -> Counter[str]:
        return Counter(contact.rack for contact in self.up())


class State:
    """Everything the directory knows."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing, to be filled from a snapshot."""
        self.nodes: dict[int, Entry] = {}
        self.names: dict[str, int] = {}
        self.zones: dict[int, Zone] = {}
        self.next_node = 1
        self.next_zone = 1
        self.epoch = 0
        self.voters: dict[str, Address] = {}
        """Addresses of voters that were added by command."""
        self.registry = Registry()
        self._view: View | None = None

    def apply(self, record: Record) -> bool:
        """Did it take effect? All do: the changes of a `RegistrySet` have outcomes of their own."""
        match record:
            case RegistrySet():
                self.registry.apply(record)
            case RegistryState():
                self.registry.restore(record)
            case VoterAt():
                self._set_voter(record)
            case _:
                self._apply_to_nodes(record)
        return True

    def _set_voter(self, record: VoterAt) -> None:
        if record.host:
            self.voters[record.name] = Address(record.host, record.port)
        else:
            self.voters.pop(record.name, None)

    def _apply_to_nodes(self, record: Admitted | Down | Up | Forgotten | Numbers) -> None:
        self._view = None
        if not isinstance(record, Numbers):
            self.epoch += 1
        match record:
            case Admitted():
                self._admit(record)
            case Down():
                for entry in self._entries(record.nodes):
                    entry.down_since_us = record.at_us
            case Up():
                for entry in self._entries(record.nodes):
                    entry.down_since_us = 0
            case Forgotten():
                for entry in self._entries(record.nodes):
                    self._forget(entry)
            case Numbers():
                self.next_node = max(self.next_node, record.next_node)
                self.next_zone = max(self.next_zone, record.next_zone)
                self.epoch = max(self.epoch, record.epoch)

    def _admit(self, record: Admitted) -> None:
        contact = record.contact
        known = self.nodes.get(contact.id)
        if known is not None and known.contact.zone != contact.zone:
            self._leave_zone(known.contact)
        entry = Entry(contact, record.uid, record.region, record.life)
        self.nodes[contact.id] = entry
        self.names[contact.name] = contact.id
        zone = self.zones.get(contact.zone)
        if zone is None:
            zone = self.zones[contact.zone] = Zone(contact.zone, record.pool)
        zone.nodes[contact.id] = entry
        self.next_node = max(self.next_node, contact.id + 1)
        self.next_zone = max(self.next_zone, contact.zone + 1)

    def _entries(self, nodes: Iterable[int]) -> list[Entry]:
        """Those of the nodes that are still known: records may cross in the log."""
        return [self.nodes[node] for node in nodes if node in self.nodes]

    def _forget(self, entry: Entry) -> None:
        contact = entry.contact
        del self.nodes[contact.id]
        if self.names.get(contact.name) == contact.id:
            del self.names[contact.name]
        self._leave_zone(contact)

    def _leave_zone(self, contact: Contact) -> None:
        zone = self.zones[contact.zone]
        zone.nodes.pop(contact.id, None)
        if not zone.nodes:
            del self.zones[contact.zone]

    def view(self) -> View:
        """The zones that have living members."""
        if self._view is None:
            infos = ((z, len(self.zones[z].up())) for z in sorted(self.zones))
            zones = tuple(ZoneInfo(z, self.zones[z].pool, size) for z, size in infos if size)
            self._view = View(self.epoch, zones)
        return self._view

    def entry(self, name: str) -> Entry | None:
        """The node of that name, if there is one."""
        node = self.names.get(name)
        return None if node is None else self.nodes[node]

    def pool(self, pool: str, without: Iterable[int] = ()) -> dict[int, int]:
        """Zone → number of living members, of one pool."""
        zones = (zone for zone in self.zones.values() if zone.pool == pool)
        return {zone.id: len(zone.up()) for zone in zones if zone.id not in without}

    def snapshot(self) -> Iterable[Record]:
        """Records that rebuild this state, never more than were applied: a compacted log."""
        for entry in self.nodes.values():
            contact = entry.contact
            pool = self.zones[contact.zone].pool
            yield Admitted(contact, entry.uid, entry.region, pool, entry.life)
            if not entry.up:
                yield Down((contact.id,), entry.down_since_us)
        for name, address in self.voters.items():
            yield VoterAt(name, address.host, address.port)
        yield from self.registry.snapshot()
        yield Numbers(self.next_node, self.next_zone, self.epoch)
