"""Edits of several keys of one document as one version.

One key is edited by the cluster. Several are edited here, on the version that is present, and
published on the condition that it still is; if it is not, they are made again on the newer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swell.cli.config_errors import NotThereError
from swell.cli.config_publishing import Display, condition_of
from swell.client.configs import Configs
from swell.client.values import ABSENT, Publication
from swell.config.edits import Path, Whole
from swell.config.formats.format import Format, format_of, set_path, unset_path
from swell.config.formats.path import parse_path
from swell.config.splices import apply_to
from swell.errors import StaleVersionError, UnavailableError

ATTEMPTS_MAX = 5


class PathEdits(NamedTuple):
    """(path, text) each; no text: the key is removed. `version` must be the present one, if any."""

    name: str
    edits: Sequence[tuple[str, str | None]]
    as_text: bool
    version: int | None
    author: str

    async def publish(self, configs: Configs, display: Display) -> Sequence[Publication]:
        for path, _ in self.edits:
            parse_path(path)
        condition = await condition_of(configs, self.name, self.version)
        if len(self.edits) == 1:
            (path, text), as_text = self.edits[0], self.as_text
            edit = Path(self.name, path, text, as_text, condition)
            return await configs.publish([edit], author=self.author)
        for _ in range(ATTEMPTS_MAX):
            whole = await self._edited(configs)
            if condition is not None and whole.condition != condition:
                whole = Whole(self.name, whole.data, condition)  # which will be refused
            try:
                return await configs.publish([whole], author=self.author)
            except StaleVersionError:
                if condition is not None:
                    raise
        raise UnavailableError(
            f"{configs.application}/{self.name} was changed by others {ATTEMPTS_MAX} times"
            " meanwhile: try again, or set one key at a time"
        )

    async def _edited(self, configs: Configs) -> Whole:
        """The present version with all edits, on the condition that it is the present one."""
        value = await configs.get(self.name)
        there = value is not None and not value.deleted
        if not there and any(text is None for _, text in self.edits):
            raise NotThereError(f"there is no {configs.application}/{self.name}: nothing to unset")
        data = await value.bytes() if value is not None and there else b""
        if not there and format_of(self.name) is Format.JSON:
            data = b"{}\n"
        return Whole(self.name, self.apply(data), value.id if value and there else ABSENT)

    def apply(self, data: bytes) -> bytes:
        """All edits, one after the other."""
        format_ = format_of(self.name)
        for path, text in self.edits:
            if text is None:
                splices = unset_path(format_, data, path)
            else:
                splices = set_path(format_, data, path, text, self.as_text)
            data = apply_to(data, splices)
        return data
