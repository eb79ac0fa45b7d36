"""Groups of containers in step, and the branches that serve them (RIP-7, RIP-9).

A group shares the owner and the site: only within it containers relay for each other (RIP-12). Its
branches are made anew when somebody leaves or is avoided; at leisure when somebody has come or
the ranks have changed. Until then a newcomer has a branch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from swell.config.delivery.ranks import UNKNOWN, median_of
from swell.config.delivery.trees import Bough, Candidate, grow
from swell.config.messages import DestinationList, Entry, Level, Lists
from swell.wire import codec

if TYPE_CHECKING:
    from swell.config.delivery.subscribers import Container, Member
    from swell.settings import ConfigSettings

JOIN_S = 0.1
"""Newcomers wait that long for their places in a tree that is in use."""

STALE_SCORES = 4
"""A score is forgotten after so many periods."""

RELAY_RANKS = 4
"""A relay stays one unless others are so many ranks less loaded: passing on makes up for about that
much, and a new relay has to dial everybody on its list."""

_APPLIED = int(Level.APPLIED)

Sign = Callable[["Container", bytes], bytes]
"""Signs a list, by its digest, for containers like this one."""

Place = tuple["Member", ...]
"""Those whom one place of a list stands for: a container, or a relay and all behind it."""


class Branch:
    """A relay with all behind it, or one container that is served directly.

    `delivered`, `applied`: the steps that all of them have reached, as complete receipts said."""

    __slots__ = (
        "_floors", "_frame", "_names", "_places", "applied", "delivered", "digest", "highest",
        "lists", "members", "relay", "secrets", "since", "thinned",
    )  # fmt: skip

    def __init__(
        self,
        members: Sequence[Member],
        lists: tuple[tuple[bytes, DestinationList], ...] = (),
        places: dict[bytes, tuple[Place, ...]] | None = None,
    ) -> None:
        self.members = tuple(members)
        self.relay = self.members[0]
        self.digest = lists[0][0] if lists else b""
        self.lists = lists
        """Its own list first, then those of relays below."""
        self._places = places
        self.secrets = tuple(member.container.secret for member in self.members)
        self.delivered = 0
        self.applied = 0
        self.since = 0.0
        self.thinned = False
        """Somebody has left it."""
        self._floors = self._lowest(1), self._lowest(2)
        self.highest = max(member.applied for member in self.members)
        """No member is known to have applied more than this and `applied`."""
        self._frame = b""
        self._names: tuple[str, ...] = ()

    def _lowest(self, level: int) -> int:
        if level == _APPLIED:
            return min(member.applied for member in self.members)
        return min(member.delivered for member in self.members)

    @property
    def names(self) -> tuple[str, ...]:
        """Of its members; always the same object."""
        if not self._names:
            self._names = tuple(member.name for member in self.members)
        return self._names

    @property
    def digests(self) -> Iterable[bytes]:
        """Of all its lists; of an empty one if it has none."""
        return self._places if self._places is not None else (b"",)

    def places(self, digest: bytes) -> tuple[Place, ...]:
        """Of the list with this digest: place 0 is the relay's own."""
        return self._places[digest] if self._places is not None else (self.members,)

    @property
    def relays(self) -> list[Member]:
        """All of it who relay, the one that the primary sends to first."""
        return [self.places(digest)[0][0] for digest, _ in self.lists]

    def served_by(self, member: Member) -> list[Member]:
        """The relay that has this one on its list, and all behind that relay."""
        found = self.members
        for digest, _ in self.lists[1:]:
            row = self.places(digest)
            if any(member in place for place in row[1:]):
                found = tuple(one for place in row for one in place)
        return list(found)

    def below(self, digest: bytes, place: int) -> bytes:
        """The list of a relay at a place of the list with this digest; empty: it has none."""
        what = next(what for known, what in self.lists if known == digest)
        return what.entries[place - 1].below if place else b""

    def progress(self, level: int) -> int:
        """What complete receipts have said of all its members."""
        return self.applied if level == _APPLIED else self.delivered

    def low(self, level: int) -> int:
        """A step that all who are in it have reached for certain."""
        return max(self._floors[level - 1], self.progress(level))

    def credit(self, level: int, upto: int, now: float) -> None:
        """All of them have said that a level is reached."""
        if upto > self.delivered:
            self.delivered, self.since = upto, now
        if level == _APPLIED and upto > self.applied:
            self.applied, self.since = upto, now
        if self.thinned:
            by = self.relay.name
            for member in self.members:
                if member.branch is not self:
                    member.credit(level, upto, now, by if member is not self.relay else "")

    def lists_frame(self, sign: Sign) -> bytes:
        """The frame that brings its lists to the relay. Those of relays below are signed: they get
        them by it."""
        if not self._frame:
            container = self.relay.container
            signatures = [b"", *(sign(container, below) for below, _ in self.lists[1:])]
            lists = tuple(what for _, what in self.lists)
            self._frame = codec.encode(Lists(lists, tuple(signatures)))
        return self._frame

    def has_old_secrets(self) -> bool:
        """Somebody has come back by another link since."""
        pairs = zip(self.members, self.secrets, strict=True)
        return any(member.container.secret is not secret for member, secret in pairs)


def alone(member: Member) -> Branch:
    return Branch((member,))


def behind(relay: Member, leaves: Sequence[Member], boughs: Sequence[Branch] = ()) -> Branch:
    """The branch of a relay with a list; those with the longest way come first in it."""
    entries = [_entry(branch.relay, branch.digest) for branch in boughs]
    entries += [_entry(leaf) for leaf in leaves]
    if not entries:
        return alone(relay)
    what = DestinationList(tuple(entries))
    digest = what.digest()
    members = [relay]
    places: dict[bytes, tuple[Place, ...]] = {}
    lists = [(digest, what)]
    row: list[Place] = [(relay,)]
    for branch in boughs:
        members += branch.members
        row.append(branch.members)
        if branch.digest:
            lists += branch.lists
            places |= {below: branch.places(below) for below in branch.digests}
    members += leaves
    row += ((leaf,) for leaf in leaves)
    places[digest] = tuple(row)
    return Branch(members, tuple(lists), places)


def _entry(member: Member, below: bytes = b"") -> Entry:
    container = member.container
    return Entry(container.name, container.host, container.port, below)


class Group:
    """The containers in step of one feed that share owner and site. `stale_list` plants a bug: a
    tree that is in use is not made anew."""

    __slots__ = (
        "_extras", "_stale", "_stale_list", "_trees", "built_at", "members", "rescored", "share",
    )  # fmt: skip

    def __init__(self, stale_list: bool = False) -> None:
        self.members: dict[Member, None] = {}
        self.share = 0
        self.rescored = False
        self.built_at = 0.0
        self._trees: list[Branch] = []
        self._extras: dict[Member, Branch] = {}
        self._stale = False
        self._stale_list = stale_list

    def branches(self) -> list[Branch]:
        return [*self._trees, *self._extras.values()]

    def join(self, member: Member) -> None:
        assert member.branch is None
        self.members[member] = None
        if self._stale_list and self._trees:
            member.branch = self._trees[0]
        else:
            member.branch = self._extras[member] = alone(member)

    def leave(self, member: Member) -> None:
        del self.members[member]
        if self._extras.pop(member, None) is None:
            self._stale = True
            if member.branch is not None:
                member.branch.thinned = True
        member.settle()

    def spoil(self) -> None:
        """Who may relay, or be reached, has changed."""
        self._stale = True

    def is_due(self, now: float, score_s: float) -> bool:
        """Whether the tree has to be made anew before it is used."""
        if self._stale:
            return not (self._stale_list and self._trees)
        age_s = now - self.built_at
        return (bool(self._extras) and (age_s >= JOIN_S or not self._trees)) or (
            self.rescored and age_s >= score_s
        )

    def build(self, settings: ConfigSettings, relaying: bool, now: float) -> None:
        """Make the branches anew, with `share` relays at the first level."""
        members = sorted(self.members, key=lambda member: member.container.name)
        homes = self._homes(members)
        for branch in self.branches():
            branch.thinned = True  # what is on its way counts for those who were in it
        for member in members:
            member.settle()
        relays = {branch.relay for branch in self._trees if branch.digest}
        candidates = _candidates(members, relays, settings, relaying, now)
        tree = grow(candidates, settings.relay_fanout, self.share, homes)
        self._trees = [_branch(bough, members) for bough in tree.boughs]
        self._trees += (alone(members[place]) for place in tree.direct)
        for branch in self._trees:
            for member in branch.members:
                member.branch = branch
        self._extras.clear()
        self._stale = self.rescored = False
        self.built_at = now

    def _homes(self, members: Sequence[Member]) -> dict[int, int]:
        """Who is on whose list, as places among the members."""
        number = {member: place for place, member in enumerate(members)}
        return {
            number[listed[0]]: number[relay]
            for branch in self._trees
            if branch.digest
            for digest in branch.digests
            for (relay, *_), *row in (branch.places(digest),)
            for listed in row
            if relay in number and listed[0] in number
        }


def _branch(bough: Bough, members: Sequence[Member]) -> Branch:
    boughs = [_branch(below, members) for below in bough.boughs]
    return behind(members[bough.relay], [members[leaf] for leaf in bough.leaves], boughs)


def _candidates(
    members: Sequence[Member],
    relays: Collection[Member],
    settings: ConfigSettings,
    relaying: bool,
    now: float,
) -> list[Candidate]:
    horizon = now - STALE_SCORES * settings.score_s
    ranks = [
        member.container.rank if member.container.scored_at >= horizon else UNKNOWN
        for member in members
    ]
    median = median_of(ranks)
    found = []
    for member, rank in zip(members, ranks, strict=True):
        container = member.container
        reachable = relaying and bool(container.host) and container.direct_until <= now
        willing = reachable and member.willing and container.avoided_until <= now
        rank = median if rank == UNKNOWN else rank
        if not settings.adaptive:
            rank = 0
        elif member in relays:
            rank = max(0, rank - RELAY_RANKS)
        found.append(Candidate(rank, willing, reachable))
    return found
