"""Relays that failed or lied are not picked for a while, and are reported (RIP-11, RIP-13).

A relay has a strike when somebody on its list got a burst by another way. Who could be reached by
no sibling at all is served directly for a while, and so are who complains and whose proof has
spoiled that of a relay: nobody can bring relay after relay into disrepute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swell.config.messages import Complaint
from swell.events import RelayAvoided

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.feeds import Leg
    from swell.config.delivery.subscribers import Container, Member
    from swell.overlay.sessions import Session

STRIKES_MAX = 2
"""Less what good deliveries since have made up for."""

SUSPICIONS_MAX = 2
"""How often somebody may have been one of those of whom one has lied."""


class Avoidance:
    """Who is avoided."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._marked: dict[Container, float] = {}
        """Who is avoided or served directly, and until when."""

    def __len__(self) -> int:
        return len(self._marked)

    def avoid(self, relay: Container, application: str, reason: str) -> None:
        """Do not pick it for a while, and say so."""
        d = self._delivery
        now = d.world.now()
        if relay.avoided_until <= now:
            d.counters["config-relay-avoided"] += 1
            d.world.emit(RelayAvoided(application, relay.name, reason))
        relay.avoided_until = now + d.settings.avoid_s
        relay.strikes = 0.0
        self._mark(relay, relay.avoided_until)

    def spare(self, container: Container) -> None:
        """Serve it directly for a while."""
        container.direct_until = self._delivery.world.now() + self._delivery.settings.avoid_s
        self._mark(container, container.direct_until)

    def accuse(self, container: Container) -> None:
        """A relay says that it gave a wrong proof: from now on, no relay is doubted for it."""
        container.suspicions = max(1, container.suspicions)
        self.spare(container)

    def suspect(self, members: Sequence[Member]) -> None:
        """A relay says that these gave wrong proofs; it may have made them up."""
        for member in members:
            if self._is_again(member.container):
                self.spare(member.container)

    def doubt(self, relay: Container, leg: Leg) -> None:
        """It gave a wrong proof, and says that another is to blame."""
        if self._is_again(relay):
            self.avoid(relay, leg.branch.relay.feed.application, "wrong proof")

    def _is_again(self, container: Container) -> bool:
        """One more suspicion, beyond what may happen to the honest? Then the next one is, too."""
        container.suspicions = min(container.suspicions + 1, SUSPICIONS_MAX)
        again = container.suspicions >= SUSPICIONS_MAX
        if again:
            container.suspicions = SUSPICIONS_MAX - 1
        return again

    def _mark(self, container: Container, until: float) -> None:
        self._marked.pop(container, None)
        self._marked[container] = until
        self._spoil(container)
        self._delivery.watch_marks()

    def _spoil(self, container: Container) -> None:
        for member in container.members:
            group = member.feed.group(member)
            if group is not None:
                group.spoil()

    def expire(self, now: float) -> None:
        """Those whose time is over may be picked again."""
        for container in [c for c, until in self._marked.items() if until <= now]:
            del self._marked[container]
            self._spoil(container)

    def forget(self, container: Container) -> None:
        self._marked.pop(container, None)

    def on_outdone(self, blame: Leg, by: Leg, member: Member) -> None:
        """Somebody got by one leg what another should have brought."""
        relay, *behind = self.answerable(blame, member)
        lacking = blame.undelivered
        missed = [one for one in behind if lacking is None or one in lacking]
        took_s = self._delivery.world.now() - by.sent_at
        if took_s >= blame.wait_s and 2 * len(missed) > len(behind):
            return  # another way is as slow: the relay is not to blame, nor who is behind it
        if by.branch.digest or (len(missed) > 1 and 2 * len(missed) > len(behind)):
            self._strike(blame, relay.container)
        else:
            self.spare(member.container)

    def answerable(self, leg: Leg, member: Member) -> list[Member]:
        """The relay that did not serve a member, and all behind it: the one whose list names it, if
        that one has the burst, else the one that the primary has sent it to."""
        lacking = leg.undelivered
        if lacking is not None:
            row = leg.branch.served_by(member)
            if row[0] not in lacking:
                return row
        return list(leg.branch.members)

    def _strike(self, leg: Leg, relay: Container) -> None:
        """One per burst, however many it failed."""
        if leg.struck:
            return
        leg.struck = True
        relay.strikes += 1
        self._delivery.counters["config-relay-strike"] += 1
        if relay.strikes >= STRIKES_MAX:
            self.avoid(relay, leg.branch.relay.feed.application, "did not deliver")

    def on_complaint(self, session: Session, complaint: Complaint) -> None:
        """Only about a relay that serves the one who complains."""
        d = self._delivery
        container = d.subscribers.of(session)
        if container is None:
            return
        relay = d.subscribers.find(container.owner, complaint.relay)
        known = relay is not None and _has_listed(relay, container.name)
        if relay is None or not known or container.direct_until > d.world.now():
            d.counters["config-complaint-ignored"] += 1
            return
        d.counters["config-complaint"] += 1
        self.avoid(relay, complaint.application, complaint.reason)
        self.spare(container)


def _has_listed(relay: Container, name: str) -> bool:
    """Whether it was told to relay to this container."""
    lists = relay.lists.values() if relay.lists is not None else ()
    return any(entry.container == name for what in lists for entry in what.entries)
