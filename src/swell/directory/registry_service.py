"""The registry at the directory's leader: answers reads, makes changes, takes watches.

Whatever arrives in one turn of the loop shares one record of the log, or one read index. A watch
begins with a read index, so that a watcher never falls behind what it heard from an earlier
leader.

While this voter leads, every `RegistrySet` in the log comes from here and they are applied in
their order, so outcomes find their requests by it. When leadership ends everything open is
dropped: clients ask again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from swell.directory.proposals import Outcomes
from swell.directory.records import Record, State
from swell.directory.registry import (
    BATCH_BYTES_MAX,
    Change,
    Entry,
    Outcome,
    RegistrySet,
    Wish,
    batch_bytes,
    deal,
    groups,
)
from swell.directory.registry_messages import (
    ANSWER_BYTES_MAX,
    Held,
    RegistryReply,
    RegistryRequest,
    RegistryWatch,
    held,
)
from swell.directory.registry_watching import Watching
from swell.errors import WireError
from swell.overlay.sessions import Session
from swell.world import Timer, World

WAITING_MAX = 4096
"""Requests that wait for the log."""
BUSY_S = 0.05

Propose = Callable[[Sequence[Record], Callable[[Outcomes], None]], None]


class RegistryService:
    """Requests and watches of one leadership."""

    def __init__(
        self,
        world: World,
        state: State,
        propose: Propose,
        read: Callable[[Callable[[bool], None]], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._state = state
        self._propose = propose
        self._read = read
        self._counters = counters
        self._watching = Watching(world, lambda: state.registry, counters)
        self._leading = False
        self._term = 0
        self._wishes: list[Wish] = []
        self._reads: list[tuple[Session, RegistryRequest]] = []
        self._watches: list[tuple[Session, str]] = []
        self._applied: deque[tuple[RegistrySet, list[Outcome]]] = deque()
        self._open = 0
        self._timer: Timer | None = None

    # -- leadership ----------------------------------------------------------------------------

    def start(self) -> None:
        self._leading = True
        self._term += 1

    def stop(self) -> None:
        """Leadership is over. Clients notice by the end of their sessions."""
        self._leading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wishes, self._wishes = self._wishes, []
        self._reads.clear()
        self._watches.clear()
        self._applied.clear()
        self._watching.clear()
        self._open = 0
        deal(wishes, None)

    def forget(self, session: Session) -> None:
        """A session has ended."""
        self._watching.forget(session)

    def on_applied(self, record: Record) -> None:
        """A record of any kind took effect at this voter."""
        if isinstance(record, RegistrySet):
            self._counters["registry-full"] = self._state.registry.refused_full
            if self._leading:
                self._applied.append((record, self._state.registry.outcomes))

    # -- requests ------------------------------------------------------------------------------

    def on_request(self, session: Session, request: RegistryRequest) -> None:
        if batch_bytes(request.changes) > BATCH_BYTES_MAX:
            raise WireError("too-large", "changes of the registry in one request")
        if self._open >= WAITING_MAX:
            self._counters["registry-busy"] += 1
        elif request.changes:
            self.change(request.changes, lambda outcomes: _reply(session, request, outcomes))
        else:
            self._reads.append((session, request))
            self._wait()

    def on_watch(self, session: Session, watch: RegistryWatch) -> None:
        self._watching.check(session, len(self._watches))
        self._watches.append((session, watch.prefix))
        self._pump_later(0.0)

    def change(
        self, changes: Sequence[Change], done: Callable[[list[Outcome] | None], None]
    ) -> None:
        """As `RegistryAccess.change`, for the leader's own use too."""
        assert self._leading
        self._wishes.append(Wish(changes, done))
        self._wait()

    def _wait(self) -> None:
        self._open += 1
        self._pump_later(0.0)

    def _pump_later(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(delay_s, self._pump)

    def _pump(self) -> None:
        """Begin everything that came in this turn."""
        self._timer = None
        wishes, self._wishes = self._wishes, []
        for group in groups(wishes):
            self._log(group)
        if self._reads or self._watches:
            self._make_certain()

    def _log(self, group: list[Wish]) -> None:
        term = self._term

        def logged(result: Outcomes) -> None:
            if term == self._term and self._leading:
                self._open -= len(group)
            deal(group, None if result is None else self._take(term))

        self._propose([RegistrySet(tuple(c for wish in group for c in wish.changes))], logged)

    def _take(self, term: int) -> list[Outcome] | None:
        """The outcomes of the record that was applied next."""
        if term != self._term or not self._leading:
            return None
        record, outcomes = self._applied.popleft()
        for change, outcome in zip(record.changes, outcomes, strict=True):
            if outcome.accepted:
                self._watching.changed(change.key)
        self._counters["registry-changed"] += sum(outcome.accepted for outcome in outcomes)
        return outcomes

    def _make_certain(self) -> None:
        term = self._term
        reads, self._reads = self._reads, []
        watches, self._watches = self._watches, []

        def certain(known: bool) -> None:
            if term != self._term or not self._leading:
                return
            self._open -= len(reads)
            if not known:  # too many reads at once: clients ask again, watches wait
                self._counters["registry-busy"] += len(reads)
                self._watches += watches
                self._pump_later(BUSY_S)
                return
            for session, request in reads:
                entries = [self._state.registry.get(key) for key in request.keys]
                session.send(RegistryReply(request.number, (), _told(entries)))
            for session, prefix in watches:
                if session.open:
                    self._watching.add(session, prefix)

        self._read(certain)


def _reply(session: Session, request: RegistryRequest, outcomes: list[Outcome] | None) -> None:
    """What is not known is not answered: the client gives up by itself."""
    if outcomes is not None and session.open:
        told = _told([None if o.accepted else o.entry for o in outcomes])
        answer = tuple(
            # An accepted value came from the client.
            Held(o.entry.version, None) if o.accepted and o.entry is not None else refused
            for o, refused in zip(outcomes, told, strict=True)
        )
        session.send(RegistryReply(request.number, tuple(o.accepted for o in outcomes), answer))


def _told(entries: Sequence[Entry | None]) -> tuple[Held, ...]:
    """What there is room for in one answer; the first value always."""
    told: list[Held] = []
    used = 0
    for entry in entries:
        used += 0 if entry is None else len(entry.value)
        full = used > ANSWER_BYTES_MAX
        told.append(Held(entry.version, None) if full and entry is not None else held(entry))
    return tuple(told)
