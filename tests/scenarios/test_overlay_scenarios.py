"""Plays `overlay_*.txt`: links between zones, as the frames and events that they cause.

cluster 2 1 seed 3     sites a and b with so many nodes at once, until settled; not traced
watch Bye LinkOpened   the messages and events that the trace shows
join a3                a node more at site a
run 1.5                let time pass
crash a1 · power a1    kill -9, or loss of the machine
lose a1 b2             break the link between two nodes
hand a1 a2 b1          a1 begins to hand its link to b1 over to a2
claim a1 2             a1 begins to recover the link to zone 2
send a1 b2             a traced message from node to node
links                  show who holds which link between zones
count NAME ...         show counters, summed over all nodes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.overlay.matchers import NODE, node_target
from swell.overlay.messages import DETOUR
from swell.overlay.routed import Routed, decode_detour
from swell.simulation.trace import Kind
from swell.wire import codec
from swell.wire.codec import TYPE_OFFSET
from tests.scenarios.script import check, commands_of, scripts
from tests.unit.overlay_toys import PORT, Cluster

SCENARIOS = scripts("overlay")


class Stage:
    """A cluster and the lines that are written about it."""

    def __init__(self, words: list[str]) -> None:
        at = words.index("seed")
        self.cluster = Cluster(seed=int(words[at + 1]), connections=4)
        self.watched: list[str] = []
        self.lines = self.cluster.simulation.trace.lines
        self.cluster.build(*map(int, words[:at]))
        self.cluster.simulation.trace.record(self._line)

    def play(self, line: str, verb: str, words: list[str]) -> None:
        if verb == "watch":
            self.watched = words
            return
        self.lines.append(f"{self._time()}  > {line}")
        getattr(self, verb)(*words)

    def _time(self) -> str:
        return f"{self.cluster.simulation.time_s:8.3f}"

    def _line(self, time_s: float, name: str, kind: Kind, detail: Any, data: bytes) -> str | None:
        if kind is Kind.EVENT and type(detail).__name__ in self.watched:
            told = self._told(detail)
            return f"{time_s:8.3f}  {name}: {type(detail).__name__} {told}"
        if kind is Kind.FRAME:
            text = self._frame(data)
            if text.split()[0] in self.watched:
                return f"{time_s:8.3f}  {detail.peer} → {name}: {text}"
        return None

    def _frame(self, data: bytes) -> str:
        if data[TYPE_OFFSET] == DETOUR:
            detour = decode_detour(data)
            back = " back" if detour.bounced else ""
            return f"Detour{back} from {detour.origin} through {detour.via} to {detour.target}"
        if not codec.known(data[TYPE_OFFSET]):
            return f"type-{data[TYPE_OFFSET]}"
        message = codec.decode(data)
        return f"{type(message).__name__} {self._told(message)}".strip()

    def _told(self, value: Any) -> str:
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return " ".join(f"{name}={self._said(name, part)}" for name, part in fields)

    def _said(self, name: str, part: Any) -> str:
        names = {overlay.me.id: overlay.me.name for overlay in self.cluster.living()}
        if name in ("external", "peer", "successor") and isinstance(part, int):
            return names.get(part, str(part))
        if isinstance(part, tuple):
            return ",".join(sorted(getattr(one, "name", str(one)) for one in part)) or "-"
        return str(getattr(part, "name", part)) or "-"

    # Commands.

    def join(self, name: str) -> None:
        self.cluster.add(name, name[0])

    def run(self, duration_s: str) -> None:
        self.cluster.run(float(duration_s))

    def crash(self, name: str) -> None:
        self.cluster.crash([name])

    def power(self, name: str) -> None:
        self.cluster.crash([name], power=True)

    def lose(self, a: str, b: str) -> None:
        network = self.cluster.simulation.network
        for link in network.links_between(a, b):
            network.lose(link)

    def hand(self, old: str, new: str, external: str) -> None:
        overlay = self.cluster.overlay(old)
        for link in overlay.zonelinks.all():
            link.used = 0 if link.peer.name == external else 1000
        overlay.rebalancing._hand_over(self.cluster.contact(new).id)

    def claim(self, name: str, zone: str) -> None:
        self.cluster.overlay(name).recovery._claim(int(zone))

    def send(self, source: str, target: str) -> None:
        to = self.cluster.contact(target)
        self.cluster.overlay(target).multicast.listen(PORT, self._arrived)
        self.cluster.overlay(source).multicast.send(
            NODE, node_target(to.zone, to.id), PORT, b"hello", traced=True
        )

    def _arrived(self, message: Routed) -> None:
        names = {overlay.me.id: overlay.me.name for overlay in self.cluster.living()}
        path = " → ".join(names.get(node, str(node)) for node in message.path)
        self.lines.append(f"{self._time()}  arrived over {path}")

    def links(self) -> None:
        for overlay in sorted(self.cluster.living(), key=lambda o: o.me.name):
            ends = sorted(link.peer.name for link in overlay.zonelinks.all())
            zone = overlay.me.zone
            self.lines.append(
                f"          {overlay.me.name} of zone {zone}: {' '.join(ends) or '-'}"
            )

    def count(self, *names: str) -> None:
        for name in names:
            self.lines.append(f"          {name}: {self.cluster.counter(name)}")


def play(commands: str) -> str:
    """Run the commands and return the trace."""
    stage: Stage | None = None
    for line, verb, words in commands_of(commands):
        if verb == "cluster":
            stage = Stage(words)
        else:
            assert stage is not None, "a scenario begins with its cluster"
            stage.play(line, verb, words)
    assert stage is not None
    return "\n".join(stage.lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    check(path, play)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 4
