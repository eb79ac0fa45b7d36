"""`swell directory`: who votes, who leads; add a voter, remove one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from swell.cli.tables import print_json, voters_table
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
    parse_address,
)

DEADLINE_S = 10.0
CHANGE_DEADLINE_S = 30.0

app = typer.Typer()

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.")]


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the voters of the directory, or change them one at a time."""
    if context.invoked_subcommand is None:
        target = find_target(dir, connect, cluster)
        _print(target.ask("directory", DEADLINE_S), json)


@app.command()
def add(
    name: NameArgument,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it listens.")],
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Make a node a voter. It must run with --directory naming itself and the other voters."""
    host, port = parse_address(address)
    _change(dir, connect, cluster, json, change="add", name=name, host=host, port=port)


@app.command()
def remove(
    name: NameArgument,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Let a voter vote no more. Its node goes on as a node."""
    _change(dir, connect, cluster, json, change="remove", name=name)


def _change(dir: Path, connect: str, cluster: str, json: bool, **arguments: Any) -> None:
    target = find_target(dir, connect, cluster)
    _print(target.ask("voters", CHANGE_DEADLINE_S, **arguments), json)


def _print(result: dict[str, Any], json: bool) -> None:
    if json:
        print_json(result)
    else:
        Console().print(voters_table(result))
