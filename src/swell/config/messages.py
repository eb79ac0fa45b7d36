"""Messages of delivery: between containers, the primary of their application, and relays.

`Deliver` is packed by hand: a relay passes on the bytes of a burst as they came. An application
and an interest are a feed; on the wire an interest is its digest of eight bytes.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from swell.errors import WireError
from swell.overlay.contact import Contact, Number
from swell.wire import codec
from swell.wire.codec import HEADER_BYTES, Message, message

Step = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Digest8 = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Signature = Annotated[bytes, Meta(max_length=64)]
"""Empty: none."""

INTERESTS_MAX = 1024
"""Names and prefixes in one interest."""

LIST_ENTRIES_MAX = 1024
LISTS_MAX = 256
"""Lists in one message, a relay's own and those of relays behind it; it keeps as many."""

HOST_LENGTH_MAX = 255
PASS_BYTES_MAX = 4096
DELIVER = 99
LIST_DIGEST_BYTES = 16
WAIT_BYTES = 2
WAIT_MS_MAX = (1 << 8 * WAIT_BYTES) - 1

UNASKED = 0x80
"""In the first byte of a `Deliver` frame: no receipt is asked for."""


class Level(IntEnum):
    """What a receipt says."""

    DELIVERED = 1
    """Here, verified, in order and kept."""
    APPLIED = 2


class Answer(IntEnum):
    """How a `Subscribe` ended."""

    SERVING = 0
    REDIRECT = 1
    """Not the primary: `members` names who is, if known."""
    BUSY = 2
    """About to serve: ask again here."""
    REFUSED = 3


Interest = Annotated[tuple[Name, ...], Meta(max_length=INTERESTS_MAX)]


def interest_digest(interest: tuple[str, ...]) -> bytes:
    """Eight bytes that stand for an interest; it is sorted, and empty for everything."""
    encoded = msgspec.msgpack.encode(interest)
    return blake2b(encoded, digest_size=8, person=b"swell-interest").digest()


@message(96)
class Subscribe(Message, frozen=True):
    """`step`: the last one the container has of this feed, 0 for none. `host` is empty if siblings
    cannot reach it. `owner`: the container's own application."""

    number: Step
    application: Name
    interest: Interest
    step: Step
    container: Name
    owner: Name
    site: str
    host: str
    port: Number
    willing: bool = True
    """Whether it relays for others."""
    applied: Step = 0
    """The last step that its application has applied."""
    complete_at: Step = 0
    """Later than `step`: it has only part of what leads there, and lacks nothing from this on."""


@message(97)
class Subscribed(Message, frozen=True):
    """`members`: of the slot, the primary first, then the backups in their order."""

    number: Step
    answer: int
    step: Step = 0
    key: bytes = b""
    """The node's public key, 32 bytes."""
    secret: bytes = b""
    """The container's key for proofs, 16 bytes."""
    pass_: bytes = b""
    """What the container shows its siblings, see `swell.config.proofs`."""
    members: tuple[Contact, ...] = ()
    code: str = ""
    sentence: str = ""


@message(98)
class Unsubscribe(Message, frozen=True):
    application: Name
    interest: Digest8


class Entry(Message, frozen=True):
    """One container of a destination list; `below` is the digest of its own list, if it has one."""

    container: Name
    host: Annotated[str, Meta(max_length=HOST_LENGTH_MAX)]
    port: Number
    below: Annotated[bytes, Meta(max_length=16)] = b""


class DestinationList(Message, frozen=True):
    entries: Annotated[tuple[Entry, ...], Meta(max_length=LIST_ENTRIES_MAX)]

    def digest(self) -> bytes:
        encoded = msgspec.msgpack.encode(self)
        return blake2b(encoded, digest_size=16, person=b"swell-list").digest()


@message(100)
class Lists(Message, frozen=True):
    """`signatures`: of the node that made them, in the same order; those of lists that the receiver
    may have to pass on (`swell.config.proofs.sign_list`)."""

    lists: Annotated[tuple[DestinationList, ...], Meta(max_length=LISTS_MAX)]
    signatures: Annotated[tuple[Signature, ...], Meta(max_length=LISTS_MAX)] = ()


@message(101)
class ListRequest(Message, frozen=True):
    digests: Annotated[tuple[Digest16, ...], Meta(max_length=64)]


Score = tuple[Number, float]
"""Place in the list (0: the relay itself, then the entries from 1 on) and score."""


@message(102)
class Receipt(Message, frozen=True):
    """About burst `burst`: everybody of list `list` and its relay have reached `level`, except at
    the places `missing`; with `only`, nobody but those at the places `only`. Place 0 is the
    sender's own, its list's entries follow from 1. Without a list: the sender alone.

    An entry with a list below stands for that relay and all behind it: its place is covered when
    its own receipt was whole, and that receipt's proof is in this one. A receipt of a relay below
    that is not whole is passed on as it came, and its place is missing here."""

    burst: Digest8
    level: int
    proof: Digest16
    list: bytes = b""
    missing: Annotated[tuple[Number, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    only: Annotated[tuple[Number, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    scores: Annotated[tuple[Score, ...], Meta(max_length=LIST_ENTRIES_MAX + 1)] = ()


@message(103)
class Repair(Message, frozen=True):
    """What came behind `step` is missing here: send it on this link."""

    application: Name
    interest: Digest8
    step: Step


FeedStep = tuple[Name, Digest8, Step]
"""Application, interest, step."""


@message(104)
class Renew(Message, frozen=True):
    """The last applied step of every feed."""

    feeds: tuple[FeedStep, ...]
    score: float = 0.0


@message(105)
class Renewed(Message, frozen=True):
    """The present step of every feed; feeds that are not served here any more are left out."""

    feeds: tuple[FeedStep, ...]


@message(106)
class Moved(Message, frozen=True):
    """This node does not serve these applications any more."""

    applications: tuple[Name, ...]
    primary: Contact | None = None


@message(107)
class Rejected(Message, frozen=True):
    """The application of the container refuses configuration `name` as of `step`, and goes on with
    version `uses`; 0: with none that is known to be good."""

    application: Name
    interest: Digest8
    step: Step
    name: Name
    reason: Annotated[str, Meta(max_length=1024)]
    uses: Step = 0


@message(108)
class Complaint(Message, frozen=True):
    """A relay sent something that is not the cluster's."""

    application: Name
    relay: Name
    reason: Annotated[str, Meta(max_length=64)]


@message(110)
class Itemize(Message, frozen=True):
    """To a relay: the proof of its receipt is wrong, what did each of the list give?"""

    burst: Digest8
    list: Digest16


Item = tuple[Annotated[int, Meta(ge=0, le=255)], Annotated[bytes, Meta(max_length=16)]]
"""Level and proof of one place, as for receipts; level 0: none."""


@message(111)
class Items(Message, frozen=True):
    """The answer: the relay's own place first, then those of the list."""

    burst: Digest8
    list: Digest16
    items: Annotated[tuple[Item, ...], Meta(max_length=LIST_ENTRIES_MAX + 1)]


ROSTER_MAX = 2048


@message(114)
class Roster(Message, frozen=True):
    """To the other members of a slot: who follows a feed, of those whose names belong to a part of
    all names. Owner, name and site of each, and for how long it has been offline; 0: it is not."""

    slot: Number
    application: Name
    interest: Interest
    part: Number
    containers: Annotated[tuple[tuple[Name, Name, str, float], ...], Meta(max_length=ROSTER_MAX)]


@message(109)
class Introduce(Message, frozen=True):
    """First frame on a RELAY link: the pass of the container that dialled."""

    pass_: Annotated[bytes, Meta(max_length=PASS_BYTES_MAX)]


def deliver(list_digest: bytes, burst: bytes, wait_s: float = 0.0, asks: bool = True) -> bytes:
    """The frame that carries a burst: length of the digest u8 (0 or 16; 128 more if no receipt is
    asked for), digest, burst. With a digest, before the burst: how long receipts are waited for,
    in milliseconds, u16; 0: as long as the relay likes."""
    size = len(list_digest) | (0 if asks else UNASKED)
    if not list_digest:
        return codec.frame(DELIVER, b"%c%b" % (size, burst))
    wait_ms = min(WAIT_MS_MAX, round(wait_s * 1000))
    about = size, list_digest, wait_ms.to_bytes(WAIT_BYTES, "big")
    return codec.frame(DELIVER, b"%c%b%b%b" % (*about, burst))


def read_deliver(frame: bytes) -> tuple[bytes, bytes, float, bool]:
    """The list's digest, the burst's bytes and the time to wait of a `Deliver` frame, and whether
    it asks for receipts."""
    at = HEADER_BYTES + 1
    size = frame[at - 1] if len(frame) >= at else 1
    asks = size < UNASKED
    size &= ~UNASKED
    if not size:
        return b"", frame[at:], 0.0, asks
    end = at + size + WAIT_BYTES
    if size != LIST_DIGEST_BYTES or len(frame) < end:
        raise WireError("bad-body", "not a burst with its list")
    wait_ms = int.from_bytes(frame[at + size : end], "big")
    return frame[at : at + size], frame[end:], wait_ms / 1000, asks
