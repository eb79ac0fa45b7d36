"""Paths into structured configurations: `database.pool.size`, `servers[0].host`, `"a.b".c`.

A path is a chain of steps. A key step is bare, or a JSON string in quotes when the key contains
dots, brackets, quotes, `=`, spaces or nothing at all. An index step counts from 0, or from the
end: `[-1]` is the last element. `[-]` is the place after the last element: setting it appends.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TypeAlias

from swell.errors import EditRefusedError, InvalidPathError, PathNotFoundError

STEPS_MAX = 256
"""As deep as a document may nest."""

PATH_CHARACTERS_MAX = 4096


class End(Enum):
    """The step `[-]`: after the last element of a list."""

    END = "-"


END = End.END
Step: TypeAlias = "str | int | End"
Steps: TypeAlias = "tuple[Step, ...]"

_BARE = r"""[^.\[\]"=\s\x00-\x1f\x7f]+"""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_step = re.compile(
    rf"(?P<dot>\.)?(?:(?P<bare>{_BARE})|(?P<quoted>{_QUOTED}))|\[(?P<index>-?[0-9]{{1,9}}|-)\]"
)
_bare = re.compile(_BARE).fullmatch


def parse_path(path: str) -> Steps:
    """The steps of a path; `InvalidPathError` says where it is not one."""
    if not path:
        raise InvalidPathError("the path is empty: write it like database.pool.size")
    if len(path) > PATH_CHARACTERS_MAX:
        raise InvalidPathError(
            f"the path has {len(path)} characters, allowed are {PATH_CHARACTERS_MAX}"
        )
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _step.match(path, position)
        is_key = match is not None and match["index"] is None
        if match is None or (is_key and (match["dot"] is None) is (position > 0)):
            raise InvalidPathError(
                f"the path {path!r} is wrong at character {position + 1}: write it like"
                ' servers[0].host and put quotes around odd keys, as in "a.b".c'
            )
        steps.append(_step_of(path, match))
        position = match.end()
    if len(steps) > STEPS_MAX:
        raise InvalidPathError(f"the path has {len(steps)} steps, allowed are {STEPS_MAX}")
    return tuple(steps)


def _step_of(path: str, match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return END if match["index"] == "-" else int(match["index"])
    if match["bare"] is not None:
        return match["bare"]
    try:
        key = json.loads(match["quoted"])
        key.encode()
    except ValueError:
        raise InvalidPathError(
            f"the key {match['quoted']} in the path {path!r} is not a JSON string: mind the escapes"
        ) from None
    assert isinstance(key, str)
    return key


def show_path(steps: Steps) -> str:
    """The path of these steps as a user would write it."""
    shown = ""
    for step in steps:
        if isinstance(step, str):
            key = step if _bare(step) else json.dumps(step, ensure_ascii=False)
            shown += f".{key}" if shown else key
        else:
            shown += f"[{step.value if isinstance(step, End) else step}]"
    return shown


def existing(steps: Steps) -> Steps:
    """The same steps; `InvalidPathError` if they name a place where nothing can be yet."""
    if END in steps:
        raise InvalidPathError(
            f"the path {show_path(steps)} contains [-], which only appends: [-1] is the last one"
        )
    return steps


def not_found(steps: Steps, depth: int) -> PathNotFoundError:
    """What to raise when step `depth` of the path names nothing."""
    there = f"{show_path(steps[:depth])} has" if depth else "the document has"
    return PathNotFoundError(
        f"there is no {show_path(steps)}: {there} no {show_path(steps[depth : depth + 1])}"
    )


def not_a(kind: str, steps: Steps, depth: int) -> EditRefusedError:
    """What to raise when a step needs a mapping or a list and there is something else."""
    if not depth:
        return EditRefusedError(
            f"the document is not {kind}, so {show_path(steps)} cannot be in it: put it anew"
        )
    there = show_path(steps[:depth])
    return EditRefusedError(
        f"{there} is not {kind}, so {show_path(steps)} cannot be in it: set {there} as a whole"
    )


def no_element(steps: Steps, depth: int) -> PathNotFoundError:
    """What to raise when an index to be set is outside its list."""
    there = show_path(steps[:depth])
    return PathNotFoundError(
        f"there is no element {show_path(steps[: depth + 1])}: {there}[-] appends one"
    )


def wanted(steps: Steps, depth: int) -> str:
    """What a step needs to find."""
    return "a mapping" if isinstance(steps[depth], str) else "a list"
