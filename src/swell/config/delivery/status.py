"""Status: what every interested container has of a configuration, and how it came there."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from swell.config.application import Application
from swell.config.configuration import Configuration
from swell.config.messages import Level
from swell.config.reports import State, StatusOf, StatusReport, StatusRow

if TYPE_CHECKING:
    from swell.config.delivery.feeds import Feed
    from swell.config.delivery.subscribers import Member, Rejection


def report(
    question: StatusOf, application: Application | None, feeds: list[Feed], now: float
) -> StatusReport:
    """One page of it."""
    members = [
        member
        for feed in feeds
        if not question.name or feed.matches(question.name)
        for member in feed.members.values()
        if member.name > question.after
    ]
    members.sort(key=lambda member: (member.name, member.container.owner, member.feed.digest))
    # A page ends between two containers' names, not within one.
    end = question.limit
    while 0 < end < len(members) and members[end].name == members[end - 1].name:
        end += 1
    configuration = application.configurations.get(question.name) if application else None
    rows = tuple(_row(member, configuration, now) for member in members[:end])
    step = application.step if application is not None else 0
    version = configuration.present.version if configuration is not None else 0
    return StatusReport(step, version, rows, len(members) > end)


def _row(member: Member, configuration: Configuration | None, now: float) -> StatusRow:
    container, branch = member.container, member.branch
    since, relay = member.since, member.by
    if branch is not None and branch.since > since:
        since, relay = branch.since, "" if branch.relay is member else branch.relay.name
    state, reason = State.BEHIND, member.failed
    if not member.online:
        state, since = State.OFFLINE, container.offline_since
    elif member.failed:
        state = State.FAILED
    elif branch is not None:
        state = State.IN_STEP
    applied = member.reached(Level.APPLIED)
    version, rejected = _in_use(member, configuration, applied)
    if rejected is not None:
        reason = f"rejected {rejected.name}: {rejected.reason}"
    return StatusRow(
        container.name,
        container.owner,
        container.site,
        state,
        version,
        member.reached(Level.DELIVERED),
        applied,
        round(max(0.0, now - since), 3) if since else 0.0,
        relay,
        container.score,
        container.avoided_until > now,
        reason,
    )


def _in_use(
    member: Member, configuration: Configuration | None, applied: int
) -> tuple[int, Rejection | None]:
    """The version that its application uses, and what it refuses instead. It may have applied
    steps behind the one that it refuses."""
    if configuration is None:
        last = member.rejected
        return 0, last if last is not None and last.step > applied else None
    version = version_at(configuration, member.feed.lifted(applied))
    refused = member.refusal(configuration.name)
    if refused is None or version_at(configuration, refused.step) < version:
        return version, None
    return min(version, refused.uses), refused


def version_at(configuration: Configuration, step: int) -> int:
    """The version of a configuration after a step; 0: none yet, or not kept any more."""
    if step >= configuration.step:
        return configuration.present.version
    history = configuration.history
    if not history.versions or step < history.from_step:
        return 0
    place = bisect_right([past.step for past in history.versions], step)
    return history.versions[0].version + place - 1
