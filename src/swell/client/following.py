"""The feeds that a connection follows, who uses them, and whether they are up to date."""

from __future__ import annotations

import asyncio
import time

from swell.client.documents import Document
from swell.client.interests import covers
from swell.config.delivery.interest import Interest, matcher
from swell.config.names import check_application
from swell.container import documents as kept
from swell.container.feed import Feed
from swell.container.session import ContainerSession
from swell.errors import RefusedError, UnavailableError


class Following:
    """A feed, as this side uses it."""

    __slots__ = ("feed", "matches", "restored", "users")

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.matches = matcher(feed.interest)
        self.users = 0
        """Without any it is not followed any more."""
        self.restored = 0
        """The step that it had on disk."""

    def note_restored(self) -> None:
        self.restored = self.feed.at


class Feeds:
    """All of one connection."""

    def __init__(self, session: ContainerSession) -> None:
        self._session = session
        self._all: dict[Feed, Following] = {}
        self._current: dict[Feed, None] = {}
        """Those that have had all that their node had."""
        self._news = asyncio.Event()
        self.closed = False

    def follow(self, application: str, names: Interest) -> Following:
        """The feed that has all of these names, new if there is none; one user more."""
        check_application(application, reserved=True)
        for one in self._all.values():
            if one.feed.application == application and covers(one.feed.interest, names):
                one.users += 1
                return one
        feed = self._session.subscribe(application, names, automatic=False)
        following = self._all[feed] = Following(feed)
        following.users = 1
        if self._session.ready:
            following.note_restored()
        else:
            self._session.when_ready(following.note_restored)
        return following

    def release(self, following: Following) -> None:
        """One user less."""
        following.users -= 1
        if not following.users:
            del self._all[following.feed]
            self._current.pop(following.feed, None)
            self._session.unsubscribe(following.feed)

    def with_name(self, application: str, name: str) -> list[Feed]:
        """Those that bring a configuration."""
        return [
            one.feed
            for one in self._all.values()
            if one.feed.application == application and one.matches(name)
        ]

    def shown(self, following: Following, document: kept.Document) -> Document:
        """A document for the program."""
        confirmed = following.feed in self._current
        return Document(document, not confirmed and document.step <= following.restored)

    def refusal(self, feed: Feed) -> RefusedError | None:
        """Why the cluster does not let this container have it."""
        attachment = self._session.attaching.all.get(feed.key)
        return attachment.refusal if attachment is not None else None

    async def has_snapshot(self) -> bool:
        """Once what was on disk is here: whether there was anything."""
        await self.ready()
        return any(one.feed.documents for one in self._all.values())

    async def ready(self) -> None:
        """Until what was on disk is here."""
        if not self._session.ready:
            read = asyncio.Event()
            self._session.when_ready(read.set)
            await read.wait()

    async def is_current(self, feed: Feed, until: float) -> bool:
        """Whether a node has said, by that time, that all it has is here."""
        while feed not in self._current:
            refusal = self.refusal(feed)
            if refusal is not None and not feed.documents:
                raise refusal
            if self.closed:
                raise UnavailableError("the client was closed")
            news = self._news
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await news.wait()
            except TimeoutError:
                return False
        return True

    def on_current(self, feed: Feed) -> None:
        if feed not in self._current:
            self._current[feed] = None
            self.tell()

    def tell(self) -> None:
        """Whoever waits looks again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        self.closed = True
        self.tell()
