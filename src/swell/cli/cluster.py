"""`swell cluster`: make a cluster's certificate authority and the certificates it signs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from swell.errors import ConfigurationError
from swell.runtime.security import (
    TlsMaterial,
    authority_expiry,
    create_cluster,
    issue,
    load_cluster,
)
from swell.world import Role

app = typer.Typer(no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    directory: Annotated[Path, typer.Argument(help="New directory of the authority. Guard it.")],
    name: Annotated[str, typer.Option(help="What people call the cluster.")],
    as_json: JsonOption = False,
) -> None:
    """Make a new cluster: its id and its certificate authority."""
    cluster = create_cluster(directory, name)
    _print({"id": cluster.id, "name": cluster.name, "directory": str(directory)}, as_json)


@app.command(name="issue")
def issue_certificate(
    node: Annotated[str, typer.Argument(metavar="NAME", help="Name of its holder.")],
    directory: Annotated[Path, typer.Option("--dir", help="Directory of the authority.")],
    out: Annotated[Path, typer.Option(help="Where the key and certificate go.")],
    admin: Annotated[
        bool, typer.Option("--admin", help="For a person or tool that may do everything.")
    ] = False,
    client: Annotated[
        bool, typer.Option("--client", help="For an application: it needs a token as well.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the key and certificate of one node, administrator or client."""
    if admin and client:
        raise ConfigurationError("a certificate has one role: --admin or --client")
    role = Role.ADMIN if admin else Role.CLIENT if client else Role.NODE
    issue(directory, node, out, role)
    material = TlsMaterial(out)
    _print(
        {
            material.role.value: material.node,
            "cluster": material.cluster,
            "expires": material.expires.date().isoformat(),
            "directory": str(out),
        },
        as_json,
    )


@app.command()
def show(
    directory: Annotated[Path, typer.Argument(help="Directory of the authority.")],
    as_json: JsonOption = False,
) -> None:
    """Show which cluster a directory holds."""
    cluster = load_cluster(directory)
    _print(
        {
            "id": cluster.id,
            "name": cluster.name,
            "created": cluster.created,
            "expires": authority_expiry(directory).date().isoformat(),
        },
        as_json,
    )


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    table.add_column(style="cyan")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(key, str(value))
    Console().print(table)
