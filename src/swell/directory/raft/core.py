"""Raft as a pure state machine: messages and ticks go in; what to persist and send comes out.

The driver calls a method, then takes `outbox` and the log's unsaved entries, and the state if
`state_dirty`. A message that gives a word (a vote, an acknowledgement, a request for votes) is
marked `durable` and may leave only when everything taken with it is synced.

Invariants (figure 3 of the paper): at most one leader per term; a leader only appends; logs that
agree on an entry agree on everything before it; a committed entry is in the log of every later
leader; nobody applies another command at the same index. Source: Ongaro and Ousterhout 2014;
Ongaro's thesis for pre-vote (9.6), check-quorum (6.2), single changes (4.1), transfer (3.10).
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from swell.directory.raft import quorum
from swell.directory.raft.leadership import Leadership
from swell.directory.raft.log import Log
from swell.directory.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    RaftMessage,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from swell.directory.raft.quorum import Poll
from swell.directory.raft.state import Base, State
from swell.settings import RaftSettings

if TYPE_CHECKING:
    from random import Random


class Role(IntEnum):
    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class Outgoing(NamedTuple):
    peer: str
    message: RaftMessage
    durable: bool
    """Only after the sync of everything that came before."""


class Core:
    """One member."""

    def __init__(
        self,
        me: str,
        log: Log,
        state: State,
        settings: RaftSettings,
        rng: Random,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.me = me
        self.log = log
        self.state = state
        self.settings = settings
        self.counters = counters
        self.bugs = bugs
        self.role = Role.FOLLOWER
        self.leader = ""
        self.leadership: Leadership | None = None
        self.snapshot: Base | None = None
        """The latest one, for members that are too far behind."""
        self.outbox: list[Outgoing] = []
        self.state_dirty = False
        self.installing: Base | None = None
        """A leader's snapshot that the driver is making durable; nothing is appended meanwhile."""
        self._rng = rng
        self._votes: dict[str, bool] = {}
        self._elapsed = 0
        self._timeout = self._random_timeout()
        self._force = False
        self._chunks = bytearray()
        self._chunks_index = 0

    # -- what the driver calls -----------------------------------------------------------------

    def tick(self) -> None:
        if self.leadership is not None:
            self.leadership.tick()
            return
        self._elapsed += 1
        if self._elapsed >= self._timeout:
            self.campaign()
        elif self._elapsed % self.settings.heartbeat_ticks == 0:
            self._request_votes()

    def step(self, peer: str, message: RaftMessage) -> None:
        """Take one message."""
        if isinstance(message, VoteRequest):
            self._on_vote_request(peer, message)
        elif isinstance(message, VoteReply):
            self._on_vote_reply(peer, message)
        elif isinstance(message, Append | Heartbeat | SnapshotChunk):
            self._on_leader(peer, message)
        elif message.term > self.state.term:
            self._follow(message.term, "")
        elif message.term == self.state.term:
            self._on_answer(peer, message)

    def on_durable(self, term: int, index: int) -> None:
        """Everything up to (`term`, last `index`) is synced: our own word counts now."""
        if term != self.state.term:
            return
        if self.leadership is not None:
            self.leadership.on_durable(index)
            self._end_if_removed()
        elif self.role is Role.CANDIDATE:
            self._count_vote(self.me, True)

    def on_installed(self) -> bool:
        """The snapshot under way is durable; True if it takes the place of what is applied."""
        base, self.installing = self.installing, None
        assert base is not None
        useful = base.index > self.log.commit
        if useful:
            self.log.restore(base.index, base.term, base.configuration)
            self.snapshot = base
            self._cure()
        self._acknowledge(self.log.commit)
        return useful

    def campaign(self, force: bool = False) -> None:
        """Begin an election: pre-vote first, unless the leader itself asked for it."""
        self._elapsed = 0
        self._timeout = self._random_timeout()
        if not self.promotable:
            return
        self.leader = ""
        self.leadership = None
        self._votes = {}
        self._force = force
        if force:
            self._begin_candidacy()
            return
        self.role = Role.PRE_CANDIDATE
        self.counters["raft-pre-vote"] += 1
        self._request_votes()
        self._count_vote(self.me, True)

    @property
    def promotable(self) -> bool:
        """May this member stand for election?"""
        return (
            self.me in self.log.configuration.voters
            and not self.state.unclean
            and self.installing is None
        )

    def step_down(self) -> None:
        self._follow(self.state.term, "")

    def send(self, peer: str, message: RaftMessage, durable: bool = False) -> None:
        self.outbox.append(Outgoing(peer, message, durable))

    # -- elections -----------------------------------------------------------------------------

    def _random_timeout(self) -> int:
        return self.settings.election_ticks + self._rng.randrange(self.settings.election_ticks)

    def _set_state(self, term: int, vote: str, unclean: int) -> None:
        self.state = State(self.state.number + 1, term, vote, unclean)
        self.state_dirty = True

    def _follow(self, term: int, leader: str) -> None:
        """Be a follower of `leader`, if known, in `term`."""
        if term > self.state.term:
            self._set_state(term, "", self.state.unclean)
        if self.role is not Role.FOLLOWER or leader != self.leader:
            self._elapsed = 0
            self._timeout = self._random_timeout()
        self.role = Role.FOLLOWER
        self.leader = leader
        self.leadership = None

    def _hears_leader(self) -> bool:
        """Thesis 4.2.3 and 6.2: a voter with a living leader takes part in no election."""
        if self.leadership is not None:
            return True
        return self.leader != "" and self._elapsed < self.settings.election_ticks

    def _request_votes(self) -> None:
        """Ask every voter that has not answered; requests get lost with their links."""
        if self.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return
        pre = self.role is Role.PRE_CANDIDATE
        request = VoteRequest(
            self.state.term + pre, self.log.last, self.log.last_term, pre, self._force
        )
        for voter in self.log.configuration.voters:
            if voter != self.me and voter not in self._votes:
                self.send(voter, request, durable=not pre)

    def _on_vote_request(self, peer: str, message: VoteRequest) -> None:
        if self._hears_leader() and not message.force:
            self.counters["raft-vote-ignored"] += 1
            return
        if not message.pre and message.term > self.state.term:
            self._follow(message.term, "")
        if message.term < self.state.term or self.state.unclean:
            reply = VoteReply(self.state.term, False, message.pre)
            self.send(peer, reply, durable=not message.pre)
            return
        newer = not self.log.is_behind(message.last_term, message.last_index)
        if message.pre:
            granted = newer and message.term > self.state.term
            term = message.term if granted else self.state.term
            self.send(peer, VoteReply(term, granted, True))
            return
        granted = newer and self.leader == "" and self.state.vote in ("", peer)
        if granted:
            self._elapsed = 0
            if not self.state.vote:
                self._set_state(self.state.term, peer, self.state.unclean)
        self.send(peer, VoteReply(self.state.term, granted, False), durable=True)

    def _on_vote_reply(self, peer: str, message: VoteReply) -> None:
        if message.term > self.state.term and not (message.pre and message.granted):
            self._follow(message.term, "")
            return
        if message.pre:
            current = not message.granted or message.term == self.state.term + 1
            if self.role is Role.PRE_CANDIDATE and current:
                self._count_vote(peer, message.granted)
        elif self.role is Role.CANDIDATE and message.term == self.state.term:
            self._count_vote(peer, message.granted)

    def _count_vote(self, voter: str, granted: bool) -> None:
        self._votes[voter] = granted
        result = quorum.poll(self.log.configuration.voters, self._votes)
        if result is Poll.LOST:
            self._follow(self.state.term, "")
        elif result is Poll.WON and self.role is Role.PRE_CANDIDATE:
            self._begin_candidacy()
        elif result is Poll.WON and self.role is Role.CANDIDATE:
            self._begin_leadership()

    def _begin_candidacy(self) -> None:
        self.role = Role.CANDIDATE
        self.leader = ""
        self._votes = {}
        self._elapsed = 0
        self.counters["raft-election"] += 1
        self._set_state(self.state.term + 1, self.me, self.state.unclean)
        self._request_votes()

    def _begin_leadership(self) -> None:
        self.role = Role.LEADER
        self.leader = self.me
        self.counters["raft-leadership"] += 1
        self.leadership = Leadership(self)
        self.leadership.heartbeat()
        self.leadership.replicate()

    # -- following -----------------------------------------------------------------------------

    def _on_leader(self, peer: str, message: Append | Heartbeat | SnapshotChunk) -> None:
        if message.term < self.state.term:
            # Its term is over. It must hear so even if we asked for votes that nobody heard.
            self.send(peer, AppendReply(self.state.term, False, 0, 0, self.state.unclean), True)
            return
        self._follow(message.term, peer)
        self._elapsed = 0
        if isinstance(message, Heartbeat):
            if not self.state.unclean:
                # What an unclean member once acknowledged may have become something else.
                self.log.commit_to(min(message.commit, self.log.last))
            self.send(peer, HeartbeatReply(self.state.term, message.round, self.state.unclean))
        elif self.installing is not None:
            self.counters["raft-dropped-installing"] += 1
        elif isinstance(message, Append):
            self._on_append(peer, message)
        else:
            self._on_chunk(peer, message)

    def _on_append(self, peer: str, message: Append) -> None:
        log = self.log
        prev = message.prev_index
        if prev < log.base:
            self._acknowledge(log.commit)
            return
        if log.term_at(prev) != message.prev_term:
            hint = log.conflict_hint(prev)
            term, unclean = self.state.term, self.state.unclean
            self.send(peer, AppendReply(term, False, hint, prev, unclean), durable=True)
            return
        log.merge(prev, message.entries)
        last = prev + len(message.entries)
        log.commit_to(min(message.commit, last))
        self._cure()
        self._acknowledge(last)

    def _acknowledge(self, index: int) -> None:
        if self.leader and self.leader != self.me:
            reply = AppendReply(self.state.term, True, index, 0, self.state.unclean)
            self.send(self.leader, reply, durable=True)

    def _on_chunk(self, peer: str, message: SnapshotChunk) -> None:
        if message.index <= self.log.commit:
            self._acknowledge(self.log.commit)
            return
        if message.total > self.settings.snapshot_bytes_max:
            self.counters["raft-snapshot-too-long"] += 1
            return
        if message.offset == 0 or message.index != self._chunks_index:
            self._chunks = bytearray()
            self._chunks_index = message.index
        if message.offset == len(self._chunks) <= message.total - len(message.data):
            self._chunks += message.data
        offset = len(self._chunks)
        self.send(peer, SnapshotReply(self.state.term, message.index, offset))
        if offset == message.total and message.offset + len(message.data) == offset:
            data, self._chunks, self._chunks_index = bytes(self._chunks), bytearray(), 0
            self.installing = Base(
                self.state, message.index, message.index_term, message.configuration, data
            )

    def _cure(self) -> None:
        """An unclean member counts again once the log shows it fenced under its token and made a
        voter later: the second change cannot be in the log before the first is committed."""
        token = self.state.unclean
        if not token:
            return
        fenced = False
        for _, configuration in self.log.configurations:
            if configuration.learners.get(self.me) == token:
                fenced = True
            elif fenced and self.me in configuration.voters:
                self.counters["raft-cured"] += 1
                self._set_state(self.state.term, self.state.vote, 0)
                return

    # -- leading -------------------------------------------------------------------------------

    def _on_answer(
        self, peer: str, message: AppendReply | HeartbeatReply | SnapshotReply | TimeoutNow
    ) -> None:
        if isinstance(message, TimeoutNow):
            if peer == self.leader:
                self.campaign(force=True)
            return
        leadership = self.leadership
        if leadership is None:
            return
        if isinstance(message, AppendReply):
            leadership.on_append_reply(peer, message)
            self._end_if_removed()
        elif isinstance(message, HeartbeatReply):
            leadership.on_heartbeat_reply(peer, message)
        else:
            leadership.on_snapshot_reply(peer, message)

    def _end_if_removed(self) -> None:
        """Thesis 4.2.2: a leader outside the committed configuration has done its last duty."""
        leadership = self.leadership
        if leadership is None or self.me in self.log.configuration.voters:
            return
        if not leadership.change_pending:
            leadership.heartbeat()
            self.step_down()
