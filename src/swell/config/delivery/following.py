"""What is followed: the applications that this node serves, and the feeds made of them."""

from __future__ import annotations

from itertools import islice
from typing import Protocol, TypeVar

from swell.config.application import Application
from swell.config.delivery.feeds import Feed
from swell.config.delivery.interest import Interest, size_of
from swell.config.machine import ConfigMachine
from swell.config.messages import interest_digest
from swell.config.names import place
from swell.config.operations import CONFIG_SERVICE
from swell.overlay.contact import Contact
from swell.store.state import Machine

K = TypeVar("K")

APPLICATION_INTERESTS_MAX = 16_384
"""Different interests in one application: each is looked at for every step."""

INTERESTS_LENGTH_MAX = 64 * 1024 * 1024
"""Characters in the interests of all feeds of a node."""


class Slots(Protocol):
    """What delivery needs of the store (`swell.store.service.Store`)."""

    me: int

    @property
    def slots(self) -> int: ...

    def served(self, slot: int, service: int) -> Machine | None: ...

    def epoch(self, slot: int) -> int: ...

    def primary(self, slot: int) -> Contact | None: ...

    def members(self, slot: int) -> list[Contact]: ...


class Following:
    """All feeds of one node, by application and by slot. `stale_list`: a planted bug."""

    def __init__(self, slots: Slots, stale_list: bool) -> None:
        self.slots = slots
        self._stale_list = stale_list
        self._feeds: dict[tuple[str, bytes], Feed] = {}
        self._by_application: dict[str, dict[Feed, None]] = {}
        self._by_slot: dict[int, dict[Feed, None]] = {}
        self._seen: dict[int, int] = {}
        """Changes of a slot's machine that were looked at."""
        self._interests_length = 0

    def __len__(self) -> int:
        return len(self._feeds)

    # Applications.

    def slot_of(self, application: str) -> int:
        """-1 while the slots are not known."""
        slots = self.slots.slots
        return place(application) % slots if slots else -1

    def serves(self, slot: int) -> bool:
        return self.slots.served(slot, CONFIG_SERVICE) is not None

    def find(self, slot: int, application: str) -> Application | None:
        """None: it does not exist yet, or is not served here."""
        machine = self.slots.served(slot, CONFIG_SERVICE)
        return machine.application(application) if isinstance(machine, ConfigMachine) else None

    def application(self, feed: Feed) -> Application | None:
        return self.find(feed.slot, feed.application)

    def step_of(self, slot: int, application: str) -> int:
        """The present step of an application; 0 if it does not exist yet."""
        found = self.find(slot, application)
        return found.step if found is not None else 0

    # Feeds.

    def get(self, application: str, digest: bytes) -> Feed | None:
        return self._feeds.get((application, digest))

    def make(self, application: str, interest: Interest, slot: int, step: int) -> Feed:
        """The feed; if it is new, whoever is at the present step is in step."""
        digest = interest_digest(interest)
        feed = self._feeds.get((application, digest))
        if feed is None:
            feed = Feed(application, interest, digest, slot, step, self._stale_list)
            self._feeds[application, digest] = feed
            self._by_application.setdefault(application, {})[feed] = None
            self._by_slot.setdefault(slot, {})[feed] = None
            self._interests_length += size_of(interest)
        return feed

    def excess(self, application: str, interest: Interest) -> str:
        """A sentence that says which limit one more feed would break; empty: none."""
        count = len(self._by_application.get(application, ()))
        if count >= APPLICATION_INTERESTS_MAX:
            return (
                f"{application} has subscriptions to {count} different interests, allowed are "
                f"{APPLICATION_INTERESTS_MAX}: let containers share some"
            )
        if self._interests_length + size_of(interest) > INTERESTS_LENGTH_MAX:
            return "the interests of all containers of this node are too long: use prefixes"
        return ""

    def of(self, application: str) -> list[Feed]:
        return list(self._by_application.get(application, ()))

    def served_slots(self) -> list[int]:
        """Those with feeds."""
        return [slot for slot in self._by_slot if self.serves(slot)]

    def in_slot(self, slot: int) -> list[Feed]:
        return list(self._by_slot.get(slot, ()))

    def changed(self, slot: int) -> list[Feed]:
        """Those whose application has changed since this was last asked; all, the first time."""
        feeds = self._by_slot.get(slot)
        if feeds is None:
            return []
        machine = self.slots.served(slot, CONFIG_SERVICE)
        if not isinstance(machine, ConfigMachine):
            return []
        seen, self._seen[slot] = self._seen.get(slot), machine.changes
        if seen is None or seen > machine.changes:
            return list(feeds)
        if seen == machine.changes:
            return []
        names = islice(reversed(machine.changed), machine.changes - seen)
        return [feed for name in names for feed in self._by_application.get(name, ())]

    def stop(self, slot: int) -> None:
        """Another node serves it from now on."""
        self._seen.pop(slot, None)

    def forget(self, feed: Feed) -> None:
        """Nobody follows it any more."""
        feed.end()
        self._interests_length -= size_of(feed.interest)
        del self._feeds[feed.application, feed.digest]
        _remove(self._by_application, feed.application, feed)
        _remove(self._by_slot, feed.slot, feed)


def _remove(index: dict[K, dict[Feed, None]], key: K, feed: Feed) -> None:
    feeds = index[key]
    del feeds[feed]
    if not feeds:
        del index[key]
