"""Receipts: who has what, as far as they can prove it (RIP-10, RIP-14, RIP-21).

A receipt counts only if its proof is the one that the secrets of those it names make. A whole
receipt of a branch costs these digests and nothing else per container.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swell.config.delivery.feeds import Leg
from swell.config.delivery.groups import Place
from swell.config.delivery.ranks import is_score, rank_of
from swell.config.messages import Level, Receipt, Score
from swell.config.proofs import aggregate

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.subscribers import Container, Member
    from swell.overlay.sessions import Session

FORGIVEN = 0.1
"""How much of a strike a whole receipt makes good: who fails one burst in ten is avoided."""

_DELIVERED = int(Level.DELIVERED)
_APPLIED = int(Level.APPLIED)


class Receipts:
    """What comes back."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def on_receipt(self, session: Session, receipt: Receipt) -> None:
        d = self._delivery
        container = d.subscribers.of(session)
        leg = container.legs.get(receipt.burst + receipt.list) if container is not None else None
        if container is None or leg is None or receipt.level not in (_DELIVERED, _APPLIED):
            # Repeated, of an earlier link, or of a burst that is not followed any more.
            d.counters["config-receipt-unknown"] += 1
            return
        branch = leg.branch
        whole = not receipt.missing and not receipt.only and receipt.list == branch.digest
        if whole:
            if receipt.proof != aggregate(branch.secrets, receipt.burst, receipt.level):
                self._on_wrong(leg, receipt.list)
                return
            self._take_whole(leg, receipt.level)
        elif not self._take_part(leg, receipt):
            return
        if receipt.scores:
            self._take_scores(leg.branch.places(receipt.list), receipt.scores)

    def _take_whole(self, leg: Leg, level: int) -> None:
        """Everybody of the branch."""
        branch, burst = leg.branch, leg.burst
        container = leg.container
        if not branch.digest and container.confirmed_at > (now := self._delivery.world.now()):
            container.confirmed_at = now
        if burst is None or leg.retry or branch.thinned or leg.undelivered is not None:
            self.credit(leg, branch.members, level)
            return
        now = self._delivery.world.now()
        leg.measure(now)
        steps = leg.sealed.after, leg.sealed.upto
        self._delivery.recording.acknowledged_by_all(branch, *steps, level)
        branch.credit(level, leg.sealed.upto, now)
        self.answered(leg)
        if level == _APPLIED:
            for relay in branch.relays:
                if relay.container.strikes:
                    relay.container.strikes = max(0.0, relay.container.strikes - FORGIVEN)
            self._finish(leg)
        self._delivery.progressed(burst.feed)

    def _take_part(self, leg: Leg, receipt: Receipt) -> bool:
        """Some of a branch, or a branch of a branch."""
        places = leg.branch.places(receipt.list)
        if max((*receipt.missing, *receipt.only), default=0) >= len(places):
            self._delivery.counters["config-receipt-odd"] += 1
            return False
        if receipt.only:
            named = dict.fromkeys(receipt.only)
        else:
            missing = frozenset(receipt.missing)
            named = dict.fromkeys(k for k in range(len(places)) if k not in missing)
        members = [member for place in named for member in places[place]]
        secrets = [member.container.secret for member in members]
        if receipt.proof != aggregate(secrets, receipt.burst, receipt.level):
            self._on_wrong(leg, receipt.list)
            return False
        self.credit(leg, members, receipt.level)
        if leg.silent():
            if receipt.missing and not leg.reported_at:
                leg.reported_at = self._delivery.world.now()
            if leg.burst is not None:
                leg.burst.reported = True
                self._delivery.watch(leg.burst.feed)
        return True

    def credit(self, leg: Leg, members: Sequence[Member], level: int) -> None:
        """These have said so."""
        d = self._delivery
        now, upto, relay = d.world.now(), leg.sealed.upto, leg.branch.relay
        undelivered, unapplied = leg.missing(_DELIVERED), leg.missing(_APPLIED)
        self._record(leg, members, level)
        for member in members:
            member.credit(level, upto, now, relay.name if member is not relay else "")
            undelivered.pop(member, None)
            if level == _APPLIED:
                unapplied.pop(member, None)
            d.retries.on_got(member, leg)
        if leg.burst is not None:
            self.answered(leg)
        if not undelivered:
            leg.measure(now)
            leg.branch.credit(_DELIVERED, upto, now)
        if not unapplied:
            leg.branch.credit(_APPLIED, upto, now)
            self._finish(leg)
        elif leg.lost is not None and leg.is_over():
            self._finish(leg)
        d.progressed(relay.feed)

    def _record(self, leg: Leg, members: Sequence[Member], level: int) -> None:
        feed, steps = leg.branch.relay.feed, (leg.sealed.after, leg.sealed.upto)
        self._delivery.recording.acknowledged(feed, members, *steps, level)

    def answered(self, leg: Leg) -> None:
        """The branch has spoken of it for the first time."""
        burst = leg.burst
        if leg.delivered or burst is None:
            return
        leg.delivered = True
        burst.waiting -= 1
        if not burst.waiting:
            self._delivery.sending.close(burst)
        elif not burst.half_at and 2 * burst.waiting <= len(burst.legs):
            burst.half_at = self._delivery.world.now()

    def _finish(self, leg: Leg) -> None:
        """All of it is done."""
        if leg.applied:
            return
        leg.applied = True
        leg.end()
        if leg.burst is not None:
            leg.burst.unapplied -= 1
            leg.burst.feed.sweep_bursts()

    def release(self, leg: Leg) -> None:
        """Those who did not get it by this leg are not waited for; the others may take their time
        to apply it."""
        leg.missed = False
        leg.lost = dict(leg.missing(_DELIVERED))
        self.answered(leg)
        if leg.is_over():
            self._finish(leg)

    def abandon(self, leg: Leg) -> None:
        """No receipt of this leg is waited for any more."""
        self.answered(leg)
        self._finish(leg)

    def _on_wrong(self, leg: Leg, digest: bytes) -> None:
        """Somebody of a list, or its relay, makes things up."""
        d = self._delivery
        if leg.branch.has_old_secrets():
            d.counters["config-receipt-outdated"] += 1
            return
        if any(member.container.confirmed_at > leg.sent_at for member in leg.branch.members):
            # Somebody got it before the secret of its new link; the relay is not to blame.
            d.counters["config-receipt-early"] += 1
            leg.struck = True
            d.retries.on_lied(leg, leg.branch.members)
            self.abandon(leg)
            return
        d.counters["config-proof-wrong"] += 1
        if digest:
            d.inquiries.ask(leg, digest)
            return
        d.avoidance.avoid(leg.container, leg.branch.relay.feed.application, "wrong proof")
        d.avoidance.spare(leg.container)
        d.retries.on_lied(leg, leg.branch.members)
        self.abandon(leg)

    # Scores.

    def _take_scores(self, places: Sequence[Place], scores: Sequence[Score]) -> None:
        now = self._delivery.world.now()
        for place, score in scores:
            if place < len(places) and is_score(score):
                self.take_score(places[place][0].container, score, now)

    def take_score(self, container: Container, score: float, now: float) -> None:
        rank = rank_of(score)
        container.score, container.scored_at = score, now
        if rank != container.rank:
            container.rank = rank
            for member in container.members:
                group = member.feed.group(member)
                if group is not None:
                    group.rescored = True
