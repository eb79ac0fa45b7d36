"""Messages between the members of one Raft group; numbers 240 to 249.

Every message carries its sender's term, except a pre-vote's request and the grant of one, which
carry the term that the candidate would begin.
"""

from __future__ import annotations

from swell.directory.raft.log import Entry
from swell.directory.raft.membership import Configuration
from swell.wire.codec import Message, message


@message(240)
class VoteRequest(Message):
    """Candidate → voters. `pre`: would you vote for me? `force`: the leader itself asked for this
    election, so a voter that hears the leader answers nevertheless."""

    term: int
    last_index: int
    last_term: int
    pre: bool
    force: bool


@message(241)
class VoteReply(Message):
    term: int
    granted: bool
    pre: bool


@message(242)
class Append(Message):
    """Leader → members: entries behind (`prev_index`, `prev_term`), and what is committed."""

    term: int
    prev_index: int
    prev_term: int
    commit: int
    entries: list[Entry]


@message(243)
class AppendReply(Message):
    """`ok`: the log equals the leader's up to `index`, durably. Otherwise `prev_index` did not
    match, and the logs may agree up to `index` at best. `unclean`: the sender's token of loss."""

    term: int
    ok: bool
    index: int
    prev_index: int
    unclean: int


@message(244)
class Heartbeat(Message):
    """`commit` is never beyond what the receiver is known to have; `round` numbers the reads."""

    term: int
    commit: int
    round: int


@message(245)
class HeartbeatReply(Message):
    term: int
    round: int
    unclean: int


@message(246)
class SnapshotChunk(Message):
    """A part of the state up to and including `index`."""

    term: int
    index: int
    index_term: int
    configuration: Configuration
    offset: int
    total: int
    data: bytes


@message(247)
class SnapshotReply(Message):
    """The receiver has the snapshot of `index` up to `offset`, in memory."""

    term: int
    index: int
    offset: int


@message(248)
class TimeoutNow(Message):
    """Leader → voter that has everything: hold an election at once."""

    term: int


RaftMessage = (
    VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | SnapshotChunk
    | SnapshotReply
    | TimeoutNow
)
