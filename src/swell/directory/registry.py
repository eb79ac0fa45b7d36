"""The registry: keys with versions, read, compared and set, watched.

What the cluster must agree on and no node may decide alone lives here: the records of slots, the
plan, pins, tokens. `Registry` is pure state behind the directory's log; `RegistryAccess` is all
that its users see, so that an external store could take its place.

Invariants: a key's version is the registry's revision when it was set; the revision only grows,
across deletion too, so a version never comes back and an entry with a known version is unchanged.
Every change of a batch is compared and set on its own, in order. Whether it is accepted depends
on the state alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from swell.errors import InvalidNameError, TooLargeError
from swell.overlay.membership_messages import Count
from swell.wire.codec import Message

KEY_BYTES_MAX = 255
VALUE_BYTES_MAX = 256 * 1024
CHANGES_MAX = 1024
"""Changes of one batch."""
BATCH_BYTES_MAX = 512 * 1024
"""Keys and values of one batch together: well below the longest command of the log."""
TOTAL_BYTES_MAX = 64 * 1024 * 1024
"""All keys and values together; every voter keeps them in memory and in its snapshots."""

ENTRY_OVERHEAD_BYTES = 64
_STATE_BYTES = 1024 * 1024

Key = Annotated[str, Meta(max_length=KEY_BYTES_MAX, pattern=r"^[!-~]+\Z")]
"""Visible ASCII: characters are bytes, and keys sort everywhere alike."""
Value = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]


class Entry(Message, frozen=True):
    """What a key holds, and since which revision."""

    version: Count
    value: Value


class Change(Message, frozen=True):
    """Set `key` if its version is `expected` (0: if it is absent); no value: delete it."""

    key: Key
    expected: Count
    value: Value | None

    @property
    def bytes(self) -> int:
        return len(self.key) + len(self.value or b"") + ENTRY_OVERHEAD_BYTES


class Outcome(Message, frozen=True):
    """Whether a change was accepted, and what the key holds after the attempt."""

    accepted: bool
    entry: Entry | None


class RegistrySet(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Log record: compare and set, each change on its own."""

    changes: tuple[Change, ...]


class RegistryState(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Record of a snapshot: some of the entries, as they are, and the revision."""

    revision: int
    entries: tuple[tuple[Key, Entry], ...]


class RegistryAccess(Protocol):
    """What users of the registry see."""

    def read(self, keys: Sequence[str], done: Callable[[dict[str, Entry] | None], None]) -> None:
        """What these keys hold, absent ones left out; at least as new as any change whose outcome
        was known to anybody before. None: nobody answered in time."""
        ...

    def change(
        self, changes: Sequence[Change], done: Callable[[list[Outcome] | None], None]
    ) -> None:
        """Compare and set each on its own. None: each of them may or may not have happened, or
        may happen yet."""
        ...

    def watch(self, prefix: str, on_change: Callable[[dict[str, Entry | None]], None]) -> None:
        """First everything under the prefix, then what changes; deleted keys as None. Values in
        between may be left out, but never comes an older version after a newer one."""
        ...


def check(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes, if each is within the limits; else an error that names them."""
    for change in changes:
        key, value = change.key, change.value or b""
        if not 0 < len(key) <= KEY_BYTES_MAX or not all("!" <= sign <= "~" for sign in key):
            raise InvalidNameError(
                f"registry key {key[:80]!r} is not valid: use 1 to {KEY_BYTES_MAX} visible "
                "characters of ASCII"
            )
        if len(value) > VALUE_BYTES_MAX:
            raise TooLargeError(
                f"the value of {key} has {len(value)} bytes, the registry takes {VALUE_BYTES_MAX}"
            )
    return tuple(changes)


def batch_bytes(changes: Iterable[Change]) -> int:
    return sum(change.bytes for change in changes)


class Wish(NamedTuple):
    """Changes that somebody wants, and who hears of their outcomes."""

    changes: Sequence[Change]
    done: Callable[[list[Outcome] | None], None]


def groups(wishes: Iterable[Wish]) -> Iterator[list[Wish]]:
    """Wishes in order, cut so that each group fits into one batch."""
    group: list[Wish] = []
    count = used = 0
    for wish in wishes:
        size = batch_bytes(wish.changes)
        if group and (count + len(wish.changes) > CHANGES_MAX or used + size > BATCH_BYTES_MAX):
            yield group
            group, count, used = [], 0, 0
        group.append(wish)
        count += len(wish.changes)
        used += size
    if group:
        yield group


def split(wish: Wish) -> list[Wish]:
    """A wish for more than a batch holds, as several; its user hears of all outcomes together, or
    of none."""
    single = [Wish([change], wish.done) for change in wish.changes]
    parts = [[w.changes[0] for w in group] for group in groups(single)]
    if len(parts) <= 1:
        return [wish]
    heard: dict[int, list[Outcome] | None] = {}

    def hear(place: int, outcomes: list[Outcome] | None) -> None:
        heard[place] = outcomes
        if len(heard) == len(parts):
            known = [heard[place] for place in range(len(parts))]
            every = [outcome for outcomes in known if outcomes is not None for outcome in outcomes]
            wish.done(None if None in known else every)

    return [Wish(part, partial(hear, place)) for place, part in enumerate(parts)]


def deal(group: Iterable[Wish], outcomes: Sequence[Outcome] | None) -> None:
    """Tell everybody of a group the outcomes of their own changes; None: of nobody's."""
    place = 0
    for wish in group:
        end = place + len(wish.changes)
        wish.done(None if outcomes is None else list(outcomes[place:end]))
        place = end


class Registry:
    """The entries, in the order of their keys."""

    def __init__(self, bytes_max: int = TOTAL_BYTES_MAX) -> None:
        self.revision = 0
        self.bytes = 0
        self.refused_full = 0
        """Changes refused because the registry was full."""
        self.outcomes: list[Outcome] = []
        """Of the record applied last: whoever proposed it finds them here."""
        self._bytes_max = bytes_max
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def read(self, prefix: str) -> dict[str, Entry]:
        """Everything whose key begins with `prefix`, in order."""
        return {key: self._entries[key] for key in self.keys(prefix)}

    def keys(self, prefix: str) -> list[str]:
        first = bisect_left(self._keys, prefix)
        # Behind every key with this prefix: no character of a key sorts after "~".
        return self._keys[first : bisect_left(self._keys, prefix + "\x7f", first)]

    def apply(self, record: RegistrySet) -> list[Outcome]:
        """Compare and set; the outcomes in the order of the changes."""
        self.outcomes = [
            Outcome(self._change(change), self._entries.get(change.key))
            for change in record.changes
        ]
        return self.outcomes

    def _change(self, change: Change) -> bool:
        known = self._entries.get(change.key)
        if (known.version if known is not None else 0) != change.expected:
            return False
        if change.value is None and known is None:
            return True  # it is absent, as wanted
        held = _bytes(change.key, known)
        if change.value is not None and self.bytes - held + change.bytes > self._bytes_max:
            self.refused_full += 1
            return False
        self.revision += 1
        value = change.value
        self._put(change.key, None if value is None else Entry(self.revision, value))
        return True

    def restore(self, record: RegistryState) -> None:
        """Take over what a snapshot holds."""
        self.revision = max(self.revision, record.revision)
        for key, entry in record.entries:
            self._put(key, entry)

    def _put(self, key: str, entry: Entry | None) -> None:
        known = self._entries.pop(key, None)
        self.bytes += _bytes(key, entry) - _bytes(key, known)
        if entry is not None:
            self._entries[key] = entry
        if entry is not None and known is None:
            insort(self._keys, key)
        elif entry is None and known is not None:
            del self._keys[bisect_left(self._keys, key)]

    def snapshot(self) -> Iterable[RegistryState]:
        """Records that restore everything, the revision too."""
        part: list[tuple[str, Entry]] = []
        used = 0
        for key in self._keys:
            entry = self._entries[key]
            part.append((key, entry))
            used += _bytes(key, entry)
            if used >= _STATE_BYTES:
                yield RegistryState(self.revision, tuple(part))
                part, used = [], 0
        if part or (self.revision and not self._keys):
            yield RegistryState(self.revision, tuple(part))


def _bytes(key: str, entry: Entry | None) -> int:
    return 0 if entry is None else len(key) + len(entry.value) + ENTRY_OVERHEAD_BYTES
