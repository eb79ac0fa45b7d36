"""One server of a baseline system, in a process of its own: `python -m swell.lab.baseline_server`.

An update is on this server's disk before it is answered and before anybody gets it. Steps of an
application are given by its home alone, so everybody gets them in order as long as links last; a
link that ends is not made up for. The file whose name is its argument says who it is. It prints a
line when its links to the other servers are up.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import msgspec

from swell.lab.baseline_protocol import (
    PEER,
    PUBLISH,
    SUBSCRIBE,
    UPDATE,
    Mode,
    Outbox,
    dialed_by,
    home_of,
    next_hop,
    read_subscribe,
    read_update,
    stored,
    subscribe,
    update,
    value_of,
)
from swell.runtime.logs import configure_logging
from swell.runtime.process import run
from swell.runtime.world import RuntimeWorld
from swell.wire.codec import HEADER_BYTES, TYPE_OFFSET, frame
from swell.world import Address, DiskError, Link, World

READY = "ready"
JOURNAL = "updates"
DIAL_AGAIN_S = 0.1


class Spec(msgspec.Struct, frozen=True):
    """What it takes to start one server."""

    mode: Mode
    number: int
    addresses: tuple[Address, ...]
    """Of all servers, by their numbers."""
    data: str


class BaselineServer:
    """The node that a world drives."""

    def __init__(self, world: World, spec: Spec) -> None:
        self._world = world
        self._mode = spec.mode
        self._number = spec.number
        self._addresses = spec.addresses
        self._peers: dict[int, Link] = {}
        self._dialing: dict[Link, int] = {}
        self._interested: dict[int, dict[Link, None]] = {}
        """Application → containers, and servers with containers behind them."""
        self._steps: dict[int, int] = {}
        self._latest: dict[int, bytes] = {}
        self.dropped = 0
        self._dialed = dialed_by(spec.mode, spec.number)

    def begin(self) -> None:
        for number in self._dialed:
            self._dial(number)
        self._tell_ready()

    def _dial(self, number: int) -> None:
        self._dialing[self._world.dial(self._addresses[number])] = number

    def _tell_ready(self) -> None:
        if all(number in self._peers for number in self._dialed):
            print(READY, flush=True)

    # Links.

    def on_link_up(self, link: Link) -> None:
        link.session = Outbox(link)
        number = self._dialing.get(link)
        if number is not None:
            link.send(frame(PEER, self._number.to_bytes(2, "big")))
            self._peers[number] = link
            self._tell_ready()

    def on_link_down(self, link: Link, reason: str) -> None:
        for interested in self._interested.values():
            interested.pop(link, None)
        number = self._dialing.pop(link, None)
        if number is not None:
            self._peers.pop(number, None)
            self._world.call_later(DIAL_AGAIN_S, partial(self._dial, number))

    def on_writable(self, link: Link) -> None:
        link.session.on_writable()

    def stop(self) -> None:
        """Nothing is left to be done."""

    # Frames.

    def on_frame(self, link: Link, data: bytes) -> None:
        kind = data[TYPE_OFFSET]
        if kind == UPDATE:
            application, step = read_update(data)
            self._take(application, step, data, link)
        elif kind == PUBLISH:
            self._on_publish(link, data)
        elif kind == SUBSCRIBE:
            self._on_subscribe(link, read_subscribe(data))
        elif kind == PEER:
            self._peers[int.from_bytes(data[HEADER_BYTES:], "big")] = link

    def _on_publish(self, link: Link, data: bytes) -> None:
        self._world.disk.append(JOURNAL, data)
        self._world.disk.sync(JOURNAL, partial(self._on_durable, link, data))

    def _on_durable(self, link: Link, data: bytes, error: DiskError | None) -> None:
        if error is not None:
            self._world.halt(f"the disk failed: {error}")
            return
        application, number = read_update(data)
        step = self._steps.get(application, 0) + 1
        self._send(link, stored(application, number, step))
        self._take(application, step, update(application, step, value_of(data)), None)

    def _take(self, application: int, step: int, data: bytes, whence: Link | None) -> None:
        """Keep an update, and pass it on."""
        self._steps[application] = step
        self._latest[application] = data
        if whence is None and self._mode is Mode.FLOODING:
            for peer in self._peers.values():
                self._send(peer, data)
        for link in self._interested.get(application, ()):
            if link is not whence:
                self._send(link, data)

    def _on_subscribe(self, link: Link, application: int) -> None:
        first = application not in self._interested
        self._interested.setdefault(application, {})[link] = None
        home = home_of(application, len(self._addresses))
        if application in self._latest:
            self._send(link, self._latest[application])
        if first and self._mode is Mode.REVERSE_PATH and home != self._number:
            self._send(self._peers[next_hop(self._number, home)], subscribe(application))

    def _send(self, link: Link, data: bytes) -> None:
        if not link.session.send(data):
            self.dropped += 1


async def _begin(spec: Spec) -> list[RuntimeWorld]:
    name = f"s{spec.number}"
    world = RuntimeWorld(name, Path(spec.data))
    world.listen(*spec.addresses[spec.number])
    server = BaselineServer(world, spec)
    world.start(server)
    server.begin()
    return [world]


def main(file: str) -> int:
    configure_logging()
    spec = msgspec.json.decode(Path(file).read_bytes(), type=Spec)
    return run(partial(_begin, spec))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
