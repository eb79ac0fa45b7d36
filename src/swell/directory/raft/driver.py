"""Raft on a world: persists what the core decided, sends, applies, answers.

Order of things: records go to the journal first; a message that gives a word leaves when the sync
that covers its records is done; the leader counts its own entries then too. Everything that comes
up while a sync runs shares the next one (group commit). The leader sends entries before its own
sync (thesis 10.2.1).

`done` of a proposal is called exactly once: with its index when it is applied here, or with a
`RaftError`. Callbacks never run inside `propose`, `read`, `change` or `transfer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from swell.directory.raft import errors
from swell.directory.raft.core import Core, Outgoing, Role
from swell.directory.raft.errors import RaftError
from swell.directory.raft.events import JournalUnclean, LeaderElected
from swell.directory.raft.leadership import Leadership
from swell.directory.raft.log import ENTRY_OVERHEAD_BYTES, Kind
from swell.directory.raft.membership import Configuration, configuration
from swell.directory.raft.messages import RaftMessage
from swell.directory.raft.outcomes import Outcomes
from swell.directory.raft.state import Base, Replay, State
from swell.directory.raft.storage import Journal, Recovered, Storage
from swell.errors import WireError
from swell.settings import RaftSettings
from swell.wire import codec
from swell.wire.limits import FRAME_BYTES_MAX
from swell.world import Timer, World

IndexDone = Callable[[int | RaftError], None]


class Machine(NamedTuple):
    """The state machine: apply a command, give the whole state, take one."""

    apply: Callable[[int, bytes], None]
    snapshot: Callable[[], bytes]
    restore: Callable[[int, bytes], None]


class Raft:
    """One member of a group. `voters` is the first configuration, equal on all of them; a member
    that is added later begins with none. `trusted` False: the disk is known to be an old copy."""

    def __init__(
        self,
        world: World,
        me: str,
        voters: Iterable[str],
        journal: Journal,
        send: Callable[[str, bytes], bool],
        machine: Machine,
        counters: Counter[str],
        settings: RaftSettings | None = None,
        bugs: frozenset[str] = frozenset(),
        trusted: bool = True,
    ) -> None:
        self.me = me
        self.settings = settings or RaftSettings()
        longest = (
            self.settings.command_bytes_max,
            self.settings.append_bytes_max,
            self.settings.chunk_bytes,
        )
        assert max(longest) * 2 <= FRAME_BYTES_MAX, "twice the longest part must fit into a frame"
        self.core: Core | None = None
        """None until the journal is read."""
        self.on_role: Callable[[], None] = lambda: None
        """Called when this member begins to lead, in every term, and when it ends."""
        self._world = world
        self._storage = Storage(journal, counters, bugs)
        self._send = send
        self._machine = machine
        self._counters = counters
        self._bugs = bugs
        self._trusted = trusted
        self._first = configuration(list(voters))
        self._outcomes = Outcomes(self.settings)
        self._stopped = False
        self._tick: Timer | None = None
        self._pump: Timer | None = None
        self._snapshot_index = 0
        self._applied_bytes = 0
        self.led_term = 0
        """The term that this member leads; 0 if it does not."""
        journal.open(self._on_recovered)

    # -- for its user --------------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """Who leads, as far as this member knows; empty if it does not."""
        return "" if self.core is None else self.core.leader

    @property
    def configuration(self) -> Configuration:
        return self._first if self.core is None else self.core.log.configuration

    def propose(self, command: bytes, done: IndexDone) -> None:
        """Append a command; `done` gets its index once it is committed and applied here."""
        leadership = self._leading(done)
        if leadership is None:
            return
        if len(command) > self.settings.command_bytes_max:
            self._refuse(done, RaftError(errors.TOO_LONG))
        elif self._outcomes.proposals_full:
            self._counters["raft-busy"] += 1
            self._refuse(done, RaftError(errors.BUSY))
        else:
            self._expect(leadership.append(Kind.COMMAND, command), done)

    def change(self, new: Configuration, done: IndexDone) -> None:
        """Change the configuration by one voter; `done` as for a proposal."""
        leadership = self._leading(done)
        if leadership is None:
            return
        index = leadership.change(new)
        if index:
            self._expect(index, done)
            return
        pending = leadership.change_pending or not leadership.established
        code = errors.CHANGE_PENDING if pending else errors.INVALID_CHANGE
        self._refuse(done, RaftError(code))

    def read(self, done: IndexDone) -> None:
        """`done` gets an index once this member's state is as new as anything acknowledged before
        this call; the state may be read there and then."""
        leadership = self._leading(done)
        if leadership is None:
            return
        if self._outcomes.reads_full:
            self._counters["raft-busy"] += 1
            self._refuse(done, RaftError(errors.BUSY))
            return
        leadership.reads.add(self._outcomes.expect_read(done))
        self._schedule()

    def transfer(self, peer: str) -> bool:
        """Hand leadership to a voter that has everything; False if it cannot be asked."""
        leadership = None if self.core is None else self.core.leadership
        if leadership is None or not leadership.transfer(peer):
            return False
        self._schedule()
        return True

    def on_message(self, peer: str, message: RaftMessage) -> None:
        """A message of `peer`'s; the caller has made sure that it is the peer's."""
        if self.core is None or self._stopped:
            self._counters["raft-dropped-starting"] += 1
            return
        try:
            self.core.step(peer, message)
        except msgspec.DecodeError as error:
            raise WireError("bad-body", str(error)) from None
        self._settle()

    def on_reachable(self, peer: str) -> None:
        """There is a new link to `peer`: what was under way on an older one is lost."""
        if self.core is not None and self.core.leadership is not None and not self._stopped:
            self.core.leadership.on_reachable(peer)
            self._settle()

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._tick, self._pump):
            if timer is not None:
                timer.cancel()
        self._outcomes.fail(RaftError(errors.STOPPED))

    # -- start and time ------------------------------------------------------------------------

    def _on_recovered(self, recovered: Recovered) -> None:
        if self._stopped:
            return
        replay = Replay(recovered.snapshot, recovered.base, recovered.records, self._first)
        state = replay.state
        unclean = not (recovered.clean and self._trusted)
        if unclean:
            token = int.from_bytes(self._world.entropy(6), "big") + 1
            state = State(state.number + 1, state.term, state.vote, token)
            self._counters["raft-unclean"] += 1
            self._world.emit(JournalUnclean(recovered.reason))
        assert unclean or not replay.gap, "the journal is clean, but entries are missing"
        core = Core(
            self.me,
            replay.log,
            state,
            self.settings,
            self._world.rng,
            self._counters,
            self._bugs,
        )
        core.state_dirty = unclean
        self._storage.begin(replay.positions)
        self._snapshot_index = replay.base.index
        if replay.base.index:
            core.snapshot = replay.base
            self._machine.restore(replay.base.index, replay.base.data)
        if replay.gap:
            self._storage.rewrite(core, replay.base, self._settle)
        self.core = core
        if core.log.configuration.voters == (self.me,):
            core.campaign()  # there is nobody to wait for
        self._arm()
        self._settle()

    def _arm(self) -> None:
        self._tick = self._world.call_later(self.settings.tick_s, self._on_tick)

    def _on_tick(self) -> None:
        assert self.core is not None
        self._arm()
        self.core.tick()
        self._settle()

    def _schedule(self) -> None:
        """Everything asked for in this turn of the loop is sent and synced together."""
        if self._pump is None:
            self._pump = self._world.call_later(0.0, self._on_pump)

    def _on_pump(self) -> None:
        self._pump = None
        assert self.core is not None
        if self.core.leadership is not None:
            self.core.leadership.replicate()
        self._settle()

    # -- what the core decided -----------------------------------------------------------------

    def _settle(self) -> None:
        core = self.core
        assert core is not None
        before = -1
        while before != core.log.commit and not self._stopped:
            before = core.log.commit
            self._storage.persist(core)
            self._dispatch(core)
            self._apply(core)
        if self._stopped:
            return
        self._watch_role(core)
        self._storage.sync(core, self._on_synced)
        self._snapshot(core)

    def _dispatch(self, core: Core) -> None:
        outbox, core.outbox = core.outbox, []
        for item in outbox:
            if item.durable and not self._storage.durable:
                self._storage.hold(item)
            else:
                self._transmit(core, item)

    def _transmit(self, core: Core, item: Outgoing) -> None:
        if not self._send(item.peer, codec.encode(item.message)):
            self._counters["raft-unsent"] += 1
            if core.leadership is not None:
                core.leadership.on_unsent(item.peer)

    def _on_synced(self, term: int, last: int) -> None:
        core = self.core
        if core is None or self._stopped:
            return
        for item in self._storage.released():
            self._transmit(core, item)
        core.on_durable(term, last)
        self._settle()

    def _apply(self, core: Core) -> None:
        log = core.log
        while log.applied < log.commit and not self._stopped:
            log.applied += 1
            entry = log.entry(log.applied)
            self._applied_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if entry.kind == Kind.COMMAND:
                self._machine.apply(log.applied, entry.data)
            self._outcomes.applied(log.applied, entry.term)
        if core.leadership is not None:
            for read, index in core.leadership.reads.confirmed(log.configuration.voters, self.me):
                self._outcomes.confirm(read, index)
            self._outcomes.release_reads(log.applied)

    def _watch_role(self, core: Core) -> None:
        """Leadership that ended leaves its proposals without a known outcome."""
        term = core.state.term if core.role is Role.LEADER else 0
        if term == self.led_term:
            return
        if self.led_term:
            self._outcomes.fail(RaftError(errors.UNKNOWN, core.leader))
        self.led_term = term
        if term:
            self._world.emit(LeaderElected(term))
        self.on_role()

    def _leading(self, done: IndexDone) -> Leadership | None:
        """The leadership, if this member leads; otherwise `done` hears why not."""
        core = self.core
        if self._stopped:
            self._refuse(done, RaftError(errors.STOPPED))
        elif core is None:
            self._refuse(done, RaftError(errors.STARTING))
        elif core.leadership is None:
            self._refuse(done, RaftError(errors.NOT_LEADER, core.leader))
        else:
            return core.leadership
        return None

    def _expect(self, index: int, done: IndexDone) -> None:
        assert self.core is not None
        self._outcomes.expect(index, self.core.state.term, done)
        self._schedule()

    def _refuse(self, done: IndexDone, error: RaftError) -> None:
        self._world.call_later(0.0, lambda: done(error))

    # -- snapshots -----------------------------------------------------------------------------

    def _snapshot(self, core: Core) -> None:
        """Begin to make a snapshot durable: a leader's that was received, or one of our own."""
        if self._storage.snapshotting:
            return
        log = core.log
        if core.installing is not None:
            self._storage.install(core, core.installing, self._on_installed)
            return
        due = (
            log.applied - self._snapshot_index >= self.settings.snapshot_entries
            or self._applied_bytes >= self.settings.snapshot_bytes
        )
        if due and log.applied > self._snapshot_index:
            term, members = log.term_at(log.applied), log.configuration_at(log.applied)
            base = Base(core.state, log.applied, term, members, self._machine.snapshot())
            self._applied_bytes = 0
            self._storage.save(core, base, lambda: self._on_saved(base))

    def _on_saved(self, base: Base) -> None:
        core = self.core
        if core is None or self._stopped:
            return
        self._counters["raft-snapshot"] += 1
        core.snapshot = base
        core.log.compact(max(core.log.base, base.index - self.settings.keep_entries))
        self._snapshot_index = max(self._snapshot_index, base.index)
        self._settle()

    def _on_installed(self) -> None:
        core = self.core
        if core is None or self._stopped or core.installing is None:
            return
        base = core.installing
        if core.on_installed():
            self._counters["raft-snapshot-installed"] += 1
            self._machine.restore(base.index, base.data)
            self._applied_bytes = 0
        self._snapshot_index = max(self._snapshot_index, base.index)
        self._settle()
