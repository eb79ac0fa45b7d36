"""A container's configurations: the newest here, and every change as it comes (RIP-2 … RIP-5).

The container follows its own application with one interest, and whatever else it is asked for with
further ones. A version counts as applied here when every reader who watches its name has taken
it, or has said so; at once where nobody watches, except in the first moment, in which a program
gets to say what it watches. The protocol is `swell.container`; here are readers and futures.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

import structlog

from swell.client.deadlines import check_deadline
from swell.client.documents import Document, Update
from swell.client.following import Feeds, Following
from swell.client.interests import check_names
from swell.client.watching import EVERYTHING, Watch
from swell.container import documents as kept
from swell.container.feed import Feed
from swell.container.session import ContainerSession
from swell.errors import RefusedError, UnavailableError

SNAPSHOT_S = 1.0
"""What is on disk is used when no node has confirmed it within this time after the start."""

CLAIM_S = 1.0
"""What comes within this time after the start waits for somebody who watches it."""

UNJUDGED = "its reader has ended without saying whether it is applied"

Callback = Callable[[Update], Awaitable[None] | None]


class Containers:
    """The readers of one connection. A session is given once it exists: it tells these things."""

    def __init__(self, application: str, deadline_s: float) -> None:
        self._own = application
        self._deadline_s = deadline_s
        self._session: ContainerSession
        self._feeds: Feeds
        self._watches: dict[Watch, Following] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._unclaimed: dict[tuple[str, str], int] | None = {}
        """Versions that nobody watches, by application and name; None after the first moment."""
        self._claims: asyncio.TimerHandle | None = None
        self._snapshot_until = time.monotonic() + SNAPSHOT_S

    def begin(self, session: ContainerSession, interest: Sequence[str]) -> None:
        self._session = session
        self._feeds = Feeds(session)
        self._feeds.follow(self._own, check_names(interest))
        self._claims = asyncio.get_running_loop().call_later(CLAIM_S, self.expire_claims)

    async def has_snapshot(self) -> bool:
        return await self._feeds.has_snapshot()

    def close(self) -> None:
        if self._claims is None:
            return  # it never began
        self._claims.cancel()
        self._feeds.close()
        for task in self._tasks:
            task.cancel()
        for watch in self._watches:
            watch.end()

    # What programs use.

    async def config(
        self, name: str, application: str | None = None, deadline_s: float | None = None
    ) -> Document | None:
        """The newest version here, unless it is rejected and one before it was applied."""
        within_s = check_deadline(self._deadline_s if deadline_s is None else deadline_s)
        until = time.monotonic() + within_s
        # It has one user more for good: who asked once is likely to ask again.
        following = self._feeds.follow(application or self._own, check_names(name))
        await self._feeds.ready()
        feed = following.feed
        if name in feed.documents:
            until = min(until, self._snapshot_until)
        if not await self._feeds.is_current(feed, until) and name not in feed.documents:
            raise UnavailableError(
                f"no node has told within {within_s:g} s what {name} of {feed.application} is, and"
                " there is no snapshot of it: try again, or see whether nodes run"
            )
        document = feed.in_use(name)
        if document is None or document.deleted:
            return None
        if self._unclaimed and self._unclaimed.pop((feed.application, name), 0):
            self._accept(feed.application, name, document.version)
        return self._feeds.shown(following, document)

    def open(self, names: Sequence[str], application: str | None, manual: bool) -> Watch:
        """A reader, to be taken from until it is left."""
        interest = check_names(names)
        following = self._feeds.follow(application or self._own, interest)
        watch = Watch(self, following.feed.application, interest, manual)
        self._watches[watch] = following
        if self._session.ready:
            self._fill(watch, following)
        else:
            self._session.when_ready(partial(self._fill, watch, following))
        refusal = self._feeds.refusal(following.feed)
        if refusal is not None:
            watch.fail(refusal)
        return watch

    def _fill(self, watch: Watch, following: Following) -> None:
        """Begin with what is here."""
        for document in following.feed.documents.values():
            if watch.matches(document.name) and not document.deleted:
                watch.offer(self._feeds.shown(following, document))

    async def watch(
        self, names: Sequence[str], application: str | None, manual: bool
    ) -> AsyncGenerator[Update, None]:
        """Until its reader stops, or the connection ends."""
        watch = self.open(names, application, manual)
        try:
            while (update := await watch.take()) is not None:
                yield update
        finally:
            self.leave(watch)

    def leave(self, watch: Watch) -> None:
        """Its reader is gone. What that took and did not judge is not known to be in use."""
        following = self._watches.pop(watch, None)
        if following is None or self._feeds.closed:
            return
        for name, version, taken in watch.open():
            self.judge(watch, name, version, UNJUDGED if taken else None)
        self._feeds.release(following)

    def on_update(
        self, names: Sequence[str], callback: Callback, application: str | None
    ) -> Callable[[], None]:
        """Call it with every update, one after the other; what it raises rejects the update."""

        async def run() -> None:
            try:
                async for update in self.watch(names, application, manual=True):
                    await _call(callback, update)
            except RefusedError as error:
                structlog.get_logger().warning("watch ended", names=names, reason=str(error))

        check_names(names)
        task = asyncio.get_running_loop().create_task(run())
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

        def stop() -> None:
            task.cancel()

        return stop

    # What the session tells.

    def on_current(self, feed: Feed) -> None:
        self._feeds.on_current(feed)

    def on_refused(self, application: str, error: RefusedError) -> None:
        for watch, following in self._watches.items():
            if self._feeds.refusal(following.feed) is error:
                watch.fail(error)
        self._feeds.tell()

    def on_change(self, update: kept.Update) -> None:
        """A feed has applied a change."""
        application, name, document = update.application, update.name, Document(update.document)
        if any([watch.offer(document) for watch in self._takers(application, name)]):
            return
        if self._unclaimed is None:
            self._accept(application, name, update.version)
        else:
            self._unclaimed[application, name] = update.version

    def expire_claims(self) -> None:
        """What nobody watches by now counts as applied."""
        unclaimed, self._unclaimed = self._unclaimed or {}, None
        for (application, name), version in unclaimed.items():
            if not self._takers(application, name):
                self._accept(application, name, version)

    def _takers(self, application: str, name: str) -> list[Watch]:
        return [
            watch
            for watch in self._watches
            if watch.application == application and watch.matches(name)
        ]

    # Judgement.

    def judge(self, watch: Watch, name: str, version: int, reason: str | None) -> None:
        """One reader has judged a version. It is applied when all have."""
        application = watch.application
        if reason is not None:
            for feed in self._feeds.with_name(application, name):
                self._session.rejected(feed, name, version, reason)
            return
        judged = [one.judged(name) for one in self._takers(application, name)]
        lowest = min(judged, default=EVERYTHING)
        self._accept(application, name, version if lowest == EVERYTHING else lowest)

    def _accept(self, application: str, name: str, version: int) -> None:
        for feed in self._feeds.with_name(application, name):
            self._session.applied(feed, name, version)


async def _call(callback: Callback, update: Update) -> None:
    try:
        outcome = callback(update)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception as error:
        await update.rejected(str(error) or type(error).__name__)
    else:
        await update.applied()
