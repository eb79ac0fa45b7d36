"""`swell config diff`: what differs between two versions, or a version and a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from swell.cli.config_arguments import (
    DEADLINE,
    DeadlineOption,
    Place,
    PlaceArgument,
    parse_place,
    parse_time_s,
    read_file,
)
from swell.cli.config_errors import NotThereError
from swell.cli.config_publishing import run
from swell.cli.config_tables import diff_line
from swell.cli.tables import print_json, write
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
)
from swell.client.configs import Configs
from swell.client.connection import Connection
from swell.config.unified import unified
from swell.errors import ConfigurationError

VersionArgument = Annotated[int | None, typer.Argument(min=1, help="As in the history.")]


def diff(
    place: PlaceArgument,
    old: VersionArgument = None,
    new: VersionArgument = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="F", help="Compare with this file.")
    ] = None,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the last change, or what differs between two versions.

    From OLD to NEW; without NEW to the newest version, or to a file.

    Example: swell config diff shop/limits.json 3
    """
    one, target = parse_place(place), find_target(dir, connect, cluster)
    if file is not None and new is not None:
        raise ConfigurationError("compare with one thing: NEW or --file")
    local = read_file(file) if file is not None else None

    async def what(client: Connection) -> tuple[list[dict[str, Any]], list[bytes]]:
        configs = client.configs(one.application)
        newest = await _side(configs, one, new or 0)
        if local is not None:
            first = newest if old is None else await _side(configs, one, old)
            return [first[0], {"file": str(file)}], [first[1], local]
        before = old if old is not None else newest[0]["version"] - 1
        first = await _side(configs, one, before) if before else ({"version": 0, "id": ""}, b"")
        return [first[0], newest[0]], [first[1], newest[1]]

    sides, values = run(target, parse_time_s(deadline), what)
    labels = [side.get("file") or f"{one} version {side['version']}" for side in sides]
    lines = unified(values[0], values[1], labels[0], labels[1])
    if json:
        facts = {"application": one.application, "name": one.name, "old": sides[0], "new": sides[1]}
        print_json({**facts, "equal": values[0] == values[1], "lines": [*lines]})
    else:
        print_diff(lines)


async def _side(configs: Configs, place: Place, version: int) -> tuple[dict[str, Any], bytes]:
    """A version and its bytes; a deletion counts as empty."""
    value = await configs.get(place.name, version)
    if value is None:
        raise NotThereError(f"there is no {place}")
    data = b"" if value.deleted else await value.bytes()
    return {"version": value.version, "id": value.id.hex()}, data


def print_diff(lines: Iterable[str]) -> None:
    """In colour on a terminal; elsewhere as it is, so that `patch` can read it."""
    console = Console(highlight=False)
    for line in lines:
        if console.is_terminal:
            console.print(diff_line(line), soft_wrap=True)
        else:
            write(f"{line}\n".encode(errors="surrogateescape"))
