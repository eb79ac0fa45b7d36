"""The leader's side: replication, commitment, reads, and the care for unclean voters.

Exists from an election won to the end of that leadership. Commitment counts only entries of the
leader's own term (§5.4.2); the entry of nothing at its beginning makes that possible at once.

An unclean voter is first made a learner under the token of its loss, and a voter again when it has
caught up: two changes of one server each, so its forgotten votes and acknowledgements belong to a
configuration that no longer elects anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.directory.raft import quorum
from swell.directory.raft.log import Entry, Kind
from swell.directory.raft.membership import Configuration, encode_configuration, is_single_change
from swell.directory.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
)
from swell.directory.raft.progress import Phase, Progress
from swell.directory.raft.reads import Reads

if TYPE_CHECKING:
    from swell.directory.raft.core import Core

COMMIT_OLD_TERM = "commit-old-term"
"""Planted bug: entries of earlier terms are committed by counting (figure 8)."""


class Leadership:
    """State that begins with an election."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._log = core.log
        self._settings = core.settings
        self.reads = Reads()
        self.progress: dict[str, Progress] = {}
        self.durable = 0
        """Up to where this leader's own log is durable."""
        self._heartbeat_elapsed = 0
        self._quorum_elapsed = 0
        self.first = self._log.last + 1
        """Index of the first entry of this leadership."""
        if COMMIT_OLD_TERM not in core.bugs:
            self.append(Kind.NOTHING, b"")
        self._follow_configuration()

    # -- the log -------------------------------------------------------------------------------

    def append(self, kind: Kind, data: bytes) -> int:
        index = self._log.append(Entry(self._core.state.term, kind, data))
        if kind is Kind.CONFIGURATION:
            self._follow_configuration()
        return index

    @property
    def established(self) -> bool:
        """Has an entry of this term been committed? Before that the commit index may be old."""
        return self._log.commit >= self.first

    @property
    def change_pending(self) -> bool:
        return self._log.configuration_index > self._log.commit

    def change(self, new: Configuration) -> int:
        """Begin a change of one server; the index of its entry, or 0 if it is not allowed."""
        if self.change_pending or not self.established:
            return 0
        if not is_single_change(self._log.configuration, new):
            return 0
        self._core.counters["raft-change"] += 1
        return self.append(Kind.CONFIGURATION, encode_configuration(new))

    def _follow_configuration(self) -> None:
        members = self._log.configuration.members
        self.progress = {
            name: self.progress.get(name) or Progress(self._log.last)
            for name in members
            if name != self._core.me
        }

    def on_durable(self, index: int) -> None:
        self.durable = max(self.durable, index)
        self.commit()

    def commit(self) -> None:
        """§5.3 and §5.4.2: an entry of this term that a majority has durably is committed."""
        matches = {name: progress.counted for name, progress in self.progress.items()}
        matches[self._core.me] = self.durable
        index = quorum.reached(self._log.configuration.voters, matches)
        if index <= self._log.commit:
            return
        if self._log.term_at(index) == self._core.state.term or COMMIT_OLD_TERM in self._core.bugs:
            self._log.commit_to(index)

    # -- sending -------------------------------------------------------------------------------

    def replicate(self) -> None:
        """Send whatever may be sent: entries, and heartbeats for reads that wait."""
        for name, progress in self.progress.items():
            self._send_entries(name, progress)
        if self.reads.pending and self.established:
            self.heartbeat()

    def _send_entries(self, name: str, progress: Progress, empty: bool = False) -> None:
        log, settings = self._log, self._settings
        while progress.may_send(settings.inflight_max):
            prev = progress.next - 1
            prev_term = log.term_at(prev)
            if prev_term < 0:
                self._send_snapshot(name, progress)
                return
            entries = log.slice(
                progress.next, settings.append_bytes_max, settings.append_entries_max
            )
            if not entries and not empty and progress.phase is Phase.REPLICATE:
                return
            term = self._core.state.term
            self._core.send(name, Append(term, prev, prev_term, log.commit, entries))
            progress.sent(prev + len(entries))
            empty = False

    def _send_snapshot(self, name: str, progress: Progress) -> None:
        snapshot = self._core.snapshot
        assert snapshot is not None, "the log is compacted behind a snapshot only"
        self._core.counters["raft-snapshot-sent"] += 1
        progress.restore(snapshot)
        self._send_chunk(name, progress)

    def _send_chunk(self, name: str, progress: Progress) -> None:
        snapshot = progress.snapshot
        assert snapshot is not None
        chunk = snapshot.data[progress.offset : progress.offset + self._settings.chunk_bytes]
        self._core.send(
            name,
            SnapshotChunk(
                self._core.state.term,
                snapshot.index,
                snapshot.term,
                snapshot.configuration,
                progress.offset,
                len(snapshot.data),
                chunk,
            ),
        )

    def heartbeat(self) -> None:
        if self.established:
            self.reads.begin_round(self._log.commit)
        for name, progress in self.progress.items():
            commit = min(progress.match, self._log.commit)
            self._core.send(name, Heartbeat(self._core.state.term, commit, self.reads.round))

    # -- time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        self._heartbeat_elapsed += 1
        self._quorum_elapsed += 1
        if self._heartbeat_elapsed >= self._settings.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            self.heartbeat()
            for name, progress in self.progress.items():
                if not progress.expire_heartbeat():
                    continue
                if progress.phase is Phase.RESTORE:
                    self._send_chunk(name, progress)
                else:
                    self._send_entries(name, progress, empty=True)
        if self._quorum_elapsed >= self._settings.election_ticks:
            self._quorum_elapsed = 0
            self._check_quorum()

    def _check_quorum(self) -> None:
        """Thesis 6.2: a leader that hears no quorum steps down, so its clients look elsewhere."""
        present = [
            name
            for name, progress in self.progress.items()
            if progress.active and not progress.unclean
        ]
        present.append(self._core.me)
        for progress in self.progress.values():
            progress.active = False
        if not quorum.is_quorum(self._log.configuration.voters, present):
            self._core.counters["raft-quorum-lost"] += 1
            self._core.step_down()
            return
        self._care_for_unclean()
        self.replicate()

    def _care_for_unclean(self) -> None:
        """Fence an unclean voter, or take one back that has caught up: one change at a time."""
        configuration = self._log.configuration
        for name, progress in self.progress.items():
            token = configuration.learners.get(name, 0)
            counted = name in configuration.voters and len(configuration.voters) > 1
            if (
                progress.unclean not in (0, token)
                and (counted or token)
                and self.change(configuration.with_learner(name, progress.unclean))
            ):
                self._core.counters["raft-fenced"] += 1
                return
            if (
                token
                and progress.unclean in (0, token)
                and progress.match >= self._log.commit
                and self.change(configuration.with_voter(name))
            ):
                self._core.counters["raft-readmitted"] += 1
                return

    # -- answers -------------------------------------------------------------------------------

    def on_append_reply(self, peer: str, message: AppendReply) -> None:
        progress = self._heard(peer, message.unclean)
        if progress is None:
            return
        if message.ok:
            progress.acknowledged(min(message.index, self._log.last))
            self.commit()
        elif not progress.refused(message.prev_index, message.index, message.unclean != 0):
            return
        self._send_entries(peer, progress)

    def on_heartbeat_reply(self, peer: str, message: HeartbeatReply) -> None:
        progress = self._heard(peer, message.unclean)
        if progress is not None and not message.unclean:
            self.reads.answered(peer, message.round)

    def on_snapshot_reply(self, peer: str, message: SnapshotReply) -> None:
        progress = self.progress.get(peer)
        if progress is None or progress.snapshot is None:
            return
        progress.active = True
        snapshot = progress.snapshot
        if message.index != snapshot.index or message.offset > len(snapshot.data):
            return
        progress.silent_heartbeats = 0
        if message.offset < len(snapshot.data) and message.offset != progress.offset:
            progress.offset = message.offset
            self._send_chunk(peer, progress)

    def _heard(self, peer: str, unclean: int) -> Progress | None:
        progress = self.progress.get(peer)
        if progress is not None:
            progress.active = True
            if unclean and unclean != progress.unclean:
                progress.match = 0
            progress.unclean = unclean
        return progress

    def on_reachable(self, peer: str) -> None:
        """A new link: whatever was on its way on the old one is lost."""
        progress = self.progress.get(peer)
        if progress is None:
            return
        if progress.phase is Phase.RESTORE:
            self._send_chunk(peer, progress)
        else:
            progress.probe(progress.match + 1)
            self._send_entries(peer, progress, empty=True)

    def on_unsent(self, peer: str) -> None:
        """The link refused a frame: probe again at the next heartbeat."""
        progress = self.progress.get(peer)
        if progress is not None and progress.phase is not Phase.RESTORE:
            progress.probe(progress.match + 1)
            progress.waiting = True

    def transfer(self, peer: str) -> bool:
        """Thesis 3.10: ask a voter that has everything to hold an election at once."""
        progress = self.progress.get(peer)
        ready = (
            progress is not None
            and peer in self._log.configuration.voters
            and progress.counted == self._log.last
        )
        if ready:
            self._core.send(peer, TimeoutNow(self._core.state.term))
        return ready
