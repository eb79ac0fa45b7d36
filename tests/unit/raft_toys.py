"""A network of pure cores in memory: every write is durable at once, messages wait to be delivered
by the test."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from swell.directory.raft.core import Core, Role
from swell.directory.raft.log import Entry, Kind, Log
from swell.directory.raft.membership import Configuration
from swell.directory.raft.messages import RaftMessage
from swell.directory.raft.state import State
from swell.settings import RaftSettings

SETTINGS = RaftSettings(append_entries_max=1, inflight_max=1)


def log_of(*terms: int, voters: tuple[str, ...] = ("a", "b", "c")) -> Log:
    """A log whose entries have these terms."""
    log = Log(0, 0, Configuration(voters))
    for index, term in enumerate(terms, start=1):
        log.append(Entry(term, Kind.COMMAND, b"%d/%d" % (index, term)))
    log.unsaved = log.last + 1
    return log


def core_of(
    name: str,
    *terms: int,
    voters: tuple[str, ...] = ("a", "b", "c"),
    state: State | None = None,
    bugs: frozenset[str] = frozenset(),
) -> Core:
    log = log_of(*terms, voters=voters)
    state = state or State(1, log.last_term, "", 0)
    return Core(name, log, state, SETTINGS, Random(name), Counter(), bugs)


def settle(core: Core) -> list[tuple[str, RaftMessage]]:
    """Make everything durable; what the core sends."""
    core.log.take_unsaved()
    core.state_dirty = False
    core.on_durable(core.state.term, core.log.last)
    core.log.take_unsaved()
    core.state_dirty = False
    outbox, core.outbox = core.outbox, []
    return [(item.peer, item.message) for item in outbox]


class Net:
    """Cores by name, and what is on its way between them."""

    def __init__(self, *cores: Core) -> None:
        self.cores = {core.me: core for core in cores}
        self.queue: deque[tuple[str, str, RaftMessage]] = deque()
        self.down: set[str] = set()

    def collect(self) -> None:
        for name, core in self.cores.items():
            for peer, message in settle(core):
                if not {name, peer} & self.down:
                    self.queue.append((name, peer, message))

    def deliver(self, messages_max: int = 10_000) -> None:
        """Until nothing is on its way, or so many messages arrived."""
        self.collect()
        while self.queue and messages_max:
            messages_max -= 1
            sender, receiver, message = self.queue.popleft()
            if not {sender, receiver} & self.down:
                self.cores[receiver].step(sender, message)
                self.collect()

    def elect(self, name: str) -> Core:
        """Let `name` campaign until it leads."""
        core = self.cores[name]
        for _ in range(10):
            self.forget_leaders()
            core.campaign()
            self.deliver()
            if core.role is Role.LEADER:
                return core
        raise AssertionError(f"{name} is not elected")

    def forget_leaders(self) -> None:
        """An election time-out without a word from the leader."""
        for name, core in self.cores.items():
            if name not in self.down and core.role is not Role.LEADER:
                core.step_down()

    def crash(self, name: str) -> None:
        """All but what is durable is gone; `restart` brings it back."""
        self.down.add(name)
        self.queue = deque(item for item in self.queue if name not in item[:2])

    def restart(self, name: str) -> None:
        old = self.cores[name]
        log = Log(0, 0, old.log.configuration_at(0))
        for index in range(1, old.log.last + 1):
            log.append(old.log.entry(index))
        log.unsaved = log.last + 1
        self.cores[name] = Core(
            name, log, old.state, old.settings, Random(name), old.counters, old.bugs
        )
        self.down.discard(name)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for name, core in self.cores.items():
                if name not in self.down:
                    core.tick()
            self.deliver()
