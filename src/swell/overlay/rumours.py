"""The queue of rumours that still have to be passed on.

Each rumour leaves a limited number of times, growing with the logarithm of the zone (SWIM,
section 4.1), never to a member that is known to have it; what left least often goes first. A
newer rumour about the same subject replaces the older one.

Invariants: one rumour per subject; at most `RUMOURS_MAX`; a rumour counts as passed on only when
a link took the frame; it is given up after some intervals even if nobody could be reached.
"""

from __future__ import annotations

import math
from collections import Counter

from msgspec.msgpack import Encoder

from swell.overlay.membership_messages import AttributeRumour, MemberRumour, Rumours

RUMOURS_MAX = 1024
"""Beyond it the rumour that was passed on most often gives way; push/pull repairs the loss."""

TICKS_PER_TRANSMISSION = 5
"""A rumour with a limit of n transmissions is given up after n times as many gossip intervals."""

Subject = tuple[int, str]
"""A member and an attribute's key; an empty key for the member itself."""

_encoder = Encoder()


def retransmit_limit(multiplier: int, members: int) -> int:
    """How often one member passes on one rumour."""
    return multiplier * math.ceil(math.log10(members + 1))


class Entry:
    """A rumour on its way."""

    __slots__ = ("age", "rumour", "sent", "size_bytes", "subject", "ticks", "told")

    def __init__(self, subject: Subject, rumour: MemberRumour | AttributeRumour, age: int) -> None:
        self.subject = subject
        self.rumour = rumour
        self.size_bytes = len(_encoder.encode(rumour))
        self.sent = 0
        self.ticks = 0
        self.told: set[int] = {subject[0]}
        """Who has it: those it was sent to or came from, and its subject."""
        self.age = age


class RumourQueue:
    """Rumours by subject, least often sent first, then oldest first."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._entries: dict[Subject, Entry] = {}
        self._age = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add_member(self, rumour: MemberRumour) -> None:
        self._add((rumour.contact.id, ""), rumour)

    def add_attribute(self, rumour: AttributeRumour) -> None:
        self._add((rumour.member, rumour.key), rumour)

    def _add(self, subject: Subject, rumour: MemberRumour | AttributeRumour) -> None:
        self._entries.pop(subject, None)
        if len(self._entries) >= RUMOURS_MAX:
            worst = max(self._entries.values(), key=lambda entry: (entry.sent, -entry.age))
            del self._entries[worst.subject]
            self._counters["rumour-queue-full"] += 1
        self._age += 1
        self._entries[subject] = Entry(subject, rumour, self._age)

    def withdraw(self, member: int) -> None:
        """Stop passing on what is said about the member itself."""
        self._entries.pop((member, ""), None)

    def forget(self, member: int) -> None:
        """Drop everything about a member, its attributes included."""
        for subject in [subject for subject in self._entries if subject[0] == member]:
            del self._entries[subject]

    def clear(self) -> None:
        self._entries.clear()

    def echo(self, rumour: MemberRumour | AttributeRumour, subject: Subject, sender: int) -> None:
        """`sender` told us what we are passing on ourselves."""
        entry = self._entries.get(subject)
        if entry is not None and entry.rumour == rumour:
            entry.told.add(sender)

    def pick(self, receiver: int, budget_bytes: int) -> list[Entry]:
        """What the receiver may not know and fits into a frame together; `passed_on` tells that
        the frame left."""
        picked = []
        for entry in sorted(self._entries.values(), key=lambda entry: (entry.sent, entry.age)):
            if entry.size_bytes <= budget_bytes and receiver not in entry.told:
                budget_bytes -= entry.size_bytes
                picked.append(entry)
        return picked

    def passed_on(self, entries: list[Entry], receiver: int, limit: int) -> None:
        """Count one transmission of each; drop those that were sent often enough."""
        for entry in entries:
            entry.sent += 1
            entry.told.add(receiver)
            if entry.sent >= limit and self._entries.get(entry.subject) is entry:
                del self._entries[entry.subject]

    def tick(self, peers: list[int], limit: int) -> None:
        """A gossip interval passed: drop what everybody has, or cannot be reached for."""
        for entry in list(self._entries.values()):
            entry.ticks += 1
            if entry.ticks > TICKS_PER_TRANSMISSION * limit or entry.told.issuperset(peers):
                del self._entries[entry.subject]


def bundle(entries: list[Entry], first: tuple[MemberRumour, ...] = ()) -> Rumours:
    """What goes into the frame; `first` is what the receiver must hear in any case."""
    members = list(first)
    attributes = []
    for entry in entries:
        if isinstance(entry.rumour, MemberRumour):
            members.append(entry.rumour)
        else:
            attributes.append(entry.rumour)
    return Rumours(tuple(members), tuple(attributes))
