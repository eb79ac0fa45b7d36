"""Who has a step, and who has which version: asked at the primary of the application's slot.

Nothing is waited for longer than a turn, so that progress is seen while it happens and another
primary is found when the first one is gone.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from swell.client.deadlines import Deadline, check_deadline
from swell.client.session_pending import Answer
from swell.config import reports
from swell.config.reports import REPORT_SERVICE, Await, Awaited, StatusOf, StatusReport
from swell.errors import UnavailableError

TURN_S = 0.4
TURN_S_MAX = 5.0
"""Between two reports while one waits. Shorter than a session's patience with a silent node, so
that one question is asked once; longer where the way there and back takes a good part of it."""

Call = Callable[[int, int, int, bytes, float | None], Awaitable[Answer]]

Report = Awaited
Status = StatusReport


async def await_step(
    call: Call,
    question: Await,
    deadline_s: float,
    progress: Callable[[Report], None] | None,
) -> Report:
    """The first report that is complete, or the last within the deadline; `UnavailableError` if
    there was none."""
    until = time.monotonic() + check_deadline(deadline_s)
    place, read, body = reports.request(question)
    report: Report | None = None
    turn_s = TURN_S
    while (left_s := until - time.monotonic()) > 0.0:
        try:
            answer = await call(REPORT_SERVICE, place, read, body, min(turn_s, left_s))
        except UnavailableError:
            if report is None and turn_s >= left_s:
                raise
            turn_s = min(TURN_S_MAX, 2 * turn_s)
            continue
        report = reports.awaited_of(answer.body)
        if progress is not None:
            progress(report)
        if report.complete:
            return report
    assert report is not None
    return report


async def read_status(call: Call, application: str, name: str, deadline: Deadline) -> Status:
    """All rows, a page at a time."""
    whole: Status | None = None
    while whole is None or whole.more:
        after = whole.rows[-1].container if whole is not None else ""
        place, read, body = reports.request(StatusOf(application, name, after))
        answer = await call(REPORT_SERVICE, place, read, body, deadline.left_s())
        page = reports.status_of(answer.body)
        rows = (*whole.rows, *page.rows) if whole is not None else page.rows
        whole = replace(page, rows=rows)
    return whole
