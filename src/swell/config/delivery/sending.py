"""Sending: one burst to all in step, and to each stray what it lacks.

A burst is sealed once, whatever the number of branches, and a frame is made once per list. For
those in step the next burst leaves when fewer than `bursts_open` are without receipts; a few late
branches do not count (`PATIENCE`), so that one slow container costs its own place in step only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from swell.config.application import Application
from swell.config.bursts import StepChanges, burst_id, seal
from swell.config.delivery.feeds import Burst, Feed, Leg, Sealed
from swell.config.delivery.groups import Branch, alone
from swell.config.delivery.pacing import ASK_GAPS, Pacing
from swell.config.messages import deliver
from swell.config.proofs import sign_list
from swell.world import Plane

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.subscribers import Container, Member

PATIENCE = 2.0
PATIENCE_S_MIN = 0.05
"""When half of the branches have given receipts, the others have so many times as long, and at
least this, before the next burst goes ahead of them."""

_DATA = Plane.DATA


class Sending:
    """The way out."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.pacing = Pacing(delivery)

    # Those in step.

    def pump(self, feed: Feed) -> None:
        """Send those in step what they have not got."""
        application = self._delivery.feeds.application(feed)
        if application is None or feed.scanned >= application.step:
            return
        settings = self._delivery.settings
        relaying = settings.relaying and application.options.relaying
        if relaying != feed.relaying:
            feed.relaying = relaying
            feed.spoil()
        if not feed.groups:
            feed.sent = feed.scanned = application.step
            return
        if self.pacing.holds(feed, application.step - feed.scanned):
            return
        while feed.open < settings.bursts_open and feed.scanned < application.step:
            incremental = settings.incremental and feed.is_exact(feed.scanned)
            upto, steps, exact = application.since(
                feed.scanned, feed.matches, settings.burst_bytes_max, incremental
            )
            complete_at = upto if exact else application.step
            if not exact:
                feed.note_part(upto)
            if upto <= feed.scanned:
                return
            if steps:
                self._ship(feed, self._seal(feed, feed.sent, upto, steps, complete_at))
                feed.sent = upto
            feed.scanned = upto

    def _seal(
        self,
        feed: Feed,
        after: int,
        upto: int,
        steps: tuple[StepChanges, ...],
        complete_at: int,
        cut: bool = False,
    ) -> Sealed:
        d = self._delivery
        epoch = d.slots.epoch(feed.slot)
        about = feed.application, feed.digest, epoch, after, upto
        data = seal(d.key, d.cluster, *about, steps, d.world.wall_us(), complete_at)
        d.counters["config-sealed"] += 1
        return Sealed(burst_id(data), data, after, upto, deliver(b"", data), cut)

    def _ship(self, feed: Feed, sealed: Sealed) -> None:
        """One burst to every branch."""
        now = self._delivery.world.now()
        branches = feed.branches(self._delivery.settings, now)
        saves = self.pacing.saves_receipts(feed, branches)
        if not (saves and self._ship_unasked(feed, sealed, branches, now)):
            self._ship_asking(feed, sealed, branches, now)

    def _ship_asking(
        self, feed: Feed, sealed: Sealed, branches: Sequence[Branch], now: float
    ) -> None:
        d = self._delivery
        unasked_since = feed.unasked[0][0] if feed.unasked else inf
        feed.unasked.clear()
        burst = Burst(feed, sealed, now, counts=True)
        refused: list[Branch] = []
        for branch in branches:
            patience = feed.patience(branch, d.settings)
            if self._send(branch, sealed, patience.wait_s):
                leg = burst.add(branch, patience)
                # What those behind a new relay lack, the one before it may have failed to bring.
                leg.struck = feed.built_at(branch) >= unasked_since
            else:
                refused.append(branch)
        d.recording.sent(feed, sealed, [leg.branch for leg in burst.legs])
        feed.open += 1
        feed.sent_at = now
        self._track(feed, burst)
        for branch in refused:
            d.counters["config-link-full"] += 1
            patience = feed.patience(branch, d.settings)
            d.retries.on_refused(burst.add(branch, patience))
        d.watch(feed)

    def _ship_unasked(
        self, feed: Feed, sealed: Sealed, branches: Sequence[Branch], now: float
    ) -> bool:
        """Without receipts; False if some link is full, so that they are needed."""
        unasked = sealed._replace(frame=deliver(b"", sealed.data, asks=False))
        if not all(self._send(branch, unasked, 0.0, asks=False) for branch in branches):
            return False
        d = self._delivery
        d.counters["config-unasked"] += 1
        d.recording.sent(feed, sealed, branches)
        feed.unasked.append((now, sealed))
        feed.sent_at = now
        d.watch(feed)
        return True

    def ask(self, feed: Feed, now: float) -> None:
        """Send the last burst that asked for no receipts again if no other has followed it."""
        settings = self._delivery.settings
        if not feed.unasked or now - feed.sent_at < ASK_GAPS * settings.burst_gap_s:
            return
        if not feed.groups:
            feed.unasked.clear()
            return
        self._delivery.counters["config-asked-again"] += 1
        _, sealed = feed.unasked[-1]
        self._ship_asking(feed, sealed, feed.branches(settings, now), now)

    def _track(self, feed: Feed, burst: Burst) -> None:
        """Bursts whose receipts are expected; a container holds as many that came early."""
        feed.bursts.append(burst)
        if len(feed.bursts) > self._delivery.settings.hold_bursts:
            self._delivery.retries.give_up(feed.bursts.popleft())

    def _send(self, branch: Branch, sealed: Sealed, wait_s: float, asks: bool = True) -> bool:
        """Lists first, where they are not known, then the burst."""
        container, digest = branch.relay.container, branch.digest
        session = container.session
        if session is None:
            return False
        link = session.link
        if not digest:
            return link.send(sealed.frame, _DATA)
        if not (container.knows(digest) and self._delivery.settings.list_digests):
            if not link.send(branch.lists_frame(self.sign), _DATA):
                return False
            for below, what in branch.lists:
                container.learn(below, what)
        return link.send(deliver(digest, sealed.data, wait_s, asks), _DATA)

    def sign(self, container: Container, digest: bytes) -> bytes:
        """For a list that a container may have to pass on."""
        d = self._delivery
        return sign_list(d.key, d.cluster, container.owner, container.site, digest)

    def pass_over(self, feed: Feed, now: float) -> None:
        """Let the next burst go ahead of branches that are later than most."""
        for burst in feed.bursts:
            if burst.open and burst.half_at:
                patience_s = PATIENCE * (burst.half_at - burst.sent_at) + PATIENCE_S_MIN
                if now - burst.sent_at >= patience_s:
                    self.close(burst)

    def close(self, burst: Burst) -> None:
        """It is not waited for any more."""
        if burst.open:
            burst.open = False
            burst.feed.open -= 1
            self._delivery.soon(burst.feed)

    def again(self, feed: Feed, sealed: Sealed, branch: Branch) -> Leg | None:
        """A burst that some did not get, by another relay."""
        patience = feed.patience(branch, self._delivery.settings)
        if not self._send(branch, sealed, patience.wait_s):
            return None
        self._delivery.recording.sent(feed, sealed, (branch,))
        burst = Burst(feed, sealed, self._delivery.world.now(), counts=False)
        # Not by `_track`: what it gives up is retried in turn, and comes back here.
        feed.bursts.append(burst)
        return burst.add(branch, patience, retry=True)

    # Strays.

    def serve(self, member: Member, asked: bool = False) -> None:
        """Send a stray what it lacks, on its own link; it joins when it has it, or at once if it
        has just spoken. One that has `asked` for what comes behind `sent` was told of a step that
        turned out to have nothing for it: an empty burst takes it there."""
        feed, session = member.feed, member.container.session
        if session is None or member.leg is not None or member.blocked_at or member.failed:
            return
        reached, behind = member.delivered, feed.scanned if asked else feed.sent
        if member.branch is not None or (reached >= behind and feed.may_join(reached)):
            self.join(member)
            return
        application = self._delivery.feeds.application(feed)
        if application is None:
            return
        sealed = self._sealed(feed, member.delivered, application)
        now = self._delivery.world.now()
        if not session.link.send(sealed.frame, _DATA):
            self._delivery.counters["config-link-full"] += 1
            member.blocked_at = now
        else:
            branch = alone(member)
            patience = feed.patience(branch, self._delivery.settings)
            leg = member.leg = Leg(branch, sealed, None, now, patience, retry=True)
            self._delivery.recording.sent(feed, sealed, (branch,))
            leg.measured = member.tries > 0  # its receipt may be for what was sent before
            leg.start()
            if member.proven and sealed.upto >= feed.sent and feed.may_join(sealed.upto):
                feed.join(member)
        self._delivery.watch(feed)

    def join(self, member: Member) -> None:
        """Everything up to `sent` went out to it."""
        feed = member.feed
        if member.branch is None:
            feed.join(member)
        if member.leg is None:
            feed.strays.pop(member, None)
            if not feed.strays:
                feed.sealed.clear()

    def _sealed(self, feed: Feed, after: int, application: Application) -> Sealed:
        """What leads from a step to those in step, or as much of it as fits into one burst."""
        sealed = feed.sealed.get(after)
        if sealed is None or (sealed.upto < feed.sent and not sealed.cut):
            settings = self._delivery.settings
            incremental = settings.incremental and feed.is_exact(after)
            upto, steps, exact = application.since(
                after, feed.matches, settings.burst_bytes_max, incremental
            )
            complete_at = upto if exact else application.step
            if not exact:
                feed.note_part(upto)
            assert upto > after, "who is behind has something to get"
            cut = upto < application.step
            sealed = self._seal(feed, after, upto, steps, complete_at, cut)
            feed.keep_sealed(sealed)
        return sealed
