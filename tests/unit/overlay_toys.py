"""Small simulated clusters, and a peer that says whatever a test wants it to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swell.node import Node
from swell.overlay.contact import Contact
from swell.overlay.messages import Hello, LinkKind
from swell.overlay.overlay import Overlay
from swell.overlay.routed import Routed
from swell.settings import DirectorySettings, OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.topology import problems
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.wire import codec
from swell.world import Address, Link, Plane, World

PORT = 20


class Cluster(Fleet):
    """A fleet whose nodes keep what they are sent on `PORT`."""

    def __init__(
        self,
        seed: int = 1,
        connections: int = 4,
        bugs: tuple[str, ...] = (),
        voters: int = 1,
        **settings: Any,
    ) -> None:
        directory = {k: settings.pop(k) for k in list(settings) if hasattr(DirectorySettings(), k)}
        super().__init__(
            Simulation(seed),
            Settings(
                overlay=OverlaySettings(
                    connections=connections, **{"report_interval_s": 2.0, **settings}
                ),
                directory=DirectorySettings(**directory),
                store=StoreSettings(slots=0),
            ),
            frozenset(bugs),
            voters,
        )
        self.got: dict[str, list[bytes]] = {}
        self.on_start = self._listen

    def _listen(self, node: Node) -> None:
        def joined() -> None:
            assert node.overlay is not None
            node.overlay.multicast.listen(PORT, lambda message: self._keep(node, message))

        node.on_joined = joined

    def _keep(self, node: Node, message: Routed) -> None:
        self.got.setdefault(node.config.name, []).append(message.payload)

    def build(self, *sizes: int) -> Cluster:
        """Sites `a`, `b`, ... with so many nodes each, all at once; run until settled."""
        for site, size in zip("abcdefgh", sizes, strict=False):
            for k in range(1, size + 1):
                self.add(f"{site}{k}", site, rack=f"r{k}")
        return self.settle()

    def settle(self, within_s: float = 60.0) -> Cluster:
        settled = self.simulation.run_until_true(lambda: not problems(self), within_s, 0.5)
        assert settled, problems(self)
        return self

    def overlay(self, name: str) -> Overlay:
        node = self.node(name)
        assert node is not None
        assert node.overlay is not None
        return node.overlay

    def holder(self, zone: int, other: int) -> Overlay:
        """The node of `zone` that holds the link to `other`."""
        (holder,) = [o for o in self.zones()[zone] if other in o.zonelinks.mine]
        return holder

    def contact(self, name: str) -> Contact:
        return self.overlay(name).me

    def run(self, duration_s: float) -> None:
        self.simulation.run_for(duration_s)


class Peer:
    """A process that dials a node, says hello as it likes, and sends what it is given."""

    def __init__(self, simulation: Simulation, name: str, target: str, identity: str = "") -> None:
        self.simulation = simulation
        self.heard: list[Any] = []
        self.ended = ""
        self._hello: bytes = b""
        self.link: Link
        self.world: World
        simulation.add(name, "elsewhere", self._factory, identity=identity).start()
        simulation.run_for(0.001)
        self.target = target

    def _factory(self, world: World) -> Peer:
        self.world = world
        return self

    def connect(
        self, kind: int, contact: Contact, cluster: str = CLUSTER, host: str = ""
    ) -> list[Any]:
        """Dial and say hello; returns what came back."""
        self._hello = codec.encode(Hello(cluster, kind, contact))
        self.heard.clear()
        self.ended = ""
        self.link = self.world.dial(Address(host or self.target, 0))
        self.simulation.run_for(0.3)
        return self.heard

    def say(self, *values: Any, plane: Plane = Plane.CONTROL) -> list[Any]:
        """Send messages or whole frames; returns what came back since."""
        self.heard.clear()
        for value in values:
            frame = value if isinstance(value, bytes) else codec.encode(value)
            self.link.send(frame, plane)
        self.simulation.run_for(0.3)
        return self.heard

    def on_link_up(self, link: Link) -> None:
        link.send(self._hello)

    def on_link_down(self, link: Link, reason: str) -> None:
        self.ended = reason

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        if link.dialed:
            self.heard.append(codec.decode(frame) if codec.known(frame[4]) else frame)

    def stop(self) -> None: ...


def contact(
    node: int, zone: int, name: str = "", site: str = "x", epoch: int = 1, rack: str = ""
) -> Contact:
    name = name or f"n{node}"
    return Contact(node, name, site, rack, zone, name, 0, epoch)


def member_peer(cluster: Cluster, kind: LinkKind, zone: int, node: int = 900) -> Peer:
    """A peer that has shaken hands with `a1` as a node of this zone."""
    peer = Peer(cluster.simulation, f"peer{len(cluster.simulation.processes)}", "a1")
    peer.connect(kind, contact(node, zone, peer.world.name))
    return peer


def wait(cluster: Cluster, predicate: Callable[[], bool], within_s: float = 30.0) -> None:
    assert cluster.simulation.run_until_true(predicate, within_s, 0.05)
