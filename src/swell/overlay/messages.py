"""The overlay's messages: handshake, links between zones, leases, interest.

Multicasts and detours (`ROUTED`, `DETOUR`) are not listed as structs: they have fixed binary
headers, in `swell.overlay.routed`, so that forwarding never decodes a payload.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Literal

from msgspec import Meta

from swell.overlay.contact import Contact, Port, Text
from swell.overlay.coordinates import Coordinate
from swell.overlay.membership_messages import Count
from swell.wire.codec import Message, message

ROUTED = 32
DETOUR = 33

CONTACTS_TOLD_MAX = 8
"""Members of the own zone that are told to a new neighbour."""


class LinkKind(IntEnum):
    """What the dialling side wants the link for."""

    CLIQUE = 1
    CANDIDATE = 2
    DIRECTORY = 3
    CLIENT = 4
    VOTER = 5
    STORE = 6
    RELAY = 7


@message(1)
class Hello(Message, frozen=True):
    """First frame of the dialling side. A node that has not joined yet has id 0."""

    cluster: str
    kind: int
    contact: Contact


@message(2)
class Welcome(Message, frozen=True):
    """The accepting side agrees. `load` is its number of links between zones."""

    contact: Contact
    load: int


@message(3)
class Refused(Message, frozen=True):
    """The accepting side does not agree; the link closes. `code` is for programs; `name` and its
    address say who would agree instead, if that is known."""

    code: str
    sentence: str
    name: Text = ""
    host: Text = ""
    port: Port = 0


@message(34)
class Adopt(Message, frozen=True):
    """Make this candidate link the link between our zones."""

    why: Literal["opening", "recovery", "handover"]


@message(35)
class Adopted(Message, frozen=True):
    """Answer to `Adopt`; `contacts` are members of the answering zone, to be cached for recovery
    while the directory is away."""

    accepted: bool
    reason: Literal["", "no-lease"]
    contacts: Annotated[tuple[Contact, ...], Meta(max_length=CONTACTS_TOLD_MAX)] = ()


@message(36)
class LinkPing(Message, frozen=True):
    """The dialling side keeps a link between zones honest. `gaps`: zones that the sender's zone
    has lost; `interest`: the version of its aggregate; `rtt_s`: what the last ping took, or 0, so
    that the other side learns from it too."""

    sequence: int
    coordinate: Coordinate | None
    gaps: tuple[int, ...]
    interest: tuple[int, int]
    rtt_s: float


@message(37)
class LinkPong(Message, frozen=True):
    sequence: int
    coordinate: Coordinate | None
    gaps: tuple[int, ...]
    interest: tuple[int, int]


@message(38)
class Bye(Message, frozen=True):
    """The last frame in this direction: the link has been handed over or is redundant."""


@message(39)
class LeaseRequest(Message, frozen=True):
    """Old node → external node: let me hand this link over within my zone."""


@message(40)
class LeaseReply(Message, frozen=True):
    """The external node's answer; also old → external node: I do not need it any more."""

    granted: bool
    reason: Literal["", "not-active", "dispute", "busy", "released"]


@message(41)
class TakeOver(Message, frozen=True):
    """Old node → new node: connect to `external` in my place."""

    external: Contact


@message(42)
class TookOver(Message, frozen=True):
    """New node → old node: done, or why not."""

    external: int
    accepted: bool
    reason: Literal["", "busy", "balanced", "failed"]


@message(43)
class Flush(Message, frozen=True):
    """Old node → member: I give up my link to `external` in this zone; another one serves it."""

    zone: int
    external: int


@message(47)
class Flushed(Message, frozen=True):
    """Member → old node, answering `Flush` once it knows another holder; behind all it has sent
    before, so on the data plane. Whatever it sends from now on goes to the other holder."""

    zone: int
    external: int


@message(44)
class RecoveryClaim(Message, frozen=True):
    """I am about to recover the link to this zone; leave it to me for a while."""

    zone: int


@message(45)
class InterestPull(Message, frozen=True):
    """Send me the topics of this zone (0: of every zone you know), unless I have the version
    listed: (zone, term, number)."""

    zone: int
    versions: tuple[tuple[int, int, int], ...] = ()


@message(46)
class Interest(Message, frozen=True):
    """The topics that some member of `zone` wants: all of them (`full`), or the change since
    `number` - 1 of the same term. A new delegate of the zone begins a new term."""

    zone: int
    term: Count
    number: Count
    full: bool
    added: tuple[bytes, ...]
    removed: tuple[bytes, ...] = ()
