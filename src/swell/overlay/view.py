"""The view: the numbered list of zones that routing and placement are computed from.

The directory numbers it (`epoch`); a zone's delegate fetches it and shares it as its attribute
`view`, so that every member knows the whole upper tier locally.
"""

from __future__ import annotations

from swell.wire.codec import Message

VIEW = "view"


class ZoneInfo(Message, frozen=True):
    """One zone: the site it serves (or `region:NAME` where small sites share it), its size."""

    id: int
    site: str
    size: int


class View(Message, frozen=True):
    """All zones with living members."""

    epoch: int = 0
    zones: tuple[ZoneInfo, ...] = ()
