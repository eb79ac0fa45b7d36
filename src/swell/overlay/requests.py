"""Questions to other nodes, carried by the overlay: ask a node, or a zone, and get its answer.

A question travels as a routed message to a node (or to whichever member of a zone it meets
first); the answer travels back the same way to the node that asked. Every question has a deadline
and there is a bound on open ones, so nothing waits for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from swell.errors import SwellError, UnavailableError
from swell.overlay.contact import Contact
from swell.overlay.matchers import NODE, node_target
from swell.overlay.multicast import Multicast
from swell.overlay.routed import Routed
from swell.world import Timer, World

QUESTION_PORT = 1
ANSWER_PORT = 2
OPEN_MAX = 10_000

_head = Struct(">QB")


Answerer = Callable[[Routed, bytes, Callable[[bytes], None]], None]


class Answer(NamedTuple):
    """What came back: the payload and, if the question was traced, both paths."""

    payload: bytes
    path: tuple[int, ...]
    path_back: tuple[int, ...]


class _Open(NamedTuple):
    done: Callable[[Answer | SwellError], None]
    timer: Timer


class Requests:
    """Open questions of this node, and its answers to those of others."""

    def __init__(
        self, world: World, me: Contact, multicast: Multicast, counters: Counter[str]
    ) -> None:
        self._world = world
        self._me = me
        self._multicast = multicast
        self._counters = counters
        self._open: dict[int, _Open] = {}
        self._number = me.epoch << 32
        """Answers to a former life of this process match no question of this one."""
        self._topics: dict[int, Answerer] = {}
        multicast.listen(QUESTION_PORT, self.on_question)
        multicast.listen(ANSWER_PORT, self.on_answer)

    def answer(self, topic: int, function: Callable[[Routed, bytes], bytes]) -> None:
        """Answer questions of this topic with `function(question, body)`."""
        self.answer_later(topic, lambda question, body, reply: reply(function(question, body)))

    def answer_later(self, topic: int, function: Answerer) -> None:
        """Let `function(question, body, reply)` answer by calling `reply(bytes)` when it can."""
        assert topic not in self._topics, f"topic {topic} is taken"
        self._topics[topic] = function

    def ask(
        self,
        zone: int,
        node: int,
        topic: int,
        body: bytes,
        timeout_s: float,
        done: Callable[[Answer | SwellError], None],
        traced: bool = False,
    ) -> None:
        """Ask one node (0: any member of the zone)."""
        if len(self._open) >= OPEN_MAX:
            self._counters["requests-full"] += 1
            self._world.call_later(
                0.0, lambda: done(UnavailableError("too many requests are open: try again later"))
            )
            return
        self._number += 1
        number = self._number
        timer = self._world.call_later(timeout_s, lambda: self._expire(number, zone, node))
        self._open[number] = _Open(done, timer)
        payload = _head.pack(number, topic) + body

        def send() -> None:
            self._multicast.send(NODE, node_target(zone, node), QUESTION_PORT, payload, traced)

        if zone == self._me.zone and node in (0, self._me.id):
            self._world.call_later(0.0, send)
        else:
            send()

    def _expire(self, number: int, zone: int, node: int) -> None:
        self._counters["request-timeout"] += 1
        whom = f"node {node} of zone {zone}" if node else f"any node of zone {zone}"
        self._open.pop(number).done(UnavailableError(f"no answer in time from {whom}"))

    def on_question(self, routed: Routed) -> None:
        payload = routed.payload
        if len(payload) < _head.size:
            self._counters["bad-question"] += 1
            return
        number, topic = _head.unpack_from(payload)
        function = self._topics.get(topic)
        if function is None:
            self._counters["unknown-question"] += 1
            return
        path = b"".join(node.to_bytes(4, "big") for node in routed.path)

        def reply(body: bytes) -> None:
            self._multicast.send(
                NODE,
                node_target(routed.source_zone, routed.source),
                ANSWER_PORT,
                _head.pack(number, len(routed.path)) + path + body,
                traced=bool(routed.path),
            )

        function(routed, payload[_head.size :], reply)

    def on_answer(self, routed: Routed) -> None:
        payload = routed.payload
        if len(payload) < _head.size:
            self._counters["bad-answer"] += 1
            return
        number, hops = _head.unpack_from(payload)
        waiting = self._open.pop(number, None)
        if waiting is None:
            self._counters["late-answer"] += 1
            return
        waiting.timer.cancel()
        start = _head.size + 4 * hops
        path = tuple(int.from_bytes(payload[k : k + 4], "big") for k in range(_head.size, start, 4))
        waiting.done(Answer(payload[start:], path, routed.path))

    def stop(self) -> None:
        for waiting in self._open.values():
            waiting.timer.cancel()
        self._open.clear()
