"""The rules of deliveries, order and acknowledgements for a bucket of containers, row by row.

Plain Python without Spark: `streaming` feeds it and keeps its state. Rows wait until the watermark
has passed them and are then taken in order; a stored version is judged for every container of the
bucket once the watermark is a horizon behind it, and forgotten. `docs/protocols/audit.md` has the
rules, which are those of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from swell.config.delivery.interest import WILDCARD
from swell.events.rows import NODE_ROLE
from swell.events.schema import Kind
from swell.ids import LIVES_PER_DIRECTORY
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.streaming_progress import (
    RANGES_MAX,
    ContainerLife,
    Progress,
    Taken,
    merged,
)
from swell.pipeline.streaming_state import Place, Seen, State, Subscription, Version, Versions
from swell.pipeline.verdicts import Verdict


class Finding(NamedTuple):
    verdict: Verdict
    application: str
    name: str | None
    who: str
    first: int
    last: int
    place: Place
    at_us: int
    value_ms: float | None = None
    excused: bool = False


ABOUT_CONTAINERS = (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.ACK, Kind.CRASH_FOUND)

Late = dict[tuple[str, str, str, bool, Taken], list[tuple[Seen, int]]]
"""Application, name, container, whether excused, and the row that came late: what it was for."""


def interests_of(rows: Iterable[Seen]) -> dict[Place, str]:
    """All patterns of each subscription among the rows, separated by commas as in ack rows, by the
    place of its first row: it has a row for each of them, all at one moment."""
    together: dict[tuple[object, ...], list[Seen]] = {}
    for row in rows:
        if row.kind == Kind.SUBSCRIBE:
            moment = (row.node, row.start, row.mono_us, row.peer, row.application, row.step)
            together.setdefault(moment, []).append(row)
    return {
        min(row.place for row in several): ",".join(sorted({row.name or "" for row in several}))
        for several in together.values()
    }


class Auditor:
    """Judges the containers of one bucket."""

    def __init__(self, settings: AuditSettings, state: State) -> None:
        self.settings = settings
        self.state = state
        self.judged = 0
        """Expected deliveries, in the last step."""
        self._found: list[Finding] = []
        self._interests: dict[Place, str] = {}

    def advance(self, rows: Iterable[Seen], watermark_us: int) -> list[Finding]:
        """Take in rows, and judge all that the watermark has passed."""
        self._found = []
        self.judged = 0
        self.state.waiting.extend(rows)
        due = self._due(watermark_us)
        self._interests = interests_of(due)
        for row in due:
            self._take(row)
        self._resolve(watermark_us)
        self._judge(watermark_us - self.settings.horizon_us)
        return self._found

    def next_due_us(self) -> int | None:
        """When the watermark would let something happen."""
        times = [row.time_us for row in self.state.waiting]
        horizon_us = self.settings.horizon_us
        times += (row.time_us + horizon_us for row in self.state.unresolved)
        times += (
            version.store.at_us + horizon_us for version in self._versions() if not version.judged
        )
        return min(times, default=None)

    def unjudged(self) -> int:
        """Versions that are still to be judged."""
        store = Kind.STORE.value  # looked up once: many rows wait, few of them are of this kind
        waiting = {
            (row.application, row.name, row.sequence)
            for row in self.state.waiting
            if row.kind == store and row.is_complete and not self._of(row).knows(row.sequence)
        }
        return len(waiting) + sum(not version.judged for version in self._versions())

    def _of(self, row: Seen) -> Versions:
        """What is known of the configuration of a row."""
        return self.state.stored.get(row.application or "", {}).get(row.name or "", Versions())

    def _versions(self) -> Iterator[Version]:
        for names in self.state.stored.values():
            for versions in names.values():
                yield from versions.kept.values()

    def _due(self, watermark_us: int) -> list[Seen]:
        """In order; whatever a process wrote before one of its rows comes with it."""
        waiting = self.state.waiting
        last: dict[tuple[str, int], int] = {}
        for row in waiting:
            if row.time_us <= watermark_us:
                life = (row.node, row.start)
                last[life] = max(row.row, last.get(life, 0))
        if not last:
            return []
        due = [row for row in waiting if row.row <= last.get((row.node, row.start), 0)]
        self.state.waiting = [
            row for row in waiting if row.row > last.get((row.node, row.start), 0)
        ]
        due.sort(key=lambda row: row.place)
        times: dict[tuple[str, int], int] = {}
        order: list[tuple[int, Place, Seen]] = []
        for row in due:  # a clock that was set back does not undo the order of a process
            life = (row.node, row.start)
            times[life] = max(row.time_us, times.get(life, row.time_us))
            order.append((times[life], row.place, row))
        order.sort(key=lambda one: one[:2])
        return [row for _, _, row in order]

    def _take(self, row: Seen) -> None:
        if row.role == "container":
            life = self.state.lives.setdefault(row.node, ContainerLife())
            life.saw(row.start, row.row, row.at_us, row.kind == Kind.STOP and row.peer is None)
            if row.kind == Kind.START and row.application is not None:
                life.resumed = [*life.resumed, row.application]
            life.heard_us = max(life.heard_us, row.time_us)
        elif row.role == NODE_ROLE and row.node not in self.state.nodes:
            self.state.nodes[row.node] = None
            first = row.kind == Kind.START and row.start % LIVES_PER_DIRECTORY == 1
            self.state.begins_late |= not first
        if row.role == NODE_ROLE and row.kind == Kind.START:
            self.state.forget_primaries(row.node, row.start)
        if not row.is_complete:
            return
        if row.kind in ABOUT_CONTAINERS:
            life = self.state.lives.setdefault(row.subject, ContainerLife())
            life.heard_us = max(life.heard_us, row.time_us)
        if row.kind == Kind.STORE:
            self._on_store(row)
        elif row.kind in (Kind.APPLY, Kind.REJECT):
            self._on_received(row)
        elif row.kind == Kind.ACK:
            self._on_ack(row)
        elif row.kind == Kind.SUBSCRIBE:
            self._on_subscribe(row)
        elif row.kind == Kind.UNSUBSCRIBE:
            self._end(row, row.application, row.name)
        elif row.kind in (Kind.STOP, Kind.CRASH_FOUND):
            self._end(row, None, None)
            if row.kind == Kind.CRASH_FOUND:
                life = self.state.lives[row.subject]
                life.crashed(row.at_us + self._own_offset_us(row.subject))

    def _on_store(self, row: Seen) -> None:
        assert row.application is not None
        assert row.name is not None
        assert row.sequence is not None
        names = self.state.stored.setdefault(row.application, {})
        versions = names.setdefault(row.name, Versions())
        known = versions.kept.get(row.sequence)
        if known is None:
            versions.kept[row.sequence] = Version(row, [row.digest], versions.knows(row.sequence))
            versions.numbers = merged(versions.numbers, row.sequence, row.sequence)[-RANGES_MAX:]
            return
        known.digests.append(row.digest)
        if row.across < known.store.across:
            known.store = row

    def _on_subscribe(self, row: Seen) -> None:
        assert row.application is not None
        pattern = "" if row.name in (None, WILDCARD) else row.name
        assert pattern is not None
        self.state.subscriptions.append(
            Subscription(row.application, row.subject, pattern, row.across)
        )
        self.state.lives[row.subject].subscribed()
        at_primary = self.state.acked.get(f"{row.node} {row.start}", {})
        at_primary.pop(f"{row.subject} {row.application}", None)
        self._look_for_lost(row)

    def _look_for_lost(self, row: Seen) -> None:
        """Whether a container comes back with less than it had acknowledged."""
        interest = self._interests.get(row.place)
        if interest is None or row.peer is None or not row.step:
            return
        assert row.application is not None
        of_feeds = self.state.held.get(f"{row.node} {row.start}", {})
        held = of_feeds.get(f"{row.peer} {row.application}", {}).get(interest, 0)
        if row.step < held:
            about = (row.application, interest or None, row.peer, row.step + 1, held)
            self._found.append(Finding(Verdict.ACK_LOST, *about, row.place, row.at_us))

    def _end(self, row: Seen, application: str | None, pattern: str | None) -> None:
        pattern = "" if pattern == WILDCARD else pattern
        at_us = row.at_us - self._own_offset_us(row.node)
        begun = [
            one
            for one in self.state.subscriptions
            if one.container == row.subject
            and application in (None, one.application)
            and pattern in (None, one.pattern)
            and (at_us, *row.across[1:]) > tuple(one.begin)
        ]
        begun.sort(key=lambda one: one.begin)
        holders = {(one.application, one.pattern): one.begin[1] for one in begun}
        for one in begun:
            if row.kind == Kind.UNSUBSCRIBE and row.node != holders[one.application, one.pattern]:
                continue  # somebody else serves it by then
            if one.end_us is None or at_us < one.end_us:
                one.end_us = at_us

    def _on_received(self, row: Seen) -> None:
        assert row.application is not None
        assert row.name is not None
        assert row.sequence is not None
        first = row.sequence if row.first is None else row.first
        names = self.state.progress.setdefault(row.node, {}).setdefault(row.application, {})
        progress = names.setdefault(row.name, Progress())
        time_us = max(row.time_us, row.sent_us or row.time_us)
        taken = Taken(row.at_us, row.mono_us, row.start, row.row, first, row.sequence, time_us)
        if row.kind == Kind.REJECT:
            progress.reach(taken)
            return
        life = self.state.lives.get(row.node)
        verdict = progress.apply(taken, life is not None and row.application in life.resumed)
        if verdict is not None:
            self._found.append(self._about(verdict, row, first))
        self.state.unresolved.append(row)
        if row.sent_us is not None:
            clocks = self.state.clocks.setdefault(row.node, {})
            pair = f"{row.application} {row.epoch}"
            clocks[pair] = min(clocks.get(pair, row.at_us - row.sent_us), row.at_us - row.sent_us)

    def _about(self, verdict: Verdict, row: Seen, first: int) -> Finding:
        assert row.application is not None
        assert row.sequence is not None
        return Finding(
            verdict, row.application, row.name, row.node, first, row.sequence, row.place, row.at_us
        )

    def _on_ack(self, row: Seen) -> None:
        assert row.application is not None
        assert row.sequence is not None
        at_primary = self.state.acked.setdefault(f"{row.node} {row.start}", {})
        of_feeds = at_primary.setdefault(f"{row.subject} {row.application}", {})
        feed = row.name or ""
        before = of_feeds.get(feed, row.sequence - 1)
        if row.sequence <= before:
            verdict = Verdict.ACK_TWICE if row.sequence == before else Verdict.ACK_BACK
            place = (row.application, row.name, row.subject, row.sequence, row.sequence)
            self._found.append(Finding(verdict, *place, row.place, row.at_us))
        of_feeds[feed] = max(before, row.sequence)
        held = self.state.held.setdefault(f"{row.node} {row.start}", {})
        feeds = held.setdefault(f"{row.subject} {row.application}", {})
        feeds[feed] = max(feeds.get(feed, 0), row.sequence)

    def _resolve(self, watermark_us: int) -> None:
        """Compare what was applied with what was stored, as far as that is known by now."""
        still: list[Seen] = []
        for row in self.state.unresolved:
            assert row.application is not None
            assert row.name is not None
            assert row.sequence is not None
            first = row.sequence if row.first is None else row.first
            versions = self._of(row)
            version = versions.kept.get(row.sequence)
            if version is not None:
                if row.digest is not None and row.digest not in version.digests:
                    self._found.append(self._about(Verdict.WRONG_CONTENT, row, first))
            elif row.time_us + self.settings.horizon_us > watermark_us:
                still.append(row)
            elif versions.knows(row.sequence):
                continue  # its digest is forgotten
            elif self.settings.complete or (
                versions.numbers and row.sequence > versions.numbers[0][0]
            ):
                below = not versions.numbers or row.sequence < versions.numbers[0][0]
                found = self._about(Verdict.UNKNOWN, row, first)
                self._found.append(found._replace(excused=below and self.state.begins_late))
        self.state.unresolved = still

    def _judge(self, upto_us: int) -> None:
        """All versions stored until then; then forget them, save the newest of each name."""
        late: Late = {}
        for application, names in self.state.stored.items():
            for name, versions in names.items():
                due = [v for v in versions.kept.values() if v.store.at_us <= upto_us]
                for version in due:
                    if not version.judged:
                        version.judged = True
                        self._judge_version(application, name, version.store, late)
                newest = versions.numbers[-1][1]
                for version in due:
                    number = version.store.sequence
                    if number is not None and number != newest:
                        del versions.kept[number]
        self._report(late)
        self._forget(upto_us)

    def _judge_version(
        self,
        application: str,
        name: str,
        store: Seen,
        late: Late,
    ) -> None:
        assert store.sequence is not None
        until_us = store.at_us + self.settings.sla_us
        containers = {
            one.container: None
            for one in self.state.subscriptions
            if one.application == application
            and one.begin[0] <= store.at_us
            and (one.end_us is None or until_us <= one.end_us)
            and one.matches(name)
        }
        self.judged += len(containers)
        for container in containers:
            progress = self.state.progress.get(container, {}).get(application, {}).get(name)
            by = progress.satisfying(store.sequence) if progress is not None else None
            took_us = None if by is None else self._taken_us(store, by, container)
            life, off_us = self.state.lives.get(container), self._own_offset_us(container)
            excused = life is not None and life.lost(store.at_us + off_us, until_us + off_us)
            key = (application, name, container, excused)
            if by is None or took_us is None or took_us > self.settings.horizon_us:
                about = (application, name, container, store.sequence, store.sequence)
                place = (store.place, store.at_us, None, excused)
                self._found.append(Finding(Verdict.MISSING, *about, *place))
            elif took_us > self.settings.sla_us:
                late.setdefault((*key, by), []).append((store, took_us))

    def _taken_us(self, store: Seen, by: Taken, container: str) -> int:
        boot_us = (store.at_us - store.mono_us) - (by.at_us - by.mono_us)
        if abs(boot_us) <= self.settings.same_machine_us:
            return by.mono_us - store.mono_us
        pair = f"{store.application} {store.epoch}"
        fastest_us = self.state.clocks.get(container, {}).get(pair, 0)
        return by.at_us - store.at_us - self._offset_us(fastest_us)

    def _own_offset_us(self, container: str) -> int:
        """How much its clock is ahead, by all its deliveries so far."""
        return self._offset_us(min(self.state.clocks.get(container, {}).values(), default=0))

    def _offset_us(self, fastest_us: int) -> int:
        off = fastest_us < 0 or fastest_us > self.settings.clock_bound_us
        return fastest_us if off else 0

    def _report(self, late: Late) -> None:
        for (application, name, container, excused, by), several in late.items():
            versions = [store.sequence or 0 for store, _ in several]
            worst_ms = max(took_us for _, took_us in several) / 1000
            place = (container, by.start, by.row)
            about = (application, name, container, min(versions), max(versions))
            self._found.append(Finding(Verdict.LATE, *about, place, by.at_us, worst_ms, excused))

    def _forget(self, upto_us: int) -> None:
        self.state.subscriptions = [
            one for one in self.state.subscriptions if one.end_us is None or one.end_us > upto_us
        ]
        for applications in self.state.progress.values():
            for names in applications.values():
                for progress in names.values():
                    progress.forget(upto_us)
        served = {one.container for one in self.state.subscriptions}
        self.state.forget_containers(
            {
                container
                for container, life in self.state.lives.items()
                if container not in served and life.away(upto_us)
            }
        )
