"""Probes on links between zones: liveness, coordinates, gaps and interest versions.

Inside a zone SWIM watches the members; between zones each end of a link watches the link itself.
A node that was stalled itself passes no verdict before it has read what waited for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from swell.overlay.coordinates import Coordinate
from swell.overlay.messages import LinkKind, LinkPing, LinkPong
from swell.overlay.sessions import Session, Sessions
from swell.overlay.zonelinks import GAPS_TOLD_MAX, ZoneLink, ZoneLinks
from swell.settings import OverlaySettings
from swell.world import Timer, World

_OUTSTANDING_MAX = 8


class LinkProbes:
    """Pings every link between zones once per interval."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        sessions: Sessions,
        zonelinks: ZoneLinks,
        coordinate: Callable[[], Coordinate | None],
        on_rtt: Callable[[int, Coordinate | None, float], None],
        gaps: Callable[[], tuple[int, ...]],
        interest: Callable[[], tuple[int, int]],
        on_interest: Callable[[Session, tuple[int, int]], None],
        on_silent: Callable[[ZoneLink], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._zonelinks = zonelinks
        self._coordinate = coordinate
        self._on_rtt = on_rtt
        self._gaps = gaps
        self._interest = interest
        self._on_interest = on_interest
        self._on_silent = on_silent
        self._counters = counters
        self._sequence = 0
        self._due = 0.0
        self._word_until = 0.0
        self._last_word: tuple[tuple[int, ...], tuple[int, int]] = ((), (0, 0))
        self._timer: Timer | None = None
        sessions.handle(LinkPing, self.on_ping, (LinkKind.CANDIDATE,))
        sessions.handle(LinkPong, self.on_pong, (LinkKind.CANDIDATE,))

    def start(self) -> None:
        self._arm(self._settings.link_probe_interval_s * self._world.rng.random())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, delay_s: float) -> None:
        self._due = self._world.now() + delay_s
        self._timer = self._world.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now = self._world.now()
        interval = self._settings.link_probe_interval_s
        stalled_s = now - self._due if now - self._due > interval / 2 else 0.0
        self._arm(interval)
        links = [*self._zonelinks.all(), *self._zonelinks.drains]
        if not links:
            return
        self._sequence += 1
        gaps, interest = self._word()
        for link in links:
            if stalled_s:
                link.heard_at = min(now, link.heard_at + stalled_s)
            overdue = link.draining is not None and now - link.drained_at > self._settings.lease_s
            if overdue or now - link.heard_at > self._settings.link_silence_s:
                self._counters["link-silent"] += 1
                self._on_silent(link)
            elif link.session.link.dialed:
                if len(link.ping_sent) < _OUTSTANDING_MAX:
                    link.ping_sent[self._sequence] = now
                link.session.send(
                    LinkPing(self._sequence, self._coordinate(), gaps, interest, link.rtt_s)
                )

    def _word(self) -> tuple[tuple[int, ...], tuple[int, int]]:
        """What this node has to say about its zone, looked up a few times per interval."""
        now = self._world.now()
        if now >= self._word_until:
            self._word_until = now + self._settings.link_probe_interval_s / 4
            self._last_word = (self._gaps()[:GAPS_TOLD_MAX], self._interest())
        return self._last_word

    def on_ping(self, session: Session, message: LinkPing) -> None:
        link = self._zonelinks.find(session)
        if link is None:
            return
        session.send(LinkPong(message.sequence, self._coordinate(), *self._word()))
        self._hear(link, message.gaps, message.interest)
        if message.rtt_s > 0.0:
            self._on_rtt(session.peer.id, message.coordinate, message.rtt_s)

    def on_pong(self, session: Session, message: LinkPong) -> None:
        link = self._zonelinks.find(session)
        if link is None:
            return
        self._hear(link, message.gaps, message.interest)
        sent_at = link.ping_sent.pop(message.sequence, None)
        if sent_at is not None:
            link.rtt_s = link.heard_at - sent_at
            if link.ping_sent:
                link.ping_sent = {k: v for k, v in link.ping_sent.items() if k > message.sequence}
            self._on_rtt(session.peer.id, message.coordinate, link.rtt_s)

    def _hear(self, link: ZoneLink, gaps: tuple[int, ...], interest: tuple[int, int]) -> None:
        link.heard_at = self._world.now()
        self._zonelinks.set_gaps(link, gaps)
        self._on_interest(link.session, interest)
