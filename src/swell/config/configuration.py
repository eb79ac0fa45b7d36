"""One configuration: its present version, and how the next one is made from it.

`advance` is all there is to a new version. The replicas use it on what is committed, the primary
also on what will be (`swell.config.publishing`): both come to the same id.
"""

from __future__ import annotations

from typing import NamedTuple

from swell.config import splices as deltas
from swell.config.bursts import Change
from swell.config.content import Content
from swell.config.edits import WHOLE_BYTES_MAX, Resolved, Way
from swell.config.history import KEEP_BYTES, History, Past
from swell.config.splices import BadDeltaError, Delta
from swell.config.versions import NO_VERSION, Kind, version_id
from swell.errors import SwellError

_NOTHING, _WHOLE, _DELTA, _DELETE = Way.NOTHING, Way.WHOLE, Way.DELTA, Way.DELETE


class ConflictError(SwellError):
    """A condition that does not hold; the sentence names the present version."""


class NotKeptError(SwellError):
    """A version that is not kept, or a configuration that does not exist."""


class Present(NamedTuple):
    """A configuration at one moment. Without content it was deleted or never existed."""

    version: int
    id: bytes
    content: Content | None

    @property
    def exists(self) -> bool:
        return self.content is not None

    @property
    def length(self) -> int:
        return len(self.content) if self.content is not None else 0

    def allows(self, condition: bytes | None) -> bool:
        if condition is None or condition == self.id:
            return True
        return condition == NO_VERSION and self.content is None

    def words(self) -> str:
        """For sentences: where it is."""
        if self.id == NO_VERSION:
            return "does not exist"
        state = "deleted with" if self.content is None else "at"
        return f"is {state} version {self.version} ({self.id.hex()})"


class Next(NamedTuple):
    """What a resolved edit makes of `before`; the same version if it changes nothing. `splices`:
    of a delta."""

    before: Present
    after: Present
    kind: int
    data: bytes
    splices: Delta


def advance(
    present: Present, edit: Resolved, uploaded: Content | None = None, splices: Delta | None = None
) -> Next:
    """The next version. `uploaded`: the value, for an upload. `splices`: the delta, where it is at
    hand. Raises `SwellError` if the edit makes no sense."""
    way, data, content = edit.way, edit.data, present.content
    if way == _NOTHING or (way == _DELETE and content is None):
        return Next(present, present, way, b"", ())
    if way == _DELTA:
        if content is None:
            raise BadDeltaError(f"{edit.name} {present.words()}: put the whole value")
        if splices is None:
            splices = deltas.decode(data)
        kind, what, content = Kind.DELTA, data, content.splice(splices)
    elif way == _DELETE:
        kind, what, content = Kind.DELETE, b"", None
    else:
        content = Content.of(data) if uploaded is None else uploaded
        kind, what, data = Kind.WHOLE, content.digest, b""
    after = Present(present.version + 1, version_id(present.id, kind, what), content)
    return Next(present, after, kind, data, splices or ())


class Configuration:
    """The present version, who made it, and those kept before it."""

    __slots__ = ("_whole", "author", "base", "history", "name", "present", "step", "wall_us")

    def __init__(self, name: str, present: Present) -> None:
        self.name = name
        self.present = present
        self.base = NO_VERSION
        """Id of the version before the present one."""
        self.step = 0
        self.author = ""
        self.wall_us = 0
        self.history = History()
        self._whole: Change | None = None

    def take(self, made: Next, step: int, author: str, wall_us: int, keep_versions: int) -> Change:
        """Make the next version the present one; how it is sent to those who have its base."""
        before, after = made.before, made.after
        back: bytes | Content | None = before.content
        if made.kind == _DELTA:
            assert before.content is not None
            back = deltas.encode(deltas.inverse(made.splices, before.content))
        self.present, self.base, self.step = after, before.id, step
        self.author, self.wall_us = author, wall_us
        self._whole = None
        change_bytes = len(made.data) if made.kind == _DELTA else after.length
        self.history.add(
            Past(
                after.version, after.id, before.id, step, made.kind, after.length,
                made.data, back, change_bytes, author, wall_us,
            )
        )  # fmt: skip
        self.history.trim(keep_versions, max(KEEP_BYTES, before.length, after.length))
        if made.kind != _DELTA:
            return self.whole()
        return Change(
            self.name, Kind.DELTA, after.version, before.id, after.id, made.data, after.length
        )

    def whole(self) -> Change:
        """The present version for those who have any older one, or none."""
        if self._whole is None:
            content = self.present.content
            if content is None:
                self._whole = self._change(Kind.DELETE, b"")
            elif len(content) > WHOLE_BYTES_MAX:
                return self.to_fetch()
            else:
                self._whole = self._change(Kind.WHOLE, content.bytes())
        return self._whole

    def to_fetch(self) -> Change:
        """The present version by its digest: the value is read by those who lack it."""
        assert self.present.content is not None
        return self._change(Kind.FETCH, self.present.content.digest)

    def _change(self, kind: Kind, data: bytes) -> Change:
        present = self.present
        return Change(self.name, kind, present.version, self.base, present.id, data, present.length)

    def since(self, step: int, incremental: bool) -> list[tuple[int, Change]]:
        """What somebody needs who has the version of that step: with the step of each. Not
        `incremental`: who may have an older one."""
        behind = self.history.behind(step) if incremental else None
        if not behind or any(past.kind != Kind.DELTA for past in behind):
            return [(self.step, self.whole())]
        if sum(len(past.forward) for past in behind) > self.present.length:
            return [(self.step, self.whole())]
        return [(past.step, past.change(self.name)) for past in reversed(behind)]

    def made_at(self, step: int) -> int:
        """The version that a step made; 0: none that is kept."""
        if step == self.step:
            return self.present.version
        behind = self.history.behind(step - 1) or []
        return behind[-1].version if behind and behind[-1].step == step else 0

    def at(self, version: int) -> Past:
        """A version that is kept; of the present one as much as is known."""
        past = self.history.find(version)
        if past is not None:
            return past
        present = self.present
        if version == present.version:
            return Past(
                version, present.id, self.base, self.step, Kind.WHOLE, present.length, b"",
                None, present.length, self.author, self.wall_us,
            )  # fmt: skip
        kept = self.history.versions
        oldest = kept[0].version if kept else present.version
        raise NotKeptError(
            f"version {version} of {self.name} is not kept: {oldest} to {present.version} are"
        )

    def content_at(self, version: int) -> Content | None:
        """The content at a version that is kept; None if that is a deletion."""
        self.at(version)
        return self.history.content(self.present.content, version)
