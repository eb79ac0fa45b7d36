"""Versions of a configuration that are kept: what led to each from its base, and back (RIP-19).

The present content is not part of it: a version is made by going back from there. Forward deltas
are for containers that are behind, backward ones for reading, comparing and rolling back.
Invariant: the versions kept follow each other without a gap and end with the present one, unless
none is kept.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import NamedTuple

from swell.config import splices
from swell.config.bursts import Change
from swell.config.content import Content
from swell.config.versions import Kind

KEEP_BYTES = 256 * 1024
"""History of a short value; a longer one may have as much as its own length."""


class Past(NamedTuple):
    """How one version came about. `back` leads to its base: an encoded delta, all of the base
    where there is none, or nothing if the configuration did not exist."""

    version: int
    id: bytes
    base: bytes
    step: int
    kind: int
    length: int
    forward: bytes
    """The encoded delta; nothing for other kinds, whose content is made from what follows."""
    back: bytes | Content | None
    change_bytes: int
    author: str
    wall_us: int

    @property
    def size(self) -> int:
        return len(self.forward) + (len(self.back) if self.back is not None else 0)

    def change(self, name: str) -> Change:
        """The delta as it is sent."""
        assert self.kind == Kind.DELTA
        return Change(name, Kind.DELTA, self.version, self.base, self.id, self.forward, self.length)

    def undo(self, content: Content | None) -> Content | None:
        """The content before this version, from the one after it."""
        if isinstance(self.back, bytes):
            assert content is not None
            return content.splice(splices.decode(self.back))
        return self.back


class History:
    """The versions kept of one configuration, oldest first."""

    __slots__ = ("from_step", "size", "versions")

    def __init__(self, from_step: int = 0) -> None:
        self.versions: deque[Past] = deque()
        self.size = 0
        self.from_step = from_step
        """Step of the version before the oldest one kept; 0 if there was none."""

    def add(self, past: Past) -> None:
        self.versions.append(past)
        self.size += past.size

    def trim(self, versions_max: int, bytes_max: int) -> None:
        """Give up the oldest beyond these bounds."""
        versions = self.versions
        while versions and (len(versions) > versions_max or self.size > bytes_max):
            oldest = versions.popleft()
            self.size -= oldest.size
            self.from_step = oldest.step

    def behind(self, step: int) -> list[Past] | None:
        """The versions made after a step, newest first; None if not all of them are kept."""
        if self.from_step > step:
            return None
        return list(takewhile(lambda past: past.step > step, reversed(self.versions)))

    def find(self, version: int) -> Past | None:
        versions = self.versions
        if not versions:
            return None
        place = version - versions[0].version
        return versions[place] if 0 <= place < len(versions) else None

    def content(self, present: Content | None, version: int) -> Content | None:
        """The content at a version, from the present one."""
        for past in takewhile(lambda past: past.version > version, reversed(self.versions)):
            present = past.undo(present)
        return present
