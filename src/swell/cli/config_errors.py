"""Errors of `swell config` with what helps on: the line that is wrong, how to see a difference.

The sentence is the error's; what is shown below it is added as notes, which `swell` prints.
"""

from __future__ import annotations

from swell.cli.config_arguments import Place, Value
from swell.cli.config_words import id_words, readable
from swell.config.formats.format import format_of, validate
from swell.errors import InvalidContentError, StaleVersionError, SwellError

NOTHING_CHANGED = "nothing was changed"

EXCERPT_CHARACTERS = 100
"""Of a long line, around the place that is wrong."""


class NotThereError(SwellError):
    """A configuration that does not exist."""


class InvalidValueError(SwellError):
    """A value that is not what its name promises; a note shows the place."""


class ConflictError(SwellError):
    """A configuration is not at the version that was expected."""


def check_value(place: Place, value: Value) -> None:
    """Raise an error that shows the place, unless the value is of the format its name tells."""
    format_ = format_of(place.name)
    try:
        validate(format_, value.data)
    except InvalidContentError as error:
        where = f" (from {value.file})" if value.file is not None else ""
        shown = InvalidValueError(
            f"{place}{where} is not valid {format_.value}, line {error.line}, column "
            f"{error.column}: {error.problem}; {NOTHING_CHANGED}"
        )
        shown.add_note(excerpt(value.data, error.line, error.column))
        raise shown from None


def excerpt(data: bytes, line: int, column: int) -> str:
    """The line, and below it a caret at the column."""
    text = _line(data, line).decode(errors="replace").rstrip("\r")
    start = max(0, column - 1 - EXCERPT_CHARACTERS // 2)
    part = text[start : start + EXCERPT_CHARACTERS]
    shown = "".join(sign if sign.isprintable() else " " for sign in part)
    before, after = "…" if start else "", "…" if start + len(part) < len(text) else ""
    margin, caret = f"{line} | ", len(before) + column - 1 - start
    return f"{margin}{before}{shown}{after}\n{' ' * len(margin)}{' ' * caret}^"


def _line(data: bytes, number: int) -> bytes:
    start = 0
    for _ in range(number - 1):
        start = data.find(b"\n", start) + 1 or len(data)
    end = data.find(b"\n", start)
    return data[start : end if end >= 0 else len(data)]


def conflict_error(application: str, error: StaleVersionError, expected: int | None) -> SwellError:
    """What is there instead of what was expected, and how to see the difference. `expected` None:
    nothing was to be there."""
    place = Place(application, error.name)
    if not error.version:
        present = "does not exist"
    elif error.deleted:
        present = f"was deleted with version {error.version}"
    elif expected is None:
        present = f"exists already, at version {error.version} ({id_words(error.id)})"
    else:
        present = f"is at version {error.version} ({id_words(error.id)})"
    wanted = f", not at version {expected}" if expected is not None else ""
    shown = ConflictError(f"{readable(str(place))} {present}{wanted}: {NOTHING_CHANGED}")
    if error.version and expected is not None:
        shown.add_note(f"see what changed: swell config diff {place} {expected} {error.version}")
    elif error.version and not error.deleted:
        shown.add_note(f"see what is there: swell config get {place}")
    return shown
