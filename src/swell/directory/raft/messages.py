"""Messages between the members of one Raft group; numbers 240 to 249.

Every message carries its sender's term, except a pre-vote's request and the grant of one, which
carry the term that the candidate would begin.
"""

from __future__ import annotations

from swell.directory.raft.log import Entry
from swell.directory.raft.membership import Configuration
from swell.overlay.membership_messages import Count
from swell.wire.codec import Message, message


@message(240)
class VoteRequest(Message, frozen=True):
    """Candidate → voters. `pre`: would you vote for me? `force`: the leader itself asked for this
    election, so a voter that hears the leader answers nevertheless."""

    term: Count
    last_index: Count
    last_term: Count
    pre: bool
    force: bool


@message(241)
class VoteReply(Message, frozen=True):
    term: Count
    granted: bool
    pre: bool


@message(242)
class Append(Message, frozen=True):
    """Leader → members: entries behind (`prev_index`, `prev_term`), and what is committed."""

    term: Count
    prev_index: Count
    prev_term: Count
    commit: Count
    entries: list[Entry]


@message(243)
class AppendReply(Message, frozen=True):
    """`ok`: the log equals the leader's up to `index`, durably. Otherwise `prev_index` did not
    match, and the logs may agree up to `index` at best. `unclean`: the sender's token of loss."""

    term: Count
    ok: bool
    index: Count
    prev_index: Count
    unclean: Count


@message(244)
class Heartbeat(Message, frozen=True):
    """`commit` is never beyond what the receiver is known to have; `round` numbers the reads."""

    term: Count
    commit: Count
    round: Count


@message(245)
class HeartbeatReply(Message, frozen=True):
    term: Count
    round: Count
    unclean: Count


@message(246)
class SnapshotChunk(Message, frozen=True):
    """A part of the state up to and including `index`."""

    term: Count
    index: Count
    index_term: Count
    configuration: Configuration
    offset: Count
    total: Count
    data: bytes


@message(247)
class SnapshotReply(Message, frozen=True):
    """The receiver has the snapshot of `index` up to `offset`, in memory."""

    term: Count
    index: Count
    offset: Count


@message(248)
class TimeoutNow(Message, frozen=True):
    """Leader → voter that has everything: hold an election at once."""

    term: Count


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
