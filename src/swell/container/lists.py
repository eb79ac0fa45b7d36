"""The destination lists that a relay knows, by their digests (RIP-9)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from swell.config.messages import DestinationList
from swell.overlay.sessions import Session
from swell.world import Address

LISTS_MAX = 256
ASKERS_MAX = 64


class Destination(NamedTuple):
    address: Address
    below: bytes


class KnownList(NamedTuple):
    """A list with what is looked up in it for every burst."""

    message: DestinationList
    entries: list[Destination]
    places: dict[Address, int]
    below: dict[bytes, int]
    """Lists of relays below, and their places."""


class ListCache:
    """Digest → list, those used last stay."""

    def __init__(self, counters: Counter[str]) -> None:
        self._lists: OrderedDict[bytes, KnownList] = OrderedDict()
        self._askers: OrderedDict[bytes, list[Session]] = OrderedDict()
        self._counters = counters

    def __len__(self) -> int:
        return len(self._lists)

    def get(self, digest: bytes) -> KnownList | None:
        known = self._lists.get(digest)
        if known is not None:
            self._lists.move_to_end(digest)
        return known

    def known(self, digest: bytes) -> KnownList:
        return self._lists[digest]

    def message(self, digest: bytes) -> DestinationList | None:
        known = self.get(digest)
        return None if known is None else known.message

    def put(self, digest: bytes, message: DestinationList) -> None:
        entries = [Destination(Address(e.host, e.port), e.below) for e in message.entries]
        self._lists[digest] = KnownList(
            message,
            entries,
            {entry.address: place for place, entry in enumerate(entries, 1)},
            {entry.below: place for place, entry in enumerate(entries, 1) if entry.below},
        )
        self._lists.move_to_end(digest)
        if len(self._lists) > LISTS_MAX:
            self._lists.popitem(last=False)
            self._counters["lists-full"] += 1

    def note_asker(self, digest: bytes, session: Session) -> None:
        """Somebody wants a list that is not here."""
        askers = self._askers.setdefault(digest, [])
        if session not in askers:
            askers.append(session)
        if len(self._askers) > ASKERS_MAX:
            self._askers.popitem(last=False)

    def askers(self, digest: bytes) -> list[Session]:
        """Who waits for a list that has come."""
        return self._askers.pop(digest, [])
