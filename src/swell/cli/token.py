"""`swell token`: what applications may do, and until when.

The token is drawn here: the cluster gets its id and the hash of its secret. It goes to standard
output, once and alone; everything else about it to standard error.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swell.access.grants import GRANTS_MAX, Right, merge, parse_grant, place
from swell.access.token import ENTROPY_BYTES, LIFE_S_MAX, draw, parse
from swell.cli.tables import print_json
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
)
from swell.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True)

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ttl = re.compile(r"([0-9]{1,9})([smhd])").fullmatch

STATE_COLOURS = {"valid": "green", "expired": "yellow", "revoked": "red"}


@app.command()
def create(
    read: Annotated[
        list[str] | None,
        typer.Option(
            metavar="APP[/PREFIX]",
            help="Allow to read this application, or only names that begin with PREFIX. APP may "
            "end in *; @dht is the DHT. May be repeated.",
        ),
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option(metavar="APP[/PREFIX]", help="Allow to write.")
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(metavar="APP[/PREFIX]", help="Allow to pass updates on to siblings."),
    ] = None,
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="How long it lives: 90s, 30m, 12h or 30d.")
    ] = "30d",
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Make a token and print it, once: nobody can tell it again."""
    wanted = [(Right.READ, read), (Right.WRITE, write), (Right.RELAY, relay)]
    grants = merge(parse_grant(text, right) for right, texts in wanted for text in texts or ())
    if not 1 <= len(grants) <= GRANTS_MAX:
        raise ConfigurationError(
            f"a token allows 1 to {GRANTS_MAX} things: use --read, --write or --relay"
        )
    token = draw(os.urandom(ENTROPY_BYTES))
    made = find_target(dir, connect, cluster).ask(
        "token-create",
        id=token.id,
        hash=token.hash.hex(),
        grants=[[grant.application, grant.prefix, [*grant.rights]] for grant in grants],
        ttl_s=ttl_s(ttl),
        label=label,
    )
    if json:
        print_json({"token": token.text, **made})
        return
    print(token.text)
    until = _time(made["expires_s"])
    print(f"valid until {until}; set SWELL_TOKEN to it. It is not shown again", file=sys.stderr)


@app.command(name="list")
def show(
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show all tokens, without their secrets; those that expired over a week ago may be gone."""
    result = find_target(dir, connect, cluster).ask("token-list")
    if json:
        print_json(result)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "state", "expires", "label", "allows"):
        table.add_column(column, overflow="fold")
    for token in result["tokens"]:
        state = f"[{STATE_COLOURS[token['state']]}]{token['state']}[/]"
        expires, allows = _time(token["expires_s"]), escape(_allows(token))
        table.add_row(token["id"], state, expires, escape(token["label"]), allows)
    Console().print(table)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token, as in the list.")],
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """End a token now: whoever uses it is told so and cut off."""
    if "_" in id:
        id = parse(id).id  # a whole token; its secret stays here
    result = find_target(dir, connect, cluster).ask("token-revoke", id=id)
    if json:
        print_json(result)
    else:
        print(f"revoked {result['id']}")


def ttl_s(text: str) -> int:
    """Seconds of a time like 30d."""
    match = _ttl(text)
    seconds = int(match[1]) * UNITS_S[match[2]] if match is not None else 0
    if not 0 < seconds <= LIFE_S_MAX:
        raise ConfigurationError(
            f"--ttl {text} is not valid: write a number and s, m, h or d, as in 30d; at most "
            f"{LIFE_S_MAX // UNITS_S['d']}d"
        )
    return seconds


def _time(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _allows(token: dict[str, Any]) -> str:
    return "; ".join(
        f"{', '.join(grant['rights'])} {place(grant['application'], grant['prefix'])}"
        for grant in token["grants"]
    )
