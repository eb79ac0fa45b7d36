"""Who is alive, as the zones' delegates tell the leader.

A node that no report has named for a while is down; one that has been down for long is forgotten,
and its name is free again. A zone that stays far too small is told to retire. When somebody was
last seen is known to the leader only: a new one gives everybody the benefit of the doubt.
"""

from __future__ import annotations

from collections import Counter

from swell.directory.admission import Propose
from swell.directory.messages import ReportReply, ZoneReport
from swell.directory.proposals import Outcomes
from swell.directory.records import Down, Forgotten, Numbers, Record, State, Up
from swell.overlay.contact import Contact
from swell.overlay.sessions import Session
from swell.settings import DirectorySettings, OverlaySettings
from swell.world import Timer, World


class Liveness:
    """Reports and the sweep of one leadership."""

    def __init__(
        self,
        world: World,
        overlay: OverlaySettings,
        settings: DirectorySettings,
        state: State,
        propose: Propose,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._overlay = overlay
        self._settings = settings
        self._state = state
        self._propose = propose
        self._counters = counters
        self._seen_at: dict[int, float] = {}
        self._small_since: dict[int, float] = {}
        self._timer: Timer | None = None
        self._sweep_due = 0.0
        self._sweeping = False

    def start(self) -> None:
        now = self._world.now()
        self._seen_at = {node: now for node in self._state.nodes}
        self._small_since = {}
        self._sweeping = False
        self._sweep_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def seen(self, node: int) -> None:
        self._seen_at[node] = self._world.now()

    def on_report(self, session: Session, report: ZoneReport) -> None:
        # The zone's delegate, or a supervisor of another zone: any node that was admitted.
        if self._state.entry(session.peer.name) is None:
            self._counters["report-of-stranger"] += 1
            return
        changes: list[Record] = []
        numbers = self._numbers_ahead(report)
        if numbers is not None:
            changes.append(numbers)
        back: list[int] = []
        for node, epoch in report.members:
            entry = self._state.nodes.get(node)
            if entry is None or entry.contact.zone != report.zone or entry.contact.epoch > epoch:
                continue
            self.seen(node)
            if not entry.up:
                back.append(node)
        if back:
            changes.append(Up(tuple(back)))
        if changes:
            self._propose(changes, lambda outcomes: None)
        view = self._state.view()
        newer = view if view.epoch > report.view_epoch else None
        strangers = self._strangers(report)
        session.send(ReportReply(report.zone, newer, strangers, self._should_retire(report.zone)))

    def _numbers_ahead(self, report: ZoneReport) -> Numbers | None:
        """Somebody knows a later view, or later ids, than this directory ever gave out: its log
        is an old copy. Go on from there, or nobody would take its views."""
        state = self._state
        next_node = max(state.next_node, *(node + 1 for node, _ in report.members), 1)
        if report.view_epoch <= state.epoch and next_node <= state.next_node:
            return None
        self._counters["directory-behind"] += 1
        epoch = max(state.epoch, report.view_epoch)
        return Numbers(next_node, state.next_zone, epoch + 1)

    def _strangers(self, report: ZoneReport) -> tuple[Contact, ...]:
        named = dict(report.members)
        zone = self._state.zones.get(report.zone)
        return tuple(contact for contact in (zone.up() if zone else ()) if contact.id not in named)

    def _should_retire(self, zone: int) -> bool:
        """A zone far below half its size moves its members, if its pool has room for them."""
        known = self._state.zones.get(zone)
        size = len(known.up()) if known is not None else 0
        others = self._state.pool(known.pool, (zone,)) if known is not None else {}
        room = sum(max(0, self._overlay.zone_size - other) for other in others.values())
        if known is None or size * 4 > self._overlay.zone_size or room < size:
            self._small_since.pop(zone, None)
            return False
        since = self._small_since.setdefault(zone, self._world.now())
        return self._world.now() - since >= self._settings.retire_after_s

    def _sweep_later(self) -> None:
        self._sweep_due = self._world.now() + self._settings.sweep_interval_s
        self._timer = self._world.call_later(self._settings.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        """Mark the silent as down; forget what has been down for long."""
        now, wall_us = self._world.now(), self._world.wall_us()
        stalled_s = now - self._sweep_due
        self._sweep_later()
        if stalled_s > self._settings.sweep_interval_s:
            # Reports may wait to be read: the time that this node stood still does not count.
            for node in self._seen_at:
                self._seen_at[node] += stalled_s
        if self._sweeping:
            return
        silent_s = self._settings.silent_reports * self._overlay.report_interval_s
        forget_after_us = self._settings.forget_after_s * 1e6
        down, forgotten = [], []
        for node, entry in self._state.nodes.items():
            if entry.up and now - self._seen_at.setdefault(node, now) > silent_s:
                down.append(node)
            elif not entry.up and wall_us - entry.down_since_us > forget_after_us:
                forgotten.append(node)
        changes: list[Record] = [Down(tuple(down), wall_us)] if down else []
        if forgotten:
            changes.append(Forgotten(tuple(forgotten)))
        if changes:
            self._sweeping = True
            self._propose(changes, self._on_swept)
        for node in [node for node in self._seen_at if node not in self._state.nodes]:
            del self._seen_at[node]
        for zone in [zone for zone in self._small_since if zone not in self._state.zones]:
            del self._small_since[zone]

    def _on_swept(self, outcomes: Outcomes) -> None:
        self._sweeping = False
