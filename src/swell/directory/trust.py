"""May a voter trust its journal? What is done before Raft takes it over.

- With one voter the journal is the only copy. Rot halts the node: a person restores a copy. After
  an error of the disk nothing acknowledged is missing, but what was written may only seem to be
  there: it is all written anew.
- In a group an unclean voter is taken back by the others, as `docs/protocols/raft.md` says.
- An empty journal in a group is that of a new cluster or of an emptied disk, which may have held
  votes and entries that others count on. It is trusted only if a majority of all voters, this one
  included, say that theirs is empty too and nobody says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from swell.directory.raft import quorum
from swell.directory.raft.membership import configuration
from swell.directory.raft.state import Base, Replay, State, encode_record
from swell.directory.raft.storage import Recovered as RaftRecovered
from swell.journal import Journal, Recovered
from swell.world import Timer, World

FOUNDING_WAIT_S = 1.0
"""How long a majority with empty logs waits for the other voters to say so too: who comes after
the first entry has to be taken in by the others."""

LOOK_S = 0.25


def is_empty(recovered: Recovered) -> bool:
    return recovered.clean and recovered.snapshot is None and not recovered.records


def is_alone(recovered: Recovered, me: str, voters: Collection[str]) -> bool:
    """Is this voter, as far as its journal tells, the only one?"""
    replay = Replay(recovered.snapshot, recovered.base, recovered.records, configuration([*voters]))
    return replay.log.configuration.voters == (me,)


def write_anew(
    journal: Journal, recovered: Recovered, first: Collection[str], done: Callable[[], None]
) -> Recovered:
    """Append all records once more, then let a snapshot take the place of the old ones. Raft reads
    the same log from both. Returns what the journal holds once `done` is called."""
    last = journal.last_index
    snapshot = recovered.snapshot
    if snapshot is None:
        snapshot = encode_record(Base(State(), 0, 0, configuration([*first]), b""))
    for record in recovered.records:
        journal.append(record)
    journal.sync(lambda: journal.snapshot(snapshot, last, lambda: journal.repaired(done)))
    return Recovered(snapshot, last, recovered.records, True, "")


class Founding:
    """What the other voters say about their logs, while ours is empty."""

    def __init__(self, me: str, voters: Collection[str]) -> None:
        self._voters = voters
        self._said = {me: True}

    def hear(self, voter: str, empty: bool) -> None:
        if voter in self._voters or not empty:
            self._said[voter] = empty

    def verdict(self, waited_s: float) -> bool | None:
        """Trusted or not; None: not known yet."""
        if not all(self._said.values()):
            return False
        if len(self._said) == len(self._voters):
            return True
        enough = quorum.is_quorum(self._voters, self._said)
        return True if enough and waited_s >= FOUNDING_WAIT_S else None


class Opening:
    """From an unread journal to one that Raft may have; `done(recovered, trusted)`, once, unless
    the node halts."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        me: str,
        voters: Collection[str],
        done: Callable[[Recovered, bool], None],
    ) -> None:
        self._world = world
        self._journal = journal
        self._me = me
        self._voters = voters
        self._done = done
        self._founding: Founding | None = None
        self._empty: Recovered | None = None
        self._since = 0.0
        self._timer: Timer | None = None

    @property
    def empty(self) -> bool:
        """Was the journal found empty, and is it not known yet what that means?"""
        return self._founding is not None

    def start(self) -> None:
        self._journal.open(self._on_read)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hear(self, voter: str, empty: bool) -> None:
        """Another voter tells whether its log is empty."""
        if self._founding is not None:
            self._founding.hear(voter, empty)
            self._look()

    def _on_read(self, recovered: Recovered) -> None:
        try:
            alone = is_alone(recovered, self._me, self._voters)
        except msgspec.DecodeError as error:
            self._world.halt(f"the directory's log is of another version: {error}")
            return
        if alone and recovered.rotten:
            self._world.halt(
                f"the directory's log is damaged ({recovered.reason}): restore it from a copy"
            )
        elif alone and not recovered.clean:
            anew = write_anew(
                self._journal, recovered, self._voters, lambda: self._done(anew, True)
            )
        elif alone or not is_empty(recovered):
            self._done(recovered, True)
        else:
            self._founding = Founding(self._me, self._voters)
            self._empty = recovered
            self._since = self._world.now()
            self._look()

    def _look(self) -> None:
        """What do the others say by now?"""
        assert self._founding is not None
        assert self._empty is not None
        self.stop()
        trusted = self._founding.verdict(self._world.now() - self._since)
        if trusted is None:
            self._timer = self._world.call_later(LOOK_S, self._look)
        else:
            self._founding = None
            self._done(self._empty, trusted)


class ReadJournal:
    """A journal that was read already, as Raft wants it."""

    def __init__(self, world: World, journal: Journal, recovered: Recovered) -> None:
        self._world = world
        self._journal = journal
        self._recovered = recovered
        self.append = journal.append
        self.sync = journal.sync
        self.snapshot = journal.snapshot
        self.repaired = journal.repaired

    @property
    def last_index(self) -> int:
        return self._journal.last_index

    def open(self, done: Callable[[RaftRecovered], None]) -> None:
        def read() -> None:
            try:
                done(self._recovered)
            except msgspec.DecodeError as error:
                self._world.halt(f"the directory's log is of another version: {error}")

        self._world.call_later(0.0, read)
