"""Waiting for a step: who publishes learns by name who has it (RIP-11, RIP-14).

An answer is given when every interested container has reached the level, has rejected the step,
has failed or is offline, or when the caller's time is nearly over. Whoever comes or comes back
meanwhile counts. A primary that has just begun waits for the containers of its predecessor to come.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from swell.config.delivery.patience import PRIMARY_WAIT
from swell.config.delivery.retries import SILENT
from swell.config.messages import Level
from swell.config.reports import Await, Awaited, Named, Tally, encode_answer
from swell.store.gateway import DEADLINE_S_MAX
from swell.store.messages import Status

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.feeds import Feed
    from swell.config.delivery.subscribers import Container, Member, Rejection

Done = Callable[[Status, bytes], None]

WAITERS_MAX = 4096
DEADLINE_SHARE = 0.9
"""Of the caller's time; the rest is for the way back."""

THOROUGH_S = 0.25
"""How often every container is looked at while somebody waits."""

SETTLE_S = 3.0
"""Containers find a new primary within this time."""

_DELIVERED, _APPLIED = int(Level.DELIVERED), int(Level.APPLIED)

_CLASSES = ("applied", "delivered", "rejected", "silent", "failed", "offline")
"""From the best to the worst: a container with several feeds is in the worst of its classes."""


class Waiter:
    """One question without an answer."""

    __slots__ = ("concerned", "done", "due_at", "question")

    def __init__(self, question: Await, due_at: float, done: Done) -> None:
        self.question = question
        self.due_at = due_at
        self.done = done
        self.concerned: dict[Feed, bool] = {}
        """Whether the step has something for a feed."""


class Waiting:
    """Everybody who waits at this node."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._waiters: dict[str, list[Waiter]] = {}
        """By application."""
        self._count = 0
        self._thorough_at = 0.0

    def __len__(self) -> int:
        return self._count

    def has(self, application: str) -> bool:
        return application in self._waiters

    def begin(self, question: Await, deadline_s: float, done: Done) -> None:
        if self._count >= WAITERS_MAX:
            done(Status.BUSY, b"too many wait at this node: ask again later")
            return
        d = self._delivery
        if not 0.0 < deadline_s <= DEADLINE_S_MAX:
            deadline_s = DEADLINE_S_MAX
        due_at = d.world.now() + DEADLINE_SHARE * deadline_s
        self._count += 1
        self._waiters.setdefault(question.application, []).append(Waiter(question, due_at, done))
        d.look_soon(question.application)

    def stop(self, slot: int) -> None:
        """It is served elsewhere now: whoever asks is sent there."""
        for application in [a for a in self._waiters if self._delivery.feeds.slot_of(a) == slot]:
            for waiter in self._waiters.pop(application):
                self._count -= 1
                waiter.done(Status.REDIRECT, b"")

    def applications(self) -> list[str]:
        """Those that somebody waits for."""
        return list(self._waiters)

    def is_thorough(self, now: float) -> bool:
        """Whether it is time to look at every container."""
        thorough = now >= self._thorough_at
        if thorough:
            self._thorough_at = now + THOROUGH_S
        return thorough

    def check(self, application: str, now: float, thorough: bool = False) -> None:
        """Answer those whose step is everywhere, or whose time is over. `thorough` looks at every
        container, else only at what branches say."""
        settled = now >= self._settled_at(application)
        lows: dict[tuple[Feed, int], float] = {}
        left = []
        for waiter in self._waiters.get(application, ()):
            complete = settled and self._is_complete(waiter, lows, now, thorough)
            if complete or waiter.due_at <= now:
                self._count -= 1
                answer = self._answer(waiter, now, complete)
                waiter.done(Status.DONE, encode_answer(answer))
            else:
                left.append(waiter)
        if left:
            self._waiters[application] = left
        else:
            self._waiters.pop(application, None)

    def _settled_at(self, application: str) -> float:
        d = self._delivery
        return d.serving_since(d.feeds.slot_of(application)) + SETTLE_S

    # Who has it.

    def _feeds(self, waiter: Waiter) -> list[Feed]:
        """Those that the step has something for."""
        question, concerned = waiter.question, waiter.concerned
        feeds = self._delivery.feeds.of(question.application)
        for feed in feeds:
            if feed not in concerned:
                concerned[feed] = self._concerns(feed, question.step)
        return [feed for feed in feeds if concerned[feed]]

    def _concerns(self, feed: Feed, step: int) -> bool:
        application = self._delivery.feeds.application(feed)
        if feed.wants_all or application is None or step > application.step:
            return True
        return application.touches(step, feed.matches)

    def _is_complete(
        self, waiter: Waiter, lows: dict[tuple[Feed, int], float], now: float, thorough: bool
    ) -> bool:
        level, step = waiter.question.level, waiter.question.step
        for feed in self._feeds(waiter):
            low = lows.get((feed, level))
            if low is None:
                low = lows[feed, level] = self._low(feed, level, now, thorough)
            if low < step:
                return False
        return True

    def _low(self, feed: Feed, level: int, now: float, thorough: bool) -> float:
        """The last step for which nobody of a feed is waited for any more."""
        if thorough:
            return min((self._cleared(m, level, now) for m in feed.members.values()), default=inf)
        lows = [
            feed.lifted(branch.low(level))
            for group in feed.groups.values()
            for branch in group.branches()
        ]
        others = (self._cleared(member, level, now) for member in (*feed.strays, *feed.away))
        return min(min(lows, default=inf), min(others, default=inf))

    def _cleared(self, member: Member, level: int, now: float) -> float:
        """The last step for which one container is not waited for any more."""
        if member.failed or self._is_gone(member, now):
            return inf
        reached = member.feed.lifted(member.reached(level))
        return reached if member.rejected is None else max(reached, member.rejected.step)

    def _is_gone(self, member: Member, now: float) -> bool:
        """Offline, and not only for a moment."""
        if member.online:
            return False
        moment_s = PRIMARY_WAIT * self._delivery.settings.receipt_wait_s
        return now - member.container.offline_since >= moment_s

    def _class(self, member: Member, step: int) -> tuple[str, str]:
        """Its class as far as a step goes, and a reason."""
        feed, rejected = member.feed, member.rejected
        refused = self._refusal(member, step)
        if refused is not None:
            return "rejected", f"{refused.name}: {refused.reason}"
        if feed.lifted(member.reached(_APPLIED)) >= step:
            return "applied", ""
        if rejected is not None and rejected.step >= step:
            return "rejected", f"{rejected.name}: {rejected.reason}"
        if feed.lifted(member.reached(_DELIVERED)) >= step:
            return "delivered", ""
        if not member.online:
            return "offline", ""
        return ("failed", member.failed) if member.failed else ("silent", SILENT)

    def _refusal(self, member: Member, step: int) -> Rejection | None:
        """Its rejection of something that a step made. Who goes on with an older version has taken
        none of those up to the one it rejects: a new primary hears of the last one only."""
        rejections = member.rejections
        if not rejections:
            return None
        application = self._delivery.feeds.application(member.feed)
        if step in rejections or application is None:
            return rejections.get(step)
        later = (one for one in rejections.values() if one.step > step)
        return next(
            (one for one in later if application.version_made(one.name, step) > one.uses), None
        )

    # The answer.

    def _answer(self, waiter: Waiter, now: float, complete: bool) -> Awaited:
        question, feeds = waiter.question, self._feeds(waiter)
        if complete and not question.names_max and question.level == _APPLIED and len(feeds) == 1:
            (feed,) = feeds
            quiet = not feed.strays and not feed.away and feed.rejected_step < question.step
            if quiet and self._low(feed, _APPLIED, now, thorough=False) >= question.step:
                return Awaited(True, applied=Tally(len(feed.members)))
        worst: dict[Container, tuple[int, str]] = {}
        for feed in feeds:
            for container, member in feed.members.items():
                name, reason = self._class(member, question.step)
                place = _CLASSES.index(name)
                if place >= worst.get(container, (-1, ""))[0]:
                    worst[container] = place, reason
        found: list[list[Named]] = [[] for _ in _CLASSES]
        for container, (place, reason) in worst.items():
            offline_s = now - container.offline_since if container.offline_since else 0.0
            found[place].append(Named(container.name, reason, round(offline_s, 3)))
        for row in found:
            row.sort(key=lambda named: named.container)
        names_max = question.names_max
        return Awaited(complete, *(Tally(len(row), tuple(row[:names_max])) for row in found))
