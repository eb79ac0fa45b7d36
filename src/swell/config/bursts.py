"""Bursts: consecutive steps of one feed as bytes that are signed once and passed on untouched.

    format u8 | application length u16, application | interest 8 | epoch u32
    | after u64 | upto u64 | complete u64 | sealed u64 | body length u32 | body | signature 64

Ed25519 by the key of the node that is primary, over a prefix that names the cluster and everything
before the signature. A primary signs what is committed and nothing else. `open_burst` keeps what
it has verified: many containers in one process verify and decode a burst once (Ripple 4.3 trusts
its relays; here they need not be trusted).
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from swell.config.versions import VersionId
from swell.errors import WireError
from swell.wire.codec import Message
from swell.wire.compression import pack, unpack
from swell.wire.limits import FRAME_BYTES_MAX

FORMAT = 2
OTHER_FORMAT = "burst-format"
"""The reason why a burst cannot be read that is of another format; its signature may hold."""

SIGNATURE_BYTES = 64

OPENED_MAX = 256
OPENED_BYTES_MAX = 32 * 1024 * 1024
"""Bursts that are kept verified and decoded, per process: how many, and their unpacked bodies."""

K = TypeVar("K")
V = TypeVar("V")

_head = Struct(">BH")
_middle = Struct(">8sIQQQQI")


class Change(Message, frozen=True):
    """One configuration's next version. `kind` is a `swell.config.versions.Kind`; `data` a value, a
    delta, nothing, or a content digest; `length` is the value's, after the change."""

    name: str
    kind: int
    version: int
    base: VersionId
    id: VersionId
    data: bytes
    length: int


class StepChanges(Message, frozen=True):
    """What a step changed, as far as a feed is interested."""

    number: int
    changes: tuple[Change, ...]


class Burst(msgspec.Struct, frozen=True):
    """A burst that was opened: its signature holds."""

    id: bytes
    application: str
    interest: bytes
    epoch: int
    after: int
    upto: int
    complete_at: int
    """Whoever has taken it lacks nothing from this step on: `upto`, unless it is one part of what
    somebody lacks. Then changes up to `upto` may be missing that were followed by others."""
    sealed_us: int
    """The primary's wall clock when it was sealed. Nothing is decided by it."""
    steps: tuple[StepChanges, ...]
    size: int
    """Of its body, unpacked."""


class Shared(dict[K, V]):
    """What is made of a burst once for all containers of a process; the first made go first."""

    __slots__ = ("_bytes", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[K, int] = {}
        self._bytes = 0

    def put(self, name: K, value: V, size: int) -> None:
        """`size`: of the burst."""
        self._drop(name)
        self[name] = value
        self._sizes[name] = size
        self._bytes += size
        while len(self) > OPENED_MAX or (self._bytes > OPENED_BYTES_MAX and len(self) > 1):
            self._drop(next(iter(self)))

    def _drop(self, name: K) -> None:
        self.pop(name, None)
        self._bytes -= self._sizes.pop(name, 0)


def feed_of(data: bytes) -> tuple[str, bytes]:
    """Of which feed a burst says it is: its application and interest. Nothing is verified yet."""
    try:
        _, length = _head.unpack_from(data)
        at = _head.size + length
        if at + _middle.size > len(data):
            raise WireError("bad-burst", "cut off")
        return data[_head.size : at].decode(), data[at : at + 8]
    except (ValueError, StructError) as error:
        raise WireError("bad-burst", str(error)) from None


class About(NamedTuple):
    """What the head of a burst says."""

    application: str
    epoch: int
    after: int
    upto: int


def about_burst(data: bytes) -> About:
    """Of a burst that was opened before."""
    _, length = _head.unpack_from(data)
    at = _head.size + length
    _, epoch, after, upto, _, _, _ = _middle.unpack_from(data, at)
    return About(data[_head.size : at].decode(), epoch, after, upto)


_encode_steps = msgspec.msgpack.Encoder().encode
_decode_steps = msgspec.msgpack.Decoder(tuple[StepChanges, ...]).decode


def burst_id(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def seal(
    key: Ed25519PrivateKey,
    cluster: str,
    application: str,
    interest: bytes,
    epoch: int,
    after: int,
    upto: int,
    steps: tuple[StepChanges, ...],
    sealed_us: int,
    complete_at: int = 0,
) -> bytes:
    """The bytes of a burst, signed."""
    body = pack(_encode_steps(steps))
    name = application.encode()
    unsigned = b"".join(
        (
            _head.pack(FORMAT, len(name)),
            name,
            _middle.pack(
                interest, epoch, after, upto, max(upto, complete_at), sealed_us, len(body)
            ),
            body,
        )
    )
    return unsigned + key.sign(_prefix(cluster) + unsigned)


def _prefix(cluster: str) -> bytes:
    return b"swell-burst\0" + cluster.encode() + b"\0"


_opened: Shared[tuple[bytes, bytes, str], Burst] = Shared()


def open_burst(data: bytes, cluster: str, key: bytes) -> Burst:
    """The burst in these bytes if the node with public key `key` signed it; `WireError`, with
    reason `bad-signature` if somebody else made or altered it."""
    name = (blake2b(data, digest_size=16).digest(), key, cluster)
    burst = _opened.get(name)
    if burst is None:
        burst = _open(data, cluster, key)
        _opened.put(name, burst, burst.size)
    return burst


def _open(data: bytes, cluster: str, key: bytes) -> Burst:
    unsigned, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _prefix(cluster) + unsigned)
    except (InvalidSignature, ValueError):
        raise WireError("bad-signature", "a burst that the primary did not sign") from None
    return read_burst(data)


def read_burst(data: bytes) -> Burst:
    """What these bytes say, whoever signed them."""
    unsigned = data[:-SIGNATURE_BYTES]
    try:
        version, length = _head.unpack_from(unsigned)
        at = _head.size + length
        application = unsigned[_head.size : at].decode()
        if version != FORMAT:
            raise WireError(OTHER_FORMAT, f"a burst of format {version}, known is {FORMAT}")
        middle = _middle.unpack_from(unsigned, at)
        interest, epoch, after, upto, complete_at, sealed_us, size = middle
        body = unsigned[at + _middle.size :]
        if len(body) != size:
            raise WireError("bad-burst", f"{len(body)} of {size} bytes")
        unpacked = unpack(body, FRAME_BYTES_MAX)
        steps = _decode_steps(unpacked)
    except (ValueError, StructError, msgspec.DecodeError) as error:
        raise WireError("bad-burst", str(error)) from None
    return Burst(
        burst_id(data), application, interest, epoch, after, upto, complete_at, sealed_us, steps,
        len(unpacked),
    )  # fmt: skip
