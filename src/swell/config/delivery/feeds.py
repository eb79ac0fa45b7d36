"""Feeds: an application and an interest, who follows them, and what is on its way to whom.

Invariant: whoever is in step was sent everything up to `sent`. Steps between `sent` and `scanned`
have nothing of interest: no burst was made of them, and the next one covers them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from swell.config.delivery.groups import Branch, Group
from swell.config.delivery.interest import Interest, matcher
from swell.config.delivery.patience import PRIMARY_WAIT, Patience
from swell.config.delivery.trees import shares
from swell.config.messages import Level

if TYPE_CHECKING:
    from swell.config.delivery.subscribers import Container, Member
    from swell.settings import ConfigSettings

SEALED_MAX = 8
"""Bursts for strays that are kept, by where they begin."""

PARTS_MAX = 4096
"""Steps that are remembered as ends of parts. Who stands at a forgotten one finds out by the first
delta that does not fit, and begins anew."""

PATIENCES_MAX = 4096
"""Groups of one feed whose receipt times are known."""

_DELIVERED, _APPLIED = int(Level.DELIVERED), int(Level.APPLIED)


class Sealed(NamedTuple):
    """A burst as bytes."""

    id: bytes
    data: bytes
    after: int
    upto: int
    frame: bytes
    """For whoever has nobody behind."""
    cut: bool
    """It is full: more of the same would not fit."""


class Burst:
    """A burst on its way to branches of a feed. `waiting`: legs without any receipt; `unapplied`:
    those that are not applied by all yet."""

    __slots__ = (
        "due_at", "feed", "half_at", "legs", "open", "reported", "sealed", "sent_at", "unapplied",
        "waiting",
    )  # fmt: skip

    def __init__(self, feed: Feed, sealed: Sealed, sent_at: float, counts: bool) -> None:
        self.feed = feed
        self.sealed = sealed
        self.sent_at = sent_at
        self.due_at = inf
        """When the first of its legs is late."""
        self.legs: list[Leg] = []
        self.waiting = 0
        self.unapplied = 0
        self.open = counts
        """It counts among the feed's open bursts."""
        self.reported = False
        """Some receipt has named somebody missing, or nothing came of one leg."""
        self.half_at = 0.0
        """When half of its legs had given receipts."""

    def add(self, branch: Branch, patience: Patience, retry: bool = False) -> Leg:
        """It is on its way to a branch."""
        leg = Leg(branch, self.sealed, self, self.sent_at, patience, retry)
        leg.start()
        self.due_at = min(self.due_at, leg.due_at)
        self.legs.append(leg)
        self.waiting += 1
        self.unapplied += 1
        return leg

    def let_go(self) -> None:
        """Of its legs, which refer to it: what refers to itself stays, with all its bytes, until
        the collector of garbage comes, and that is seldom."""
        self.legs.clear()


class Leg:
    """A burst on its way to one link: a branch's, or one container's own."""

    __slots__ = (
        "applied", "branch", "burst", "delivered", "due_at", "lost", "measured", "missed",
        "patience", "reported_at", "retry", "sealed", "sent_at", "struck", "unapplied",
        "undelivered", "wait_s",
    )  # fmt: skip

    def __init__(
        self,
        branch: Branch,
        sealed: Sealed,
        burst: Burst | None,
        sent_at: float,
        patience: Patience,
        retry: bool,
    ) -> None:
        self.branch = branch
        self.sealed = sealed
        self.burst = burst
        """None: for a stray alone."""
        self.sent_at = sent_at
        self.patience = patience
        self.wait_s = patience.wait_s
        """How long a relay waits for those behind it."""
        self.due_at = sent_at + PRIMARY_WAIT * self.wait_s
        """Who has not given a receipt by then is silent."""
        self.measured = False
        """It has told how long receipts take, or cannot."""
        self.retry = retry
        self.delivered = False
        self.applied = False
        self.undelivered: dict[Member, None] | None = None
        self.unapplied: dict[Member, None] | None = None
        """Who is still missing at each level; None: all."""
        self.reported_at = 0.0
        """When a receipt has named somebody missing; 0: nobody is."""
        self.missed = False
        """Somebody did not get it by this leg and has been sent it by another."""
        self.lost: dict[Member, None] | None = None
        """Who is not waited for by this leg any more; the others may still say what they apply."""
        self.struck = False
        """The relay has had its strike for it."""

    @property
    def container(self) -> Container:
        return self.branch.relay.container

    def start(self) -> None:
        legs = self.container.legs
        for digest in self.branch.digests:
            legs[self.sealed.id + digest] = self

    def end(self) -> None:
        """No receipt is expected any more."""
        legs = self.container.legs
        for digest in self.branch.digests:
            key = self.sealed.id + digest
            if legs.get(key) is self:
                del legs[key]

    def measure(self, now: float) -> None:
        """All of it is delivered. What was late says nothing: it may be due to one relay."""
        if not self.measured and not self.missed:
            self.measured = True
            self.patience.note(now - self.sent_at)

    def missing(self, level: int) -> dict[Member, None]:
        """Who has not reached a level by this leg, to be changed."""
        if level == _APPLIED:
            if self.unapplied is None:
                self.unapplied = dict.fromkeys(self.branch.members)
            return self.unapplied
        if self.undelivered is None:
            self.undelivered = dict.fromkeys(self.branch.members)
        return self.undelivered

    def silent(self) -> list[Member]:
        """Who has not said that it has it and is waited for."""
        if self.delivered and self.undelivered is None:
            return []
        lost = self.lost or {}
        return [member for member in self.missing(_DELIVERED) if member not in lost]

    def is_over(self) -> bool:
        """Nobody is waited for at any level, except who is lost."""
        lost = self.lost or {}
        return all(member in lost for member in self.missing(_APPLIED))


class Feed:
    """One application, one interest."""

    __slots__ = (
        "_patience", "application", "away", "bursts", "digest", "groups", "interest", "matches",
        "members", "open", "paced", "parts", "rejected_step", "relaying", "scanned", "sealed",
        "sent", "sent_at", "slot", "stale_list", "strays", "unasked", "wants_all",
    )  # fmt: skip

    def __init__(
        self,
        application: str,
        interest: Interest,
        digest: bytes,
        slot: int,
        step: int,
        stale_list: bool = False,
    ) -> None:
        self.application = application
        self.interest = interest
        self.digest = digest
        self.matches = matcher(interest)
        self.wants_all = not interest
        self.slot = slot
        self.stale_list = stale_list
        """A planted bug, see `Group`."""
        self.sent = self.scanned = step
        self.rejected_step = 0
        """The last one that a container has rejected."""
        self.members: dict[Container, Member] = {}
        self.away: dict[Member, None] = {}
        """Who is offline."""
        self.strays: dict[Member, None] = {}
        """Who is not in step, or has something on the way to it alone."""
        self.groups: dict[tuple[str, str], Group] = {}
        self.bursts: deque[Burst] = deque()
        self.open = 0
        self.sent_at = -inf
        """When the last burst left."""
        self.paced = False
        """It waits for more (`swell.config.delivery.pacing`)."""
        self.unasked: list[tuple[float, Sealed]] = []
        """Bursts that asked for no receipts since the last that did, and when they left."""
        self.relaying = True
        self.sealed: OrderedDict[int, Sealed] = OrderedDict()
        self.parts: dict[int, None] = {}
        """Steps at which somebody may have been left with part of what it lacks."""
        self._patience: dict[tuple[str, str, bool], Patience] = {}

    def present(self, step: int) -> int:
        """The step that its containers should have when the application is at `step`."""
        return self.sent if self.scanned >= step else step

    def lifted(self, reached: int) -> int:
        """Up to which step somebody who has reached one lacks nothing of interest; 0 while it has
        only part of what leads there."""
        lifted = max(reached, self.scanned) if reached >= self.sent else reached
        return lifted if lifted not in self.parts else 0

    # In step.

    def join(self, member: Member) -> None:
        container = member.container
        key = (container.owner, container.site)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(self.stale_list)
        group.join(member)

    def leave(self, member: Member) -> None:
        """Out of step, if it was in."""
        if member.branch is None:
            return
        key = (member.container.owner, member.container.site)
        group = self.groups[key]
        group.leave(member)
        if not group.members:
            del self.groups[key]

    def group(self, member: Member) -> Group | None:
        return self.groups.get((member.container.owner, member.container.site))

    def patience(self, branch: Branch, settings: ConfigSettings) -> Patience:
        """With branches like this one: of the same group, with others behind them or not."""
        container = branch.relay.container
        key = (container.owner, container.site, bool(branch.digest))
        patience = self._patience.get(key)
        if patience is None:
            patience = Patience(settings.receipt_wait_s, settings.receipt_wait_s_max)
            self._patience[key] = patience
            if len(self._patience) > PATIENCES_MAX:
                del self._patience[next(iter(self._patience))]
        return patience

    def branches(self, settings: ConfigSettings, now: float) -> list[Branch]:
        """How to reach everybody in step; made anew where something has changed."""
        groups = self.groups.values()
        if any(group.is_due(now, settings.score_s) for group in groups):
            sizes = [len(group.members) for group in groups]
            parts = shares(sizes, settings.relay_fanout, settings.server_fanout)
            for group, share in zip(groups, parts, strict=True):
                if share != group.share or group.is_due(now, settings.score_s):
                    group.share = share
                    group.build(settings, self.relaying, now)
        return [branch for group in groups for branch in group.branches()]

    def built_at(self, branch: Branch) -> float:
        """When the trees of its group were made."""
        group = self.group(branch.relay)
        return -inf if group is None else group.built_at

    def spoil(self) -> None:
        for group in self.groups.values():
            group.spoil()

    # Bursts.

    def keep_sealed(self, sealed: Sealed) -> None:
        self.sealed[sealed.after] = sealed
        if len(self.sealed) > SEALED_MAX:
            self.sealed.popitem(last=False)

    def note_part(self, upto: int) -> None:
        """A burst to this step was part of what somebody lacks: not all versions are those of the
        step then, and more has to follow as values."""
        if upto not in self.parts:
            self.sealed.pop(upto, None)  # For those who were there with all versions.
        self.parts[upto] = None
        if len(self.parts) > PARTS_MAX:
            del self.parts[next(iter(self.parts))]

    def is_exact(self, step: int) -> bool:
        """Whether who is at a step has all versions of it, as far as is known."""
        return step not in self.parts

    def may_join(self, step: int) -> bool:
        """Whether who is at a step can go on with those in step."""
        return step not in self.parts or self.scanned in self.parts

    def is_busy(self) -> bool:
        """Something is on its way whose receipt may be late."""
        if self.unasked or any(burst.waiting or burst.reported for burst in self.bursts):
            return True
        return any((m.leg or m.blocked_at) and not m.failed for m in self.strays)

    def end(self) -> None:
        """Nothing of it is followed any more."""
        for burst in self.bursts:
            for leg in burst.legs:
                leg.end()
            burst.let_go()
        self.bursts.clear()
        self.sealed.clear()

    def sweep_bursts(self) -> None:
        """Forget the bursts that everybody has applied."""
        bursts = self.bursts
        while bursts and not bursts[0].unapplied:
            bursts.popleft().let_go()
