"""Serving a slot: ordering commands, committing them, answering reads, changing the members.

A command is committed when it is durable here and at every member; while a change of members is
under way, at every old and new member. A read is answered from the applied state while every
member's lease is held. The primary works towards the plan one change at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from swell.store import payload
from swell.store import record as records
from swell.store.messages import Execute, Position, Status
from swell.store.record import Member, Record
from swell.store.replicator import Replicator

if TYPE_CHECKING:
    from swell.store.replica import Replica
    from swell.store.service import Store

Done = Callable[[Status, bytes], None]

READS_MAX = 1024
WAITING_MAX = 16
"""Answers to one command that was asked for again and again."""
SLOW_FACTOR = 3.0
"""A member whose acknowledgements are late by so many times `silence_s` is left out."""
BAR_FACTOR = 5.0
"""... and not asked again for so many times `silence_s`: no flapping."""
NEAR_ENTRIES = 256
LOOK_S = 1.0
"""How often a settled slot is looked at."""
SESSIONS_EVERY_S = 30.0
"""How often sessions to forget are looked for."""


class Open(NamedTuple):
    """A command that is not committed yet: its session and number, and who waits for it."""

    name: tuple[int, int]
    waiting: list[Done]


class Primary:
    """The one node that serves a slot in an epoch."""

    def __init__(
        self, store: Store, replica: Replica, record: Record, replicator: Replicator
    ) -> None:
        self._store = store
        self._replica = replica
        self.record = record
        self.replicator = replicator
        self.serving = True
        self._others: dict[int, int] = {}
        """Whose word a commit and a read needs, each with the lineage that counts."""
        self._since = 0.0
        """Beats that were sent earlier did not ask all of them for this slot."""
        self._need(self._lineages(record))
        self._open: dict[int, Open] = {}
        """By sequence."""
        self._under_way: dict[tuple[int, int], int] = {}
        """Session and number of an open command → its sequence."""
        self._reads: list[tuple[Execute, float, Done]] = []
        self._inflight_max = store.settings.inflight_max
        self._successor = 0
        self._barred: dict[int, float] = {}
        self._sessions_due = 0.0
        self._settled = False
        self._look_at = 0.0

    # Commands and reads.

    def command(self, request: Execute, done: Done) -> None:
        name = (request.session, request.number)
        known = self._under_way.get(name)
        if known is not None:
            # Asked again by another way: all are answered, if they are not too many.
            waiting = self._open[known].waiting
            if len(waiting) < WAITING_MAX:
                waiting.append(done)
            return
        if not self.serving or self._successor or len(self._open) >= self._inflight_max:
            self._store.counters["store-busy"] += 1
            done(Status.BUSY, b"")
            return
        data = payload.encode_command(
            request.session, request.number, request.lowest, request.service, request.body
        )
        entry = self.replicator.append(data)
        self._open[entry.sequence] = Open(name, [done])
        self._under_way[name] = entry.sequence

    def is_open(self, session: int, number: int) -> bool:
        """Whether a command is under way."""
        return (session, number) in self._under_way

    def read(self, request: Execute, done: Done) -> None:
        now = self._store.world.now()
        if self._may_read(now):
            done(*self._replica.state.query(request.service, request.body))
        elif self.serving and len(self._reads) < READS_MAX:
            self._reads.append((request, now + request.deadline_s, done))
            self._store.reading[self] = None
        else:
            done(Status.BUSY, b"")

    def _may_read(self, now: float) -> bool:
        if "serve-early" in self._store.bugs:
            return True
        return self.serving and self._store.leases.hold(self._others, self._since, now)

    def _lineages(self, *members_of: Record) -> dict[int, int]:
        members = (m for record in members_of for m in record.members)
        return {m.node: m.lineage for m in members if m.node != self._store.me}

    def _need(self, others: dict[int, int]) -> None:
        if any(self._others.get(node) != lineage for node, lineage in others.items()):
            self._since = self._store.world.now()
            self._store.leases.soon()
        self._others = others

    @property
    def needed(self) -> list[int]:
        """The other nodes whose word a commit and a read needs."""
        return list(self._others)

    def on_leases(self) -> None:
        """Reads that waited may be answered."""
        if not self._may_read(self._store.world.now()):
            if self._reads:
                self._store.reading[self] = None
            return
        reads, self._reads = self._reads, []
        for request, _, done in reads:
            done(*self._replica.state.query(request.service, request.body))

    def on_progress(self) -> None:
        """Somebody has more of the log: commit what all have."""
        needed = {} if "ack-early" in self._store.bugs else self._others
        commit = self.replicator.common(needed)
        if commit <= self._replica.commit:
            return
        open_ = self._open
        for sequence, status, body in self._replica.advance(commit):
            command = open_.pop(sequence, None)
            if command is not None:
                del self._under_way[command.name]
                for done in command.waiting:
                    done(status, body)
        self._store.storage.commit(self._replica.slot, commit)
        self._store.listener.on_committed(self._replica.slot)
        if self._successor and not open_:
            self._hand_over()

    def on_position(self, node: int, position: Position) -> None:
        if position.epoch > self.record.epoch or position.fence > self.record.epoch:
            self._store.roles.on_fenced(self._replica.slot, position.fence)
        elif not self.replicator.on_position(node, position):
            self._on_stranger(node, position.lineage)
        else:
            self.on_progress()

    def _on_stranger(self, node: int, lineage: int) -> None:
        """The node has lost the data that the record counts on."""
        self._store.peers.peer(node).lineage = lineage
        if self.record.lineage(node) is None:
            self.replicator.forget(node)

    # Changing the members.

    def _propose(self, record: Record) -> None:
        """From now on, until the registry has answered, old and new members must have all."""
        if not self._store.proposals.propose(record):
            return
        old = () if "shrink-early" in self._store.bugs else (self.record,)
        self._need(self._lineages(*old, record))

    def on_record(self, record: Record) -> None:
        """Our change of members is in the registry."""
        for node in self.record.nodes:
            if record.lineage(node) is None:
                self._store.counters["store-shrunk"] += 1
                self.replicator.forget(node)
        if len(record.members) > len(self.record.members):
            self._store.counters["store-expanded"] += 1
        self.record = record
        self._need(self._lineages(record))
        self.replicator.expect(record.members)
        self.replicator.begin_epoch(record)
        self.on_progress()

    def tick(self, now: float, stirred: bool) -> None:
        """`stirred`: something has changed around this node since the last tick. If not, a settled
        slot is looked at more rarely."""
        if self._reads:
            self._expire_reads(now)
        if self._settled and not stirred and now < self._look_at:
            return
        self._settled, self._look_at = False, now + LOOK_S
        self._replica.trim(min(self._replica.commit, self.replicator.pinned()))
        self._barred = {node: until for node, until in self._barred.items() if until > now}
        store = self._store
        if store.proposals.open(self._replica.slot) is not None or not self.serving:
            return
        if now >= self._sessions_due:
            self._sessions_due = now + SESSIONS_EVERY_S
            self._expire_sessions()
        lost = [node for node in self.record.nodes_but(store.me) if self._is_lost(node, now)]
        if self._successor in lost:
            self._successor = 0
        learners = self._recruit(lost, now)
        # Commits wait for a learner that is close behind, or a busy slot would outrun it for ever.
        near = {m.node: m.lineage for m in learners if self._lag(m) <= NEAR_ENTRIES}
        self._need(near | self._lineages(self.record))
        ready = [m for m in learners if self._lag(m) <= self._uncommitted]
        if lost:
            self._leave_out(lost, ready, now)
        elif ready:
            self._propose(records.reshape(self.record, [*self.record.members, *ready]))
        elif not learners:
            self._follow_plan()
            self._settled = self._is_settled

    @property
    def _is_settled(self) -> bool:
        """Nothing is under way that the next tick must go on with."""
        followers, last = self.replicator.followers.values(), self._replica.chain.last
        if self._successor or self._barred or any(f.acked < last for f in followers):
            return False
        return self._store.proposals.open(self._replica.slot) is None

    def _is_lost(self, node: int, now: float) -> bool:
        store, silence_s = self._store, self._store.settings.silence_s
        lineage = store.peers.lineage(node)
        if store.peers.silent_s(node, now) > silence_s:
            return True
        if lineage and lineage != self.record.lineage(node):
            return True
        follower = self.replicator.followers.get(node)
        if follower is None or follower.acked >= self._replica.chain.last:
            if follower is not None:
                follower.progress_at = now
            return False
        since = max(follower.progress_at, self.replicator.waiting_since)
        return now - since > SLOW_FACTOR * silence_s

    def _leave_out(self, lost: list[int], ready: list[Member], now: float) -> None:
        """Go on without the lost; with a learner in their place if too few are left."""
        members = [member for member in self.record.members if member.node not in lost]
        if len(members) < self._store.min_replicas:
            members += ready
        if len(members) >= self._store.min_replicas:
            for node in lost:
                if not self._is_reborn(node):
                    self._barred[node] = now + BAR_FACTOR * self._store.settings.silence_s
            self._propose(records.reshape(self.record, members))

    def _recruit(self, lost: list[int], now: float) -> list[Member]:
        """The learners there should be, according to the plan."""
        store, followers = self._store, self.replicator.followers
        wanted: list[Member] = []
        left = len(self.record.members) - len(lost)
        for node in store.places(self._replica.slot, left):
            if node in self._barred:
                continue
            if node in self.record.nodes and not self._is_reborn(node):
                continue
            store.leases.court(node)
            lineage = store.peers.lineage(node)
            if lineage and store.peers.silent_s(node, now) <= store.settings.silence_s:
                wanted.append(Member(node, lineage))
        names = {member.node: member.lineage for member in wanted}
        for node, follower in list(followers.items()):
            if follower.lineage != names.get(node, self.record.lineage(node)):
                self.replicator.forget(node)
        self.replicator.expect(wanted)
        return wanted

    def _is_reborn(self, node: int) -> bool:
        """A member that came back without its data: it may learn it anew."""
        expected, lineage = self.record.lineage(node), self._store.peers.lineage(node)
        return expected is not None and lineage not in (0, expected)

    def _lag(self, member: Member) -> float:
        """How many entries a learner lacks."""
        follower = self.replicator.followers.get(member.node)
        if follower is None or not follower.adopted or follower.copying:
            return math.inf
        return self._replica.chain.last - follower.acked

    @property
    def _uncommitted(self) -> int:
        return self._replica.chain.last - self._replica.commit

    def _follow_plan(self) -> None:
        store = self._store
        targets = store.table.targets(self._replica.slot)
        if not targets or any(node not in self.record.nodes for node in targets):
            return
        if len(targets) < len(self.record.members):
            if len(targets) < store.min_replicas:
                return
            if store.me in targets:
                keep = [m for m in self.record.members if m.node in targets]
                self._propose(records.reshape(self.record, keep))
                return
        if targets[0] != store.me and not self._successor:
            self._successor = targets[0]
            if not self._open:
                self._hand_over()

    def _hand_over(self) -> None:
        """Nothing is open any more: let the successor take over."""
        successor, self._successor = self._successor, 0
        if self._store.proposals.open(self._replica.slot) is not None:
            return
        if successor not in self.record.nodes:
            return
        self._store.counters["store-handed-over"] += 1
        self.serving = False
        self._store.proposals.propose(records.hand_over(self.record, successor))

    def _expire_reads(self, now: float) -> None:
        late = [read for read in self._reads if read[1] <= now]
        self._reads = [read for read in self._reads if read[1] > now]
        for _, _, done in late:
            done(Status.BUSY, b"")

    def _expire_sessions(self) -> None:
        """Forget clients that are gone, by an entry like any other."""
        state, settings = self._replica.state, self._store.settings
        horizon_s = state.horizon_keeping(settings.sessions_max)
        # No clock is believed alone: neither this node's nor the one that named the newest session.
        now_s = min(self._store.world.wall_us() // 1_000_000, state.newest_s)
        oldest_s = now_s - int(settings.session_s)
        if state.oldest_s < oldest_s:
            horizon_s = max(horizon_s, oldest_s)
        horizon_s = min(horizon_s, now_s)
        if horizon_s > state.horizon_s:
            self.replicator.append(payload.encode_expire(horizon_s))

    def stop(self) -> None:
        """No longer the primary: nobody knows yet what becomes of what is open."""
        self.serving = False
        self.replicator.stop()
        open_, self._open = self._open, {}
        reads, self._reads = self._reads, []
        self._under_way.clear()
        for command in open_.values():
            for done in command.waiting:
                done(Status.RETRY, b"")
        for _, _, done in reads:
            done(Status.RETRY, b"")
