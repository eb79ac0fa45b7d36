"""A seed replays exactly: also in another process with another hash seed.

Run as a program, this file prints the digest of the seed given.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from swell.events import Event
from swell.simulation import Kind, SimLink, Simulation, Swarm
from swell.world import Address, DiskError, Link, Plane, World

NAMES = [f"n{number}" for number in range(9)]
ROOT = Path(__file__).parents[2]


class Noted(Event, frozen=True):
    """What a toy node has to say."""

    what: str


class Gossip:
    """Passes on the largest number it has heard, remembers it on disk, redials what it lost.

    Asserts what `swell.world` promises about links on the way.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.best = 0
        self.dialling: dict[SimLink, None] = {}
        self.up: dict[Link, None] = {}
        self.links: dict[str, Link] = {}
        if "best" in world.disk.list():
            world.disk.read("best", 0, 1 << 20, self.on_read)
        for name in world.rng.sample([name for name in NAMES if name != world.name], 3):
            self.dial(Address(name, 0))
        world.call_later(world.rng.random(), self.expire_round)

    def on_read(self, data: bytes | DiskError) -> None:
        if isinstance(data, bytes) and len(data) >= 8:
            self.best = max(self.best, int.from_bytes(data[-8:], "big"))

    def expire_round(self) -> None:
        self.best += self.world.rng.randrange(5)
        self.world.disk.append("best", self.best.to_bytes(8, "big"))
        self.world.disk.sync("best", self.on_synced)
        self.world.call_later(0.5, self.expire_round)

    def on_synced(self, error: DiskError | None) -> None:
        if error is not None:
            self.world.halt("sync failed")
            return
        for link in self.links.values():
            if not link.send(self.best.to_bytes(8, "big"), Plane.DATA):
                self.world.emit(Noted("queue-full"))

    def on_link_up(self, link: Link) -> None:
        assert link not in self.up
        assert isinstance(link, SimLink)
        assert (link in self.dialling) == link.dialed
        self.dialling.pop(link, None)
        self.up[link] = None
        previous = self.links.get(link.peer)
        if previous is not None and not previous.dialed:
            del self.up[previous]
            previous.close(drain=True)
        self.links[link.peer] = link

    def on_link_down(self, link: Link, reason: str) -> None:
        assert isinstance(link, SimLink)
        assert (link in self.dialling) != (link in self.up)
        self.dialling.pop(link, None)
        self.up.pop(link, None)
        assert not link.send(b"too late")
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        self.world.emit(Noted(f"{link.address.host} {reason}"))
        if link.dialed:
            address = link.address
            self.world.call_later(1.0 + self.world.rng.random(), lambda: self.dial(address))

    def dial(self, address: Address) -> None:
        link = self.world.dial(address, address.host)
        assert isinstance(link, SimLink)
        self.dialling[link] = None

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        assert link in self.up
        self.best = max(self.best, int.from_bytes(frame, "big"))

    def stop(self) -> None: ...


def run(seed: int, until_s: float = 60.0) -> Simulation:
    simulation = Simulation(seed)
    for number, name in enumerate(NAMES):
        simulation.add(name, f"site-{number % 3}", Gossip).start()
    sites = {name: process.site for name, process in simulation.processes.items()}
    Swarm(sites, 5.0, 45.0, minimum=8, maximum=20).plan(seed).schedule(simulation)
    simulation.run_until(until_s)
    return simulation


def test_a_seed_replays_in_another_process_with_another_hash_seed() -> None:
    digests = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        for seed in ("11", "12"):
            digests.append(
                subprocess.run(
                    [sys.executable, __file__, seed],
                    env=environment, capture_output=True, text=True, check=True,
                ).stdout
            )  # fmt: skip
    assert digests[:2] == digests[2:]
    assert digests[0] != digests[1]
    assert len(digests[0].split()) == 3


def test_under_faults_every_link_keeps_its_promises_and_healing_heals() -> None:
    for seed in range(30):
        simulation = run(seed, until_s=90.0)
        best = []
        for process in simulation.processes.values():
            node = process.node
            assert isinstance(node, Gossip), f"seed {seed}: {process.name} is {process.ended}"
            best.append(node.best)
            assert all(link.opened_s > 84.0 for link in node.dialling), "a dial that never ended"
        assert max(best) - min(best) < 20, f"seed {seed}: {best}"
        assert max(best) > 300


def test_the_digest_depends_on_every_frame_and_event() -> None:
    seen: list[tuple[float, str, Event]] = []

    def digest(frame: bytes, event: Event | None) -> str:
        simulation = Simulation(1)
        simulation.on_event(lambda time_s, name, event: seen.append((time_s, name, event)))
        for name in ("n0", "n1"):
            simulation.add(name, "east", Quiet).start()
        world = simulation.processes["n0"].world
        assert world is not None
        link = world.dial(Address("n1", 0))
        simulation.run_for(1.0)
        link.send(frame)
        if event is not None:
            world.emit(event)
        simulation.run_for(1.0)
        return simulation.trace.digest()

    event = Noted("x")
    digests = [digest(b"x", None), digest(b"y", None), digest(b"x", event)]
    assert len(set(digests)) == 3
    assert digests[0] == digest(b"x", None)
    assert seen == [(1.0, "n0", event)]


def test_lines_can_be_recorded_and_are_bounded() -> None:
    def line(time_s: float, name: str, kind: Kind, detail: Any, data: bytes) -> str | None:
        if kind is Kind.FRAME:
            assert isinstance(detail, SimLink)
            return f"{time_s:.4f} {name} <- {detail.peer}: {data.decode()}"
        return f"{time_s:.4f} {name} {detail}" if kind is Kind.PROCESS else None

    simulation = Simulation(1, jitter=0.0)
    simulation.trace.record(line, lines_max=3)
    for name in ("n0", "n1"):
        simulation.add(name, "east", Quiet).start()
    world = simulation.processes["n0"].world
    assert world is not None
    link = world.dial(Address("n1", 0))
    simulation.run_until(1.0)
    link.send(b"hello")
    link.send(b"again")
    simulation.run_until(2.0)
    lines = ["0.0000 n0 start", "0.0000 n1 start", "1.0003 n1 <- n0: hello"]
    assert simulation.trace.lines == lines
    assert simulation.trace.lines_dropped == 1


class Quiet:
    """Does nothing."""

    def __init__(self, world: World) -> None: ...

    def on_link_up(self, link: Link) -> None: ...

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None: ...

    def stop(self) -> None: ...


if __name__ == "__main__":
    finished = run(int(sys.argv[1]))
    print(finished.trace.digest(), finished.events, finished.trace.count)
