"""Saying what is here, hearing what is there, and asking for what is missing (RIP-16).

Every `renew_s` a container tells each of its nodes the last step it has applied of every feed, and
hears the present ones. A node that has not answered when the next renewal is due counts as lost.
What the application refuses is followed by a renewal at once: its answer proves that the node has
heard of it (`swell.container.rejections`). One at a time is on its way to a node, so it is known
which of them is answered.

A gap that stays open for `repair_s` without progress is asked for at the primary; while nothing
comes it is asked for less and less often, at times of each container's own, so that those who lost
the same relay, or meet a primary that has much to do, do not all come at once, again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from swell.client.session_peers import Peer, Peers
from swell.client.store_session import StoreSession
from swell.config.messages import Renew, Renewed, Repair
from swell.container.attachment import Attachment
from swell.container.load import Load
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.settings import ConfigSettings
from swell.world import Timer, World

if TYPE_CHECKING:
    from swell.container.attaching import Attaching

PASS_S = 60
"""A pass that expires within this time is asked for anew."""

BACK_OFF_MAX = 8
"""The longest wait between two repairs of a feed, in `repair_s`."""

PROMPT = 0.5
"""A renewal that is open for less than this part of `renew_s` stands for the one that is due."""


class _Asked(NamedTuple):
    """A renewal without an answer: its feeds, and how many of their rejections were said ahead."""

    at: float
    feeds: list[tuple[Attachment, int]]


class Renewing:
    """For all feeds of one container."""

    def __init__(
        self,
        attaching: Attaching,
        world: World,
        store: StoreSession,
        settings: ConfigSettings,
        load: Load,
    ) -> None:
        self._attaching = attaching
        self._world = world
        self._store = store
        self._peers: Peers = store.peers
        self._settings = settings
        self._load = load
        self._timer: Timer | None = None
        self._open: dict[Peer, _Asked] = {}
        self._peers.sessions.handle(Renewed, self.on_renewed, (LinkKind.CLIENT,))

    def begin(self) -> None:
        if self._timer is None:
            self._renew_later()

    def forget(self, peer: Peer) -> None:
        """Its link has ended."""
        self._open.pop(peer, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _renew_later(self) -> None:
        delay_s = self._settings.renew_s * (0.9 + 0.2 * self._world.rng.random())
        self._timer = self._world.call_later(delay_s, self._renew)

    def _renew(self) -> None:
        """Say what is here, to every node; one that did not answer the last time is given up."""
        self._timer = None
        if not self._attaching.all:
            return
        late_at = self._world.now() - PROMPT * self._settings.renew_s
        for peer in [peer for peer, asked in self._open.items() if asked.at <= late_at]:
            del self._open[peer]
            self._store.counters["silent-node"] += 1
            self._peers.give_up(peer, "no answer to a renewal")
        wall_s = self._world.wall_us() // 1_000_000
        for peer in list(self._attaching.by_peer):
            if peer not in self._open:
                self._ask(peer)
            for one in self._served_by(peer):
                if one.credentials[0].pass_ and one.credentials[0].expires_s - wall_s < PASS_S:
                    self._attaching.ask(one, peer)
        self._renew_later()

    def _served_by(self, peer: Peer) -> list[Attachment]:
        if peer.session is None:
            return []
        return [one for one in self._attaching.by_peer.get(peer, ()) if one.serving]

    def _ask(self, peer: Peer) -> None:
        """Say what is here."""
        serving = self._served_by(peer)
        if not serving or peer.session is None:
            return
        for one in serving:
            self._say_rejections(one)
        feeds = tuple((*one.feed.key, one.receipts.claim) for one in serving)
        if peer.session.send(Renew(feeds, self._load.score())):
            said = [(one, one.receipts.rejections.said) for one in serving]
            self._open[peer] = _Asked(self._world.now(), said)

    def tell_rejections(self, attachment: Attachment) -> None:
        """Say what the application refuses, and have it proved that it was heard."""
        self._say_rejections(attachment)
        peer = attachment.peer
        if peer is not None and peer not in self._open and attachment.receipts.rejections.unheard:
            self._ask(peer)

    def _say_rejections(self, attachment: Attachment) -> None:
        """What does not fit into the link is said with the next renewal."""
        rejections = attachment.receipts.rejections
        for one in rejections.unsaid():
            if not self._attaching.send(attachment, one.message):
                return
            rejections.note_said(one)

    def on_renewed(self, session: Session, renewed: Renewed) -> None:
        peer = self._peers.of(session)
        asked = self._open.pop(peer, None) if peer is not None else None
        if peer is None or asked is None:
            return
        steps = {(application, interest): step for application, interest, step in renewed.feeds}
        for attachment, said in asked.feeds:
            if attachment.peer is not peer or not attachment.serving:
                continue
            step = steps.get(attachment.feed.key)
            if step is None:
                self._attaching.leave(attachment)
                self._attaching.wait(attachment, 0.0)
                continue
            attachment.feed.known_step = max(attachment.feed.known_step, step)
            self.watch_gap(attachment)
            attachment.receipts.on_heard(said, step)
        before = dict(asked.feeds)
        served = self._served_by(peer)
        if any(one.receipts.rejections.said_since(before.get(one, 0)) for one in served):
            self._ask(peer)

    # Gaps.

    def watch_gap(self, attachment: Attachment) -> None:
        """If something is missing, look again after a while."""
        if attachment.repairs and attachment.feed.at != attachment.gap_at:
            self.start_over(attachment)
        if not attachment.feed.behind:
            self._stop_watching(attachment)
        elif attachment.gap_timer is None:
            attachment.gap_at = attachment.feed.at
            attachment.gap_timer = self._world.call_later(
                self._patience_s(attachment.repairs), lambda: self.expire_gap(attachment)
            )

    def start_over(self, attachment: Attachment) -> None:
        """Something came, or another node serves the feed: nobody was asked in vain."""
        attachment.repairs = 0
        self._stop_watching(attachment)

    def _stop_watching(self, attachment: Attachment) -> None:
        if attachment.gap_timer is not None:
            attachment.gap_timer.cancel()
            attachment.gap_timer = None

    def _patience_s(self, repairs: int) -> float:
        """How long a gap may stay after so many repairs that brought nothing."""
        longest_s = self._settings.repair_s * min(1 << repairs, BACK_OFF_MAX)
        return longest_s * (0.5 + 0.5 * self._world.rng.random()) if repairs else longest_s

    def expire_gap(self, attachment: Attachment) -> None:
        """What is missing, and does not come, is asked for."""
        attachment.gap_timer = None
        if attachment.feed.behind and attachment.feed.at == attachment.gap_at:
            self.repair(attachment)
            attachment.repairs = min(attachment.repairs + 1, BACK_OFF_MAX)
        self.watch_gap(attachment)

    def repair(self, attachment: Attachment) -> None:
        feed = attachment.feed
        if self._attaching.send(attachment, Repair(*feed.key, feed.at)):
            self._store.counters["repairs"] += 1
