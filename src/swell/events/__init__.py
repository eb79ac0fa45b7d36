"""What nodes report about themselves: the input of checkers, logs, and later of the pipeline.

An event is a small frozen struct; the world stamps it with its node's name and time.
"""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""


class Started(Event, frozen=True):
    """The node has its id and zone and begins to take part."""

    id: int
    zone: int
    epoch: int


class MemberAlive(Event, frozen=True):
    """This node's view of its zone: `member` is alive."""

    member: int
    epoch: int


class MemberSuspected(Event, frozen=True):
    member: int
    epoch: int


class MemberDead(Event, frozen=True):
    """This node's view of its zone: `member` is dead (`left`: it said goodbye)."""

    member: int
    epoch: int
    left: bool


class LinkOpened(Event, frozen=True):
    """A link between zones is in use at this node."""

    peer: int
    zone: int
    why: str


class LinkClosed(Event, frozen=True):
    peer: int
    zone: int
    why: str


class MigrationBegan(Event, frozen=True):
    """This node holds the lease and hands its link to `external` over to `successor`."""

    external: int
    zone: int
    successor: int


class MigrationEnded(Event, frozen=True):
    external: int
    zone: int
    outcome: str


class Multicast(Event, frozen=True):
    """This node is the source of a message."""

    source: int
    epoch: int
    sequence: int
    matcher: str


class Delivered(Event, frozen=True):
    """The message reached this node's own clients."""

    source: int
    epoch: int
    sequence: int


class SlotServed(Event, frozen=True):
    """This node is the primary of a slot in an activated epoch."""

    slot: int
    epoch: int


class RelayAvoided(Event, frozen=True):
    """A container relays for nobody for a while: it failed or lied."""

    application: str
    relay: str
    reason: str


class DeliveryFailed(Event, frozen=True):
    """A container did not take what it was sent by any way; `step`: what the others have."""

    application: str
    container: str
    step: int
    reason: str


class InstanceJudged(Event, frozen=True):
    """A health check has changed a service's list: an instance is `healthy`, `unhealthy` or
    `removed`; the list, named by no instance, `protected` or `unprotected`."""

    service: str
    instance: str
    verdict: str


class ThresholdsFollowed(Event, frozen=True):
    """Recommended settings hold at this node from here on; version 0: its own do again."""

    version: int
    settings: tuple[tuple[str, int], ...]


class ThresholdIgnored(Event, frozen=True):
    """... but not this one."""

    version: int
    name: str
    reason: str
