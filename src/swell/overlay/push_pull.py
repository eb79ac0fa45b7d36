"""Push/pull: two members exchange their whole views, so that whatever gossip missed is repaired.

At every new link, and with a random member from time to time. Of attributes only digests travel;
each side then sends the values that the other one lacks.

Invariant: an exchange kills nobody. A death reported by it counts as a suspicion, since the member
may be able to answer for itself; a death of somebody unknown means nothing.
"""

from __future__ import annotations

import math
from typing import Protocol

from swell.overlay.attributes import Attributes
from swell.overlay.gossip import Gossiping
from swell.overlay.membership_messages import Digest, MemberRumour, PushPull, State
from swell.overlay.roster import Roster
from swell.settings import MembershipSettings
from swell.wire import codec
from swell.world import Timer, World


def push_pull_interval_s(interval_s: float, members: int) -> float:
    """Whole views grow with the zone, so they are exchanged less often in a large one."""
    if members <= 32:
        return interval_s
    return interval_s * (math.ceil(math.log2(members) - 5) + 1)


class Hearer(Protocol):
    """Who makes news part of the view."""

    def send(self, member: int, frame: bytes) -> bool: ...

    def hear(self, sender: int, rumour: MemberRumour) -> None: ...

    def settle(self, digest: Digest) -> None:
        """Take the owner's own list of its attributes."""
        ...


class Exchange:
    """The push/pull of one node."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        roster: Roster,
        attributes: Attributes,
        gossip: Gossiping,
        hearer: Hearer,
    ) -> None:
        self._world = world
        self._settings = settings
        self._roster = roster
        self._attributes = attributes
        self._gossip = gossip
        self._hearer = hearer
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin with those whose link came up before we took part."""
        self._arm()
        view = self._view(is_reply=False)
        for member in self._roster.peers:
            self._hearer.send(member, view)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def begin(self, member: int) -> None:
        self._hearer.send(member, self._view(is_reply=False))

    def on_push_pull(self, sender: int, view: PushPull) -> None:
        for rumour in view.members:
            self._hearer.hear(sender, self._soften(rumour))
        for digest in view.digests:
            if digest.member == sender:
                self._hearer.settle(digest)
        if not view.is_reply:
            self._hearer.send(sender, self._view(is_reply=True))
        missing = self._attributes.missing_from(view.digests, self._roster.living)
        self._gossip.send_values(sender, missing)

    def _soften(self, rumour: MemberRumour) -> MemberRumour:
        known = self._roster.is_living(rumour.contact.id)
        if rumour.state is not State.DEAD or not known:
            return rumour
        return MemberRumour(rumour.contact, rumour.incarnation, State.SUSPECT, rumour.origin)

    def _view(self, is_reply: bool) -> bytes:
        members = tuple(record.rumour() for record in self._roster.records.values())
        digests = (self._attributes.digest(member) for member in self._roster.living)
        held = tuple(digest for digest in digests if digest is not None)
        return codec.encode(PushPull(members, held, is_reply))

    def _arm(self) -> None:
        members = len(self._roster.living)
        interval_s = push_pull_interval_s(self._settings.push_pull_interval_s, members)
        self._timer = self._world.call_later(
            interval_s * (0.5 + self._world.rng.random()), self._expire
        )

    def _expire(self) -> None:
        self._arm()
        if self._roster.peers:
            self.begin(self._world.rng.choice(self._roster.peers))
