"""A token's text, and the record that the registry keeps of it.

`swell_ID_SECRET`, 8 and 20 bytes in lower-case base32 without padding. Exactly one text stands for
a token. The record has a hash of the secret only; the secret is drawn from 160 bits of entropy, so
a fast hash is enough.
"""

from __future__ import annotations

from base64 import b32decode, b32encode
from binascii import Error as Base32Error
from hashlib import blake2b
from hmac import compare_digest
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from swell.access.grants import GRANTS_MAX, Grant
from swell.errors import RefusedError, WireError
from swell.wire.codec import Message

ID_BYTES = 8
SECRET_BYTES = 20
ENTROPY_BYTES = ID_BYTES + SECRET_BYTES
ID_LENGTH = 13
SECRET_LENGTH = 32
HASH_BYTES = 32
LABEL_LENGTH_MAX = 63
LIFE_S_MAX = 3650 * 86_400

_PREFIX = "swell"


class BadTokenError(RefusedError):
    """A text that is no token. It never repeats the text: it may hold most of a secret."""

    def __init__(self) -> None:
        super().__init__(
            "bad-token",
            f"this is not a token: one looks like swell_ID_SECRET with {ID_LENGTH} and "
            f"{SECRET_LENGTH} characters; copy it whole",
        )


class Token(NamedTuple):
    id: str
    secret: bytes

    @property
    def text(self) -> str:
        return f"{_PREFIX}_{self.id}_{_base32(self.secret)}"

    @property
    def hash(self) -> bytes:
        """What the registry keeps of the secret. The id as key: a record serves no other id."""
        return blake2b(
            self.secret, digest_size=HASH_BYTES, key=self.id.encode(), person=b"swell-token"
        ).digest()


def draw(entropy: bytes) -> Token:
    """A new token of `ENTROPY_BYTES` unpredictable bytes."""
    assert len(entropy) == ENTROPY_BYTES
    return Token(_base32(entropy[:ID_BYTES]), entropy[ID_BYTES:])


def parse(text: str) -> Token:
    """Read a token's text; `BadTokenError` if it is none."""
    parts = text.split("_") if text.isascii() else []
    if len(parts) != 3 or parts[0] != _PREFIX or not is_id(parts[1]):
        raise BadTokenError
    secret = _bytes(parts[2], SECRET_LENGTH)
    if secret is None:
        raise BadTokenError
    return Token(parts[1], secret)


def is_id(text: str) -> bool:
    return _bytes(text, ID_LENGTH) is not None


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def _bytes(text: str, length: int) -> bytes | None:
    """The bytes of which this is the one text."""
    if len(text) != length or not text.isascii():
        return None
    try:
        data = b32decode(text.upper() + "=" * (-length % 8))
    except Base32Error:
        return None
    return data if _base32(data) == text else None


class TokenRecord(Message, frozen=True):
    """What the registry holds under `tokens/ID`; seconds of the wall clock."""

    hash: Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
    grants: Annotated[tuple[Grant, ...], Meta(min_length=1, max_length=GRANTS_MAX)]
    expires_s: int
    label: str
    created_s: int
    revoked_s: int = 0

    def fits(self, token: Token) -> bool:
        """Whether the token's secret is the right one."""
        return compare_digest(self.hash, token.hash)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TokenRecord).decode


def encode_record(record: TokenRecord) -> bytes:
    return _encode(record)


def decode_record(data: bytes) -> TokenRecord:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("bad-token-record", str(error)) from None
