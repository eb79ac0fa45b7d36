"""What a container's program gets: documents, and updates that it may judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from swell.container import documents as kept

Data = bytes
"""`bytes`, where that name is taken by the method."""


class Document:
    """One version of one configuration. `from_snapshot`: from the disk of this container, and no
    node has confirmed yet that it is the newest."""

    __slots__ = ("_kept", "from_snapshot")

    def __init__(self, document: kept.Document, from_snapshot: bool = False) -> None:
        self._kept = document
        self.from_snapshot = from_snapshot

    @property
    def name(self) -> str:
        return self._kept.name

    @property
    def version(self) -> int:
        return self._kept.version

    @property
    def id(self) -> Data:
        return self._kept.id

    @property
    def step(self) -> int:
        """The step of the application that made this version."""
        return self._kept.step

    @property
    def deleted(self) -> bool:
        """The configuration does not exist any more; it has no bytes."""
        return self._kept.deleted

    def bytes(self) -> Data:
        """All of it; a long value is copied together each time."""
        return self._kept.bytes()

    def read(self, offset: int, length: int) -> Data:
        """A part of it, without touching the rest."""
        content = self._kept.content
        if isinstance(content, bytes):
            return content[offset : offset + length]
        return content.read(offset, length)

    def text(self) -> str:
        return self.bytes().decode()

    def json(self) -> Any:
        return json.loads(self.bytes())

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        """An empty document is one."""
        return True

    def __repr__(self) -> str:
        state = "deleted" if self.deleted else f"{len(self)} bytes"
        return f"<{self.name} version {self.version} ({self.id.hex()}), {state}>"


Judge = Callable[[str, int, str | None], None]
"""Name, version, and the reason if it is rejected."""


class Change:
    """What a reader of updates gets: a change, or what was there when it began."""

    __slots__ = ("application", "document")

    def __init__(self, application: str, document: Document) -> None:
        self.application = application
        self.document = document

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def version(self) -> int:
        return self.document.version

    @property
    def step(self) -> int:
        return self.document.step

    @property
    def deleted(self) -> bool:
        return self.document.deleted

    def __repr__(self) -> str:
        return f"<update of {self.application}: {self.document!r}>"


class Update(Change):
    """For programs with a loop."""

    __slots__ = ("_judge",)

    def __init__(self, application: str, document: Document, judge: Judge) -> None:
        super().__init__(application, document)
        self._judge = judge

    async def applied(self) -> None:
        """Say that this version is in use here, and with it those before."""
        self._judge(self.name, self.version, None)

    async def rejected(self, reason: str) -> None:
        """Say that this version cannot be used here, and why; administrators read it."""
        self._judge(self.name, self.version, reason)
