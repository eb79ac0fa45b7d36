"""The pure parts of Raft: quorum arithmetic, the log, configurations, records of the journal."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.directory.raft import quorum
from swell.directory.raft.errors import RaftError
from swell.directory.raft.log import Entry, Kind, Log
from swell.directory.raft.membership import (
    Configuration,
    configuration,
    encode_configuration,
    is_single_change,
)
from swell.directory.raft.outcomes import Outcomes
from swell.directory.raft.progress import Phase, Progress
from swell.directory.raft.quorum import Poll
from swell.directory.raft.reads import Reads
from swell.directory.raft.state import Base, Replay, State, Stored, encode_record
from swell.settings import RaftSettings
from tests.unit.raft_toys import log_of

NAMES = "abcdefghi"


# Quorums.


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 5)])
def test_majorities(size: int, needed: int) -> None:
    assert quorum.majority(NAMES[:size]) == needed
    assert quorum.is_quorum(NAMES[:size], NAMES[:needed])
    assert not quorum.is_quorum(NAMES[:size], NAMES[1:needed])


def test_nobody_is_no_quorum() -> None:
    assert not quorum.is_quorum((), ("a",))
    assert quorum.poll((), {"a": True}) is not Poll.WON
    assert quorum.reached((), {"a": 7}) == 0


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)), st.integers(1, 9))
def test_reached_is_the_highest_value_of_a_majority(values: dict[str, int], size: int) -> None:
    voters = NAMES[:size]
    index = quorum.reached(voters, values)

    def holders(least: int) -> int:
        return sum(values.get(name, 0) >= least for name in voters)

    assert holders(index) >= quorum.majority(voters)
    assert holders(index + 1) < quorum.majority(voters)


@pytest.mark.parametrize(
    ("votes", "result"),
    [
        ({}, Poll.OPEN),
        ({"a": True}, Poll.OPEN),
        ({"a": True, "b": True}, Poll.WON),
        ({"a": True, "b": False}, Poll.OPEN),
        ({"b": False, "c": False}, Poll.LOST),
        ({"a": True, "x": True, "y": True}, Poll.OPEN),
    ],
)
def test_polls_count_voters_only(votes: dict[str, bool], result: Poll) -> None:
    assert quorum.poll("abc", votes) is result


# Configurations (thesis 4.1).


def test_thesis_4_1_majorities_of_neighbouring_configurations_overlap() -> None:
    for size in range(1, 8):
        old, new = configuration(list(NAMES[:size])), configuration(list(NAMES[: size + 1]))
        assert is_single_change(old, new)
        assert is_single_change(new, old)
        for one in combinations(old.voters, quorum.majority(old.voters)):
            for other in combinations(new.voters, quorum.majority(new.voters)):
                assert set(one) & set(other)


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        (Configuration(("a", "b", "c")), False),
        (Configuration(("a", "b", "d")), False),
        (Configuration(("a",)), False),
        (Configuration(()), False),
        (Configuration(("a", "b", "c", "d")), True),
        (Configuration(("a", "b"), {"c": 7}), True),
        (Configuration(("a", "b", "c"), {"d": 0}), True),
        (Configuration(("a", "b", "c"), {"c": 0}), False),
    ],
)
def test_one_server_at_a_time(new: Configuration, allowed: bool) -> None:
    assert is_single_change(Configuration(("a", "b", "c")), new) is allowed


def test_roles_exclude_each_other() -> None:
    three = configuration(["c", "a", "b"])
    assert three.voters == ("a", "b", "c")
    demoted = three.with_learner("b", 5)
    assert demoted == Configuration(("a", "c"), {"b": 5})
    assert demoted.members == ("a", "c", "b")
    assert demoted.with_voter("b") == three


# The log.


@pytest.mark.parametrize(
    ("ours", "theirs", "behind"),
    [
        ((1, 1, 2), (2, 3), False),
        ((1, 1, 2), (2, 4), False),
        ((1, 1, 2), (2, 2), True),
        ((1, 1, 2), (1, 9), True),
        ((1, 1, 2), (3, 1), False),
        ((), (0, 0), False),
    ],
)
def test_section_5_4_1_the_later_term_is_newer_then_the_longer_log(
    ours: tuple[int, ...], theirs: tuple[int, int], behind: bool
) -> None:
    assert log_of(*ours).is_behind(*theirs) is behind


def test_section_5_3_conflicts_are_cut_and_agreement_is_not() -> None:
    log = log_of(1, 1, 2, 2)
    leader = log_of(1, 1, 3)
    log.merge(1, [leader.entry(2)])
    assert log.last == 4, "an old message that agrees cuts nothing"
    log.merge(1, [leader.entry(2), leader.entry(3)])
    assert [log.term_at(index) for index in (1, 2, 3, 4)] == [1, 1, 3, -1]
    assert log.take_unsaved() == [(3, leader.entry(3))]


def test_committed_entries_are_never_cut() -> None:
    log = log_of(1, 1)
    log.commit_to(2)
    with pytest.raises(AssertionError, match="below the commit"):
        log.merge(1, [Entry(2, Kind.COMMAND, b"")])


def test_section_5_3_a_refusal_skips_a_term() -> None:
    log = log_of(1, 1, 2, 2, 2)
    assert log.conflict_hint(9) == 5
    assert log.conflict_hint(5) == 2
    assert log.conflict_hint(1) == 0


def test_configurations_follow_the_log() -> None:
    log = log_of(1)
    changed = Configuration(("a", "b"))
    log.append(Entry(1, Kind.CONFIGURATION, encode_configuration(changed)))
    assert (log.configuration, log.configuration_index) == (changed, 2)
    assert log.configuration_at(1).voters == ("a", "b", "c")
    log.cut(1)
    assert log.configuration.voters == ("a", "b", "c"), "a change that is cut is undone"


def test_section_7_compaction_keeps_term_and_configuration() -> None:
    log = log_of(1, 1, 2)
    changed = Configuration(("a", "b"))
    log.append(Entry(2, Kind.CONFIGURATION, encode_configuration(changed)))
    log.append(Entry(3, Kind.COMMAND, b"x"))
    log.commit_to(4)
    log.applied = 4
    log.compact(4)
    assert (log.base, log.base_term, log.last, log.term_at(3)) == (4, 2, 5, -1)
    assert log.configuration == changed


@pytest.mark.parametrize(("term", "last"), [(2, 4), (3, 3)])
def test_section_7_a_snapshot_keeps_what_follows_only_if_it_agrees(term: int, last: int) -> None:
    log = log_of(1, 1, 2, 2)
    log.restore(3, term, Configuration(("a",)))
    assert (log.base, log.commit, log.last) == (3, 3, last)
    assert log.configuration.voters == ("a",)


@given(st.integers(1, 100), st.integers(1, 20))
def test_slices_are_bounded_and_never_empty(bytes_max: int, entries_max: int) -> None:
    log = log_of(*range(1, 12))
    chosen = log.slice(3, bytes_max, entries_max)
    assert 1 <= len(chosen) <= min(entries_max, 9)
    assert chosen[0] == log.entry(3)
    assert log.slice(12, bytes_max, entries_max) == []


# The journal's records.

FIRST = Configuration(("a", "b", "c"))


def stored(index: int, term: int) -> bytes:
    return encode_record(Stored(index, Entry(term, Kind.COMMAND, b"")))


def test_an_entry_at_a_known_index_stands_for_a_cut() -> None:
    records = [stored(1, 1), stored(2, 1), stored(3, 1), stored(2, 2)]
    replay = Replay(None, 0, records, FIRST)
    assert (replay.log.last, replay.log.last_term, replay.state.term) == (2, 2, 2)
    assert replay.positions[2] == 4
    assert replay.log.take_unsaved() == []


def test_the_state_with_the_highest_number_counts() -> None:
    """A snapshot's state may be newer than records that follow it."""
    newest = State(9, 4, "b", 0)
    base = encode_record(Base(newest, 5, 2, FIRST, b"data"))
    records = [encode_record(State(8, 4, "", 7)), stored(6, 3)]
    replay = Replay(base, 10, records, FIRST)
    assert replay.state == newest
    assert (replay.log.base, replay.log.last, replay.positions) == (5, 6, {6: 12})


@pytest.mark.parametrize(
    ("snapshot", "base", "records", "gap"),
    [
        (None, 0, [stored(1, 1), stored(3, 1)], True),
        (None, 7, [stored(8, 1)], True),
        (None, 0, [stored(1, 1), stored(2, 1)], False),
    ],
)
def test_missing_records_are_noticed(
    snapshot: bytes | None, base: int, records: list[bytes], gap: bool
) -> None:
    assert Replay(snapshot, base, records, FIRST).gap is gap


# Progress, reads, outcomes.


def test_progress_probes_then_streams_then_probes_again() -> None:
    progress = Progress(10)
    assert progress.may_send(2)
    progress.sent(11)
    assert not progress.may_send(2), "one probe at a time"
    assert progress.refused(10, 4, False)
    assert (progress.next, progress.may_send(2)) == (5, True)
    progress.acknowledged(4)
    assert progress.phase is Phase.REPLICATE
    progress.sent(5)
    progress.sent(6)
    assert not progress.may_send(2), "the window is full"
    assert [progress.expire_heartbeat() for _ in range(3)] == [False, False, True]
    assert (progress.phase, progress.next) == (Phase.PROBE, 5)


def test_old_refusals_are_ignored_unless_the_member_lost_something() -> None:
    progress = Progress(0)
    progress.acknowledged(8)
    assert not progress.refused(7, 3, unclean=False)
    assert progress.refused(8, 3, unclean=True)
    assert (progress.match, progress.next) == (3, 4)
    progress.unclean = 5
    assert progress.counted == 0


def test_reads_wait_for_a_round_that_began_after_them() -> None:
    reads = Reads()
    reads.begin_round(3)
    reads.add(1)
    reads.answered("b", 1)
    assert reads.confirmed("abc", "a") == []
    reads.begin_round(4)
    reads.add(2)
    assert reads.confirmed("abc", "a") == []
    reads.answered("x", 2)
    assert reads.confirmed("abc", "a") == [], "who does not vote confirms nothing"
    reads.answered("c", 2)
    assert reads.confirmed("abc", "a") == [(1, 4)]
    reads.begin_round(5)
    assert reads.confirmed("a", "a") == [(2, 5)]


def test_every_outcome_is_told_once() -> None:
    outcomes = Outcomes(RaftSettings(proposals_max=3, reads_max=1))
    told: list[int | str] = []

    def done(result: int | RaftError) -> None:
        told.append(result if isinstance(result, int) else result.code)

    for index in (1, 2, 3):
        outcomes.expect(index, 7, done)
    assert outcomes.proposals_full
    outcomes.applied(1, 7)
    outcomes.applied(2, 8)
    outcomes.confirm(outcomes.expect_read(done), 4)
    assert outcomes.reads_full
    outcomes.release_reads(3)
    assert told == [1, "lost"]
    outcomes.release_reads(4)
    outcomes.fail(RaftError("outcome-unknown"))
    outcomes.fail(RaftError("stopped"))
    assert told == [1, "lost", 4, "outcome-unknown"]


def test_a_log_begins_with_its_configuration() -> None:
    log = Log(0, 0, FIRST)
    assert (log.last, log.last_term, log.configuration) == (0, 0, FIRST)
