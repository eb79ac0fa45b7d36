"""What a client may do to a configuration, and what becomes of it in the log.

An `Edit` is what a client sends. The primary resolves it (`swell.config.resolving`): the log holds
`Resolved` only, which every replica applies without any library's opinion.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.config.versions import VersionId
from swell.wire.codec import Message

WHOLE_BYTES_MAX = 256 * 1024
"""Longest value that travels whole: in a command, in an answer, in a burst."""

UploadId = Annotated[bytes, Meta(min_length=8, max_length=32)]
Length = Annotated[int, Meta(ge=0, le=(1 << 48) - 1)]
Version = Annotated[int, Meta(ge=0, le=(1 << 48) - 1)]

# Each may carry a condition: the id that must be the present one, `NO_VERSION`: must not exist.


class Whole(Message, frozen=True, tag=1):
    """The value is this from now on."""

    name: str
    data: bytes
    condition: VersionId | None = None


class Uploaded(Message, frozen=True, tag=2):
    """The value is what was staged before; its length and content digest are given."""

    name: str
    upload: UploadId
    length: Length
    digest: bytes
    condition: VersionId | None = None


class Splices(Message, frozen=True, tag=3):
    """An encoded delta that the client made from version `base`."""

    name: str
    delta: bytes
    base: VersionId
    condition: VersionId | None = None


class Path(Message, frozen=True, tag=4):
    """Set one key of the document, or unset it if there is no text."""

    name: str
    path: str
    text: str | None
    as_text: bool = False
    """Whether the text is a string whatever it looks like."""
    condition: VersionId | None = None


class Rollback(Message, frozen=True, tag=5):
    """The value is again what it was at a version that is kept."""

    name: str
    version: Version
    condition: VersionId | None = None


class Delete(Message, frozen=True, tag=6):
    name: str
    condition: VersionId | None = None


Edit = Whole | Uploaded | Splices | Path | Rollback | Delete


class Way(IntEnum):
    """How a resolved edit says what is to be. The first four have the numbers of
    `swell.config.versions.Kind`, where there is one."""

    NOTHING = 0
    """It changes nothing: no new version."""
    WHOLE = 1
    DELTA = 2
    DELETE = 3
    UPLOADED = 4


class Resolved(Message, frozen=True):
    """`base` is the version that it was resolved against; `data` a value, a delta, an upload's id
    or nothing. An uploaded value's length and digest are given."""

    name: str
    way: int
    base: VersionId
    data: bytes = b""
    condition: VersionId | None = None
    length: Length = 0
    digest: bytes = b""
