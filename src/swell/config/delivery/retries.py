"""Silence: whoever did not get a burst by its relay gets it by another way (RIP-11).

First by another relay of its group, once, if it lacks nothing else; then on its own link, from
where it is, until `retries` ways were tried in vain. Then it has failed and is named, with the
reason; it is served again when it speaks. Meanwhile it is a stray: those in step do not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from swell.config.delivery.feeds import Burst, Feed, Leg
from swell.config.delivery.groups import behind
from swell.config.delivery.patience import PRIMARY_WAIT
from swell.events import DeliveryFailed

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.subscribers import Container, Member

REPORT_GRACE_S = 0.05
"""A receipt that names somebody missing may be followed by one that says more of them."""

SILENT = "silent"
LINK_FULL = "link full"


class Retries:
    """Further ways."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    # What went wrong.

    def on_refused(self, leg: Leg) -> None:
        """The link of a branch is full."""
        relay = leg.branch.relay
        relay.blocked_at = self._delivery.world.now()
        self._miss(leg, leg.branch.members, LINK_FULL)

    def on_lied(self, leg: Leg, members: Sequence[Member]) -> None:
        """What was said of these is not believed: who has not got it by other ways gets it
        directly."""
        upto = leg.sealed.upto
        lacking = [member for member in members if member.reached(1) < upto]
        for member in lacking:
            member.tries = max(member.tries, 1)
        self._miss(leg, lacking, SILENT)

    def on_gone(self, container: Container) -> None:
        """Its link has ended, with whatever was on it."""
        for leg in dict.fromkeys(container.legs.values()):
            self._miss(leg, [*leg.missing(1)], "relay gone")
            self._delivery.receipts.abandon(leg)
        container.legs.clear()

    def give_up(self, burst: Burst) -> None:
        """Too many bursts came after it: who has not got it is too slow."""
        for leg in burst.legs:
            if not leg.applied:
                if not leg.missed and (silent := leg.silent()):
                    self._miss(leg, silent, SILENT)
                self._delivery.receipts.abandon(leg)
        burst.let_go()

    def sweep(self, feed: Feed, now: float) -> None:
        """Look for those who are late."""
        for burst in list(feed.bursts):
            if burst.reported or (burst.waiting and now >= burst.due_at):
                self._sweep_burst(burst, now)
        for member in list(feed.strays):
            self._sweep_stray(member, now)

    def _sweep_burst(self, burst: Burst, now: float) -> None:
        burst.reported = False
        for leg in burst.legs:
            late = now >= leg.due_at
            silent = leg.silent() if late or leg.delivered else ()
            named = leg.reported_at and now - leg.reported_at >= REPORT_GRACE_S
            if silent and (named or (late and not leg.missed)):
                if not leg.retry and 2 * len(silent) >= len(leg.branch.members):
                    self._grow_patient(leg, now)
                self._miss(leg, silent, SILENT)
            if leg.missed and late:
                self._delivery.receipts.release(leg)
            elif silent or leg.missed:
                burst.reported = True

    def _grow_patient(self, leg: Leg, now: float) -> None:
        """Unless it is known to be lost: then no time would have been long enough."""
        if now - leg.sent_at >= leg.wait_s:
            leg.patience.back_off(leg.sent_at, now)

    def _sweep_stray(self, member: Member, now: float) -> None:
        leg = member.leg
        if member.blocked_at:
            settings = self._delivery.settings
            patience_s = PRIMARY_WAIT * settings.receipt_wait_s
            if now - member.blocked_at >= patience_s * settings.retries and not member.failed:
                self._fail(member, LINK_FULL)
        elif leg is not None and leg.burst is None and now >= leg.due_at:
            if not member.tries:
                self._grow_patient(leg, now)
            self._miss(leg, (member,), SILENT)
            self._delivery.receipts.abandon(leg)

    # What follows.

    def _miss(self, leg: Leg, members: Sequence[Member], reason: str) -> None:
        """These did not get what a leg should have brought."""
        d = self._delivery
        leg.reported_at, leg.missed = 0.0, leg.missed or bool(members)
        feed, upto, relay = leg.branch.relay.feed, leg.sealed.upto, leg.branch.relay
        lost: list[Member] = []
        for member in members:
            if member.leg is leg:
                member.leg = None
            known = feed.members.get(member.container) is member
            if not known or not member.online or member.reached(1) >= upto:
                continue
            feed.leave(member)
            feed.strays[member] = None
            member.proven = False
            if member is not relay and member.blame is None:
                member.blame = leg
            if member.leg is None:
                lost.append(member)
        if leg.burst is not None:
            leg.burst.reported = True
            d.receipts.answered(leg)
        if not lost or not d.feeds.serves(feed.slot):
            return
        d.counters["config-missed"] += len(lost)
        for member in self._by_another(feed, leg, lost):
            member.tries += 1
            if member.tries > d.settings.retries:
                self._fail(member, reason)
            else:
                d.serve_soon(member)
        d.watch(feed)

    def _by_another(self, feed: Feed, leg: Leg, lost: Sequence[Member]) -> list[Member]:
        """Send the burst by other relays; who is left for the direct way."""
        d = self._delivery
        now = d.world.now()
        relay = leg.branch.relay
        if leg.retry or not feed.relaying:
            return list(lost)
        after = leg.sealed.after  # who may lack more than this burst could not apply it
        rest = [
            m
            for m in lost
            if not m.tries and m is not relay and m.reached(1) >= after and _reachable(m, now)
        ]
        taken: dict[Member, None] = {}
        for other in self._relays(feed, leg, rest, now):
            if len(taken) == len(rest):
                break
            row = [m for m in rest if m not in taken and m is not other]
            row = row[: d.settings.relay_fanout]
            if not row or other in taken:
                continue
            again = d.sending.again(feed, leg.sealed, behind(other, row))
            if again is not None:
                for member in (other, *row) if other in rest else row:
                    taken[member] = None
                    member.leg = again
                    member.tries += 1
        return [member for member in lost if member not in taken]

    def _relays(self, feed: Feed, leg: Leg, rest: Sequence[Member], now: float) -> Iterator[Member]:
        """Who else may relay: those of the group who do already, then the others, then those who
        need it themselves. Nobody who had it and did not pass it on to one of the rest."""
        branch, answerable = leg.branch, self._delivery.avoidance.answerable
        failed = {branch.relay, *(answerable(leg, member)[0] for member in rest)}
        group = feed.group(branch.relay)
        if group is not None:
            relays = {one.relay: None for one in group.branches() if one.digest}
            yield from (m for m in relays if m not in failed and may_relay(m, now))
            others = [m for m in group.members if m not in failed and m not in relays]
            others.sort(key=lambda m: m.name)
            yield from (m for m in others if may_relay(m, now))
        yield from sorted((m for m in rest if may_relay(m, now)), key=lambda m: m.name)

    def _fail(self, member: Member, reason: str) -> None:
        d = self._delivery
        member.failed = reason
        d.counters["config-failed"] += 1
        feed, container = member.feed, member.container
        d.world.emit(DeliveryFailed(feed.application, container.name, feed.sent, reason))
        d.progressed(feed)

    def on_got(self, member: Member, leg: Leg) -> None:
        """It has spoken of what a leg brought."""
        d, feed = self._delivery, member.feed
        blame, member.blame = member.blame, None
        if blame is not None and blame is not leg and blame.sealed.upto <= leg.sealed.upto:
            d.avoidance.on_outdone(blame, leg, member)
        member.speaks()
        if member.leg is leg:
            member.leg = None
        if member in feed.strays and member.leg is None:
            d.serve_soon(member)


def _reachable(member: Member, now: float) -> bool:
    return bool(member.container.host) and member.container.direct_until <= now


def may_relay(member: Member, now: float) -> bool:
    container = member.container
    return member.willing and container.avoided_until <= now and _reachable(member, now)
