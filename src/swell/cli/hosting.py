"""Running nodes in this process: one for `swell node`, several for a local cluster.

Standard output carries two lines per node and nothing else: one when it listens, with its real
address, one when it has joined. The log goes to standard error. `python -m swell.cli.hosting FILE`
runs the nodes described in a file; it skips the parser of the command line, since a local cluster
starts many of these at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from swell.directory.messages import OLD_COPY, Voter
from swell.errors import SwellError
from swell.events.rows import Life
from swell.node import Node, NodeConfig
from swell.runtime.event_log import EventLog
from swell.runtime.identity import LOCAL_CLUSTER
from swell.runtime.logs import configure_logging
from swell.runtime.process import run
from swell.runtime.security import TlsMaterial
from swell.runtime.world import STOPPED, RuntimeWorld
from swell.settings import Settings
from swell.world import Role

JOIN_PATIENCE_S = 5.0
"""A node that has not joined after this time says so, and goes on trying."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to start one node."""

    name: str
    site: str
    data: str
    host: str
    port: int
    voters: tuple[Voter, ...] = ()
    """The directory's voters, with names if this node is one of them; none: this node alone."""
    rack: str = ""
    region: str = ""
    cluster: str = LOCAL_CLUSTER
    certificates: str = ""
    """Directory with the node's key and certificates; empty: plain TCP on loopback."""
    settings: Settings = Settings()


class Hosting:
    """Nodes of one process, from their start to the last one's end."""

    def __init__(self, specs: Sequence[NodeSpec], json: bool) -> None:
        self._specs = specs
        self._json = json
        self._halted: list[str] = []
        self._log: EventLog | None = None

    def run(self) -> int:
        """Until SIGTERM or SIGINT (0) or until every node has halted (1)."""
        try:
            code = run(self._begin)
        finally:
            if self._log is not None:
                self._log.close()
        if code:
            raise SwellError(self._halted[-1] if self._halted else "every node has halted")
        return code

    async def _begin(self) -> list[RuntimeWorld]:
        worlds: list[RuntimeWorld] = []
        try:
            for spec in self._specs:
                self._start(spec, worlds)
        except BaseException:
            for world in worlds:
                await world.stop()
            raise
        return worlds

    def _start(self, spec: NodeSpec, worlds: list[RuntimeWorld]) -> None:
        tls = TlsMaterial(Path(spec.certificates)) if spec.certificates else None
        if tls is not None:
            tls.check_role(Role.NODE)
        world = RuntimeWorld(spec.name, Path(spec.data), tls, cluster=spec.cluster)
        worlds.append(world)
        if spec.settings.events.directory:
            self._record(spec, world)
        address = world.listen(spec.host, spec.port)
        node = Node(
            world,
            NodeConfig(
                name=spec.name,
                cluster=world.cluster,
                site=spec.site,
                rack=spec.rack,
                region=spec.region,
                address=address,
                voters=spec.voters or (Voter(spec.name, *address),),
                epoch=world.epoch,
                uid=world.uid,
                settings=spec.settings,
            ),
        )
        # One table for both, so that `status` shows whatever was dropped.
        node.counters.update(world.counters)
        world.counters = node.counters
        if self._log is not None and len(worlds) == 1:
            self._log.counters = node.counters
        world.halted.add_done_callback(lambda halted: self._on_halted(world, node, halted))
        node.on_joined = lambda: self._say_joined(node)
        self._say(
            f"{spec.name} listening on {address}",
            {"event": "listening", "node": spec.name, "address": str(address)},
        )
        world.start(node)
        node.start()
        world.call_later(JOIN_PATIENCE_S, lambda: _warn_unjoined(world, node))

    def _record(self, spec: NodeSpec, world: RuntimeWorld) -> None:
        """Into one log for all nodes of the process, named after the first."""
        if self._log is None:
            self._log = EventLog(spec.settings.events, spec.name, world.wall_us())
        world.record(self._log.recorder(Life(world.cluster, spec.name, world.life, spec.site)))

    def _on_halted(self, world: RuntimeWorld, node: Node, halted: asyncio.Future[str]) -> None:
        """One node has ended. The last one's reason is the command's own error, not a log line."""
        reason = halted.result() if node.refusal is None else node.refusal.sentence
        if node.refusal is not None and node.refusal.code == OLD_COPY:
            world.condemn(reason)
        if halted.result() != STOPPED:
            self._halted.append(reason)
            if len(self._halted) < len(self._specs):
                world.log.error("halted", reason=reason)

    def _say_joined(self, node: Node) -> None:
        me = node.me()
        self._say(
            f"{me.name} joined as node {me.id} of zone {me.zone}",
            {"event": "joined", "node": me.name, "id": me.id, "zone": me.zone, "epoch": me.start},
        )

    def _say(self, text: str, fields: dict[str, str | int]) -> None:
        print(msgspec.json.encode(fields).decode() if self._json else text, flush=True)


def _warn_unjoined(world: RuntimeWorld, node: Node) -> None:
    if node.overlay is None:
        directory = ", ".join(str(voter.address) for voter in node.config.voters)
        world.log.warning("not joined yet: no answer from the directory", directory=directory)


def main() -> int:
    """Run the nodes listed in the JSON file that is the only argument."""
    configure_logging()
    try:
        specs = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[NodeSpec])
        return Hosting(specs, json=True).run()
    except SwellError as error:
        structlog.get_logger().error(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
