"""What a client may do to a configuration, and what becomes of it in the log.

An `Edit` is what a client sends. The primary resolves it (`swell.config.resolving`): the log holds
`Resolved` only, which every replica applies without any library's opinion.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from swell.config.names import INSTANCES, check_configuration
from swell.config.versions import VersionId
from swell.errors import InvalidNameError, SwellError
from swell.wire.codec import Message

WHOLE_BYTES_MAX = 256 * 1024
"""Longest value that travels whole: in a command, in an answer, in a burst."""

LINES_MAX = 256
"""Lines that one edit may change."""

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


class Line(Message, frozen=True):
    """One line of a list: its text becomes this, or there is no such line any more.

    `only`: what must be there, or this line stays as it is. Empty: no line of this key; else a
    line whose text begins so."""

    key: str
    text: str | None
    only: str | None = None


class Lines(Message, frozen=True, tag=7):
    """Lines of a list (`swell.config.lines`), each with a key of its own."""

    name: str
    lines: Annotated[tuple[Line, ...], Meta(min_length=1, max_length=LINES_MAX)]
    condition: VersionId | None = None


Edit = Whole | Uploaded | Splices | Path | Rollback | Delete | Lines


def check_edit(edit: Edit) -> None:
    """Raise `InvalidNameError` unless a client may change this configuration in this way: what is
    reserved by its lines, and nothing else by lines."""
    by_lines = isinstance(edit, Lines)
    check_configuration(edit.name, reserved=by_lines)
    if by_lines and edit.name != INSTANCES:
        raise InvalidNameError(f"{edit.name} is no list: only {INSTANCES} is changed by lines")


class UnresolvableError(SwellError):
    """An edit that makes no sense; the sentence names the configuration."""


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
