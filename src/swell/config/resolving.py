"""Turning what clients want into what every replica can apply: diffs, path edits, validation.

Pure functions of the edit and the version it meets, for `World.offload`; short values are resolved
in place. Only the primary does this, once per command: replicas never see a library's opinion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swell.config import lines
from swell.config import splices as deltas
from swell.config.application import conflict
from swell.config.configuration import Next, Present, advance
from swell.config.content import Content
from swell.config.diffing import delta
from swell.config.edits import (
    WHOLE_BYTES_MAX,
    Delete,
    Edit,
    Lines,
    Path,
    Resolved,
    Rollback,
    Splices,
    Uploaded,
    Way,
    Whole,
)
from swell.config.formats.format import (
    Format,
    format_of,
    set_path,
    stays_valid,
    unset_path,
    validate,
)
from swell.config.splices import Delta
from swell.errors import InvalidContentError, SwellError, TooLargeError

_EMPTY = {Format.JSON: b"{}\n"}
"""What a path edit begins with where nothing exists; elsewhere empty bytes are a document."""


class UnresolvableError(SwellError):
    """An edit that makes no sense; the sentence names the configuration."""


class Task(NamedTuple):
    """An edit and what it meets. `source`: the value that was uploaded or is gone back to."""

    application: str
    edit: Edit
    present: Present
    value_bytes_max: int
    source: Content | None = None

    @property
    def weight(self) -> int:
        """Bytes that have to be looked at."""
        edit, present = self.edit, self.present
        if isinstance(edit, Delete):
            return 0
        if isinstance(edit, Lines):
            return sum([len(line.text or "") for line in edit.lines])
        format_ = format_of(edit.name)
        if isinstance(edit, Splices) and format_ is Format.BYTES:
            return len(edit.delta)
        given = len(edit.data) if isinstance(edit, Whole) else 0
        source = len(self.source) if self.source is not None else 0
        return given + source + present.length


class Ready(NamedTuple):
    """What goes into the log, and the version that it will make."""

    edit: Resolved
    made: Next


def resolve(tasks: Sequence[Task]) -> list[Ready]:
    """All edits of one step; `SwellError` with a sentence if one of them is to be refused."""
    return [_resolved(task) for task in tasks]


def _resolved(task: Task) -> Ready:
    edit, present = task.edit, task.present
    condition = edit.base if isinstance(edit, Splices) else edit.condition
    for needed in (edit.condition, condition):
        if not present.allows(needed):
            raise conflict(task.application, edit.name, present)
    try:
        ready = _ready(task, condition)
        after = ready.made.after
        if after.length > task.value_bytes_max:
            raise TooLargeError(
                f"{after.length} bytes, allowed are {task.value_bytes_max}: divide it"
            )
        if after is not present:
            _validate(edit, ready.made)
    except SwellError as error:
        raise UnresolvableError(
            f"{edit.name} of {task.application} {present.words()}; the change is refused: {error}"
        ) from None
    return ready


def _validate(edit: Edit, made: Next) -> None:
    """What is there already is valid: nothing becomes a version that is not."""
    format_, content, base = format_of(edit.name), made.after.content, made.before.content
    if format_ is Format.BYTES or content is None:
        return
    if base is not None and made.splices and stays_valid(format_, base.bytes(), made.splices):
        return
    try:
        validate(format_, content.bytes())
    except InvalidContentError as error:
        raise UnresolvableError(f"not valid {format_.value}, {error}") from None


def _ready(task: Task, condition: bytes | None) -> Ready:
    edit, present = task.edit, task.present
    match edit:
        case Whole():
            if len(edit.data) > WHOLE_BYTES_MAX:
                raise TooLargeError(
                    f"{len(edit.data)} bytes, at once allowed are {WHOLE_BYTES_MAX}: stage it"
                )
            return _whole(task, edit.data, condition)
        case Uploaded():
            assert task.source is not None
            way = Way.UPLOADED
            if present.content is not None and present.content.digest == edit.digest:
                way = Way.NOTHING
            resolved = Resolved(
                edit.name, way, present.id, edit.upload, condition, edit.length, edit.digest
            )
            return Ready(resolved, advance(present, resolved, task.source))
        case Splices():
            return _spliced(task, deltas.decode(edit.delta), condition, edit.delta)
        case Path():
            return _path(task, edit, condition)
        case Lines():
            return _listed(task, edit, condition)
        case Rollback():
            if task.source is not None:
                return _rolled_back(task, task.source, condition)
    return _plain(task, Way.DELETE, b"", condition)


def _plain(task: Task, way: Way, data: bytes, condition: bytes | None) -> Ready:
    resolved = Resolved(task.edit.name, way, task.present.id, data, condition)
    return Ready(resolved, advance(task.present, resolved))


def _spliced(task: Task, splices: Delta, condition: bytes | None, encoded: bytes = b"") -> Ready:
    if not splices:
        return _plain(task, Way.NOTHING, b"", condition)
    data = encoded or deltas.encode(splices)
    resolved = Resolved(task.edit.name, Way.DELTA, task.present.id, data, condition)
    return Ready(resolved, advance(task.present, resolved, splices=splices))


def _whole(task: Task, data: bytes, condition: bytes | None) -> Ready:
    """As a delta, if that is shorter."""
    content = task.present.content
    if content is not None:
        splices = delta(content.bytes(), data)
        if splices is not None:
            return _spliced(task, splices, condition)
    return _plain(task, Way.WHOLE, data, condition)


def _path(task: Task, edit: Path, condition: bytes | None) -> Ready:
    format_, content = format_of(edit.name), task.present.content
    old = _EMPTY.get(format_, b"") if content is None else content.bytes()
    if edit.text is None:
        splices = unset_path(format_, old, edit.path)
    else:
        splices = set_path(format_, old, edit.path, edit.text, edit.as_text)
    if content is None:
        return _whole(task, deltas.apply_to(old, splices), condition)
    return _spliced(task, splices, condition)


def _listed(task: Task, edit: Lines, condition: bytes | None) -> Ready:
    content = task.present.content
    if content is not None:
        return _spliced(task, lines.resolve(content, edit.lines), condition)
    data = b"".join([splice.data for splice in lines.resolve(Content.of(b""), edit.lines)])
    return _plain(task, Way.WHOLE if data else Way.NOTHING, data, condition)


def _rolled_back(task: Task, source: Content, condition: bytes | None) -> Ready:
    data, content = source.bytes(), task.present.content
    if len(data) <= WHOLE_BYTES_MAX:
        return _whole(task, data, condition)
    splices = delta(content.bytes(), data) if content is not None else None
    if splices is None:
        raise TooLargeError(
            f"that version has {len(data)} bytes and too little in common with the present one:"
            " read it and publish it as an upload"
        )
    return _spliced(task, splices, condition)
