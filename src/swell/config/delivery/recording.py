"""Writes down what a primary knows of delivery: who is served, what is sent, who has it (PIP-1).

One record stands for all branches of a burst, or for all containers of a receipt: whoever reads it
sees a row for each. Receipts may repeat what is known; only what they add is written. Does nothing
where nobody records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from swell.config.delivery.following import Slots
from swell.config.messages import Level
from swell.events.records import Acknowledged, Sent, Subscribed, Unsubscribed
from swell.world import World

if TYPE_CHECKING:
    from swell.config.delivery.feeds import Feed, Sealed
    from swell.config.delivery.groups import Branch
    from swell.config.delivery.subscribers import Member

LINK_LOST = "link lost"
MOVED = "moved"
FORGOTTEN = "forgotten"
ASKED_FOR = "asked for"
REPLACED = "replaced"

_APPLIED = int(Level.APPLIED)


class Recording:
    """Of one node."""

    def __init__(self, world: World, slots: Slots) -> None:
        self._world = world
        self._slots = slots

    def subscribed(self, member: Member, step: int) -> None:
        """Served from here on."""
        if self._world.recording:
            feed = member.feed
            about = feed.application, feed.interest or ("",), member.name
            self._world.emit(Subscribed(*about, step, self._slots.epoch(feed.slot)))

    def unsubscribed(self, member: Member, reason: str) -> None:
        """Served no more. Whose link is lost has not been since."""
        if self._world.recording and member.online:
            feed = member.feed
            about = feed.application, feed.interest or ("",), member.name
            self._world.emit(Unsubscribed(*about, self._slots.epoch(feed.slot), reason))

    def sent(self, feed: Feed, sealed: Sealed, branches: Sequence[Branch]) -> None:
        """One burst, to the first container of every branch."""
        if self._world.recording and branches:
            peers = [branch.relay.name for branch in branches]
            epoch, size = self._slots.epoch(feed.slot), len(sealed.frame)
            steps = sealed.after + 1, sealed.upto
            self._world.emit(Sent(feed.application, peers, *steps, epoch, size))

    def acknowledged(
        self, feed: Feed, members: Sequence[Member], after: int, upto: int, level: int
    ) -> None:
        """These say that all steps up to one are applied; to be called before it counts."""
        if self._world.recording and level == _APPLIED:
            peers = tuple(one.container.name for one in lacking(members, upto))
            self._acknowledged(feed, peers, after, upto)

    def acknowledged_by_all(self, branch: Branch, after: int, upto: int, level: int) -> None:
        """The same of everybody in a branch that nobody has left."""
        if self._world.recording and level == _APPLIED:
            feed, members = branch.relay.feed, branch.members
            if branch.applied < upto and branch.highest < upto:
                self._acknowledged(feed, branch.names, after, upto)
            else:
                self.acknowledged(feed, members, after, upto, level)

    def _acknowledged(self, feed: Feed, peers: Sequence[str], after: int, upto: int) -> None:
        if peers:
            name, epoch = ",".join(feed.interest) or None, self._slots.epoch(feed.slot)
            self._world.emit(Acknowledged(feed.application, name, peers, after + 1, upto, epoch))


def lacking(members: Iterable[Member], upto: int) -> Iterator[Member]:
    """Those who are not known to have applied everything up to a step. Members of one branch stand
    together: it is asked once."""
    branch: Branch | None = None
    at = 0
    for one in members:
        if one.branch is not branch:
            branch = one.branch
            at = branch.progress(_APPLIED) if branch is not None else 0
        if at < upto and one.applied < upto:
            yield one
