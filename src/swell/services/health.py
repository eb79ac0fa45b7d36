"""Health: the primary of a service's slot looks after its instances (RIP-23).

It follows the lists that this node serves, hears of leases, probes, and publishes what it finds.
A primary counts silence from when it began to serve, and leaves out the time in which it stood
still itself: nobody is taken for dead because a node was.

One timer for all: subjects stand in a heap by when to look at them again. A lease that was named
meanwhile is put back then, so naming it costs nothing but the note.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from swell.access.grants import Right
from swell.config.names import INSTANCES
from swell.events import InstanceJudged
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.services.messages import Doubt, Keep, Kept, Lease
from swell.services.protection import findings
from swell.services.publication import Publication, Publisher
from swell.services.subjects import Subject
from swell.services.watching import Service, Slots, Watching
from swell.settings import ServiceSettings
from swell.world import Address, Timer, World

PROBES_MAX = 128
"""Under way; more wait for their turn."""

FULL_S = 0.1
TICK_S = 0.02
"""The shortest time between two looks: what is due about the same time is judged together."""

LAG_S = 0.25
"""A timer that is later than this shows that this node stood still."""

RETRY_S = 0.5


class Health:
    """One node's part: a listener of its store, and the keeper of leases."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        store: Slots,
        publisher: Publisher,
        settings: ServiceSettings,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._counters = counters
        self._watching = Watching(store, settings)
        self._publication = Publication(world, publisher, counters)
        self._behind: dict[int, None] = {}
        self._heap: list[tuple[float, int, Subject]] = []
        self._pushes = 0
        self._probes = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._stood_s = 0.0
        """How long this node has stood still, all in all."""
        sessions.handle(Keep, self.on_keep, (LinkKind.CLIENT,))

    def _now(self) -> float:
        """Time that this node was awake."""
        return self._world.now() - self._stood_s

    # The store's listener.

    def on_serving(self, slot: int) -> None:
        self._watching.begin(slot)
        self._look_soon(slot)

    def on_committed(self, slot: int) -> None:
        if self._watching.is_behind(slot):
            self._look_soon(slot)

    def on_stopped(self, slot: int) -> None:
        self._watching.end(slot)
        self._behind.pop(slot, None)

    def _look_soon(self, slot: int) -> None:
        if not self._behind:
            self._world.call_later(0.0, self._look)
        self._behind[slot] = None

    def _look(self) -> None:
        behind, self._behind = self._behind, {}
        for slot in behind:
            self._refresh(slot)

    def _refresh(self, slot: int) -> None:
        now = self._now()
        services, subjects = self._watching.refresh(slot, now)
        for subject in subjects:
            if subject.is_probed:
                delay_s = self._settings.check_interval_s * self._world.rng.random()
                self._push(now + delay_s, subject)
            else:
                self._push(subject.judge(now), subject)
        for service in services:
            self._publish(service)

    # Leases.

    def on_keep(self, session: Session, keep: Keep) -> None:
        """The links of containers: whoever holds these leases is alive."""
        doubts = []
        for at, lease in enumerate(keep.leases):
            doubt = self._hear(session, lease)
            if doubt is not None:
                doubts.append((at, int(doubt)))
        session.send(Kept(keep.number, tuple(doubts)))

    def _hear(self, session: Session, lease: Lease) -> Doubt | None:
        slot = self._watching.slot_of(lease.service)
        if slot < 0:
            return Doubt.ELSEWHERE
        access = session.access
        if access is None or not access.may(Right.WRITE, lease.service, INSTANCES):
            return Doubt.REFUSED
        if self._watching.is_behind(slot):
            self._refresh(slot)
        service = self._watching.find(slot, lease.service)
        instance = service.instances.by_id.get(lease.instance) if service is not None else None
        if service is None or instance is None:
            return Doubt.ABSENT
        if instance.lease != lease.lease:
            return Doubt.REPLACED
        subject = service.subjects.get(lease.instance)
        if subject is not None:
            subject.hear(self._now())
            self._note(subject)
        return None

    # Looking.

    def _push(self, due: float, subject: Subject) -> None:
        self._pushes += 1
        heappush(self._heap, (due, self._pushes, subject))
        self._wake_by(due)

    def _wake_by(self, due: float) -> None:
        now = self._now()
        due = max(due, now + TICK_S)
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._world.call_later(due - now, self._tick)

    def _tick(self) -> None:
        """Judge whoever is due."""
        self._timer = None
        lag_s = self._now() - self._timer_at
        if lag_s > LAG_S:
            # What was said meanwhile is still to be read.
            self._counters["service-stood-still"] += 1
            self._stood_s += lag_s
        now = self._now()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        for subject in due:
            if not subject.watched:
                continue
            if subject.is_probed:
                self._probe(subject, now)
            else:
                self._push(subject.judge(now), subject)
                subject.service.note(subject)
        for service in {subject.service: None for subject in due if subject.is_news}:
            self._publish(service)
        if self._heap:
            self._wake_by(self._heap[0][0])

    def _note(self, subject: Subject) -> None:
        subject.service.note(subject)
        if subject.is_news:
            self._publish(subject.service)

    def _probe(self, subject: Subject, now: float) -> None:
        if self._probes >= PROBES_MAX:
            self._counters["service-probes-full"] += 1
            self._push(now + FULL_S, subject)
            return
        self._probes += 1
        instance = subject.instance

        def done(good: bool) -> None:
            self._probes -= 1
            if subject.watched:
                subject.probed(good)
                self._note(subject)

        address = Address(instance.host, instance.port)
        self._world.probe(address, instance.check, self._settings.check_timeout_s, done)
        self._push(now + self._settings.check_interval_s, subject)

    # Publishing.

    def _publish(self, service: Service) -> None:
        """Say what the list does not say yet; one step at a time."""
        if service.publishing or self._watching.find(service.slot, service.name) is not service:
            return
        wall_s = self._world.wall_us() // 1_000_000
        lines, verdicts = findings(
            service.instances, service.news.values(), service.protect, wall_s
        )
        if not lines:
            return
        service.publishing = True

        def done(good: bool) -> None:
            service.publishing = False
            if good:
                for id, what in verdicts:
                    self._counters[f"service-{what}"] += 1
                    self._world.emit(InstanceJudged(service.name, id, what))
                self._refresh(service.slot)
                self._world.call_later(0.0, again)
            else:
                self._world.call_later(RETRY_S, again)

        def again() -> None:
            self._publish(service)

        self._publication.publish(service.slot, service.name, lines, done)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
