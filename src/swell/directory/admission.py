"""Who gets in: joins are gathered, planned together by the leader, logged, then answered.

THOR 3.1 and 3.4: the membership service assigns ids and zones, and tells the members of a new zone
which zones are theirs to connect. Nobody is answered before the record of it is applied; whose
outcome is not known hears nothing and asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from swell.directory import assignment
from swell.directory.assignment import Arrival
from swell.directory.messages import OLD_COPY, Bootstrap, JoinRefused, JoinReply, JoinRequest
from swell.directory.proposals import Outcomes
from swell.directory.records import Admitted, Entry, Forgotten, Record, State
from swell.errors import InvalidNameError
from swell.ids import MOVES_PER_START, check_name
from swell.overlay.contact import Contact
from swell.overlay.sessions import Session
from swell.settings import OverlaySettings
from swell.world import Timer, World

Batch = dict[str, tuple[Session, JoinRequest]]
Propose = Callable[[Sequence[Record], Callable[[Outcomes], None]], None]


class Admission:
    """The joins under way at the leader."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        state: State,
        propose: Propose,
        seen: Callable[[int], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._state = state
        self._propose = propose
        self._seen = seen
        self._counters = counters
        self._joining: Batch = {}
        self._first_join_at = 0.0
        self._timer: Timer | None = None
        self.planning = False
        """Is a batch being logged?"""

    def stop(self) -> None:
        """Leadership is over: whoever waits asks the next leader."""
        self._joining = {}
        self.planning = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self, session: Session) -> None:
        """A session has ended: nobody waits on it any more."""
        self._joining = {k: v for k, v in self._joining.items() if v[0] is not session}

    def on_join(self, session: Session, request: JoinRequest) -> None:
        refusal = self._refuse(session, request)
        if refusal is not None:
            self._counters[f"join-{refusal.code}"] += 1
            session.send(refusal)
            return
        now = self._world.now()
        if not self._joining:
            self._first_join_at = now
        self._joining[request.name] = (session, request)
        if self._timer is not None:
            self._timer.cancel()
        wait = self._settings.arrival_quiet_s
        if now + wait > self._first_join_at + self._settings.arrival_window_s:
            wait = max(0.0, self._first_join_at + self._settings.arrival_window_s - now)
        self._timer = self._world.call_later(wait, self._plan)

    def _refuse(self, session: Session, request: JoinRequest) -> JoinRefused | None:
        try:
            check_name(request.name, "node name")
            check_name(request.site, "site")
            for name, what in ((request.rack, "rack"), (request.region, "region")):
                if name:
                    check_name(name, what)
        except InvalidNameError as error:
            return JoinRefused("bad-name", str(error))
        if request.name != session.peer.name:
            return JoinRefused(
                "wrong-identity",
                f"{session.peer.name} asks to join as {request.name}: nodes join for themselves",
            )
        entry = self._state.entry(request.name)
        if entry is None:
            return None
        if entry.uid != request.uid and entry.up:
            return JoinRefused(
                "name-in-use",
                f"a living node at {entry.contact.address} is called {request.name}: "
                "choose another name, or wait until the old one is found dead",
            )
        if entry.uid == request.uid and _is_old_copy(entry, request):
            return JoinRefused(
                OLD_COPY,
                f"{request.name} has started {entry.contact.start} times before, and by its data "
                f"directory this is start {request.epoch // MOVES_PER_START}: it is an old copy; "
                "put the newest back, or start with an empty one under another name",
            )
        return None

    def _plan(self) -> None:
        """Give everybody who waits an id and a zone, durably, then tell them."""
        self._timer = None
        if self.planning:
            self._timer = self._world.call_later(0.05, self._plan)
            return
        batch, self._joining = self._joining, {}
        newcomers: list[JoinRequest] = []
        admitted: list[Admitted] = []
        for session, request in list(batch.values()):
            refusal = self._refuse(session, request)
            entry = self._state.entry(request.name)
            if refusal is not None:
                # The name was given to another node while this one waited.
                del batch[request.name]
                session.send(refusal)
            elif entry is not None and _returns(entry, request):
                admitted.append(self._readmit(entry, request))
            else:
                newcomers.append(request)
        if not batch:
            return
        created, placed = self._place(newcomers)
        gone = [n for r in newcomers if (n := self._state.names.get(r.name)) and not r.leaving]
        changes: list[Record] = [Forgotten(tuple(gone))] if gone else []
        changes += [*admitted, *placed]
        self.planning = True

        def applied(outcomes: Outcomes) -> None:
            self.planning = False
            if outcomes is None:
                return
            for record in (*admitted, *placed):
                self._seen(record.contact.id)
            self._answer(batch, created, [*admitted, *placed])

        self._propose(changes, applied)

    def _readmit(self, entry: Entry, request: JoinRequest) -> Admitted:
        """The same node again, after a restart or a lost answer: same id, same zone."""
        old = entry.contact
        contact = Contact(
            old.id, old.name, request.site, request.rack, old.zone,
            request.host, request.port, request.epoch,
        )  # fmt: skip
        pool = self._state.zones[old.zone].pool
        return Admitted(contact, request.uid, request.region, pool, request.life)

    def _place(self, requests: Sequence[JoinRequest]) -> tuple[list[int], list[Admitted]]:
        """Zones for newcomers: (zones created, records)."""
        state, size = self._state, self._settings.zone_size
        pools = Counter(zone.pool for zone in state.zones.values())
        sites = Counter(request.site for request in requests)
        arriving: dict[str, list[JoinRequest]] = {}
        for r in requests:
            pool = assignment.pool_of(r.site, r.region, sites[r.site], pools, size)
            arriving.setdefault(pool, []).append(r)
        next_zone, next_node = state.next_zone, state.next_node
        created: list[int] = []
        placed: list[Admitted] = []
        for pool, group in arriving.items():
            zones = state.pool(pool, [r.leaving for r in group]) or state.pool(pool)
            new = assignment.zones_to_create(list(zones.values()), len(group), size)
            for zone_id in range(next_zone, next_zone + new):
                zones[zone_id] = 0
                created.append(zone_id)
            next_zone += new
            gets = assignment.fill(zones, len(group))
            racks = {z: state.zones[z].racks() for z in zones if z in state.zones}
            arrivals = [Arrival(r.name, r.rack) for r in group]
            chosen = assignment.assign(arrivals, gets, racks, self._settings.assignment)
            for r in group:
                known = state.entry(r.name) if r.leaving else None
                number = known.contact.id if known else next_node
                next_node += 0 if known else 1
                contact = Contact(
                    number, r.name, r.site, r.rack, chosen[r.name], r.host, r.port, r.epoch
                )
                placed.append(Admitted(contact, r.uid, r.region, pool, r.life))
        return created, placed

    def _answer(self, batch: Batch, created: Sequence[int], admitted: Sequence[Admitted]) -> None:
        view = self._state.view()
        bootstrap = self._bootstrap(created)
        for record in admitted:
            session = batch[record.contact.name][0]
            zone = self._state.zones.get(record.contact.zone)
            if zone is not None:
                share = bootstrap.get(record.contact.id, ())
                session.send(JoinReply(record.contact, tuple(zone.up()), tuple(share), view))
        self._counters["admitted"] += len(admitted)

    def _bootstrap(self, created: Sequence[int]) -> dict[int, list[Bootstrap]]:
        """For each member of a new zone, the zones it connects to: every zone with a smaller id
        exactly once."""
        lists: dict[int, list[Bootstrap]] = {}
        for zone in created:
            if zone not in self._state.zones:
                continue
            others = [info.id for info in self._state.view().zones if info.id < zone]
            members = sorted(self._state.zones[zone].nodes)
            for member, zones in assignment.partition(others, members).items():
                lists[member] = [
                    Bootstrap(z, tuple(self.sample(z, self._settings.candidates))) for z in zones
                ]
        return lists

    def sample(self, zone: int, count: int) -> list[Contact]:
        """Random living members of a zone."""
        members = self._state.zones[zone].up() if zone in self._state.zones else []
        return self._world.rng.sample(members, min(count, len(members)))


def _is_old_copy(entry: Entry, request: JoinRequest) -> bool:
    """An earlier start of the same data directory; or the same start, but another process."""
    start = request.epoch // MOVES_PER_START
    twin = start == entry.contact.start and request.life != entry.life
    return request.epoch < entry.contact.epoch or twin


def _returns(entry: Entry, request: JoinRequest) -> bool:
    """Is this the node that the directory knows, and does it stay where it is? One that moves
    asks again with the same `leaving` if its answer was lost: it has moved already."""
    return entry.uid == request.uid and request.leaving != entry.contact.zone
