"""Changing the voters by command, one at a time, at the leader.

A voter that is added is a learner first, so that it counts only when it has caught up. One that
began with an empty disk says so by its token of loss and is made a learner under that token; then
Raft itself makes it a voter (docs/protocols/raft.md). Nothing is lost by a change that stays half
done: the next command goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from swell.directory.messages import GroupMember, Voter
from swell.directory.proposals import Outcomes
from swell.directory.raft.driver import Raft
from swell.directory.raft.errors import CHANGE_PENDING, RaftError
from swell.directory.raft.membership import VOTERS_MAX, Configuration
from swell.directory.records import Record, VoterAt
from swell.errors import InvalidNameError, SwellError, UnavailableError
from swell.ids import check_name
from swell.world import Address, Timer, World

STEP_S = 0.2
CHANGE_S_MAX = 20.0
"""A voter that has not caught up by then is taken out again."""

Propose = Callable[[Sequence[Record], Callable[[Outcomes], None]], None]


class GroupError(SwellError):
    """The voters cannot be changed like that; the sentence says why."""


class GroupChange:
    """One command under way; `done` gets None when it is carried out, or the error."""

    def __init__(
        self,
        world: World,
        raft: Raft,
        propose: Propose,
        add: bool,
        voter: Voter,
        done: Callable[[SwellError | None], None],
    ) -> None:
        self._world = world
        self._raft = raft
        self._propose = propose
        self._add = add
        self._voter = voter
        self._done: Callable[[SwellError | None], None] | None = done
        self._due_at = world.now() + CHANGE_S_MAX
        self._timer: Timer | None = None

    @property
    def over(self) -> bool:
        return self._done is None

    def start(self) -> None:
        """Write the address down first: whoever dials the new voter needs it."""
        now = self._raft.configuration
        name = self._voter.name
        if self.over:
            return
        try:
            check_name(name, "voter")
        except InvalidNameError as error:
            self._finish(error)
            return
        if self._add and len(now.members) >= VOTERS_MAX and name not in now.members:
            self._finish(GroupError(f"there are {len(now.members)} voters, at most {VOTERS_MAX}"))
        elif not self._add and now.voters == (name,):
            self._finish(GroupError(f"{name} is the only voter: add another one first"))
        elif not self._add and name not in now.members:
            self._finish(GroupError(f"{name} is not a voter: they are {', '.join(now.voters)}"))
        elif self._add:
            record = VoterAt(name, self._voter.host, self._voter.port)
            self._propose([record], lambda outcomes: self._step() if outcomes else self.stop())
        else:
            self._step()

    def stop(self) -> None:
        """Leadership is over."""
        self._finish(UnavailableError("the directory's leader changed meanwhile: look and repeat"))

    def _finish(self, error: SwellError | None) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        if done is not None:
            done(error)

    def _step(self) -> None:
        """Do what is next, and look again later."""
        if self.over:
            return
        self._timer = self._world.call_later(STEP_S, self._step)
        now, name = self._raft.configuration, self._voter.name
        core = self._raft.core
        assert core is not None
        if core.leadership is None or core.leadership.change_pending:
            return
        if (name in now.voters) if self._add else (name not in now.members):
            self._finish(None)
        elif not self._add:
            self._change(now.without(name))
        elif self._world.now() > self._due_at:
            self._change(now.without(name))
            self._finish(
                UnavailableError(
                    f"{name} did not catch up: is it running at {self._voter.address}, with "
                    "--directory naming it and the other voters?"
                )
            )
        elif name not in now.learners:
            self._change(now.with_learner(name))
        elif not now.learners[name]:
            progress = core.leadership.progress[name]
            if progress.unclean:
                self._change(now.with_learner(name, progress.unclean))
            elif progress.match >= core.log.commit:
                self._change(now.with_voter(name))

    def _change(self, new: Configuration) -> None:
        def done(result: int | RaftError) -> None:
            if isinstance(result, RaftError) and result.code != CHANGE_PENDING:
                self._finish(result)
            elif not isinstance(result, RaftError) and not self._add:
                self._finish(None)  # at once: it may be this voter that was removed

        self._raft.change(new, done)


def describe(
    raft: Raft, addresses: Mapping[str, Address | None], up: Sequence[str]
) -> list[GroupMember]:
    """The members as the leader sees them."""
    core = raft.core
    if core is None:
        return []
    found = []
    for name in core.log.configuration.members:
        progress = None if core.leadership is None else core.leadership.progress.get(name)
        log = core.log.last if name == raft.me else 0 if progress is None else progress.match
        learner = name in core.log.configuration.learners
        host, port = addresses.get(name) or Address("", 0)
        found.append(
            GroupMember(
                Voter(name, host, port),
                "learner" if learner else "voter",
                log,
                name == raft.me or name in up,
            )
        )
    return found
