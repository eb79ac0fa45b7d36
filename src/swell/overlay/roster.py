"""The view of a zone: one record per member, and the order in which news override each other.

News are ordered by (epoch, incarnation, state). The epoch counts process starts, so a restart
overrides anything said about an earlier life; the incarnation counts refutations within a life
and is raised by its owner only; within one incarnation the worse state wins (SWIM, section 4.2).

Invariants: `living` is sorted by id and holds the alive and the suspect, ourselves included;
`peers` is the same without ourselves; at most `MEMBERS_MAX` records and `GRAVES_MAX` graves. A
*grave* is the number of a life that was forgotten: a process that slept through the death may
still tell of it, and must not bring it back.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from swell.overlay.contact import Contact
from swell.overlay.membership_messages import MemberRumour, State
from swell.world import Timer

MEMBERS_MAX = 1024
"""Records, lingering dead ones included. A zone is a clique; this is far beyond any."""


GRAVES_MAX = 256


class Record:
    """What we know about one member."""

    __slots__ = ("contact", "incarnation", "linger", "origin", "state")

    def __init__(self, contact: Contact, incarnation: int, state: State, origin: int) -> None:
        self.contact = contact
        self.incarnation = incarnation
        self.state = state
        self.origin = origin
        self.linger: Timer | None = None
        """Runs while the member is dead; at its end the record is forgotten."""

    def rumour(self) -> MemberRumour:
        return MemberRumour(self.contact, self.incarnation, self.state, self.origin)


def supersedes(rumour: MemberRumour, state: State, record: Record) -> bool:
    """True if the rumour, taken to mean `state`, is news to who holds the record."""
    return (rumour.contact.epoch, rumour.incarnation, state) > (
        record.contact.epoch,
        record.incarnation,
        record.state,
    )


class Roster:
    """Records by id, and the sorted lists that everybody iterates over."""

    def __init__(self, me: Contact) -> None:
        self._me = me.id
        self.records: dict[int, Record] = {me.id: Record(me, 0, State.ALIVE, me.id)}
        self.living: list[int] = [me.id]
        self.peers: list[int] = []
        self.graves: dict[int, tuple[int, int, float]] = {}
        """Member → last known (epoch, incarnation), and since when; oldest grave first."""
        self._contacts: tuple[Contact, ...] | None = None

    def get(self, member: int) -> Record | None:
        return self.records.get(member)

    def is_living(self, member: int) -> bool:
        record = self.records.get(member)
        return record is not None and record.state <= State.SUSPECT

    def contacts(self) -> tuple[Contact, ...]:
        """Of the living, sorted by id."""
        if self._contacts is None:
            self._contacts = tuple(self.records[member].contact for member in self.living)
        return self._contacts

    def add(self, record: Record) -> None:
        self.records[record.contact.id] = record
        self.graves.pop(record.contact.id, None)

    def update(self, record: Record, rumour: MemberRumour, state: State) -> None:
        """Overwrite a record with news."""
        record.contact = rumour.contact
        record.incarnation = rumour.incarnation
        record.state = state
        record.origin = rumour.origin
        self._contacts = None

    def enlist(self, member: int) -> None:
        """The member counts as living from now on."""
        insort(self.living, member)
        insort(self.peers, member)
        self._contacts = None

    def strike(self, member: int) -> None:
        """The member no longer counts as living."""
        for ids in (self.living, self.peers):
            del ids[bisect_left(ids, member)]
        self._contacts = None

    def forget(self, member: int, now_s: float) -> None:
        """Only a grave remains."""
        record = self.records.pop(member)
        if len(self.graves) >= GRAVES_MAX:
            del self.graves[next(iter(self.graves))]
        self.graves[member] = (record.contact.epoch, record.incarnation, now_s)

    def level(self, before_s: float) -> None:
        """Remove the graves that were dug until then."""
        while self.graves:
            oldest = next(iter(self.graves))
            if self.graves[oldest][2] > before_s:
                break
            del self.graves[oldest]

    def is_buried(self, rumour: MemberRumour) -> bool:
        grave = self.graves.get(rumour.contact.id)
        return grave is not None and (rumour.contact.epoch, rumour.incarnation) <= grave[:2]

    def oldest_dead(self) -> int | None:
        """The dead member that was recorded first, to make room."""
        for member, record in self.records.items():
            if record.state >= State.DEAD:
                return member
        return None
