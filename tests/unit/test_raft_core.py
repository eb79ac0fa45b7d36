"""The state machine against the paper: elections, replication, commitment, changes, reads."""

from __future__ import annotations

import pytest

from swell.directory.raft.core import Core, Role
from swell.directory.raft.log import Kind
from swell.directory.raft.membership import Configuration
from swell.directory.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from swell.directory.raft.state import Base, State
from swell.wire import codec
from tests.unit.raft_toys import SETTINGS, Net, core_of, settle

FIVE = ("a", "b", "c", "d", "e")


def group(voters: tuple[str, ...] = ("a", "b", "c"), bugs: frozenset[str] = frozenset()) -> Net:
    return Net(*(core_of(name, voters=voters, bugs=bugs) for name in voters))


def propose(core: Core, data: bytes = b"x") -> int:
    assert core.leadership is not None
    index = core.leadership.append(Kind.COMMAND, data)
    core.leadership.replicate()
    return index


# Elections.


def test_section_5_2_a_silent_leader_is_replaced() -> None:
    net = group()
    net.tick(3 * SETTINGS.election_ticks)
    leaders = [core for core in net.cores.values() if core.role is Role.LEADER]
    assert len(leaders) == 1
    first = leaders[0]
    net.crash(first.me)
    net.tick(4 * SETTINGS.election_ticks)
    second = [c for c in net.cores.values() if c.role is Role.LEADER and c is not first]
    assert len(second) == 1
    assert second[0].state.term > first.state.term


def test_section_5_2_one_vote_per_term() -> None:
    voter = core_of("a")
    voter.step("b", VoteRequest(3, 0, 0, False, False))
    assert settle(voter) == [("b", VoteReply(3, True, False))]
    voter.step("c", VoteRequest(3, 0, 0, False, False))
    voter.step("b", VoteRequest(3, 0, 0, False, False))
    assert settle(voter) == [("c", VoteReply(3, False, False)), ("b", VoteReply(3, True, False))]
    assert (voter.state.term, voter.state.vote) == (3, "b")


def test_section_5_2_a_vote_and_the_request_for_votes_wait_for_the_disk() -> None:
    voter = core_of("a")
    voter.step("b", VoteRequest(3, 0, 0, False, False))
    assert voter.state_dirty
    assert [item.durable for item in voter.outbox] == [True]
    candidate = core_of("b")
    candidate.campaign(force=True)
    assert candidate.state.vote == "b"
    assert [item.durable for item in candidate.outbox] == [True, True]


def test_section_5_4_1_no_vote_for_an_older_log() -> None:
    voter = core_of("a", 1, 1, 2)
    voter.step("b", VoteRequest(5, 9, 1, False, False))
    assert settle(voter) == [("b", VoteReply(5, False, False))]


def test_thesis_9_6_a_pre_vote_changes_no_term() -> None:
    net = group()
    net.crash("b")
    net.crash("c")
    candidate = net.cores["a"]
    for _ in range(5 * SETTINGS.election_ticks):
        net.tick()
    assert (candidate.role, candidate.state.term) == (Role.PRE_CANDIDATE, 0)


def test_thesis_4_2_3_who_hears_a_leader_ignores_candidates() -> None:
    net = group()
    leader = net.elect("a")
    outsider = VoteRequest(leader.state.term + 5, 99, 99, False, False)
    for name in ("a", "b"):
        net.cores[name].step("x", outsider)
        assert net.cores[name].state.term == leader.state.term
        assert settle(net.cores[name]) == []


def test_a_leader_learns_of_a_later_term_from_whom_it_addresses() -> None:
    net = group()
    leader = net.elect("a")
    net.cores["b"].campaign(force=True)
    later = net.cores["b"].state.term
    net.queue.clear()
    settle(net.cores["b"])
    leader.tick()
    net.deliver()
    assert leader.state.term >= later


def test_thesis_3_10_transfer_elects_at_once() -> None:
    net = group()
    leader = net.elect("a")
    net.tick()
    assert leader.leadership is not None
    assert leader.leadership.transfer("b")
    assert not leader.leadership.transfer("x")
    net.deliver()
    assert [net.cores[name].role for name in "abc"] == [Role.FOLLOWER, Role.LEADER, Role.FOLLOWER]


def test_thesis_6_2_a_leader_without_a_quorum_steps_down() -> None:
    net = group()
    leader = net.elect("a")
    net.crash("b")
    net.crash("c")
    net.tick(2 * SETTINGS.election_ticks)
    assert leader.leadership is None


# Replication and commitment.


def test_section_5_3_an_entry_of_a_majority_is_committed() -> None:
    net = group(FIVE)
    leader = net.elect("a")
    for name in ("d", "e"):
        net.crash(name)
    index = propose(leader)
    net.deliver()
    assert leader.log.commit == index
    net.tick()
    assert net.cores["b"].log.commit == index
    net.crash("c")
    stuck = propose(leader)
    net.deliver()
    assert leader.log.commit == stuck - 1


@pytest.mark.parametrize(
    "follower",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids="abcdef",
)
def test_figure_7_followers_are_brought_to_the_leaders_log(follower: tuple[int, ...]) -> None:
    leader = core_of("a", 1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    other = core_of("b", *follower)
    third = core_of("c", 1)
    leader.state = State(1, 7, "", 0)
    net = Net(leader, other, third)
    net.elect("a")
    net.tick(30)
    assert other.log.last == leader.log.last == 11
    terms = [other.log.term_at(index) for index in range(1, 12)]
    assert terms == [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, leader.state.term]


def test_an_acknowledgement_waits_for_the_disk() -> None:
    follower = core_of("b")
    entry = core_of("a", 1).log.entry(1)
    follower.step("a", Append(1, 0, 0, 0, [entry]))
    assert [item.durable for item in follower.outbox] == [True]
    assert follower.log.unsaved == 1


def test_section_5_3_a_gap_is_refused() -> None:
    follower = core_of("b", 1, 1)
    follower.step("a", Append(2, 5, 2, 5, []))
    assert settle(follower) == [("a", AppendReply(2, False, 2, 5, 0))]
    assert follower.log.commit == 0


def figure_8(bugs: frozenset[str]) -> tuple[Net, Core]:
    """(a) to (c): `a` brings its entry of term 2 to a majority in a later term."""
    net = Net(*(core_of(name, 1, voters=FIVE, bugs=bugs) for name in FIVE))
    first = net.cores["a"]
    first.state = State(2, 2, "a", 0)
    entry = core_of("x", 1, 2).log.entry(2)
    for name in ("a", "b"):
        net.cores[name].log.append(entry)
        net.cores[name].state = State(2, 2, "a", 0)
    other = core_of("x", 1, 3).log.entry(2)
    net.cores["e"].log.append(other)
    for name in ("c", "d", "e"):
        net.cores[name].state = State(3, 3, "e", 0)
    net.down = {"d", "e"}
    net.forget_leaders()
    first.state = State(3, 3, "", 0)
    first.campaign()
    for _ in range(200):
        leadership = first.leadership
        if leadership is not None and leadership.progress["c"].match == 2:
            break
        net.deliver(1)
    return net, first


def test_figure_8_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    net, first = figure_8(frozenset())
    assert net.cores["c"].log.term_at(2) == 2
    assert first.log.commit == 0, "a majority has the entry of term 2; that is not enough"
    net.deliver()
    assert first.log.commit == 3, "it is committed with an entry of the leader's own term"
    assert first.log.term_at(3) == first.state.term


def test_figure_8_the_planted_bug_commits_what_is_then_overwritten() -> None:
    net, first = figure_8(frozenset(["commit-old-term"]))
    assert first.log.commit == 2
    assert first.log.term_at(2) == 2
    net.queue.clear()
    net.crash("a")
    net.down -= {"d", "e"}
    net.elect("e")
    propose(net.cores["e"])
    net.deliver()
    net.tick(5)
    assert net.cores["c"].log.term_at(2) == 3, "committed at a, overwritten at c"


# Changes of the configuration.


def test_thesis_4_1_the_2015_correction_no_change_before_an_entry_of_the_term() -> None:
    net = group(FIVE)
    net.down = {"d", "e"}
    leader = net.cores["a"]
    net.forget_leaders()
    leader.campaign()
    while leader.leadership is None:
        net.deliver(1)
    smaller = leader.log.configuration.without("e")
    assert leader.leadership.change(smaller) == 0
    net.deliver()
    index = leader.leadership.change(smaller)
    assert index == leader.log.last
    assert leader.log.configuration == smaller, "a change is used as soon as it is in the log"
    assert leader.leadership.change(smaller.without("d")) == 0, "one uncommitted change at a time"
    leader.leadership.replicate()
    net.deliver()
    assert leader.log.commit == index
    assert leader.leadership.change(smaller.without("d"))


def test_thesis_4_2_2_a_leader_removes_itself() -> None:
    net = group()
    leader = net.elect("a")
    net.tick()
    assert leader.leadership is not None
    assert leader.leadership.change(leader.log.configuration.without("a"))
    leader.leadership.replicate()
    net.deliver()
    assert leader.leadership is None
    leader.campaign()
    assert leader.role is Role.FOLLOWER, "who does not vote does not stand"
    net.elect("b")


def test_learners_receive_and_do_not_count() -> None:
    net = group()
    leader = net.elect("a")
    net.tick()
    assert leader.leadership is not None
    assert leader.leadership.change(leader.log.configuration.with_learner("d"))
    net.cores["d"] = core_of("d", voters=())
    leader.leadership.replicate()
    net.deliver()
    net.tick(3)
    assert net.cores["d"].log.last == leader.log.last
    for name in ("b", "c"):
        net.crash(name)
    index = propose(leader)
    net.deliver()
    assert net.cores["d"].log.last == index
    assert leader.log.commit == index - 1


# Unclean members.


def test_an_unclean_voter_neither_votes_nor_counts_until_it_is_taken_back() -> None:
    net = group()
    leader = net.elect("a")
    net.tick()
    lost = core_of("b", state=State(9, 0, "", 77))
    net.cores["b"] = lost
    lost.step("c", VoteRequest(50, 99, 99, False, True))
    assert settle(lost)[-1] == ("c", VoteReply(50, False, False))
    lost.state = State(9, leader.state.term, "", 77)
    net.crash("c")
    index = propose(leader)
    net.tick(3)
    assert lost.log.last == index
    assert leader.log.commit == index - 1
    net.restart("c")
    net.tick(4 * SETTINGS.election_ticks)
    assert leader.role is Role.LEADER
    assert leader.counters["raft-fenced"] == leader.counters["raft-readmitted"] == 1
    assert lost.state.unclean == 0
    assert leader.log.configuration.voters == ("a", "b", "c")


def test_an_unclean_member_takes_no_commit_index_from_a_heartbeat() -> None:
    """What it once acknowledged is not what it has now."""
    lost = core_of("b", 1, 2, state=State(9, 2, "", 77))
    lost.step("a", Heartbeat(3, 2, 1))
    assert lost.log.commit == 0
    assert settle(lost)[-1] == ("a", HeartbeatReply(3, 1, 77))
    intact = core_of("b", 1, 2)
    intact.step("a", Heartbeat(3, 2, 1))
    assert intact.log.commit == 2


# Snapshots and reads.


def test_section_7_who_is_too_far_behind_gets_a_snapshot_in_chunks() -> None:
    net = group()
    net.crash("c")
    leader = net.elect("a")
    for _ in range(5):
        propose(leader)
        net.deliver()
    log = leader.log
    log.applied = log.commit
    data = bytes(range(256)) * 2500
    leader.snapshot = Base(
        leader.state, log.commit, log.term_at(log.commit), log.configuration, data
    )
    log.compact(log.commit)
    net.restart("c")
    behind = net.cores["c"]
    for _ in range(20):
        net.tick()
        if behind.installing is not None:
            break
    assert behind.installing is not None
    assert behind.installing.data == data
    chunks = -(-len(data) // SETTINGS.chunk_bytes)
    assert chunks == 3
    behind.step("a", Append(leader.state.term, log.last, log.last_term, log.commit, []))
    assert behind.log.last == 0, "nothing is appended while a snapshot is made durable"
    assert behind.on_installed()
    net.tick(3)
    assert (behind.log.base, behind.log.commit) == (log.base, log.commit)
    propose(leader)
    net.deliver()
    assert behind.log.last == leader.log.last


def test_a_chunk_that_does_not_fit_is_not_taken() -> None:
    follower = core_of("b")
    for offset, total, data in ((0, 4, b"12345"), (7, 8, b"1"), (0, 1 << 60, b"1")):
        follower.step("a", SnapshotChunk(1, 9, 1, Configuration(("a",)), offset, total, data))
        assert follower.installing is None


def test_section_8_a_read_needs_a_quorum_that_still_follows() -> None:
    net = group()
    leader = net.elect("a")
    net.tick()
    assert leader.leadership is not None
    reads = leader.leadership.reads
    net.crash("b")
    net.crash("c")
    reads.add(1)
    leader.leadership.replicate()
    net.deliver()
    assert reads.confirmed(leader.log.configuration.voters, "a") == []
    net.down.clear()
    net.tick()
    assert reads.confirmed(leader.log.configuration.voters, "a") == [(1, leader.log.commit)]


# The wire.


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(1, 2, 3, True, False),
        VoteReply(1, True, False),
        Append(4, 3, 2, 1, [core_of("a", 1).log.entry(1)]),
        AppendReply(1, False, 3, 4, 1 << 48),
        Heartbeat(1, 2, 3),
        HeartbeatReply(1, 2, 0),
        SnapshotChunk(1, 2, 1, Configuration(("a", "b"), {"c": 4}), 0, 3, b"abc"),
        TimeoutNow(9),
    ],
)
def test_messages_survive_the_wire(message: object) -> None:
    assert codec.decode(codec.encode(message)) == message
