"""Versions of configurations, as administrators and programs see them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from swell.config.operations import Got
from swell.config.versions import NO_VERSION, VERSION_ID_BYTES
from swell.errors import ConfigurationError, RefusedError

ABSENT = NO_VERSION
"""As a condition: the configuration must not exist."""

Condition = bytes | str | None
"""The id of the version that must be the present one, as bytes or in hexadecimal; `ABSENT`."""

Data = bytes
"""`bytes`, where that name is taken by the method."""


def check_condition(condition: Condition) -> bytes | None:
    if isinstance(condition, str):
        try:
            condition = bytes.fromhex(condition)
        except ValueError:
            condition = b""
    if condition is not None and len(condition) != VERSION_ID_BYTES:
        raise ConfigurationError(
            f"the id of a version has {VERSION_ID_BYTES} bytes or {2 * VERSION_ID_BYTES}"
            " hexadecimal digits: copy it from `get` or `history`"
        )
    return condition


class Publication(NamedTuple):
    """What a configuration is after a step. Not `changed`: it was that already; `step` is then the
    application's present one."""

    name: str
    step: int
    version: int
    id: bytes
    length: int
    changed: bool


class VersionFacts:
    """One version of one configuration, without its bytes."""

    __slots__ = (
        "author", "deleted", "digest", "id", "length", "name", "stale", "step", "version",
        "wall_us",
    )  # fmt: skip

    def __init__(self, name: str, got: Got, stale: bool) -> None:
        self.name = name
        self.version = got.version
        self.id = got.id
        self.step = got.step
        self.length = got.length
        self.digest = got.digest
        self.author = got.author
        self.wall_us = got.wall_us
        self.deleted = got.deleted
        """This version is a deletion: it has no bytes."""
        self.stale = stale
        """As a member says that may be behind."""

    @property
    def time(self) -> datetime:
        """When it was published."""
        return datetime.fromtimestamp(self.wall_us / 1e6, UTC)

    def __repr__(self) -> str:
        return f"<{self.name} version {self.version} ({self.id.hex()}), {self.length} bytes>"


class Value(VersionFacts):
    """A version whose bytes are read when they are first asked for."""

    __slots__ = ("_data", "_read", "got")

    def __init__(
        self, name: str, got: Got, stale: bool, read: Callable[[Value], Awaitable[Data]]
    ) -> None:
        super().__init__(name, got, stale)
        self.got = got
        self._data = got.data
        self._read = read

    async def bytes(self) -> Data:
        """All of it, exactly of this version, also if there are later ones by now."""
        if self.deleted:
            sentence = f"version {self.version} of {self.name} is a deletion: it has no value"
            raise RefusedError("deleted", sentence)
        if self._data is None:
            self._data = await self._read(self)
        return self._data

    async def text(self) -> str:
        return (await self.bytes()).decode()

    async def json(self) -> Any:
        return json.loads(await self.bytes())
