"""A fleet process: hosts many containers on one loop.

Every container is a real one: a world, a `ContainerSession`, a listening socket and links of its
own, so bursts reach it through the kernel as they would in a process of its own. What containers
of one process share is the loop, and the cache of verified bursts that any process has. There is no
task per container: sessions are driven by their sockets, and this module only by what they tell.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path

from swell.config.messages import DELIVER
from swell.container.documents import Update
from swell.container.feed import Feed
from swell.container.session import ContainerSession
from swell.errors import RefusedError, SwellError
from swell.events.rows import Life
from swell.lab.fleet_messages import Collected, Failed, Following, Hosted
from swell.lab.hosted_fleet import OPENING_MAX, HostedFleet, host
from swell.lab.server_process import memory_mib
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.runtime.event_log import EventLog
from swell.runtime.security import TlsMaterial
from swell.runtime.world import RuntimeWorld
from swell.settings import EventSettings


class Follower:
    """One feed of one container, and how far it has come."""

    __slots__ = ("at", "by", "feed", "hosted", "runs")

    def __init__(self, hosted: Hosted, feed: Feed, runs: array[int]) -> None:
        self.hosted = hosted
        self.feed = feed
        self.runs = runs
        self.at = 0
        self.by = ""

    def following(self, contents: bool) -> Following:
        digest = self._digest() if contents else b""
        return Following(self.hosted.name, self.feed.application, self.feed.at, digest, self.by)

    def _digest(self) -> bytes:
        digest = blake2b(digest_size=16)
        for name, document in sorted(self.feed.documents.items()):
            digest.update(b"%b\0%d\0%b\0" % (name.encode(), document.version, document.id))
            digest.update(document.bytes())
        return digest.digest()


class Fleet(HostedFleet):
    """All containers of this process."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._worlds: list[RuntimeWorld] = []
        self._sessions: list[ContainerSession] = []
        self._followers: dict[Feed, Follower] = {}
        self._taken_ns = array("q")
        self._started = False
        self._coming: list[Hosted] = []
        """Not begun yet, the next one last."""
        self._opening: dict[Feed, None] = {}
        """Begun, and not known to have all that their nodes have."""
        self._tls: TlsMaterial | None = None
        self._log: EventLog | None = None

    async def end(self) -> None:
        await asyncio.gather(*(world.stop() for world in self._worlds))
        if self._log is not None:
            await self._log.stop()

    # Coming up.

    def _begin(self) -> None:
        start = self._start
        self._tls = TlsMaterial(Path(start.certificates)) if start.certificates else None
        if start.events:
            settings = EventSettings(directory=start.events)
            self._log = EventLog(settings, f"fleet-{os.getpid()}", time.time_ns() // 1000)
        self._coming = list(reversed(start.containers))
        self._open_more()

    def _open_more(self) -> None:
        while self._coming and len(self._opening) < OPENING_MAX:
            try:
                self._open(self._coming.pop())
            except SwellError as error:
                self._say(Failed(str(error)))
                self._coming.clear()
                self._started = True
                return
        if not self._coming and not self._opening and not self._started:
            self._started = True
            self._say_started()

    def _open(self, hosted: Hosted) -> None:
        start = self._start
        tls = self._tls
        name = tls.node if tls is not None else hosted.name
        world = RuntimeWorld(name, None, tls, cluster=start.cluster)
        if self._log is not None:
            life = Life(world.cluster, hosted.name, world.wall_us(), hosted.site)
            world.record(self._log.recorder(life))
        session = ContainerSession(
            world,
            world.cluster,
            start.addresses,
            hosted.name,
            hosted.owner,
            hosted.site,
            settings=start.settings,
            address=world.listen(hosted.host, 0) if hosted.listens else None,
            hear=partial(self._on_update, {}) if start.heard else None,
            refused=self._on_refused,
            current=self._on_current,
        )
        world.start(session)
        self._worlds.append(world)
        self._sessions.append(session)
        followers = []
        for application in hosted.follows:
            feed = session.subscribe(application)
            runs = self._runs.setdefault(application, array("q"))
            follower = self._followers[feed] = Follower(hosted, feed, runs)
            followers.append(follower)
            self._opening[feed] = None
        if start.traced:
            trace(session, followers, self._taken_ns)

    def _on_refused(self, application: str, error: RefusedError) -> None:
        self._say(Failed(f"a container may not follow {application}: {error}"))

    # What happens.

    def _on_current(self, feed: Feed) -> None:
        """A feed has applied something, or has all that its node has."""
        follower = self._followers[feed]
        before, after = follower.at, feed.at
        if after > before:
            if follower.hosted.slow_s:
                time.sleep(follower.hosted.slow_s)
            follower.runs.extend((before, after, time.monotonic_ns()))
            follower.at = after
        elif after < before:
            self._disorder += 1
        if self._opening and feed in self._opening:
            del self._opening[feed]
            self._loop.call_soon(self._open_more)

    def _on_update(self, versions: dict[tuple[str, str], int], update: Update) -> None:
        """Versions of one configuration, as one container hears them, only grow; a whole value may
        stand for several."""
        name = update.application, update.name
        before = versions.get(name, 0)
        if update.version <= before:
            self._disorder += 1
        versions[name] = update.version

    def _collected(self, contents: bool) -> Collected:
        taken_ns = self._taken_ns.tobytes()
        del self._taken_ns[:]
        counters = Counter(self._log.counters if self._log is not None else {})
        for world, session in zip(self._worlds, self._sessions, strict=True):
            counters.update(world.counters)
            counters.update(session.counters)
        return Collected(
            self._take_runs(),
            tuple(one.following(contents) for one in self._followers.values()),
            self._disorder,
            dict(counters),
            time.process_time(),
            memory_mib(os.getpid()).resident,
            taken_ns,
        )


def trace(session: ContainerSession, followers: Sequence[Follower], taken_ns: array[int]) -> None:
    """Note who brings this container's bursts, and how long each takes until it is verified,
    passed on and applied."""

    def on_deliver(link: Session, frame: bytes) -> None:
        shown = session.siblings.of(link) if session.siblings is not None else None
        for follower in followers:
            follower.by = shown.container if shown is not None else ""
        began_ns = time.monotonic_ns()
        session.on_deliver(link, frame)
        taken_ns.append(time.monotonic_ns() - began_ns)

    kinds = (LinkKind.CLIENT, LinkKind.RELAY)
    session.store.peers.sessions.handle_frames(DELIVER, on_deliver, kinds)


def main(pipe: Connection) -> None:
    host(Fleet, pipe)
