"""Rosters: the other members of a slot know who is interested, so that the next primary can name
who does not come back (RIP-3, RIP-11).

Containers say themselves what they have, whoever serves them; only a dead one cannot. So the
primary tells the other members of a slot the names, at a low rate and only where they have changed:
each feed's containers are dealt out to `ROSTER_PARTS` by their names, and a part is told anew as a
whole. A part that is lost is told again with the next round of all of them. Nothing of it is
durable, and nothing is done per update.

Invariants: what is kept is bounded; a container is named as offline no longer than `offline_s` from
when its link ended, or from when its primary was lost, whoever serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from swell.config.delivery.subscribers import OFFLINE_MAX, Container, Member
from swell.config.messages import ROSTER_MAX, Roster, interest_digest
from swell.overlay.sessions import Session

if TYPE_CHECKING:
    from swell.config.delivery.delivery import Delivery
    from swell.config.delivery.feeds import Feed

Tell = Callable[[int, Roster], bool]
"""Sends something to another node; False: it is not on its way."""

TELL_S = 2.0
"""How often changes are told."""

TELL_MAX = 4096
"""Names that are told at a time; the rest follows."""

ROUND_S = 120.0
"""How often everything is told."""

ROUNDS_KEPT = 3
"""A part that was not told in so many rounds is of a time when this node was a member before."""


class Told(NamedTuple):
    """A part as it was told."""

    roster: Roster
    at: float


class Rosters:
    """Both sides: what this node has to tell, and what it was told."""

    def __init__(self, delivery: Delivery, tell: Tell | None) -> None:
        self._delivery = delivery
        self._tell = tell
        self._due: dict[Feed, dict[int, None]] = {}
        """Parts that have changed."""
        self._backups: dict[int, tuple[int, ...]] = {}
        """To whom the parts of a slot were told."""
        self._round_at = 0.0
        self._ticking = False
        self._told: dict[int, dict[tuple[str, bytes, int], Told]] = {}
        """By slot; by application, interest and part."""
        self._names = 0

    # Telling.

    def note(self, member: Member) -> None:
        """It has come, or gone."""
        if self._tell is None:
            return
        self._due.setdefault(member.feed, {})[member.container.part] = None
        if not self._ticking:
            self._ticking = True
            self._round_at = self._delivery.world.now() + ROUND_S
            self._delivery.world.call_later(TELL_S, self._tick)

    def _tick(self) -> None:
        """Tell what has changed, as long as there is anybody to speak of."""
        d = self._delivery
        now = d.world.now()
        if now >= self._round_at:
            self._round_at = now + ROUND_S
            self._backups.clear()
        for slot in d.feeds.served_slots():
            backups = tuple(one.id for one in d.slots.members(slot) if one.id != d.slots.me)
            if backups != self._backups.get(slot):
                self._backups[slot] = backups
                self._mark(d.feeds.in_slot(slot))
        left = TELL_MAX
        while self._due and left > 0:
            left -= self._tell_some(next(iter(self._due)), left, now)
        if self._due or len(d.feeds):
            d.world.call_later(TELL_S, self._tick)
        else:
            self._ticking = False

    def _mark(self, feeds: Iterable[Feed]) -> None:
        """Everybody who follows these."""
        for feed in feeds:
            due = self._due.setdefault(feed, {})
            due.update(dict.fromkeys(container.part for container in feed.members))

    def _tell_some(self, feed: Feed, names_max: int, now: float) -> int:
        """Parts of one feed that have changed; how many names they have, and one each."""
        d, due = self._delivery, self._due.pop(feed)
        if not d.feeds.serves(feed.slot):
            return len(due)
        feed = d.feeds.get(feed.application, feed.digest) or feed
        rows: dict[int, list[Container]] = {part: [] for part in due}
        for container in feed.members:
            row = rows.get(container.part)
            if row is not None:
                row.append(container)
        names = 0
        for part, row in rows.items():
            if names >= names_max:
                self._due.setdefault(feed, {})[part] = None
                continue
            names += len(row) + 1
            self._send(self._roster(feed, part, row, now))
        return max(names, 1)

    def _send(self, roster: Roster) -> None:
        assert self._tell is not None
        backups = self._backups.get(roster.slot, ())
        if not all([self._tell(node, roster) for node in backups]):
            del self._backups[roster.slot]  # all of it again, when they can be reached
        self._delivery.counters["config-roster-told"] += 1

    def _roster(self, feed: Feed, part: int, containers: list[Container], now: float) -> Roster:
        rows = tuple(
            (one.owner, one.name, one.site, 0.0 if one.session is not None else _away(one, now))
            for one in containers[:ROSTER_MAX]
        )
        return Roster(feed.slot, feed.application, feed.interest, part, rows)

    # Being told.

    def on_roster(self, session: Session, roster: Roster) -> None:
        """Of a slot that another node serves."""
        if not self._delivery.feeds.serves(roster.slot):
            self.keep(roster)

    def keep(self, roster: Roster) -> None:
        parts = self._told.setdefault(roster.slot, {})
        key = roster.application, interest_digest(roster.interest), roster.part
        before = parts.pop(key, None)
        self._names -= len(before.roster.containers) if before is not None else 0
        if not roster.containers:
            return
        if self._names + len(roster.containers) > OFFLINE_MAX:
            self._delivery.counters["config-roster-full"] += 1
            return
        self._names += len(roster.containers)
        parts[key] = Told(roster, self._delivery.world.now())

    def forget(self, slot: int) -> list[Told]:
        """What was told of a slot, once."""
        told = list(self._told.pop(slot, {}).values())
        self._names -= sum(len(one.roster.containers) for one in told)
        return told

    def recall(self, slot: int) -> None:
        """This node serves the slot from now on: who followed it is offline until it comes."""
        d = self._delivery
        now = d.world.now()
        for roster, at in self.forget(slot):
            age_s = now - at
            if age_s > ROUNDS_KEPT * ROUND_S:
                continue
            for owner, name, site, away_s in roster.containers:
                away_s = away_s + age_s if away_s else 0.0
                if away_s < d.settings.offline_s:
                    self._recall(roster, owner, name, site, now - away_s)
        for container in d.subscribers.beyond():
            d.forget(container)
        d.watch_marks()

    def _recall(self, roster: Roster, owner: str, name: str, site: str, since: float) -> None:
        """One that is connected here speaks for itself."""
        d = self._delivery
        known = d.subscribers.find(owner, name)
        feed = d.feeds.get(roster.application, interest_digest(roster.interest))
        if feed is None:
            if d.feeds.excess(roster.application, roster.interest):
                return
        elif known in feed.members:
            return
        if known is not None and known.session is not None:
            return
        step = d.feeds.step_of(roster.slot, roster.application)
        feed = d.feeds.make(roster.application, roster.interest, roster.slot, step)
        container = d.subscribers.recall(name, owner, site, since)
        member = feed.members[container] = Member(container, feed)
        container.members.append(member)
        feed.away[member] = None
        d.subscribers.lengthen(container, sum(map(len, feed.interest)))
        self.note(member)
        d.counters["config-recalled"] += 1


def _away(container: Container, now: float) -> float:
    """Never 0: that would be said of one that is connected."""
    return max(0.001, now - container.offline_since)
