"""The directory as its nodes see it: admits them, knows them, is not needed for forwarding.

THOR 3.1's membership service: it assigns ids and zones, gives random members of a zone, keeps
statistics. Whatever it decides is durable in its log before anybody hears of it. It learns who is
alive from the zones' delegates; a node that no report has named for a while is down, one that has
been down for long is forgotten and its name is free again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from swell.directory import assignment, records
from swell.directory.assignment import Arrival
from swell.directory.messages import (
    Bootstrap,
    CandidatesReply,
    CandidatesRequest,
    JoinRefused,
    JoinReply,
    JoinRequest,
    LookupReply,
    LookupRequest,
    ReportReply,
    ZoneReport,
)
from swell.directory.records import Admitted, Down, Entry, Forgotten, Numbers, Record, State, Up
from swell.errors import InvalidNameError
from swell.ids import MOVES_PER_START, check_name
from swell.journal import Journal, Recovered
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.settings import DirectorySettings, OverlaySettings
from swell.world import Timer, World

JOURNAL = "directory"


class DirectoryService:
    """One voter of the directory, on the node that hosts it."""

    def __init__(
        self,
        world: World,
        overlay: OverlaySettings,
        settings: DirectorySettings,
        sessions: Sessions,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._overlay = overlay
        self._settings = settings
        self._counters = counters
        self._journal = Journal(world, JOURNAL, counters=counters)
        self._applied = 0
        self._ready = False
        self._joining: dict[str, tuple[Session, JoinRequest]] = {}
        self._first_join_at = 0.0
        self._plan_timer: Timer | None = None
        self._planning = False
        self._seen_at: dict[int, float] = {}
        self._small_since: dict[int, float] = {}
        self._sweep_due = 0.0
        self.state = State()
        kinds = (LinkKind.DIRECTORY,)
        sessions.accept(LinkKind.DIRECTORY, self)
        sessions.handle(JoinRequest, self.on_join, kinds)
        sessions.handle(CandidatesRequest, self.on_candidates, kinds)
        sessions.handle(LookupRequest, self.on_lookup, kinds)
        sessions.handle(ZoneReport, self.on_report, kinds)

    def start(self) -> None:
        """Read the log, then serve. Everybody gets the benefit of the doubt at first."""

        def opened(recovered: Recovered) -> None:
            if recovered.rotten:
                self._world.halt(
                    f"the directory's log is damaged ({recovered.reason}): restore it from a copy"
                )
                return
            try:
                if recovered.snapshot is not None:
                    self._apply_all(records.decode_all(recovered.snapshot))
                self._apply_all([records.decode(record) for record in recovered.records])
            except msgspec.DecodeError as error:
                self._world.halt(f"the directory's log is of another version: {error}")
                return
            self._applied = self._journal.last_index
            if recovered.clean:
                self._serve()
            else:
                # The only copy: nothing acknowledged is missing, but what an error of the disk
                # left behind may only seem to be there. Write it all anew.
                self._shorten(lambda: self._journal.repaired(self._serve))

        self._journal.open(opened)

    def _apply_all(self, changes: Iterable[Record]) -> None:
        for change in changes:
            self.state.apply(change)

    def _serve(self) -> None:
        now = self._world.now()
        self._seen_at = {node: now for node in self.state.nodes}
        self._ready = True
        self._sweep_later()

    # Sessions.

    def admit(self, contact: Contact) -> Refused | None:
        if not self._ready:
            return Refused("not-ready", "the directory is reading its log: try again")
        return None

    def on_open(self, session: Session) -> None:
        pass

    def on_closed(self, session: Session, reason: str) -> None:
        self._joining = {k: v for k, v in self._joining.items() if v[0] is not session}

    # Joining.

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
        if self._plan_timer is not None:
            self._plan_timer.cancel()
        wait = self._overlay.arrival_quiet_s
        if now + wait > self._first_join_at + self._overlay.arrival_window_s:
            wait = max(0.0, self._first_join_at + self._overlay.arrival_window_s - now)
        self._plan_timer = self._world.call_later(wait, self._plan)

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
        entry = self._entry(request.name)
        if entry is None:
            return None
        if entry.uid != request.uid and entry.up:
            return JoinRefused(
                "name-in-use",
                f"a living node at {entry.contact.address} is called {request.name}: "
                "choose another name, or wait until the old one is found dead",
            )
        if entry.uid == request.uid and request.epoch < entry.contact.epoch:
            return JoinRefused(
                "stale-epoch",
                f"{request.name} has started {entry.contact.start} times before, its data "
                f"directory says {request.epoch // MOVES_PER_START}: it is an old copy; start "
                "with an empty one under another name",
            )
        return None

    def _entry(self, name: str) -> Entry | None:
        node = self.state.names.get(name)
        return None if node is None else self.state.nodes[node]

    def _plan(self) -> None:
        """Give everybody who waits an id and a zone, durably, then tell them."""
        self._plan_timer = None
        if self._planning:
            self._plan_timer = self._world.call_later(0.05, self._plan)
            return
        batch, self._joining = self._joining, {}
        newcomers: list[JoinRequest] = []
        admitted: list[Admitted] = []
        for session, request in list(batch.values()):
            refusal = self._refuse(session, request)
            entry = self._entry(request.name)
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
        gone = [n for r in newcomers if (n := self.state.names.get(r.name)) and not r.leaving]
        changes: list[Record] = [Forgotten(tuple(gone))] if gone else []
        changes += [*admitted, *placed]
        self._planning = True

        def durable() -> None:
            self._planning = False
            now = self._world.now()
            for record in (*admitted, *placed):
                self._seen_at[record.contact.id] = now
            self._answer(batch, created, [*admitted, *placed])

        self._propose(changes, durable)

    def _readmit(self, entry: Entry, request: JoinRequest) -> Admitted:
        """The same node again, after a restart or a lost answer: same id, same zone."""
        old = entry.contact
        contact = Contact(
            old.id, old.name, request.site, request.rack, old.zone,
            request.host, request.port, request.epoch,
        )  # fmt: skip
        pool = self.state.zones[old.zone].pool
        return Admitted(contact, request.uid, request.region, pool)

    def _place(self, requests: Sequence[JoinRequest]) -> tuple[list[int], list[Admitted]]:
        """Zones for newcomers: (zones created, records)."""
        size = self._overlay.zone_size
        pools = Counter(zone.pool for zone in self.state.zones.values())
        sites = Counter(request.site for request in requests)
        arriving: dict[str, list[JoinRequest]] = {}
        for r in requests:
            pool = assignment.pool_of(r.site, r.region, sites[r.site], pools, size)
            arriving.setdefault(pool, []).append(r)
        next_zone, next_node = self.state.next_zone, self.state.next_node
        created: list[int] = []
        placed: list[Admitted] = []
        for pool, group in arriving.items():
            zones = self._pool(pool, [r.leaving for r in group]) or self._pool(pool)
            new = assignment.zones_to_create(list(zones.values()), len(group), size)
            for zone_id in range(next_zone, next_zone + new):
                zones[zone_id] = 0
                created.append(zone_id)
            next_zone += new
            gets = assignment.fill(zones, len(group))
            racks = {z: self.state.zones[z].racks() for z in zones if z in self.state.zones}
            arrivals = [Arrival(r.name, r.rack) for r in group]
            chosen = assignment.assign(arrivals, gets, racks, self._overlay.assignment)
            for r in group:
                known = self._entry(r.name) if r.leaving else None
                number = known.contact.id if known else next_node
                next_node += 0 if known else 1
                contact = Contact(
                    number, r.name, r.site, r.rack, chosen[r.name], r.host, r.port, r.epoch
                )
                placed.append(Admitted(contact, r.uid, r.region, pool))
        return created, placed

    def _answer(
        self,
        batch: dict[str, tuple[Session, JoinRequest]],
        created: Sequence[int],
        admitted: Sequence[Admitted],
    ) -> None:
        view = self.state.view()
        bootstrap = self._bootstrap(created)
        for record in admitted:
            session = batch[record.contact.name][0]
            members = tuple(self.state.zones[record.contact.zone].up())
            share = bootstrap.get(record.contact.id, ())
            session.send(JoinReply(record.contact, members, tuple(share), view))
        self._counters["admitted"] += len(admitted)

    def _bootstrap(self, created: Sequence[int]) -> dict[int, list[Bootstrap]]:
        """For each member of a new zone, the zones it connects to: every zone with a smaller id
        exactly once."""
        lists: dict[int, list[Bootstrap]] = {}
        for zone in created:
            others = [info.id for info in self.state.view().zones if info.id < zone]
            members = sorted(self.state.zones[zone].nodes)
            for member, zones in assignment.partition(others, members).items():
                lists[member] = [
                    Bootstrap(z, tuple(self._sample(z, self._overlay.candidates))) for z in zones
                ]
        return lists

    def _sample(self, zone: int, count: int) -> list[Contact]:
        members = self.state.zones[zone].up() if zone in self.state.zones else []
        return self._world.rng.sample(members, min(count, len(members)))

    # Looking up.

    def on_candidates(self, session: Session, request: CandidatesRequest) -> None:
        found = tuple(self._sample(request.zone, request.count))
        session.send(CandidatesReply(request.number, found))

    def on_lookup(self, session: Session, request: LookupRequest) -> None:
        entry = self._entry(request.name)
        session.send(LookupReply(request.number, entry.contact if entry else None))

    # Who is alive.

    def on_report(self, session: Session, report: ZoneReport) -> None:
        # The zone's delegate, or a supervisor of another zone: any node that was admitted.
        if self._entry(session.peer.name) is None:
            self._counters["report-of-stranger"] += 1
            return
        self._catch_up(report)
        now = self._world.now()
        back: list[int] = []
        for node, epoch in report.members:
            entry = self.state.nodes.get(node)
            if entry is None or entry.contact.zone != report.zone or entry.contact.epoch > epoch:
                continue
            self._seen_at[node] = now
            if not entry.up:
                back.append(node)
        if back:
            self._change(Up(tuple(back)))
        view = self.state.view()
        newer = view if view.epoch > report.view_epoch else None
        strangers = self._strangers(report)
        session.send(ReportReply(report.zone, newer, strangers, self._should_retire(report.zone)))

    def _catch_up(self, report: ZoneReport) -> None:
        """Somebody knows a later view, or later ids, than this directory ever gave out: its log
        is an old copy. Go on from there, or nobody would take its views."""
        state = self.state
        next_node = max(state.next_node, *(node + 1 for node, _ in report.members), 1)
        if report.view_epoch > state.epoch or next_node > state.next_node:
            self._counters["directory-behind"] += 1
            epoch = max(state.epoch, report.view_epoch)
            self._change(Numbers(next_node, state.next_zone, epoch + 1))

    def _strangers(self, report: ZoneReport) -> tuple[Contact, ...]:
        named = dict(report.members)
        zone = self.state.zones.get(report.zone)
        return tuple(contact for contact in (zone.up() if zone else ()) if contact.id not in named)

    def _should_retire(self, zone: int) -> bool:
        """A zone far below half its size moves its members, if its pool has room for them."""
        known = self.state.zones.get(zone)
        size = len(known.up()) if known is not None else 0
        others = self._pool(known.pool, (zone,)) if known is not None else {}
        room = sum(max(0, self._overlay.zone_size - other) for other in others.values())
        if known is None or size * 4 > self._overlay.zone_size or room < size:
            self._small_since.pop(zone, None)
            return False
        since = self._small_since.setdefault(zone, self._world.now())
        return self._world.now() - since >= self._settings.retire_after_s

    def _pool(self, pool: str, without: Iterable[int] = ()) -> dict[int, int]:
        """Zone → number of living members, of one pool."""
        zones = (zone for zone in self.state.zones.values() if zone.pool == pool)
        return {zone.id: len(zone.up()) for zone in zones if zone.id not in without}

    def _sweep_later(self) -> None:
        self._sweep_due = self._world.now() + self._settings.sweep_interval_s
        self._world.call_later(self._settings.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        """Mark the silent as down; forget what has been down for long; keep the log short."""
        now, wall_us = self._world.now(), self._world.wall_us()
        stalled_s = now - self._sweep_due
        self._sweep_later()
        if stalled_s > self._settings.sweep_interval_s:
            # Reports may wait to be read: the time that this node stood still does not count.
            for node in self._seen_at:
                self._seen_at[node] += stalled_s
        silent_s = self._settings.silent_reports * self._overlay.report_interval_s
        forget_after_us = self._settings.forget_after_s * 1e6
        down, forgotten = [], []
        for node, entry in self.state.nodes.items():
            if entry.up and now - self._seen_at.get(node, now) > silent_s:
                down.append(node)
            elif not entry.up and wall_us - entry.down_since_us > forget_after_us:
                forgotten.append(node)
        if down:
            self._change(Down(tuple(down), wall_us))
        if forgotten:
            self._change(Forgotten(tuple(forgotten)))
            for node in forgotten:
                self._seen_at.pop(node, None)
        for zone in [zone for zone in self._small_since if zone not in self.state.zones]:
            del self._small_since[zone]
        bytes_max = self._settings.log_bytes_per_node * (len(self.state.nodes) + 64)
        if self._journal.bytes > bytes_max and not self._journal.snapshotting:
            self._shorten(lambda: None)

    def _shorten(self, done: Callable[[], None]) -> None:
        """Replace the records that were applied by the state."""
        state = records.encode(list(self.state.snapshot()))
        self._journal.snapshot(state, self._applied, done)

    def _change(self, record: Record) -> None:
        self._propose([record], lambda: None)

    def _propose(self, changes: Sequence[Record], done: Callable[[], None]) -> None:
        """Log changes; when they are durable, apply them."""
        for change in changes:
            self._journal.append(records.encode(change))
        index = self._journal.last_index

        def durable() -> None:
            self._apply_all(changes)
            self._applied = index
            done()

        self._journal.sync(durable)

    def statistics(self) -> dict[str, int]:
        """THOR 3.1: totals that decide where newcomers go."""
        up = sum(1 for entry in self.state.nodes.values() if entry.up)
        return {
            "nodes": len(self.state.nodes),
            "up": up,
            "zones": len(self.state.view().zones),
            "epoch": self.state.epoch,
        }


def _returns(entry: Entry, request: JoinRequest) -> bool:
    """Is this the node that the directory knows, and does it stay where it is? One that moves
    asks again with the same `leaving` if its answer was lost: it has moved already."""
    return entry.uid == request.uid and request.leaving != entry.contact.zone
