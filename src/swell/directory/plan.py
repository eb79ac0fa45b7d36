"""The plan: where each slot should live, and how the nodes concerned are reached.

The directory's leader writes it under one key of the registry; every node of the store reads it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from swell.errors import WireError
from swell.overlay.contact import Contact, Number
from swell.overlay.membership_messages import Count
from swell.wire.codec import Message
from swell.wire.compression import pack, unpack

PLAN = "plan"
PINS = "pins/"
PLAN_BYTES_MAX = 4 * 1024 * 1024
"""Unpacked."""
SLOTS_MAX = 16_384

Targets = tuple[tuple[Number, ...], ...]


class Plan(Message, frozen=True):
    """`targets[slot]` are the nodes that should keep it, the primary first; `slots`, `replicas`
    and `min_replicas` are those of the cluster, for ever."""

    view_epoch: Count
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)]
    replicas: Annotated[int, Meta(ge=1, le=16)]
    min_replicas: Annotated[int, Meta(ge=1, le=16)]
    targets: Targets
    contacts: tuple[Contact, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Plan).decode
_decode_pin = msgspec.msgpack.Decoder(tuple[Number, ...]).decode


def encode_plan(plan: Plan) -> bytes:
    return pack(_encode(plan))


def decode_plan(value: bytes) -> Plan:
    """The plan that the registry holds; `WireError` if it is none."""
    try:
        plan = _decode(unpack(value, PLAN_BYTES_MAX))
    except msgspec.DecodeError as error:
        raise WireError("bad-body", f"plan: {error}") from None
    if len(plan.targets) != plan.slots:
        raise WireError("bad-body", f"plan: {len(plan.targets)} targets, {plan.slots} slots")
    return plan


def pin_key(slot: int) -> str:
    """The registry's key of a pin."""
    return f"{PINS}{slot}"


def encode_pin(nodes: tuple[int, ...]) -> bytes:
    return _encode(nodes)


def decode_pin(key: str, value: bytes) -> tuple[int, tuple[int, ...]]:
    """A pin: the slot and its nodes; `WireError` if it is none."""
    number = key.removeprefix(PINS)
    if not (number.isascii() and number.isdigit() and len(number) <= len(str(SLOTS_MAX))):
        raise WireError("bad-pin", f"{key} names no slot")
    try:
        return int(number), _decode_pin(value)
    except msgspec.DecodeError as error:
        raise WireError("bad-pin", f"{key}: {error}") from None
