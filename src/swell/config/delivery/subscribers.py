"""The subscription table: containers, and what each has of its feeds (RIP-3).

Nothing of it is durable: containers say on subscribing what they have. What those in step have
is kept with their branch, once for all of them; `Member` adds what is its own.

Invariants: a link belongs to one container and a container to one link, the latest; whoever has
gone stays listed as offline for a while, bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from sys import intern
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from swell.config.delivery.ranks import UNKNOWN
from swell.config.messages import DestinationList, Level, Subscribe
from swell.overlay.sessions import Session

if TYPE_CHECKING:
    from swell.config.delivery.feeds import Feed, Leg
    from swell.config.delivery.groups import Branch

OFFLINE_MAX = 65_536
"""Containers that are listed as offline, at most; the earliest are forgotten first."""

OFFLINE_INTERESTS_MAX = 16 * 1024 * 1024
"""Characters in all their interests."""

ROSTER_PARTS = 64
"""Names are dealt out to so many parts of a roster."""

LISTS_MAX = 32
"""Destination lists that a relay is known to have; it keeps more itself."""

REJECTIONS_MAX = 64
"""Rejected steps of one container and feed that are remembered."""

_APPLIED = int(Level.APPLIED)


class Rejection(NamedTuple):
    """`uses`: the version that the application goes on with."""

    step: int
    name: str
    reason: str
    uses: int = 0


class Container:
    """One container and its link."""

    __slots__ = (
        "avoided_until", "confirmed_at", "direct_until", "host", "identity", "interest_bytes",
        "legs", "lists", "members", "name", "offline_since", "owner", "part", "pass_",
        "pass_until", "port", "rank", "score", "scored_at", "secret", "session", "site", "strikes",
        "suspicions",
    )  # fmt: skip

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.part = crc32(name.encode()) % ROSTER_PARTS
        self.owner = intern(owner)
        self.site = ""
        self.host = ""
        self.port = 0
        self.session: Session | None = None
        self.identity = ""
        """Whose link it is: of a token, or a certificate; empty where nobody can know."""
        self.secret = b""
        self.pass_ = b""
        self.pass_until = 0.0
        self.members: list[Member] = []
        self.interest_bytes = 0
        self.legs: dict[bytes, Leg] = {}
        """Bursts on their way, by burst id and list digest."""
        self.lists: OrderedDict[bytes, DestinationList] | None = None
        """Lists that were sent on this link."""
        self.score = 0.0
        self.rank = UNKNOWN
        self.scored_at = 0.0
        self.strikes = 0.0
        self.avoided_until = 0.0
        """It is not picked as a relay before."""
        self.direct_until = 0.0
        """No relay is asked to reach it before."""
        self.suspicions = 0
        """How often it was one of those of whom one has lied."""
        self.offline_since = 0.0
        self.confirmed_at = inf
        """Since when it is known to have its secret: what a relay brings may overtake it."""

    def is_as(self, subscribe: Subscribe) -> bool:
        """Whether what it says of itself is known; else its places in trees change."""
        said = (subscribe.site, subscribe.host, subscribe.port)
        return said == (self.site, self.host, self.port)

    def describe(self, subscribe: Subscribe) -> None:
        """Take over what it says of itself."""
        self.site, self.host = intern(subscribe.site), subscribe.host
        self.port = subscribe.port

    def knows(self, digest: bytes) -> bool:
        return self.lists is not None and digest in self.lists

    def learn(self, digest: bytes, what: DestinationList) -> None:
        if self.lists is None:
            self.lists = OrderedDict()
        self.lists[digest] = what
        if len(self.lists) > LISTS_MAX:
            self.lists.popitem(last=False)


class Member:
    """One container's place in one feed. In step while it has a branch, else a stray."""

    __slots__ = (
        "applied", "blame", "blocked_at", "branch", "by", "container", "delivered", "failed",
        "feed", "leg", "proven", "rejected", "rejections", "since", "tries", "willing",
    )  # fmt: skip

    def __init__(self, container: Container, feed: Feed) -> None:
        self.container = container
        self.feed = feed
        self.delivered = 0
        self.applied = 0
        self.willing = False
        """It may relay this feed, and would."""
        self.since = 0.0
        """When the last step was applied, or delivered."""
        self.by = ""
        """The relay that brought it."""
        self.branch: Branch | None = None
        self.leg: Leg | None = None
        """What is on its way to it alone, or by another relay than its branch's."""
        self.blame: Leg | None = None
        """The relay's leg by which it should have got what it did not get."""
        self.tries = 0
        self.failed = ""
        """Why it is given up until it speaks again."""
        self.blocked_at = 0.0
        """Its link is full since then."""
        self.proven = False
        """It has spoken since something was sent to it in vain."""
        self.rejected: Rejection | None = None
        """The last one."""
        self.rejections: dict[int, Rejection] | None = None
        """The last few, by step."""

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def online(self) -> bool:
        return self.container.session is not None

    def reached(self, level: int) -> int:
        """The last step that is delivered or applied there."""
        own = self.applied if level == _APPLIED else self.delivered
        branch = self.branch
        return own if branch is None else max(own, branch.progress(level))

    def credit(self, level: int, upto: int, now: float, by: str) -> None:
        """It has said that a level is reached."""
        if upto > self.delivered:
            self.delivered, self.since, self.by = upto, now, by
        if level == _APPLIED and upto > self.applied:
            self.since = now
            self.raise_applied(upto)

    def raise_applied(self, upto: int) -> None:
        """All up to a step is applied there, whatever is known of others."""
        if upto > self.applied:
            self.applied = upto
            if self.branch is not None:
                self.branch.highest = max(self.branch.highest, upto)

    def reject(self, rejection: Rejection) -> None:
        """Its application has refused a step; what came later it may have applied."""
        self.rejected = rejection
        if self.rejections is None:
            self.rejections = {}
        self.rejections[rejection.step] = rejection
        if len(self.rejections) > REJECTIONS_MAX:
            del self.rejections[next(iter(self.rejections))]

    def refusal(self, name: str) -> Rejection | None:
        """The last one of a configuration."""
        found = [one for one in (self.rejections or {}).values() if one.name == name]
        return max(found, default=None)

    def abandon_leg(self) -> None:
        """Nothing that is on its way to it is waited for. A leg that it shares with others goes
        on for them."""
        leg, self.leg = self.leg, None
        if leg is not None and leg.burst is None:
            leg.end()

    def settle(self) -> None:
        """Leave the branch and keep what it has reached."""
        branch, self.branch = self.branch, None
        if branch is None:
            return
        by = branch.relay.name if branch.relay is not self else ""
        if branch.delivered > self.delivered:
            self.delivered, self.since, self.by = branch.delivered, branch.since, by
        if branch.applied > self.applied:
            self.applied, self.since = branch.applied, branch.since

    def speaks(self) -> None:
        """It is alive: what was sent in vain may be tried again."""
        self.proven = True
        self.failed = ""
        self.tries = 0


class Subscribers:
    """All containers of one node."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Container] = {}
        self._by_session: dict[Session, Container] = {}
        self._offline: OrderedDict[Container, int] = OrderedDict()
        """Those without a link, the earliest first, and how long their interests are."""
        self._offline_length = 0

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def offline(self) -> int:
        return len(self._offline)

    def of(self, session: Session) -> Container | None:
        return self._by_session.get(session)

    def find(self, owner: str, name: str) -> Container | None:
        return self._by_name.get((owner, name))

    def attach(self, session: Session, name: str, owner: str, secret: bytes) -> Container:
        """The container of a link. One that comes by a new link gets a new secret and leaves the
        link it had."""
        container = self._by_name.get((owner, name))
        if container is None:
            container = Container(name, owner)
            self._by_name[container.owner, name] = container
        if container.session is not session:
            if container.session is not None:
                del self._by_session[container.session]
            self._offline_length -= self._offline.pop(container, 0)
            container.session = session
            container.secret = secret
            container.confirmed_at = inf
            container.lists = None
            container.offline_since = 0.0
            self._by_session[session] = container
        return container

    def detach(self, container: Container, now: float) -> list[Container]:
        """Its link has ended; who is to be forgotten for it."""
        assert container.session is not None
        del self._by_session[container.session]
        container.session = None
        container.lists = None
        container.offline_since = now
        self._offline[container] = container.interest_bytes
        self._offline_length += container.interest_bytes
        return self.beyond()

    def recall(self, name: str, owner: str, site: str, since: float) -> Container:
        """One that another node has served, offline here."""
        container = self._by_name.get((owner, name))
        if container is None:
            container = Container(name, owner)
            container.site = intern(site)
            container.offline_since = since
            self._by_name[container.owner, name] = container
            self._offline[container] = 0
        return container

    def lengthen(self, container: Container, length: int) -> None:
        """One that is offline has a further interest."""
        container.interest_bytes += length
        self._offline[container] += length
        self._offline_length += length

    def beyond(self) -> list[Container]:
        """The earliest ones, as many as are too many."""
        count = len(self._offline) - OFFLINE_MAX
        length = self._offline_length - OFFLINE_INTERESTS_MAX
        found = []
        for container, size in self._offline.items():
            if count <= 0 and length <= 0:
                break
            found.append(container)
            count -= 1
            length -= size
        return found

    def expired(self, horizon: float) -> list[Container]:
        """Those who have been offline since before."""
        late = []
        for container in self._offline:
            if container.offline_since > horizon:
                break
            late.append(container)
        return late

    def forget(self, container: Container) -> None:
        """It has no subscription any more."""
        if container.session is not None:
            del self._by_session[container.session]
        self._offline_length -= self._offline.pop(container, 0)
        del self._by_name[container.owner, container.name]
