"""The driver: errors, bounds, group commit, and what survives."""

from __future__ import annotations

from swell.directory.raft import errors
from swell.directory.raft.errors import RaftError
from swell.settings import RaftSettings
from tests.simulation.raft_group import Group, RaftNode

QUIET = RaftSettings(tick_s=0.01, proposals_max=100, reads_max=4, command_bytes_max=1000)


def elected(size: int, settings: RaftSettings = QUIET) -> tuple[Group, RaftNode]:
    group = Group(7, size, settings=settings, load=False)
    assert group.simulation.run_until_true(lambda: group.leader() is not None, 10.0, 0.01)
    leader = group.leader()
    assert leader is not None
    return group, leader


class Answers(list[object]):
    """Codes of errors, and indexes."""

    def take(self, result: int | RaftError) -> None:
        self.append(result.code if isinstance(result, RaftError) else result)


def test_only_the_leader_answers_and_others_name_it() -> None:
    group, leader = elected(3)
    group.simulation.run_for(0.1)
    follower = next(node for node in group.nodes if node is not leader)
    said: list[RaftError | int] = []
    follower.raft.propose(b"x", said.append)
    follower.raft.read(said.append)
    follower.raft.change(follower.raft.configuration.with_learner("n9"), said.append)
    assert said == [], "never inside the call"
    group.simulation.run_for(0.01)
    assert len(said) == 3
    for error in said:
        assert isinstance(error, RaftError)
        assert (error.code, error.leader) == (errors.NOT_LEADER, leader.name)
        assert leader.name in str(error)


def test_before_the_journal_is_read_and_after_the_stop() -> None:
    group = Group(7, 1, settings=QUIET, load=False)
    answers = Answers()
    node = group.nodes[0]
    node.raft.propose(b"x", answers.take)
    group.simulation.run_for(0.5)
    node.raft.propose(b"y", answers.take)
    node.raft.stop()
    node.raft.read(answers.take)
    group.simulation.run_for(0.1)
    assert answers == [errors.STARTING, errors.STOPPED, errors.STOPPED]


def test_many_proposals_share_a_sync() -> None:
    group, leader = elected(3)
    group.simulation.run_for(0.1)
    before = group.counters["raft-syncs"]
    answers = Answers()
    for number in range(100):
        leader.raft.propose(b"%d" % number, answers.take)
    group.simulation.run_for(0.2)
    first = answers[0]
    assert isinstance(first, int)
    assert answers == list(range(first, first + 100))
    assert group.counters["raft-syncs"] - before <= 6, "one or two for each of three members"


def test_queues_and_commands_are_bounded() -> None:
    group, leader = elected(3)
    group.simulation.run_for(0.1)
    answers = Answers()
    leader.raft.propose(bytes(1001), answers.take)
    for _ in range(101):
        leader.raft.propose(bytes(1000), answers.take)
    for _ in range(5):
        leader.raft.read(answers.take)
    group.simulation.run_for(0.5)
    assert answers[:3] == [errors.TOO_LONG, errors.BUSY, errors.BUSY]
    assert len(answers) == 107
    assert all(isinstance(answer, int) for answer in answers[3:])
    assert group.counters["raft-busy"] == 2


def test_changes_are_refused_with_their_reason() -> None:
    group, leader = elected(3)
    group.simulation.run_for(0.1)
    answers = Answers()
    now = leader.raft.configuration
    leader.raft.change(now.without("n1").without("n2"), answers.take)
    group.simulation.run_for(0.01)
    leader.raft.change(now.with_learner("n8"), answers.take)
    leader.raft.change(now.with_learner("n9"), answers.take)
    group.simulation.run_for(0.5)
    assert answers[:2] == [errors.INVALID_CHANGE, errors.CHANGE_PENDING]
    assert isinstance(answers[2], int)
    assert all(node.raft.configuration.learners == {"n8": 0} for node in group.nodes)


def test_one_voter_alone_keeps_its_word_through_a_power_loss() -> None:
    group, leader = elected(1)
    answers = Answers()
    for number in range(20):
        leader.raft.propose(b"%d" % number, answers.take)
    leader.raft.read(answers.take)
    assert group.simulation.run_until_true(lambda: len(answers) == 21, 1.0, 0.001)
    digest, applied = leader.digest, leader.applied
    process = group.processes[0]
    process.crash(power=True)
    process.start()
    assert group.simulation.run_until_true(
        lambda: bool(group.nodes) and group.nodes[0].applied == applied, 2.0
    )
    assert group.nodes[0].digest == digest
    assert group.checker.problems == []


def test_one_unclean_voter_alone_serves_nothing() -> None:
    group, leader = elected(1)
    answers = Answers()
    leader.raft.propose(b"x", answers.take)
    group.simulation.run_for(0.1)
    process = group.processes[0]
    process.crash()
    assert process.disk.flip_bit()
    process.start()
    group.simulation.run_for(2.0)
    assert group.counters["raft-unclean"] == 1
    assert group.leader() is None
    group.nodes[0].raft.propose(b"y", answers.take)
    group.simulation.run_for(0.1)
    assert answers[1:] == [errors.NOT_LEADER]
