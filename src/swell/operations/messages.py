"""What travels for operations: between a client and its node, and between nodes.

A client's arguments and results are JSON, so that any program can make and read them. Questions
between nodes are the overlay's (`swell.overlay.requests`), by the topic numbers given here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.overlay.contact import Contact
from swell.overlay.coordinates import Coordinate
from swell.wire.codec import Message, message

ZONE_TOPIC = 16
PING_TOPIC = 17
"""Questions to other nodes: tell me about your zone; are you there? Topics below 16 are the
overlay's own."""

TRACE_PORT = 8
TRACED_PORT = 9
"""Ports of traced broadcasts and of the answers to them; on the control plane, as they diagnose."""

DEADLINE_S_MAX = 120.0
ARGUMENTS_BYTES_MAX = 64 * 1024


@message(64)
class Request(Message, frozen=True):
    """Client → node: do this. `number` is the client's own."""

    number: int
    operation: Annotated[str, Meta(max_length=63)]
    arguments: Annotated[bytes, Meta(max_length=ARGUMENTS_BYTES_MAX)]
    deadline_s: float


@message(65)
class Response(Message, frozen=True):
    """Node → client: the result as JSON, or in `error` a sentence that says why there is none."""

    number: int
    error: str
    body: bytes


class MemberState(IntEnum):
    """As membership has it, in words that results use."""

    alive = 0
    suspect = 1
    dead = 2
    left = 3


class MemberReport(Message, frozen=True):
    """One living member as its zone knows it: its clique links and its links between zones."""

    contact: Contact
    suspect: bool
    clique: tuple[int, ...]
    links: tuple[tuple[int, int], ...]


class ZoneAnswer(Message, frozen=True):
    """Answer to `ZONE_TOPIC`: the zone as one of its members sees it."""

    zone: int
    delegate: int
    members: tuple[MemberReport, ...]


class PingAnswer(Message, frozen=True):
    """Answer to `PING_TOPIC`. `names` are the answering zone's members, to read paths with."""

    contact: Contact
    coordinate: Coordinate
    names: tuple[tuple[int, str], ...]


class Traced(Message, frozen=True):
    """A broadcast arrived: which one, and along which nodes."""

    sequence: int
    path: tuple[int, ...]
