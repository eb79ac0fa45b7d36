"""Scenarios are text files: commands, a rule, and the whole trace that they must cause.

`SWELL_REWRITE=1` writes the traces anew; review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

RULE = "---\n"


def scripts(prefix: str) -> list[Path]:
    """The scenarios of one protocol."""
    return sorted(Path(__file__).parent.glob(f"{prefix}_*.txt"))


def commands_of(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """(line, verb, words) of each command; lines that begin with # are remarks."""
    for line in text.splitlines():
        verb, *words = line.split() or ["#"]
        if not verb.startswith("#"):
            yield line, verb, words


def check(path: Path, play: Callable[[str], str]) -> None:
    """Play the commands; the trace must be the one in the file."""
    commands, _, expected = path.read_text().partition(RULE)
    trace = play(commands)
    if os.environ.get("SWELL_REWRITE"):
        path.write_text(commands + RULE + trace)
    else:
        assert trace == expected
