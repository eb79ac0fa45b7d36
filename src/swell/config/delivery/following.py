"""What is followed: the applications that this node serves, and the feeds made of them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from swell.config.application import Application
from swell.config.delivery.feeds import Feed
from swell.config.delivery.interest import Interest
from swell.config.machine import ConfigMachine
from swell.config.messages import interest_digest
from swell.config.names import place
from swell.config.operations import CONFIG_SERVICE
from swell.overlay.contact import Contact
from swell.store.state import Machine

K = TypeVar("K")


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
        return feed

    def of(self, application: str) -> list[Feed]:
        return list(self._by_application.get(application, ()))

    def in_slot(self, slot: int) -> list[Feed]:
        return list(self._by_slot.get(slot, ()))

    def forget(self, feed: Feed) -> None:
        """Nobody follows it any more."""
        feed.end()
        del self._feeds[feed.application, feed.digest]
        _remove(self._by_application, feed.application, feed)
        _remove(self._by_slot, feed.slot, feed)


def _remove(index: dict[K, dict[Feed, None]], key: K, feed: Feed) -> None:
    feeds = index[key]
    del feeds[feed]
    if not feeds:
        del index[key]
