"""A group of Raft members on simulated links, a client in each, and the checkers of figure 3.

Every member's process holds a state machine (a chain of digests over the commands), a client that
proposes unique commands and reads whenever its member leads, and one link to each other member,
dialled by whoever misses it: a member that lost power leaves ends behind that notice nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import msgspec

from swell.directory.raft.driver import Machine, Raft
from swell.directory.raft.errors import RaftError
from swell.directory.raft.events import LeaderElected
from swell.directory.raft.membership import Configuration
from swell.events import Event
from swell.journal import Journal
from swell.settings import RaftSettings
from swell.simulation import Process, Simulation
from swell.wire import codec
from swell.world import Address, Link, World

REDIAL_S = 0.3
CLIENT_S = (0.01, 0.06)
PADDING_BYTES = 700

SETTINGS = RaftSettings(
    snapshot_entries=120, keep_entries=30, chunk_bytes=256, append_entries_max=16
)


class Checker:
    """The safety properties, over the whole run and all members."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.leaders: dict[int, str] = {}
        self.commands: dict[int, tuple[bytes, int]] = {}
        """Index → command applied there, and the highest term led when that was first seen."""
        self.digests: dict[int, bytes] = {}
        self.entries: dict[tuple[int, int], tuple[int, bytes]] = {}
        """(index, term) → the entry's predecessor's term, and its data."""
        self.acknowledged: dict[int, bytes] = {}
        self.floor = 0
        """A read that begins now must show at least the state of this index."""
        self.reads = 0
        self.term = 0

    def fail(self, problem: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(problem)

    def on_leader(self, name: str, term: int, raft: Raft) -> None:
        """Election safety, and leader completeness."""
        other = self.leaders.setdefault(term, name)
        if other != name:
            self.fail(f"election safety: {other} and {name} both lead term {term}")
        core = raft.core
        assert core is not None
        for index, (command, seen) in self.commands.items():
            if seen < term and index > core.log.base:
                has = index <= core.log.last and core.log.entry(index).data == command
                if not has:
                    self.fail(f"leader completeness: {name} in term {term} lacks {index}")
                    break
        self.term = max(self.term, term)

    def on_applied(self, name: str, index: int, command: bytes, digest: bytes) -> None:
        """State machine safety."""
        known, _ = self.commands.setdefault(index, (command, self.term))
        if known != command:
            self.fail(f"state machine safety: {name} applies another command at {index}")
        self.check_digest(name, index, digest)

    def check_digest(self, name: str, index: int, digest: bytes) -> None:
        if self.digests.setdefault(index, digest) != digest:
            self.fail(f"state machine safety: {name} has another state at {index}")

    def on_acknowledged(self, index: int, command: bytes) -> None:
        if self.commands.get(index, (b"", 0))[0] != command:
            self.fail(f"acknowledged {command!r} at {index}, where another command is applied")
        self.acknowledged[index] = command
        self.floor = max(self.floor, index)

    def on_read(self, name: str, floor: int, applied: int) -> None:
        self.reads += 1
        if applied < floor:
            self.fail(f"stale read: {name} shows {applied}, {floor} was acknowledged before")
        self.floor = max(self.floor, applied)

    def check_logs(self, nodes: list[RaftNode]) -> None:
        """Log matching: one predecessor and one content per (index, term), anywhere, ever."""
        for node in nodes:
            core = node.raft.core
            if core is None:
                continue
            log = core.log
            for index in range(log.base + 1, log.last + 1):
                entry = log.entry(index)
                found = (log.term_at(index - 1), entry.data)
                if self.entries.setdefault((index, entry.term), found) != found:
                    self.fail(f"log matching: {node.name} differs at {index} term {entry.term}")


class RaftNode:
    """One process."""

    def __init__(self, world: World, group: Group) -> None:
        self.world = world
        self.group = group
        self.name = world.name
        self.links: dict[str, Link] = {}
        self.dialing: set[str] = set()
        self.counters = group.counters
        self.applied = 0
        self.digest = b""
        self.proposed = 0
        self.life = world.entropy(4).hex()
        self.raft = Raft(
            world,
            self.name,
            group.first if self.name in group.first else (),
            Journal(world, "raft", segment_bytes_max=16 * 1024, counters=group.counters),
            self.send,
            Machine(self.apply, self.snapshot, self.restore),
            group.counters,
            group.settings,
            group.bugs,
        )
        world.call_later(0.0, self.redial)
        if group.load:
            world.call_later(0.0, self.ask)

    # The state machine.

    def apply(self, index: int, command: bytes) -> None:
        self.applied = index
        self.digest = hashlib.blake2b(self.digest + command, digest_size=8).digest()
        self.group.checker.on_applied(self.name, index, command, self.digest)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.applied, self.digest, bytes(PADDING_BYTES)))

    def restore(self, index: int, data: bytes) -> None:
        self.applied, self.digest, padding = msgspec.msgpack.decode(data)
        assert len(padding) == PADDING_BYTES
        assert self.applied <= index
        self.group.checker.check_digest(self.name, self.applied, self.digest)

    # The client.

    def ask(self) -> None:
        low, high = CLIENT_S
        self.world.call_later(self.world.rng.uniform(low, high), self.ask)
        if self.raft.leader != self.name:
            return
        for _ in range(self.world.rng.choice((1, 1, 2, 8))):
            self.propose()
        self.read()

    def propose(self) -> None:
        self.proposed += 1
        command = f"{self.name} {self.life} {self.proposed}".encode()

        def done(result: int | RaftError) -> None:
            if isinstance(result, RaftError):
                self.group.outcomes[result.code] += 1
            else:
                self.group.outcomes["acknowledged"] += 1
                self.group.checker.on_acknowledged(result, command)

        self.raft.propose(command, done)

    def read(self) -> None:
        floor = self.group.checker.floor

        def done(result: int | RaftError) -> None:
            if not isinstance(result, RaftError):
                self.group.checker.on_read(self.name, floor, self.applied)

        self.raft.read(done)

    # Links.

    def redial(self) -> None:
        self.world.call_later(REDIAL_S * (0.5 + self.world.rng.random()), self.redial)
        for name in self.group.names:
            if name != self.name and name not in self.links and name not in self.dialing:
                self.dialing.add(name)
                self.world.dial(Address(name, 0), name)

    def send(self, peer: str, frame: bytes) -> bool:
        link = self.links.get(peer)
        return link is not None and link.send(frame)

    def on_link_up(self, link: Link) -> None:
        self.dialing.discard(link.peer)
        older = self.links.get(link.peer)
        if older is not None:
            older.close()
        self.links[link.peer] = link
        self.raft.on_reachable(link.peer)

    def on_link_down(self, link: Link, reason: str) -> None:
        if link.dialed:
            self.dialing.discard(link.address.host)
        if self.links.get(link.peer) is link:
            del self.links[link.peer]

    def on_writable(self, link: Link) -> None:
        self.raft.on_reachable(link.peer)

    def on_frame(self, link: Link, frame: bytes) -> None:
        if self.links.get(link.peer) is link:
            self.raft.on_message(link.peer, codec.decode(frame))

    def stop(self) -> None:
        self.raft.stop()


class Group:
    """Members n1 … n`size`, of which the first `voters` vote at the beginning."""

    def __init__(
        self,
        seed: int,
        size: int,
        voters: int = 0,
        bugs: frozenset[str] = frozenset(),
        settings: RaftSettings = SETTINGS,
        load: bool = True,
    ) -> None:
        self.names = [f"n{number}" for number in range(1, size + 1)]
        self.first = self.names[: voters or size]
        self.bugs = bugs
        self.settings = settings
        self.load = load
        self.counters: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.checker = Checker()
        self.simulation = Simulation(seed)
        self.simulation.on_event(self._on_event)
        for name in self.names:
            self.simulation.add(name, "site", self._make)
        for process in self.processes:
            process.start()
        self._check_logs()

    def _make(self, world: World) -> RaftNode:
        return RaftNode(world, self)

    @property
    def processes(self) -> list[Process]:
        return list(self.simulation.processes.values())

    @property
    def nodes(self) -> list[RaftNode]:
        """Those that run."""
        return [p.node for p in self.processes if isinstance(p.node, RaftNode)]

    def leader(self) -> RaftNode | None:
        """The member that leads the highest term, if any runs."""
        leading = [
            (node.raft.core.state.term, node)
            for node in self.nodes
            if node.raft.core is not None and node.raft.core.leadership is not None
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, LeaderElected):
            node = self.simulation.processes[process].node
            assert isinstance(node, RaftNode)
            self.checker.on_leader(process, event.term, node.raft)

    def _check_logs(self) -> None:
        self.checker.check_logs(self.nodes)
        self.simulation.call_later(0.5, self._check_logs)

    def agree(self, beyond: int, voters: list[str]) -> bool:
        """Does everybody run, vote and have applied something behind `beyond`?"""
        nodes = self.nodes
        return len(nodes) == len(self.names) and all(
            node.applied > beyond
            and list(node.raft.configuration.voters) == voters
            and node.raft.core is not None
            and not node.raft.core.state.unclean
            for node in nodes
            if node.name in voters
        )

    def change(self, alter: Callable[[Configuration], Configuration], within_s: float) -> bool:
        """Ask the leader for a change until it is done."""
        outcome: list[int] = []

        def attempt() -> None:
            leader = self.leader()
            if outcome or leader is None:
                return
            assert leader.raft.core is not None
            log = leader.raft.core.log
            new = alter(log.configuration)
            if new == log.configuration:
                # Of a try whose outcome was unknown; it counts once it is committed.
                outcome.extend([log.commit] if log.configuration_index <= log.commit else [])
                return
            leader.raft.change(new, lambda r: outcome.append(r) if isinstance(r, int) else None)

        def changed() -> bool:
            attempt()
            return bool(outcome)

        return self.simulation.run_until_true(changed, within_s, every_s=0.2)
