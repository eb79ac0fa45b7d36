"""Containers of a simulated cluster: what each follows and how, and what it does with what comes.

Most take every change at once; some judge it a little later, some of those refuse now and then.
Some keep a snapshot, some cannot be reached by siblings, a few relay in bad faith. An application
that starts takes what it finds in the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from swell.container.documents import Update
from swell.container.session import ContainerSession
from swell.settings import ConfigSettings
from swell.simulation.checkers.followers import Followers
from swell.simulation.fleet import CLUSTER
from swell.simulation.malice import Malice, MaliciousSession
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.world import Address, World

JUDGE_S = (0.001, 0.2)
"""How long an application looks at a change before it says whether it takes it."""

Feeds = tuple[tuple[str, tuple[str, ...]], ...]
"""Applications and interests; one feed of an application, so that a change tells its feed."""


@dataclass(frozen=True)
class Manner:
    """What a container is like."""

    owner: str
    site: str
    feeds: Feeds
    listens: bool = True
    willing: bool = True
    keeps: bool = True
    judges: bool = False
    refuses: float = 0.0
    """Share of the changes that it refuses, if it judges."""


def manner(rng: Random, applications: Sequence[str], sites: Sequence[str], number: int) -> Manner:
    """One container of a fleet: most are plain ones that siblings can reach."""
    owner = applications[number % len(applications)]
    site = sites[number // len(applications) % len(sites)]
    chance = rng.random()
    own: tuple[str, ...] = ("limits.json", "pay/*") if chance < 0.1 else ()
    feeds: Feeds = ((owner, own),)
    if chance > 0.85:
        other = rng.choice([one for one in applications if one != owner])
        feeds += ((other, rng.choice(((), ("pay/*",)))),)
    judges = rng.random() < 0.2
    return Manner(
        owner,
        site,
        feeds,
        listens=rng.random() < 0.9,
        willing=rng.random() < 0.9,
        keeps=rng.random() < 0.8,
        judges=judges,
        refuses=0.1 if judges and rng.random() < 0.5 else 0.0,
    )


class Container:
    """One container process; its sessions are watched through all its lives."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        manner: Manner,
        nodes: Callable[[], Sequence[str]],
        settings: ConfigSettings,
        bugs: frozenset[str],
        followers: Followers,
        malice: Malice | None = None,
    ) -> None:
        self.name = name
        self.manner = manner
        self.malice = malice
        self.rng = simulation.rng(name)
        self.last: ContainerSession | None = None
        """Of this life, or the last one."""
        self.restarts = 0
        self.counted: dict[str, int] = {}
        """Counters of earlier lives."""
        self._free_s = 0.0
        """When the application has judged all that it has heard of, by the clock of this life."""
        self._nodes = nodes
        self._settings = settings
        self._bugs = bugs
        self._followers = followers
        for application, interest in manner.feeds:
            followers.follow(name, application, interest)
        self.process: Process = simulation.add(name, manner.site, self._factory)

    @property
    def session(self) -> ContainerSession | None:
        """None while it is not running."""
        return self.last if self.process.alive else None

    def counter(self, name: str) -> int:
        """Over all lives."""
        now = self.last.counters[name] if self.last is not None else 0
        return self.counted.get(name, 0) + now

    # Lives.

    def _factory(self, world: World) -> ContainerSession:
        if self.last is not None:
            self._end(self.last)
        names = list(self._nodes())
        self.rng.shuffle(names)
        about = self.manner
        self._free_s = world.now()
        session = self._make(world, [Address(name, 0) for name in names])
        self.last = session
        for application, interest in about.feeds:
            session.subscribe(application, interest, automatic=not about.judges)
        session.when_ready(lambda: self._followers.on_ready(session, about.judges))
        return session

    def _make(self, world: World, addresses: Sequence[Address]) -> ContainerSession:
        about = self.manner
        address = Address(self.name, 0) if about.listens else None

        def hear(update: Update) -> None:
            self._on_update(world, update)

        make: Callable[..., ContainerSession] = ContainerSession
        if self.malice is not None:
            make = partial(MaliciousSession, malice=self.malice)
        return make(
            world,
            CLUSTER,
            addresses,
            self.name,
            about.owner,
            about.site,
            settings=self._settings,
            address=address,
            willing=about.willing,
            keep=about.keeps,
            bugs=self._bugs,
            hear=hear,
        )

    def _end(self, old: ContainerSession) -> None:
        self.restarts += 1
        for what, count in old.counters.items():
            self.counted[what] = self.counted.get(what, 0) + count
        snapshot = old.snapshot
        self._followers.on_end(old, kept=snapshot is not None and not snapshot.failed)

    # Changes.

    def _on_update(self, world: World, update: Update) -> None:
        self._followers.on_update(self.name, update)
        if not self.manner.judges:
            self._followers.of(self.name, update.application).accept(update.name, update.version)
            return
        # One after the other, in the order in which they came.
        self._free_s = max(self._free_s, world.now()) + self.rng.uniform(*JUDGE_S)
        world.call_later(self._free_s - world.now(), lambda: self._judge(update))

    def _judge(self, update: Update) -> None:
        session = self.session
        assert session is not None
        attachments = session.attaching.all.values()
        feed = next(one.feed for one in attachments if one.feed.application == update.application)
        followed = self._followers.of(self.name, update.application)
        if self.rng.random() < self.manner.refuses:
            followed.refuse(update.name, update.version)
            session.rejected(feed, update.name, update.version, "the application does not like it")
        else:
            followed.accept(update.name, update.version)
            session.applied(feed, update.name, update.version)
