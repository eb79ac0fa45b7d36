"""Why Raft did not do what it was asked."""

from __future__ import annotations

from swell.errors import SwellError

NOT_LEADER = "not-leader"
UNKNOWN = "outcome-unknown"
LOST = "lost"
BUSY = "busy"
TOO_LONG = "too-long"
STARTING = "starting"
STOPPED = "stopped"
CHANGE_PENDING = "change-pending"
INVALID_CHANGE = "invalid-change"
NOT_READY = "not-ready"

_SENTENCES = {
    NOT_LEADER: "this voter is not the leader: ask the leader, or wait for an election",
    UNKNOWN: "leadership was lost before the outcome was known: read before you try again",
    LOST: "another leader's entry took the place of the proposal: try again",
    BUSY: "too many requests wait for an outcome: try again later",
    TOO_LONG: "the command is longer than the limit: split it",
    STARTING: "the voter is reading its journal: try again in a moment",
    STOPPED: "the voter was stopped: ask another one",
    CHANGE_PENDING: "another change of voters is under way: wait until it is committed",
    INVALID_CHANGE: "voters change one at a time, and never to none",
    NOT_READY: "the voter named has not caught up yet: try again later",
}


class RaftError(SwellError):
    """`code` is one of the constants above; `leader` names the leader where it is known."""

    def __init__(self, code: str, leader: str = "") -> None:
        self.code = code
        self.leader = leader
        super().__init__(_SENTENCES[code] + (f" (the leader is {leader})" if leader else ""))
