"""Ping and broadcast with traces: which way messages take, how far it is, whom they reach.

A ping is a traced question to one node. A broadcast is a traced multicast that every node answers
to its source with the path it saw; the source compares with the list of nodes it gathered before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from swell.errors import SwellError, UnavailableError
from swell.ids import NAME_LENGTH_MAX
from swell.operations.call import Call, InvalidArgumentError, Result
from swell.operations.messages import (
    PING_TOPIC,
    TRACE_PORT,
    TRACED_PORT,
    PingAnswer,
    Traced,
    ZoneAnswer,
)
from swell.operations.zones import Gathering
from swell.overlay.contact import Contact
from swell.overlay.coordinates import distance_s
from swell.overlay.matchers import BROADCAST, NODE, node_target
from swell.overlay.overlay import Overlay
from swell.overlay.requests import Answer
from swell.overlay.routed import Routed

PINGS_MAX = 100
PING_ANSWER_S = 2.0
TEXT_LENGTH_MAX = 10_000
TRACES_MAX = 16
BROADCAST_ANSWER_S = 5.0

ESTIMATE_ERROR_MAX = 0.6
"""Coordinates that are less sure than this give no estimate."""

_encode = msgspec.msgpack.Encoder().encode
_decode_ping = msgspec.msgpack.Decoder(PingAnswer).decode
_decode_traced = msgspec.msgpack.Decoder(Traced).decode


def names_of(overlay: Overlay) -> tuple[tuple[int, str], ...]:
    """Ids and names of this node's zone."""
    return tuple((contact.id, contact.name) for contact in overlay.members.alive())


def answer_pings(overlay: Overlay) -> None:
    """Let other nodes ping this one."""

    def answer(routed: Routed, body: bytes) -> bytes:
        return _encode(PingAnswer(overlay.me, overlay.coordinate(), names_of(overlay)))

    overlay.requests.answer(PING_TOPIC, answer)


def spelled(path: Sequence[int], names: Mapping[int, str]) -> list[str]:
    """A path in names; a node that nobody could name is written as its number."""
    return [names.get(node, f"#{node}") for node in path]


class Ping:
    """Finds a node by its name and pings it a number of times."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._name = call.text("node", NAME_LENGTH_MAX)
        self._count = call.arguments.get("count", 1)
        if type(self._count) is not int or not 1 <= self._count <= PINGS_MAX:
            raise InvalidArgumentError(f"count must be a number from 1 to {PINGS_MAX}")
        self._target: Contact | None = None
        self._rounds: list[Result] = []

    def start(self) -> None:
        overlay = self._call.overlay()
        if overlay is None:
            return
        for contact in overlay.members.alive():
            if contact.name == self._name:
                self._begin(overlay, contact)
                return
        self._call.host.directory.lookup(self._name, self._on_lookup)

    def _on_lookup(self, contact: Contact | None) -> None:
        overlay = None if self._call.over else self._call.overlay()
        if overlay is None:
            return
        if contact is not None:
            self._begin(overlay, contact)
        else:
            # Unknown, or the directory is away: the zones know as well.
            Gathering(self._call, overlay, self._on_gathered).start()

    def _on_gathered(self, answers: Sequence[ZoneAnswer], unreachable: list[int]) -> None:
        overlay = self._call.overlay()
        if overlay is None:
            return
        for answer in answers:
            for report in answer.members:
                if report.contact.name == self._name:
                    self._begin(overlay, report.contact)
                    return
        self._call.finish(InvalidArgumentError(f"no node is called {self._name}"))

    def _begin(self, overlay: Overlay, target: Contact) -> None:
        self._target = target
        self._send(overlay)

    def _send(self, overlay: Overlay) -> None:
        assert self._target is not None
        sent_at = self._call.host.world.now()
        timeout_s = min(PING_ANSWER_S, self._call.answer_time_s())

        def done(answer: Answer | SwellError) -> None:
            rtt_s = self._call.host.world.now() - sent_at
            self._on_answer(overlay, answer, rtt_s)

        target = self._target
        overlay.requests.ask(target.zone, target.id, PING_TOPIC, b"", timeout_s, done, traced=True)

    def _on_answer(self, overlay: Overlay, answer: Answer | SwellError, rtt_s: float) -> None:
        if self._call.over:
            return
        if isinstance(answer, SwellError):
            self._rounds.append({"error": str(answer)})
        else:
            try:
                self._rounds.append(self._round(overlay, answer, rtt_s))
            except msgspec.DecodeError:
                self._rounds.append({"error": "the answer cannot be read"})
        if len(self._rounds) < self._count and self._call.answer_time_s() > PING_ANSWER_S / 10:
            self._send(overlay)
        else:
            self._conclude(overlay)

    def _round(self, overlay: Overlay, answer: Answer, rtt_s: float) -> Result:
        pong = _decode_ping(answer.payload)
        names = {**dict(pong.names), **dict(names_of(overlay))}
        mine, other = overlay.coordinate(), pong.coordinate
        result: dict[str, Any] = {
            "hops": max(0, len(answer.path) - 1),
            "path": spelled(answer.path, names),
            "path_back": spelled(answer.path_back, names),
            "rtt_ms": round(1000.0 * rtt_s, 3),
            "coordinate_error": round(max(mine.error, other.error), 3),
        }
        sure = max(mine.error, other.error) <= ESTIMATE_ERROR_MAX
        comparable = len(other.vector) == len(mine.vector)
        if sure and comparable and pong.contact.id != overlay.me.id:
            result["estimate_ms"] = round(1000.0 * distance_s(mine, other), 3)
        return result

    def _conclude(self, overlay: Overlay) -> None:
        target = self._target
        assert target is not None
        if all("error" in one for one in self._rounds):
            sentence = f"{target.name} of zone {target.zone} at {target.address} does not answer"
            self._call.finish(UnavailableError(sentence))
            return
        self._call.finish(
            {
                "from": overlay.me.name,
                "node": target.name,
                "zone": target.zone,
                "pings": self._rounds,
            }
        )


class Traces:
    """Broadcasts of this node that wait for answers."""

    def __init__(self) -> None:
        self.open: dict[int, Callable[[Traced], None]] = {}

    def listen(self, overlay: Overlay, counters: dict[str, int]) -> None:
        """Answer the broadcasts of others, and take in answers to ours."""

        def on_broadcast(routed: Routed) -> None:
            if routed.source != overlay.me.id:
                target = node_target(routed.source_zone, routed.source)
                answer = _encode(Traced(routed.sequence, routed.path))
                overlay.multicast.send(NODE, target, TRACED_PORT, answer)

        def on_traced(routed: Routed) -> None:
            try:
                traced = _decode_traced(routed.payload)
            except msgspec.DecodeError:
                counters["bad-answer"] += 1
                return
            waiting = self.open.get(traced.sequence)
            if waiting is None:
                counters["late-answer"] += 1
            elif traced.path:
                waiting(traced)

        overlay.multicast.listen(TRACE_PORT, on_broadcast)
        overlay.multicast.listen(TRACED_PORT, on_traced)


class Broadcast:
    """One traced broadcast: list the nodes, send, wait for all of them or for the deadline."""

    def __init__(self, call: Call, traces: Traces) -> None:
        self._call = call
        self._traces = traces
        self._text = call.text("text", TEXT_LENGTH_MAX)
        self._contacts: dict[int, Contact] = {}
        self._paths: dict[int, tuple[int, ...]] = {}
        self._duplicates = 0
        self._sent_at = 0.0
        self._last_at = 0.0
        self._sequence = 0
        self._over = False

    def start(self) -> None:
        overlay = self._call.overlay()
        if overlay is not None and len(self._traces.open) >= TRACES_MAX:
            self._call.finish(UnavailableError("too many broadcasts are under way: try again"))
        elif overlay is not None:
            Gathering(self._call, overlay, self._on_gathered).start()

    def _on_gathered(self, answers: Sequence[ZoneAnswer], unreachable: list[int]) -> None:
        overlay = self._call.overlay()
        if overlay is None:
            return
        self._contacts = {r.contact.id: r.contact for a in answers for r in a.members}
        world = self._call.host.world
        self._sent_at = self._last_at = world.now()
        self._paths[overlay.me.id] = (overlay.me.id,)
        message = overlay.multicast.send(
            BROADCAST, b"", TRACE_PORT, self._text.encode(), traced=True
        )
        self._sequence = message.sequence
        self._traces.open[self._sequence] = self._on_traced
        timeout_s = min(BROADCAST_ANSWER_S, self._call.answer_time_s())
        world.call_later(timeout_s, lambda: self._conclude(overlay.me))
        self._check(overlay.me)

    def _on_traced(self, traced: Traced) -> None:
        if traced.path[-1] in self._paths:
            self._duplicates += 1
        self._paths.setdefault(traced.path[-1], traced.path)
        self._last_at = self._call.host.world.now()
        self._check(self._call.host.me())

    def _check(self, me: Contact) -> None:
        if all(node in self._paths for node in self._contacts):
            self._conclude(me)

    def _conclude(self, me: Contact) -> None:
        if self._over:
            return
        self._over = True
        self._traces.open.pop(self._sequence, None)
        names = {node: contact.name for node, contact in self._contacts.items()}
        reached: list[Result] = [
            {
                "name": names.get(node, f"#{node}"),
                "zone": self._contacts[node].zone if node in self._contacts else None,
                "hops": len(path) - 1,
                "path": spelled(path, names),
            }
            for node, path in sorted(self._paths.items(), key=lambda item: (len(item[1]), item[0]))
        ]
        self._call.finish(
            {
                "from": me.name,
                "text": self._text,
                "reached": reached,
                "unreached": [n for node, n in sorted(names.items()) if node not in self._paths],
                "duplicates": self._duplicates,
                "max_hops": max(len(path) - 1 for path in self._paths.values()),
                "tree": [one["path"][-2:] for one in reached if one["hops"]],
                "took_ms": round(1000.0 * (self._last_at - self._sent_at), 3),
            }
        )
