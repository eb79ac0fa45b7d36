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
    UnresolvableError,
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


_SLOW = (Format.YAML, Format.TOML)

FAST_BYTES_MAX = 64 * 1024
SLOW_BYTES_MAX = 4 * 1024
DIFFED_BYTES_MAX = 16 * 1024
"""What may be resolved on the loop takes some ms at most: a value that is only checked, one whose
format is read by a library written in Python (1.5 ms per KiB), two values that are compared."""


class Task(NamedTuple):
    """What is to be done to one configuration, and what it meets. Several edits: all of paths.
    `source`: the value that was uploaded or is gone back to."""

    application: str
    edits: Sequence[Edit]
    present: Present
    value_bytes_max: int
    source: Content | None = None

    @property
    def name(self) -> str:
        return self.edits[0].name

    @property
    def share(self) -> float:
        """Of what may be done on the loop at a time, by the bytes that are looked at."""
        edit, length = self.edits[0], self.present.length
        format_ = format_of(edit.name)
        whole_bytes_max = SLOW_BYTES_MAX if format_ in _SLOW else FAST_BYTES_MAX
        match edit:
            case Delete():
                return 0.0
            case Lines():
                size = sum([len(line.text or "") for line in edit.lines])
                return size / FAST_BYTES_MAX
            case Splices():
                size = 0 if format_ is Format.BYTES else length
                return (size + len(edit.delta)) / whole_bytes_max
            case Path():
                return len(self.edits) * length / whole_bytes_max
        new = len(edit.data) if isinstance(edit, Whole) else len(self.source or b"")
        differs = 0 if isinstance(edit, Uploaded) or not length else length + new
        return new / whole_bytes_max + differs / (2 * DIFFED_BYTES_MAX)


def check_together(edits: Sequence[Edit]) -> None:
    """Raise unless they make one step: a configuration is changed once, but for its keys."""
    seen: dict[str, Edit] = {}
    for edit in edits:
        other = seen.setdefault(edit.name, edit)
        if other is not edit and not (isinstance(other, Path) and isinstance(edit, Path)):
            raise UnresolvableError(
                f"a step changes {edit.name} twice: join the two changes, or make two steps"
            )


class Ready(NamedTuple):
    """What goes into the log, and the version that it will make."""

    edit: Resolved
    made: Next


def resolve(tasks: Sequence[Task]) -> list[Ready]:
    """One step; `SwellError` with a sentence if something of it is to be refused."""
    return [_resolved(task) for task in tasks]


def _resolved(task: Task) -> Ready:
    present, condition = task.present, None
    for edit in task.edits:
        base = edit.base if isinstance(edit, Splices) else None
        for needed in (edit.condition, base):
            if not present.allows(needed):
                raise conflict(task.application, task.name, present)
            condition = needed or condition
    try:
        ready = _ready(task, condition)
        after = ready.made.after
        if after.length > task.value_bytes_max:
            raise TooLargeError(
                f"{after.length} bytes, allowed are {task.value_bytes_max}: divide it"
            )
        if after is not present:
            _validate(format_of(task.name), ready.made)
    except SwellError as error:
        raise UnresolvableError(
            f"{task.name} of {task.application} {present.words()}; the change is refused: {error}"
        ) from None
    return ready


def _validate(format_: Format, made: Next) -> None:
    """What is there already is valid: nothing becomes a version that is not."""
    content, base = made.after.content, made.before.content
    if format_ is Format.BYTES or content is None:
        return
    if base is not None and made.splices and stays_valid(format_, base.bytes(), made.splices):
        return
    try:
        validate(format_, content.bytes())
    except InvalidContentError as error:
        raise UnresolvableError(f"not valid {format_.value}, {error}") from None


def _ready(task: Task, condition: bytes | None) -> Ready:
    edit, present = task.edits[0], task.present
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
            return _paths(task, condition)
        case Lines():
            return _listed(task, edit, condition)
        case Rollback():
            if task.source is not None:
                return _rolled_back(task, task.source, condition)
    return _plain(task, Way.DELETE, b"", condition)


def _plain(task: Task, way: Way, data: bytes, condition: bytes | None) -> Ready:
    resolved = Resolved(task.name, way, task.present.id, data, condition)
    return Ready(resolved, advance(task.present, resolved))


def _spliced(task: Task, splices: Delta, condition: bytes | None, encoded: bytes = b"") -> Ready:
    if not splices:
        return _plain(task, Way.NOTHING, b"", condition)
    data = encoded or deltas.encode(splices)
    resolved = Resolved(task.name, Way.DELTA, task.present.id, data, condition)
    return Ready(resolved, advance(task.present, resolved, splices=splices))


def _whole(task: Task, data: bytes, condition: bytes | None) -> Ready:
    """As a delta, if that is shorter."""
    content = task.present.content
    if content is not None:
        splices = delta(content.bytes(), data)
        if splices is not None:
            return _spliced(task, splices, condition)
    return _plain(task, Way.WHOLE, data, condition)


def _paths(task: Task, condition: bytes | None) -> Ready:
    """One edit after the other, and one delta for all of them."""
    format_, content = format_of(task.name), task.present.content
    old = data = _EMPTY.get(format_, b"") if content is None else content.bytes()
    splices: Delta = ()
    for edit in task.edits:
        assert isinstance(edit, Path)
        if edit.text is None:
            following = unset_path(format_, data, edit.path)
        else:
            following = set_path(format_, data, edit.path, edit.text, edit.as_text)
        data = deltas.apply_to(data, following)
        splices = deltas.compose(splices, following) if splices else following
    if content is None:
        return _whole(task, data, condition)
    return _spliced(task, splices if data != old else (), condition)


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
