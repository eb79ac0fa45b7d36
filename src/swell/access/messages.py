"""How a client shows its token. A refusal is the handshake's own `Refused`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from swell.wire.codec import Message, message

BAD = "bad-token"
UNKNOWN = "unknown-token"
EXPIRED = "expired-token"
REVOKED = "revoked-token"
UNVERIFIED = "token-unverified"
"""This node cannot tell at the moment; another one may."""

FINAL = (BAD, UNKNOWN, EXPIRED, REVOKED)
"""Refusals that every node would give."""


@message(120)
class Authenticate(Message, frozen=True):
    """Client → node: judge this session by this token."""

    token: Annotated[str, Meta(max_length=255)]


@message(121)
class Authenticated(Message, frozen=True):
    """Node → client: so be it, until then (seconds of the wall clock)."""

    expires_s: int
    label: str
