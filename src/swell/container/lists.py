"""The destination lists that a relay knows, by their digests (RIP-9)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from swell.config.messages import LISTS_MAX, DestinationList
from swell.overlay.sessions import Session
from swell.world import Address

ENTRIES_MAX = 16_384
"""In all lists that are kept."""

ASKERS_MAX = 64


class Destination(NamedTuple):
    address: Address
    below: bytes


class KnownList(NamedTuple):
    """A list with what is looked up in it for every burst."""

    message: DestinationList
    signature: bytes
    """Of the node that made it; empty if it need not be passed on."""
    names: tuple[str, ...]
    """Of the containers on it, in its order."""
    entries: list[Destination]
    places: dict[Address, int]
    below: dict[bytes, int]
    """Lists of relays below, and their places."""


class ListCache:
    """Digest → list, those used last stay."""

    def __init__(self, counters: Counter[str]) -> None:
        self._lists: OrderedDict[bytes, KnownList] = OrderedDict()
        self._entries = 0
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

    def put(self, digest: bytes, message: DestinationList, signature: bytes) -> None:
        entries = [Destination(Address(e.host, e.port), e.below) for e in message.entries]
        before = self._lists.pop(digest, None)
        self._lists[digest] = KnownList(
            message,
            signature or (before.signature if before is not None else b""),
            tuple(entry.container for entry in message.entries),
            entries,
            {entry.address: place for place, entry in enumerate(entries, 1)},
            {entry.below: place for place, entry in enumerate(entries, 1) if entry.below},
        )
        self._entries += 0 if before is not None else len(entries)
        while len(self._lists) > LISTS_MAX or self._entries > ENTRIES_MAX:
            _, oldest = self._lists.popitem(last=False)
            self._entries -= len(oldest.entries)
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
