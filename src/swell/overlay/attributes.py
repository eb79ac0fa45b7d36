"""Attributes: small named values that each member publishes about itself (SpiderCast's attribute
service; topic interest travels this way).

Every change of an owner gets the next number of the owner's own counter as its version; per
(member, epoch, key) the highest version wins. An empty value is a removal.

Removals need no tombstones that live for ever: the owner's own digest lists everything it has, so
whoever gets it drops the rest and remembers the counter as a *floor*. From third parties only
what lies above the floor is taken.

Invariants: values of one life only (a new epoch starts empty); at most `KEYS_MAX` keys per member,
removals included; a value is at most `ATTRIBUTE_VALUE_BYTES_MAX` long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from swell.errors import SwellError
from swell.overlay.membership_messages import (
    ATTRIBUTE_KEY_LENGTH_MAX,
    ATTRIBUTE_VALUE_BYTES_MAX,
    AttributeRumour,
    Digest,
)

KEYS_MAX = 64


class AttributeLimitError(SwellError):
    """An own attribute is too long, or there are too many of them."""


class Sheet:
    """All attributes of one life of one member."""

    __slots__ = ("entries", "epoch", "floor")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.floor = 0
        """Every removal up to this version of the owner is known."""
        self.entries: dict[str, tuple[int, bytes]] = {}


class Attributes:
    """The attributes of all members, the own ones included."""

    def __init__(self, me: int, epoch: int, counters: Counter[str]) -> None:
        self._me = me
        self._mine = Sheet(epoch)
        self._sheets: dict[int, Sheet] = {me: self._mine}
        self._counters = counters

    def __len__(self) -> int:
        return sum(len(sheet.entries) for sheet in self._sheets.values())

    @property
    def sheets(self) -> int:
        """Number of members, known or former, that something is kept for."""
        return len(self._sheets)

    def set_mine(self, key: str, value: bytes) -> AttributeRumour | None:
        """Set or (with an empty value) remove an own attribute. None if nothing changed."""
        mine = self._mine
        known = mine.entries.get(key)
        if (known[1] if known else b"") == value:
            return None
        if not 1 <= len(key) <= ATTRIBUTE_KEY_LENGTH_MAX:
            raise AttributeLimitError(
                f"attribute key {key!r} must have 1 to {ATTRIBUTE_KEY_LENGTH_MAX} characters"
            )
        if len(value) > ATTRIBUTE_VALUE_BYTES_MAX:
            raise AttributeLimitError(
                f"attribute {key!r} has {len(value)} bytes; keep it at or below "
                f"{ATTRIBUTE_VALUE_BYTES_MAX}"
            )
        if known is None and len(mine.entries) >= KEYS_MAX:
            raise AttributeLimitError(
                f"attribute {key!r} is one too many; remove another of the {KEYS_MAX} first"
            )
        mine.floor += 1
        if value:
            mine.entries[key] = (mine.floor, value)
        else:
            del mine.entries[key]
        return AttributeRumour(self._me, mine.epoch, key, mine.floor, value)

    def hear(self, rumour: AttributeRumour, sender: int) -> bool:
        """Take what somebody said about a living member. True if it was news."""
        sheet = self._sheets.get(rumour.member)
        if sheet is None or sheet is self._mine or sheet.epoch != rumour.epoch:
            if sheet is not self._mine:
                self._counters["attribute-unknown-life"] += 1
            return False
        if sender != rumour.member and rumour.version <= sheet.floor:
            return False
        known = sheet.entries.get(rumour.key)
        if known is not None and known[0] >= rumour.version:
            return False
        if known is None and len(sheet.entries) >= KEYS_MAX and not self._make_room(sheet):
            return False
        if rumour.value or rumour.version > sheet.floor:
            sheet.entries[rumour.key] = (rumour.version, rumour.value)
        else:
            sheet.entries.pop(rumour.key, None)
        return True

    def _make_room(self, sheet: Sheet) -> bool:
        """Give up the oldest removal; False if there is none."""
        removals = [(version, key) for key, (version, value) in sheet.entries.items() if not value]
        if not removals:
            self._counters["attribute-keys-full"] += 1
            return False
        del sheet.entries[min(removals)[1]]
        return True

    def settle(self, digest: Digest) -> list[str]:
        """Take the owner's own digest: drop what it no longer has. Returns the keys that lost
        a value."""
        sheet = self._sheets.get(digest.member)
        if sheet is None or sheet is self._mine or sheet.epoch != digest.epoch:
            return []
        if digest.version <= sheet.floor:
            return []
        sheet.floor = digest.version
        listed = {key for key, _ in digest.keys}
        gone = []
        for key, (version, value) in list(sheet.entries.items()):
            if version <= sheet.floor and (not value or key not in listed):
                del sheet.entries[key]
                if value:
                    gone.append(key)
        return gone

    def digest(self, member: int) -> Digest | None:
        sheet = self._sheets.get(member)
        if sheet is None or not (sheet.entries or sheet.floor):
            return None
        keys = tuple((key, version) for key, (version, _) in sheet.entries.items())
        return Digest(member, sheet.epoch, sheet.floor, keys)

    def missing_from(
        self, digests: Iterable[Digest], members: Iterable[int]
    ) -> Iterator[AttributeRumour]:
        """What of these members the sender of the digests lacks and we have."""
        theirs = {digest.member: digest for digest in digests}
        for member in members:
            sheet = self._sheets.get(member)
            if sheet is None or not sheet.entries:
                continue
            digest = theirs.get(member)
            if digest is not None and digest.epoch > sheet.epoch:
                continue
            same_life = digest is not None and digest.epoch == sheet.epoch
            held = dict(digest.keys) if digest is not None and same_life else {}
            floor = digest.version if digest is not None and same_life else 0
            for key, (version, value) in sheet.entries.items():
                # The owner's word counts below the floor too: a listed value may be missing.
                if version > held.get(key, 0) and (version > floor or sheet is self._mine):
                    yield AttributeRumour(member, sheet.epoch, key, version, value)

    def begin_life(self, member: int, epoch: int) -> list[str]:
        """A member is new, or has restarted. Returns the keys of its former life."""
        former = self._sheets.get(member)
        self._sheets[member] = Sheet(epoch)
        return [key for key, value in self._values(former)] if former is not None else []

    def forget(self, member: int) -> None:
        self._sheets.pop(member, None)

    def get(self, member: int, key: str) -> bytes | None:
        sheet = self._sheets.get(member)
        known = sheet.entries.get(key) if sheet is not None else None
        return known[1] or None if known is not None else None

    def values(self, member: int) -> list[tuple[str, bytes]]:
        """All attributes of one member, in order of their keys."""
        sheet = self._sheets.get(member)
        return self._values(sheet) if sheet is not None else []

    @staticmethod
    def _values(sheet: Sheet) -> list[tuple[str, bytes]]:
        return [(key, value) for key, (_, value) in sorted(sheet.entries.items()) if value]
