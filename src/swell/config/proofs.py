"""Proofs of receipts, passes between siblings, and destination lists that siblings bring.

A proof is a keyed digest over a burst and a level, with a secret that the primary gave to one
container. Relays combine proofs by XOR; the primary computes the same from the secrets of those
named. No relay can make up a receipt that a container did not give (Katz and Lindell, *Aggregate
message authentication codes*, CT-RSA 2008).

A pass says which application and site a container belongs to, signed by the node that serves it:
a container takes bursts only from siblings that show one (RIP-12). It names the certificate of
its holder, where there are certificates: who has read it cannot show it. A list that comes by a
sibling is signed as well: nobody but a node makes a container dial anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from swell.errors import WireError
from swell.wire.codec import Message

PROOF_BYTES = 16
SECRET_BYTES = 16
NO_PROOF = bytes(PROOF_BYTES)
SIGNATURE_BYTES = 64


def proof(secret: bytes, burst: bytes, level: int) -> bytes:
    """What a container says of a burst that has reached a level with it."""
    return blake2b(b"%b%c" % (burst, level), digest_size=PROOF_BYTES, key=secret).digest()


def combined(proofs: Iterable[bytes]) -> bytes:
    """All of them in one."""
    total = 0
    for one in proofs:
        total ^= int.from_bytes(one, "big")
    return total.to_bytes(PROOF_BYTES, "big")


def aggregate(secrets: Iterable[bytes], burst: bytes, level: int) -> bytes:
    """The proofs of those with these secrets, in one. What a primary does for every container and
    burst: so the proofs are folded together in large numbers instead of one by one."""
    said = b"%b%c" % (burst, level)
    proofs = [blake2b(said, digest_size=PROOF_BYTES, key=secret).digest() for secret in secrets]
    total, count = int.from_bytes(b"".join(proofs), "big"), len(proofs)
    while count > 1:
        half = count >> 1
        bits = 8 * PROOF_BYTES * half
        total = total >> bits ^ total & (1 << bits) - 1
        count -= half
    return total.to_bytes(PROOF_BYTES, "big")


class Pass(Message, frozen=True):
    cluster: str
    application: str
    site: str
    container: str
    expires_s: int
    """By the wall clock of the node that gave it."""
    holder: str = ""
    """The name in the certificate of the container it was given to; empty where the node cannot
    know it (plain TCP on loopback)."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Pass).decode
_PREFIX = b"swell-pass\0"
_LIST_PREFIX = b"swell-relay-list\0"


def sign_pass(key: Ed25519PrivateKey, what: Pass) -> bytes:
    body = _encode(what)
    return body + key.sign(_PREFIX + body)


def read_pass(data: bytes, key: bytes) -> Pass:
    """The pass, if the node with this public key gave it; whether it fits and is still good is for
    the caller to say."""
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _PREFIX + body)
        return _decode(body)
    except (InvalidSignature, ValueError, msgspec.DecodeError):
        raise WireError("bad-pass", "not a pass of this cluster") from None


def _list_text(cluster: str, owner: str, site: str, digest: bytes) -> bytes:
    return _LIST_PREFIX + msgspec.msgpack.encode((cluster, owner, site, digest))


def sign_list(key: Ed25519PrivateKey, cluster: str, owner: str, site: str, digest: bytes) -> bytes:
    """For the list with this digest, among containers of one application and site."""
    return key.sign(_list_text(cluster, owner, site, digest))


def is_list_signed(
    signature: bytes, key: bytes, cluster: str, owner: str, site: str, digest: bytes
) -> bool:
    """Whether the node with this public key has made the list."""
    text = _list_text(cluster, owner, site, digest)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
