"""Small nodes that the tests of the simulation run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swell.errors import WireError
from swell.simulation import Process, Simulation
from swell.world import Address, Link, World


class Recorder:
    """Writes down what it is told; frames `bad` and `bug` make it raise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[Any] = []
        self.links: dict[str, Link] = {}

    def on_link_up(self, link: Link) -> None:
        self.links[link.peer] = link
        self.log.append(("up", link.peer))

    def on_link_down(self, link: Link, reason: str) -> None:
        self.log.append(("down", link.peer, reason))

    def on_writable(self, link: Link) -> None:
        self.log.append(("writable", link.peer))

    def on_frame(self, link: Link, frame: bytes) -> None:
        if frame == b"bad":
            raise WireError("bad-body")
        if frame == b"bug":
            raise KeyError("no such thing")
        self.log.append(frame)

    def stop(self) -> None:
        for link in self.links.values():
            link.send(b"goodbye")

    def frames(self) -> list[bytes]:
        return [entry for entry in self.log if isinstance(entry, bytes)]

    def downs(self) -> list[str]:
        """The reasons of the links that went down, in order."""
        return [entry[2] for entry in self.log if entry[0] == "down"]

    def timer(self, delay_s: float, what: str) -> None:
        self.world.call_later(delay_s, lambda: self.log.append((what, self.world.now())))


class Pair:
    """Processes `a` and `b` at two sites, 10 ms apart, with a link that `a` dialled."""

    def __init__(self, seed: int = 1, jitter: float = 0.0, connect: bool = True) -> None:
        self.simulation = Simulation(seed, jitter=jitter)
        self.process_a = add(self.simulation, "a", "east")
        self.process_b = add(self.simulation, "b", "west")
        if connect:
            self.link_a = self.a.world.dial(Address("b", 0), "b")
            self.simulation.run_for(1.0)
            self.link_b = self.b.links["a"]

    @property
    def a(self) -> Recorder:
        return node_of(self.process_a)

    @property
    def b(self) -> Recorder:
        return node_of(self.process_b)


def add(
    simulation: Simulation,
    name: str,
    site: str,
    factory: Callable[[World], Recorder] = Recorder,
) -> Process:
    process = simulation.add(name, site, factory)
    process.start()
    return process


def node_of(process: Process) -> Recorder:
    node = process.node
    assert isinstance(node, Recorder)
    return node
