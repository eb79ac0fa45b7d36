"""A configuration as a container has it, and what the application hears of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from swell.config.chunking import CHUNK_BYTES_MAX
from swell.config.content import Content
from swell.config.versions import NO_VERSION

PLAIN_BYTES_MAX = CHUNK_BYTES_MAX
"""A value up to this length is kept as plain bytes: copying it is cheaper than a tree."""

Data = bytes
"""`bytes`, where that name is taken by the method."""


class Document(msgspec.Struct, frozen=True, gc=False):
    """One version of one configuration. `step`: the one that made it."""

    name: str
    version: int
    id: Data
    step: int
    content: Data | Content
    deleted: bool = False

    def bytes(self) -> Data:
        """All of it; for a long value this makes a copy."""
        content = self.content
        return content if isinstance(content, bytes) else content.bytes()

    def __len__(self) -> int:
        return len(self.content)

    def __bool__(self) -> bool:
        """An empty document is one."""
        return True


class Refusal(NamedTuple):
    """The application refuses a version, and goes on with one that it accepted before."""

    version: int
    instead: Document


class Update(msgspec.Struct, frozen=True, gc=False):
    """A change that was applied: `document` is what it made."""

    application: str
    name: str
    version: int
    id: bytes
    step: int
    document: Document


def unborn(name: str) -> Document:
    """What a first version is made from."""
    return Document(name, 0, NO_VERSION, 0, b"", True)


def kept_form(data: bytes) -> bytes | Content:
    return data if len(data) <= PLAIN_BYTES_MAX else Content.of(data)
