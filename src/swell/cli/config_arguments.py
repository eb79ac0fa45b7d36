"""What the commands of `swell config` take: a place, a deadline, an author, one or more values.

A place is written `APP/NAME`; the application has no slash, the configuration may have more of
them. `APP/` and `APP/FOLDER/` are places for several values, as for `cp`: every source goes there
under its own name.
"""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from swell.config.names import check_application, check_configuration
from swell.config.operations import EDITS_MAX
from swell.errors import ConfigurationError

UNITS_S = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
DEADLINE = "10s"
WAIT_DEADLINE = "30s"
AUTHOR_CHARACTERS_MAX = 255

_time = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|)").fullmatch

PlaceArgument = Annotated[str, typer.Argument(metavar="APP/NAME", help="Which configuration.")]
AuthorOption = Annotated[
    str | None, typer.Option("--author", metavar="WHO", help="Who did it; else your user name.")
]
IfOption = Annotated[
    int | None,
    typer.Option("--if", metavar="VERSION", min=1, help="Only if this is the present version."),
]
DeadlineOption = Annotated[
    str, typer.Option("--deadline", metavar="TIME", help="Give up after this time: 500ms, 30s, 2m.")
]


class Place(NamedTuple):
    """One configuration of one application."""

    application: str
    name: str

    def __str__(self) -> str:
        return f"{self.application}/{self.name}"


def parse_place(text: str) -> Place:
    """The configuration that APP/NAME names."""
    application, slash, name = text.partition("/")
    if not slash or not name:
        raise ConfigurationError(
            f"{text!r} does not name a configuration: write APP/NAME, as in shop/limits.json"
        )
    return Place(check_application(application, reserved=True), _name(name))


def parse_prefix(text: str) -> Place:
    """An application and the beginning of names, maybe empty: APP or APP/PREFIX."""
    application, _, prefix = text.partition("/")
    return Place(check_application(application, reserved=True), prefix)


def parse_application(text: str) -> str:
    """An application alone; with a slash behind it, as in places, it is the same."""
    application, _, rest = text.partition("/")
    if rest:
        raise ConfigurationError(f"{text!r} is not an application: write only {application}")
    return check_application(application, reserved=True)


def parse_time_s(text: str) -> float:
    """Seconds of a time like 500ms, 30s or 2m; a bare number is in seconds."""
    match = _time(text.strip())
    seconds = float(match[1]) * UNITS_S[match[2]] if match is not None else 0.0
    if seconds <= 0.0:
        raise ConfigurationError(
            f"--deadline {text} is not valid: write a number and ms, s, m or h, as in 30s"
        )
    return seconds


def find_author(author: str | None) -> str:
    """Who does it: as given, else the user's name, if there is one."""
    if author is None:
        try:
            author = getpass.getuser()
        except (KeyError, OSError):  # a container may run as a user without a name
            author = ""
    if len(author) > AUTHOR_CHARACTERS_MAX:
        raise ConfigurationError(
            f"--author has {len(author)} characters, allowed are {AUTHOR_CHARACTERS_MAX}"
        )
    return author


def parse_assignments(words: Sequence[str]) -> list[tuple[str, str]]:
    """PATH=VALUE …; a key in quotes may contain `=`."""
    return [_assignment(word) for word in words]


def _assignment(word: str) -> tuple[str, str]:
    quoted = False
    for at, sign in enumerate(word):
        if sign == '"' and (at == 0 or word[at - 1] != "\\"):
            quoted = not quoted
        elif sign == "=" and not quoted and at:
            return word[:at], word[at + 1 :]
    raise ConfigurationError(
        f"{word!r} sets nothing: write PATH=VALUE, as in database.pool.size=20"
    )


# Values.


class Value(NamedTuple):
    """Bytes, and the file that they are from, if any."""

    data: bytes
    file: Path | None = None


def is_folder(place: str) -> bool:
    """Whether a place takes several values: APP/ or APP/FOLDER/."""
    return place.endswith("/")


def one_value(sources: Sequence[str], text: str | None) -> Value:
    """The value of one configuration: FILE, - for standard input, or a text."""
    if len(sources) > 1:
        raise ConfigurationError(
            "one configuration takes one value: for several write APP/ and then their files"
        )
    if text is not None:
        if sources:
            raise ConfigurationError("give one value: FILE, - or --text")
        return Value(text.encode(errors="surrogateescape"))
    if not sources and sys.stdin.isatty():
        raise ConfigurationError("give a value: FILE, - for standard input, or --text")
    if not sources or sources[0] == "-":
        return Value(sys.stdin.buffer.read())
    file = Path(sources[0])
    return Value(read_file(file), file)


def several_values(place: str, sources: Sequence[str]) -> tuple[str, dict[str, Value]]:
    """The application and, by name, the values for APP/ or APP/FOLDER/: files under their names,
    NAME=FILE, and of directories every file below them."""
    application, _, folder = place.partition("/")
    check_application(application)
    files: dict[str, Path] = {}
    for source in sources:
        for name, file in _files_of(source).items():
            if files.setdefault(_name(folder + name), file) != file:
                raise ConfigurationError(f"{folder}{name} has two values: give one")
    if not files:
        raise ConfigurationError(f"there is no file to put into {place}: give files or a directory")
    if len(files) > EDITS_MAX:
        raise ConfigurationError(
            f"{len(files)} files are too many for one step, allowed are {EDITS_MAX}: divide them"
        )
    return application, {name: Value(read_file(file), file) for name, file in files.items()}


def _files_of(source: str) -> Mapping[str, Path]:
    path = Path(source)
    if path.is_dir():
        below = sorted(file for file in path.rglob("*") if file.is_file())
        return {file.relative_to(path).as_posix(): file for file in below}
    name, equals, file = source.partition("=")
    if equals and not path.exists():
        return {name: Path(file)}
    return {path.name: path}


def read_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None


def _name(name: str) -> str:
    return check_configuration(name, reserved=True)
