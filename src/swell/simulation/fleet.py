"""A simulated cluster: real nodes of `swell.node` in a `Simulation`, and how to look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from swell.directory.messages import Voter
from swell.node import Node, NodeConfig
from swell.overlay.overlay import Overlay
from swell.overlay.sessions import Session
from swell.settings import Settings
from swell.simulation.link import SimLink
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.world import Address, World

CLUSTER = "simulated"


def purpose(link: SimLink) -> str:
    """What a link between nodes is for: the kind of its session."""
    return link.session.kind.name if isinstance(link.session, Session) else ""


class Fleet:
    """Nodes by name; the first `voters` of them host the directory, and start when all of them
    are known."""

    def __init__(
        self,
        simulation: Simulation,
        settings: Settings,
        bugs: frozenset[str] = frozenset(),
        voters: int = 1,
    ) -> None:
        self.simulation = simulation
        self.settings = settings
        self.bugs = bugs
        self._voters = voters
        self.processes: dict[str, Process] = {}
        self.on_start: Callable[[Node], None] = lambda node: None
        simulation.network.purpose = purpose

    @property
    def voter(self) -> str:
        """The first voter."""
        return next(iter(self.processes))

    @property
    def voters(self) -> list[str]:
        return list(self.processes)[: self._voters]

    def leader(self) -> Node | None:
        """The voter that serves the directory, if one does."""
        nodes = (self.node(name) for name in self.voters)
        leading = [
            n for n in nodes if n is not None and n.service is not None and n.service.leading
        ]
        return max(leading, key=_term) if leading else None

    def add(
        self,
        name: str,
        site: str,
        rack: str = "",
        region: str = "",
        voters: Sequence[str] | None = None,
    ) -> Process:
        """Add a node and start it; `voters` is what it is told, if not what all others are."""

        def factory(world: World) -> Node:
            config = NodeConfig(
                name=name,
                cluster=CLUSTER,
                site=site,
                rack=rack,
                region=region,
                address=Address(name, 0),
                voters=tuple(Voter(voter, voter, 0) for voter in voters or self.voters),
                epoch=process.counted_starts,
                uid=name,
                settings=self.settings,
                bugs=self.bugs,
            )
            node = Node(world, config)
            self.on_start(node)
            node.start()
            return node

        process = self.simulation.add(name, site, factory, rack=rack)
        self.processes[name] = process
        if len(self.processes) > self._voters:
            process.start()
        elif len(self.processes) == self._voters:
            for voter in self.voters:
                self.processes[voter].start()
        return process

    def node(self, name: str) -> Node | None:
        node = self.processes[name].node
        return node if isinstance(node, Node) else None

    def living(self) -> list[Overlay]:
        """The overlays of all running nodes that have joined."""
        nodes = (self.node(name) for name in self.processes)
        return [node.overlay for node in nodes if node is not None and node.overlay is not None]

    def joined(self) -> bool:
        return len(self.living()) == sum(1 for p in self.processes.values() if p.alive)

    def zones(self) -> dict[int, list[Overlay]]:
        """Zone → its living nodes, by id."""
        zones: dict[int, list[Overlay]] = {}
        for overlay in sorted(self.living(), key=lambda o: o.me.id):
            zones.setdefault(overlay.me.zone, []).append(overlay)
        return zones

    def counter(self, name: str) -> int:
        """Sum of one counter over all running nodes."""
        nodes = (self.node(n) for n in self.processes)
        return sum(node.counters[name] for node in nodes if node is not None)

    def crash(self, names: Iterable[str], power: bool = False) -> None:
        for name in names:
            self.processes[name].crash(power)


def _term(node: Node) -> int:
    assert node.service is not None
    assert node.service.raft is not None
    return node.service.raft.led_term
