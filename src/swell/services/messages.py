"""Messages of services: between who holds leases and the primary of the service's slot."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.config.lines import KEY_LENGTH_MAX
from swell.config.messages import Name, Step
from swell.overlay.contact import Number
from swell.wire.codec import Message, message

LEASES_MAX = 1024
"""Leases in one `Keep`."""


class Doubt(IntEnum):
    """Why a lease was not kept."""

    ELSEWHERE = 1
    """This node does not serve the service: ask who does."""
    ABSENT = 2
    """The list has no such instance."""
    REPLACED = 3
    """Another registration has taken the instance's id."""
    REFUSED = 4
    """The link may not write the list."""


class Lease(Message, frozen=True):
    """`lease`: as the line of the instance says it."""

    service: Name
    instance: Annotated[str, Meta(max_length=KEY_LENGTH_MAX)]
    lease: Annotated[str, Meta(max_length=16)]


@message(112)
class Keep(Message, frozen=True):
    """Who registered these instances is alive."""

    number: Step
    leases: Annotated[tuple[Lease, ...], Meta(max_length=LEASES_MAX)]


@message(113)
class Kept(Message, frozen=True):
    """All leases of `Keep` are kept, except those at these places, and why."""

    number: Step
    doubts: Annotated[tuple[tuple[Number, int], ...], Meta(max_length=LEASES_MAX)] = ()
