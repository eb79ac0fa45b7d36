"""A simulated cluster: real nodes of `swell.node` in a `Simulation`, and how to look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swell.node import Node, NodeConfig
from swell.overlay.overlay import Overlay
from swell.settings import Settings
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.world import Address, World

CLUSTER = "simulated"


class Fleet:
    """Nodes by name; the first one added hosts the directory."""

    def __init__(
        self,
        simulation: Simulation,
        settings: Settings,
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self.simulation = simulation
        self.settings = settings
        self.bugs = bugs
        self.processes: dict[str, Process] = {}
        self.on_start: Callable[[Node], None] = lambda node: None

    @property
    def voter(self) -> str:
        return next(iter(self.processes))

    def add(self, name: str, site: str, rack: str = "", region: str = "") -> Process:
        """Add a node and start it."""
        voter = not self.processes

        def factory(world: World) -> Node:
            config = NodeConfig(
                name=name,
                cluster=CLUSTER,
                site=site,
                rack=rack,
                region=region,
                address=Address(name, 0),
                directory=(Address(self.voter, 0),),
                epoch=process.starts,
                uid=name,
                voter=voter,
                settings=self.settings,
                bugs=self.bugs,
            )
            node = Node(world, config)
            self.on_start(node)
            node.start()
            return node

        process = self.simulation.add(name, site, factory, rack=rack)
        self.processes[name] = process
        process.start()
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
