"""How a zone speaks to the directory: through its delegate, or through a supervisor.

The delegate, the living member with the smallest id, reports who is alive and shares what the
directory answers: a newer view, members that it has lost sight of, the order to retire. A zone
whose delegate cannot reach the directory is a supervised zone (SpiderCast 1.1): the delegate asks
a node of another zone, by the overlay, to pass its report on and the answer back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from swell.directory.client import DirectoryClient
from swell.directory.messages import ReportReply, ZoneReport
from swell.errors import SwellError
from swell.events.records import Located
from swell.overlay.coordinates import Coordinate
from swell.overlay.overlay import Overlay
from swell.overlay.requests import Answer
from swell.overlay.routed import Routed
from swell.settings import OverlaySettings
from swell.world import Timer, World

RETIRE = "retire"
SUPERVISE = 3
"""Question to another zone: pass this report on to the directory."""

UNANSWERED_MAX = 2
"""Reports without an answer before a supervisor is asked."""

_encode = msgspec.msgpack.Encoder().encode
_decode_report = msgspec.msgpack.Decoder(ZoneReport).decode
_decode_reply = msgspec.msgpack.Decoder(ReportReply).decode


class Reporting:
    """The reports of one node, for one stay in one zone."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        overlay: Overlay,
        directory: DirectoryClient,
        on_retire: Callable[[], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._overlay = overlay
        self._directory = directory
        self._on_retire = on_retire
        self._counters = counters
        self._unanswered = 0
        self._timer: Timer | None = None
        self._running = True
        overlay.requests.answer_later(SUPERVISE, self._supervise)
        self._arm()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        delay_s = self._settings.report_interval_s * (0.75 + 0.5 * self._world.rng.random())
        self._timer = self._world.call_later(delay_s, self._report)

    def _report(self) -> None:
        self._arm()
        overlay = self._overlay
        if self._world.recording:
            self._world.emit(_located(overlay.coordinate()))
        alive = overlay.members.alive()
        if overlay.members.attribute(alive[0].id, RETIRE):
            self._on_retire()
            return
        if not overlay.is_delegate():
            self._unanswered = 0
            return
        overlay.share_view()
        members = tuple((contact.id, contact.epoch) for contact in alive)
        report = ZoneReport(overlay.me.zone, members, overlay.view.epoch)
        self._unanswered += 1
        self._directory.report(report, self._on_reply)
        if self._unanswered > UNANSWERED_MAX:
            self._ask_supervisor(report)

    def _on_reply(self, reply: ReportReply) -> None:
        if not self._running:
            return
        self._unanswered = 0
        overlay = self._overlay
        if reply.view is not None:
            overlay.set_view(reply.view)
        for stranger in reply.strangers:
            overlay.clique.meet(stranger)
        if reply.retire:
            overlay.members.set_attribute(RETIRE, b"1", urgent=True)
            self._on_retire()

    # The supervised zone and its supervisor.

    def _ask_supervisor(self, report: ZoneReport) -> None:
        zones = sorted(self._overlay.zonelinks.holders)
        if not zones:
            return
        self._counters["supervisor-asked"] += 1

        def answered(answer: Answer | SwellError) -> None:
            if isinstance(answer, SwellError):
                return
            try:
                self._on_reply(_decode_reply(answer.payload))
            except msgspec.DecodeError:
                self._counters["bad-answer"] += 1

        zone = self._world.rng.choice(zones)
        timeout_s = self._settings.report_interval_s
        self._overlay.requests.ask(zone, 0, SUPERVISE, _encode(report), timeout_s, answered)

    def _supervise(self, question: Routed, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Pass a report on, but only for the zone that it comes from."""
        try:
            report = _decode_report(body)
        except msgspec.DecodeError:
            self._counters["bad-question"] += 1
            return
        if report.zone != question.source_zone:
            self._counters["foreign-report"] += 1
            return
        self._counters["supervised"] += 1
        self._directory.report(report, lambda answer: reply(_encode(answer)))


def _located(coordinate: Coordinate) -> Located:
    return Located(tuple(part * 1000.0 for part in (*coordinate.vector, coordinate.height)))
